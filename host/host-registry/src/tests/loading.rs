//! Folders of profiles: which files count, and that every fault is told.

use std::fs;
use std::sync::Arc;

use host_core::Reported;

use super::{PROFILE, edited, shown};
use crate::{ProfileError, ProfileSet};

fn codes(errors: &[ProfileError]) -> Vec<&'static str> {
    errors.iter().map(|error| error.report().code).collect()
}

#[test]
fn files_of_the_folder_itself_are_read_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let second = edited(&[("id = \"tiny\"", "id = \"another\"")]);
    fs::write(dir.path().join("b.toml"), PROFILE).unwrap();
    fs::write(dir.path().join("a.toml"), second).unwrap();
    fs::write(dir.path().join(".a.toml.swp.toml"), "half-writ").unwrap();
    fs::write(dir.path().join("notes.md"), "no profile").unwrap();
    fs::create_dir(dir.path().join("old.toml")).unwrap();
    let set = ProfileSet::load(&[dir.path()]).unwrap();
    assert_eq!(set.ids().collect::<Vec<_>>(), ["another", "tiny"]);
    assert!(set.by_id("tiny").unwrap().source().file().ends_with("b.toml"));
}

#[test]
fn every_fault_of_every_file_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| fs::write(dir.path().join(name), bytes).unwrap();
    write("a.toml", b"schema = ");
    write("b.toml", PROFILE.as_bytes());
    write("c.toml", PROFILE.as_bytes());
    write("d.toml", b"about = \"\xff\"");
    write("e.toml", &vec![b'#'; (1 << 20) + 1]);
    write(
        "f.toml",
        edited(&[("top_p = 0.9", "top_p = 2"), ("max_tokens = 32", "max_tokens = 0")]).as_bytes(),
    );
    let missing = dir.path().join("missing");
    let errors = ProfileSet::load(&[dir.path(), &missing]).unwrap_err();
    let expected = [
        "profile.encoding",
        "profile.too-large",
        "profile.unreadable",
        "profile.syntax",
        "profile.duplicate-id",
        "profile.value",
        "profile.value",
    ];
    assert_eq!(codes(&errors), expected);
    assert!(errors.iter().all(|error| error.report().mend.is_some()));
}

#[test]
fn an_id_twice_names_both_places() {
    let errors = ProfileSet::from_texts([("a.toml", PROFILE), ("b.toml", PROFILE)]).unwrap_err();
    insta::assert_snapshot!(shown(&errors[0].report()), @r#"
    error[profile.duplicate-id]: b.toml:2: there is another profile `tiny`
      expected  each id once
      found     `tiny` also in a.toml:2
      mend      rename or remove one of them
      at        b.toml:2:6
      | id = "tiny"
      |      ^^^^^^
    "#);
}

#[test]
fn an_unknown_id_names_those_like_it() {
    let set = ProfileSet::from_texts([("a.toml", PROFILE)]).unwrap();
    insta::assert_snapshot!(shown(&set.by_id("tyni").unwrap_err().report()), @"
    error[profile.unknown-id]: there is no profile `tyni`
      expected  one of: tiny
      mend      name one of the profiles that are there
    ");
    insta::assert_snapshot!(shown(&set.by_id("tin").unwrap_err().report()), @"
    error[profile.unknown-id]: there is no profile `tin`
      expected  one of: tiny
      mend      did you mean `tiny`?
    ");
}

#[test]
fn what_did_not_change_is_not_read_again_and_the_set_is_the_same() {
    let other = |id: &str| edited(&[("id = \"tiny\"", &format!("id = \"{id}\""))]);
    let extending = "schema = 1\nid = \"c\"\nabout = \"over a\"\nextends = \"a\"\n".to_owned();
    let first = vec![("a.toml", other("a")), ("b.toml", other("b"))];
    let before = ProfileSet::from_texts(first.clone()).unwrap();
    let b_changed = edited(&[("id = \"tiny\"", "id = \"b\""), ("max_tokens = 32", "max_tokens = 33")]);
    let cases = [
        ("nothing", first.clone()),
        ("a change", vec![("a.toml", other("a")), ("b.toml", b_changed.clone())]),
        ("one more", [first.clone(), vec![("d.toml", other("d"))]].concat()),
        ("one less", vec![("b.toml", other("b"))]),
        ("a rename", vec![("a.toml", other("a")), ("z.toml", other("b"))]),
        ("one that extends", [first.clone(), vec![("c.toml", extending)]].concat()),
        ("a fault", vec![("a.toml", other("a")), ("b.toml", "schema = ".to_owned())]),
        ("one id twice", vec![("a.toml", other("a")), ("b.toml", other("a"))]),
    ];
    let all = |errors: &[ProfileError]| errors.iter().map(|error| shown(&error.report())).collect::<Vec<_>>();
    for (what, texts) in cases {
        let (after, anew) =
            (ProfileSet::from_texts_after(texts.clone(), &before), ProfileSet::from_texts(texts));
        match (after, anew) {
            (Ok(after), Ok(anew)) => assert_eq!(after, anew, "{what}"),
            (Err(after), Err(anew)) => assert_eq!(all(&after), all(&anew), "{what}"),
            (after, anew) => panic!("{what}: {after:?} and {anew:?}"),
        }
    }
    let texts = vec![("a.toml", other("a")), ("b.toml", b_changed)];
    let after = ProfileSet::from_texts_after(texts, &before).unwrap();
    let [same, changed] =
        ["a", "b"].map(|id| Arc::ptr_eq(after.by_id(id).unwrap(), before.by_id(id).unwrap()));
    assert!(same && !changed, "it is shared, not read again");
}
