//! Budget files and sources.

use std::fs;

use host_core::Reported;

use super::*;

const BUDGET: &str = include_str!("../../../../profiles/pipelines/budget.toml");

#[test]
fn the_shipped_budget_reads_and_a_wrong_one_is_told_with_its_line() {
    let budget = PipelineBudget::parse(BUDGET, "budget.toml").expect("it is shipped");
    assert!(budget.burst_ms <= budget.lua_ms && budget.lua_ms <= budget.wall_ms);
    let cases = [
        (BUDGET.replace("tasks = 256", "tasks = -1"), "tasks = -1"),
        (BUDGET.replace("tasks = 256", "taskz = 256"), "taskz = 256"),
    ];
    for (text, line) in cases {
        let report = PipelineBudget::parse(&text, "budget.toml").expect_err(line).report();
        assert_eq!(report.code, "pipeline.budget");
        let place = report.place.expect("a place");
        assert!(place.excerpt.is_some_and(|excerpt| excerpt.starts_with(line)), "{line}");
    }
    let absent = BUDGET.replace("log_bytes = 65536", "");
    let report = PipelineBudget::parse(&absent, "budget.toml").expect_err("a key is absent").report();
    assert!(report.message.contains("log_bytes"), "{report}");
}

#[test]
fn names_of_modules_stay_in_the_folder() {
    for good in ["a", "a_1/b2", "a/b/c"] {
        assert!(PipelineSource::is_module_name(good), "{good}");
    }
    for bad in ["", "/a", "a/", "a//b", "..", "../a", "a/../b", "a.lua", "A", "a b", "a\\b", "ä"] {
        assert!(!PipelineSource::is_module_name(bad), "{bad}");
    }
}

#[test]
fn a_source_holds_the_modules_of_its_folder_and_follows_no_link() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("it has one")).expect("a folder");
        fs::write(&path, text).expect("a file");
        path
    };
    let main = write("main.lua", "require('steps/rank')");
    write("steps/rank.lua", "return 1");
    write("other.luau", "return 2");
    write("notes.txt", "no module");
    write("Bad-Name.lua", "no module");
    #[cfg(unix)]
    std::os::unix::fs::symlink("/etc", folder.path().join("linked")).expect("a link");
    let source = PipelineSource::read(&main).expect("a good folder");
    assert_eq!(source.module_names().collect::<Vec<_>>(), ["other", "steps/rank"]);
    fs::remove_file(folder.path().join("other.luau")).expect("it is there");
    assert_eq!(source.module("other").map(|script| script.text.as_str()), Some("return 2"));
    let alone = write("alone/alone.lua", "function main() end");
    write("alone/beside.lua", "return 1");
    let source = PipelineSource::read(&alone).expect("a good file");
    assert_eq!(source.module_names().count(), 0, "a script that requires nothing reads nothing else");
}

#[test]
fn sources_that_are_no_text_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("main.lua");
    let report = PipelineSource::read(&path).expect_err("nothing is there").report();
    assert_eq!(report.code, "pipeline.read");
    fs::write(&path, [0xff, 0xfe]).expect("a file");
    assert_eq!(PipelineSource::read(&path).expect_err("no text").report().code, "pipeline.source");
    fs::write(&path, "require('a')").expect("a file");
    fs::write(folder.path().join("a.lua"), "").expect("a file");
    fs::write(folder.path().join("a.luau"), "").expect("a file");
    assert_eq!(PipelineSource::read(&path).expect_err("two of one name").report().code, "pipeline.source");
}
