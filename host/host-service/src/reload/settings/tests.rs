//! The shipped file, and what is wrong with others.

use host_core::Reported as _;

use super::*;

const SHIPPED: &str = include_str!("../../../../../profiles/service/reload.toml");

fn parse(text: &str) -> Result<ReloadSettings, ReloadError> {
    ReloadSettings::parse(text, Path::new("reload.toml"))
}

#[test]
fn the_shipped_file_says_every_number() {
    let settings = parse(SHIPPED).expect("it is shipped");
    assert_eq!(settings.watch.debounce(), Duration::from_millis(15));
    assert_eq!((settings.drain.at_most, settings.drain.then), (4, Overflow::Refuse));
    assert_eq!(settings.memory.models_bytes, None);
    let limited = SHIPPED.replace("# [memory]", "[memory]").replace("# models_bytes", "models_bytes");
    assert_eq!(parse(&limited).expect("sound").memory.models_bytes, Some(Bytes(8 << 30)));
}

#[test]
fn what_is_wrong_is_told_at_its_line() {
    let cases = [
        ("debounce_ms = 15", "", "missing field `debounce_ms`", 5),
        ("debounce_ms", "debounce", "unknown field `debounce`", 6),
        ("debounce_ms = 15", "debounce_ms = \"soon\"", "invalid type", 6),
        ("settle_readings = 200", "settle_readings = 1", "`settle_readings` must be at least 2", 8),
        ("at_most = 4", "at_most = 0", "`at_most` must be at least 1", 13),
        ("\"refuse\"   ", "\"forget\"", "unknown variant `forget`", 14),
        ("worse_by = 0.25", "worse_by = \"much\"", "invalid type", 22),
        ("worse_by = 0.25", "worse_by = 2.5", "`worse_by` must be from 0 to 1", 22),
        ("keep = 16", "keep = 0", "`keep` must be at least 1", 26),
    ];
    for (from, to, says, line) in cases {
        assert!(SHIPPED.contains(from), "{from}");
        let error = parse(&SHIPPED.replacen(from, to, 1)).expect_err(to);
        assert!(error.to_string().contains(says), "{to:?}: {error}");
        let place = error.report().place.expect("a place");
        assert!(place.line.is_some_and(|found| found.abs_diff(line) <= 1), "{to:?}: {place:?}");
    }
}

#[test]
fn the_first_folder_that_has_it_decides() {
    let dir = tempfile::tempdir().expect("a folder");
    let folders: Vec<PathBuf> = ["a", "b", "c"].iter().map(|name| dir.path().join(name)).collect();
    assert!(
        matches!(ReloadSettings::load(&folders), Err(ReloadError::NoSettings { folders }) if folders.len() == 3)
    );
    for (folder, keep) in [(&folders[1], 7), (&folders[2], 9)] {
        std::fs::create_dir_all(folder.join("service")).expect("a folder");
        let text = SHIPPED.replace("keep = 16", &format!("keep = {keep}"));
        std::fs::write(folder.join(FILE), text).expect("a file");
    }
    let settings = ReloadSettings::load(&folders).expect("sound");
    assert_eq!((settings.store.keep, settings.file), (7, folders[1].join(FILE)));
    // A file that is there and cannot be read is refused; the next one is not taken in its place.
    std::fs::create_dir_all(folders[0].join(FILE)).expect("a folder");
    let refused = ReloadSettings::load(&folders).expect_err("it is a folder").report();
    assert_eq!(refused.code, "reload.unreadable");
    std::fs::remove_dir(folders[0].join(FILE)).expect("a folder");
    std::fs::write(folders[0].join(FILE), "").expect("a file");
    assert!(matches!(ReloadSettings::load(&folders), Err(ReloadError::Settings { .. })));
}

#[test]
fn where_there_is_none_every_place_is_named() {
    let folders = [PathBuf::from("mine"), PathBuf::from("/opt/tenon/profiles")];
    let report = ReloadSettings::load(&folders).expect_err("there is none").report();
    assert_eq!(
        report.to_string(),
        "error[usage.no-reload-settings]: no folder of profiles has the settings of reloading\n  \
         expected  service/reload.toml in a folder of profiles, or among the program's own profiles\n  \
         found     none of mine/service/reload.toml, /opt/tenon/profiles/service/reload.toml\n  \
         mend      put the file that the program was shipped with back to \
         /opt/tenon/profiles/service/reload.toml, or a copy of it into a folder of your own"
    );
}
