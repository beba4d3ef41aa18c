//! A store that is filled, cut short and asked.

use super::*;
use crate::reload::snapshot::Area;

fn folders() -> Folders {
    Folders { plugins: vec!["plugins".into()], profiles: vec!["profiles".into()] }
}

fn snapshot(texts: &[(&str, &str)]) -> Snapshot {
    let name = |path: &str| FileName { area: Area::Profiles, folder: 0, path: path.to_owned() };
    let files = texts.iter().map(|(path, text)| (name(path), SnapshotFile::new(text.as_bytes())));
    Snapshot::from_files(folders(), files.collect())
}

fn id(n: usize) -> GenerationId {
    GenerationId::of(&n.to_string())
}

#[test]
fn what_was_kept_comes_back_newest_first() {
    let dir = tempfile::tempdir().unwrap();
    let store = GenerationStore::of(dir.path(), &folders());
    assert_eq!(store.list().unwrap(), [], "an empty store is no error");
    for n in 1..=5 {
        let text = n.to_string();
        store
            .keep(id(n), &snapshot(&[("same.toml", "same"), ("a.toml", &text)]), true, n as u64)
            .unwrap()
            .sync(3)
            .unwrap();
    }
    let listed = store.list().unwrap();
    assert!(listed.iter().all(|stored| stored.is_good));
    assert_eq!(
        listed.iter().map(|stored| (stored.number, stored.id)).collect::<Vec<_>>(),
        [(5, id(5)), (4, id(4)), (3, id(3))]
    );
    assert_eq!(files_of(&store.blobs()).unwrap().len(), 4, "one shared blob, one for each of three");
    let loaded = store.load(&listed[1], &folders()).unwrap();
    assert_eq!(loaded.digest(), snapshot(&[("same.toml", "same"), ("a.toml", "4")]).digest());
}

#[test]
fn a_generation_is_found_by_its_first_digits() {
    let dir = tempfile::tempdir().unwrap();
    let store = GenerationStore::of(dir.path(), &folders());
    for n in [1, 2, 1] {
        store.keep(id(n), &snapshot(&[("a.toml", "a")]), true, 0).unwrap().sync(10).unwrap();
    }
    assert_eq!(store.find(&id(1).to_string()).unwrap().number, 3, "the newest of that id");
    assert_eq!(store.find(&id(2).as_hex()[..5]).unwrap().number, 2);
    store.forget(id(1)).unwrap();
    assert_eq!(store.list().unwrap().iter().map(|stored| stored.id).collect::<Vec<_>>(), [id(2)]);
    assert!(matches!(store.find("zz"), Err(ReloadError::NotStored { known, .. }) if known.len() == 1));
    assert!(matches!(store.find(""), Err(ReloadError::NotStored { .. })));
}

#[test]
fn what_was_cut_short_is_not_there_and_what_was_altered_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let store = GenerationStore::of(dir.path(), &folders());
    store.keep(id(1), &snapshot(&[("a.toml", "a")]), true, 0).unwrap().sync(10).unwrap();
    // A process that ended while it wrote the next one.
    fs::write(store.lists().join("000002-aaaa.1.partial"), "{\"form\":").unwrap();
    fs::write(store.blobs().join("0123.1.partial"), "half").unwrap();
    let listed = store.list().unwrap();
    assert_eq!(listed.len(), 1);
    assert!(store.load(&listed[0], &folders()).is_ok());
    store.keep(id(2), &snapshot(&[("a.toml", "b")]), true, 0).unwrap().sync(10).unwrap();
    assert!(
        files_of(&store.blobs()).unwrap().iter().all(|path| path.extension().is_none()),
        "it is tidied up"
    );

    let blob = store.blob(Sha256Digest::of(b"a"));
    fs::write(&blob, "b").unwrap();
    assert!(
        matches!(store.load(&listed[0], &folders()), Err(ReloadError::Corrupt { path, .. }) if path == blob)
    );
}

#[test]
fn folders_have_stores_of_their_own() {
    let other = Folders { plugins: vec!["elsewhere".into()], ..folders() };
    let cache = Path::new("cache");
    assert_ne!(GenerationStore::of(cache, &folders()).folder(), GenerationStore::of(cache, &other).folder());
}
