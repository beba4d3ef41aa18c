//! Folders as editors leave them.

use std::time::Duration;

use super::*;

const SETTINGS: WatchSettings =
    WatchSettings { debounce_ms: 0, settle_ms: 5, settle_readings: 6, rescan_ms: 1000 };
const MANIFEST: &str = "id = \"forced\"\nversion = \"1.0.0\"\nkind = \"sampling-policy\"\nruntime = \"lua\"\n\
    entry = \"main.lua\"\nsdk = \"0.2\"\n";

struct Case {
    dir: tempfile::TempDir,
    folders: Folders,
}

impl Case {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let folders = Folders {
            profiles: vec![dir.path().join("profiles")],
            plugins: vec![dir.path().join("plugins")],
        };
        let place = Case { dir, folders };
        place.write("profiles/a.toml", "a");
        place.write("profiles/quant/q.toml", "q");
        place.write("plugins/forced/plugin.toml", MANIFEST);
        place.write("plugins/forced/main.lua", "return");
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn read(&self) -> Snapshot {
        Snapshot::read(&self.folders, None).unwrap()
    }

    fn names(&self) -> Vec<String> {
        self.read().files().map(|(name, _)| name.to_string()).collect()
    }
}

#[test]
fn the_closure_is_what_a_generation_is_made_of() {
    let place = Case::new();
    place.write("profiles/.a.toml.swp", "half");
    place.write("profiles/.b.toml", "an editor's");
    place.write("profiles/notes.md", "not a profile");
    place.write("profiles/pipelines/budget.toml", "another matter");
    place.write("plugins/forced/README.md", "not run");
    place.write("plugins/no-plugin/main.lua", "no manifest");
    let all =
        ["profiles/a.toml", "profiles/quant/q.toml", "plugins/forced/main.lua", "plugins/forced/plugin.toml"];
    assert_eq!(place.names(), all);
    place.write("plugins/forced/plugin.toml", "id = ");
    assert_eq!(
        place.names().len(),
        3,
        "a manifest that does not read stands alone, and is reported by whoever parses"
    );
    fs::remove_file(place.path("profiles/a.toml")).unwrap();
    assert_eq!(place.names(), ["profiles/quant/q.toml", "plugins/forced/plugin.toml"]);
}

#[test]
fn a_digest_tells_names_and_bytes_apart() {
    let place = Case::new();
    let first = place.read();
    assert_eq!(first.digest(), place.read().digest(), "time changes nothing");
    place.write("profiles/a.toml", "b");
    let changed = place.read();
    assert_ne!(first.digest(), changed.digest());
    assert_eq!(changed.changes_since(&first), ["changed profiles/a.toml"]);
    fs::rename(place.path("profiles/a.toml"), place.path("profiles/b.toml")).unwrap();
    let renamed = place.read();
    assert_ne!(renamed.digest(), changed.digest());
    assert_eq!(renamed.changes_since(&changed), ["new profiles/b.toml", "gone profiles/a.toml"]);
}

#[test]
fn equal_bytes_are_held_once() {
    let place = Case::new();
    let first = place.read();
    place.write("profiles/a.toml", "b");
    let second = Snapshot::read(&place.folders, Some(&first)).unwrap();
    let name = |path: &str| FileName { area: Area::Plugins, folder: 0, path: path.to_owned() };
    let entry = name("forced/main.lua");
    assert!(Arc::ptr_eq(first.file(&entry).unwrap().bytes(), second.file(&entry).unwrap().bytes()));
}

#[test]
fn a_file_that_is_being_written_is_waited_for() {
    let place = Case::new();
    let mut steps = 0;
    let settled = Snapshot::settled(&place.folders, None, SETTINGS, |pause| {
        assert_eq!(pause, Duration::from_millis(5));
        steps += 1;
        if steps <= 3 {
            place.write("profiles/a.toml", &"x".repeat(steps));
        }
    });
    assert_eq!(steps, 4, "the last reading repeats the one before");
    let name = FileName { area: Area::Profiles, folder: 0, path: "a.toml".to_owned() };
    assert_eq!(&settled.unwrap().file(&name).unwrap().bytes()[..], b"xxx");

    let mut steps = 0;
    let unsettled = Snapshot::settled(&place.folders, None, SETTINGS, |_| {
        steps += 1;
        place.write("profiles/a.toml", &steps.to_string());
    });
    assert!(matches!(unsettled, Err(ReloadError::Unsettled { readings: 6 })));
}

#[test]
fn a_folder_that_is_replaced_is_waited_for_and_one_that_is_gone_is_told() {
    let place = Case::new();
    fs::rename(place.path("profiles"), place.path("old")).unwrap();
    let settled = Snapshot::settled(&place.folders, None, SETTINGS, |_| {
        let _ = fs::rename(place.path("old"), place.path("profiles"));
    });
    assert_eq!(settled.unwrap().files().count(), 4);
    fs::remove_dir_all(place.path("profiles")).unwrap();
    let gone = Snapshot::settled(&place.folders, None, SETTINGS, |_| ());
    assert!(matches!(gone, Err(ReloadError::Read { path, .. }) if path == place.path("profiles/")));
}

#[test]
fn what_is_too_large_is_told_and_not_read() {
    let place = Case::new();
    place.write("profiles/a.toml", &"x".repeat((1 << 20) + 1));
    let found: Vec<_> = place.read().unreadable().map(|(name, why)| format!("{name}: {why}")).collect();
    assert_eq!(found, ["profiles/a.toml: it has 1048577 bytes, at most 1048576 are read"]);
}
