//! Records of runs: written, read again, replayed; and what no record is.

use std::fs;
use std::path::{Path, PathBuf};

use host_core::Reported;
use host_plugins::LogSink;
use host_sampling::RowView;
use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::project::Project;
use crate::replay::Replayed;
use crate::row::Row;
use crate::tools::Tools;
use crate::vocabulary::{FakeVocabulary, Family};

const SCRIPT: &str = "
local Policy = {}
Policy.__index = Policy
function describe()
    return { needs = { top_k = 3 }, supports_rollback = true, supports_fork = true }
end
function open(params, vocabulary)
    return setmetatable({ text = vocabulary:encode(params:str('text')), n = 0 }, Policy)
end
function Policy:step(step)
    self.n += #step:accepted()
    local ids, logits = step:top(2)
    step:bias({ ids[1] }, { step:random_u32() % 7 + self.n + step:position() })
    step:allow_runs({ { ids[2], ids[2] + 1 }, { self.text[1], self.text[1] + 1 } })
    if logits[1] > 100 then
        error('too sure')
    end
end
function Policy:rollback(n) self.n -= n end
function Policy:fork() return setmetatable(table.clone(self), Policy) end
";

fn tools() -> Tools {
    Tools::new(None, LogSink::discard()).unwrap()
}

/// The folder of a policy in Lua.
fn plugin(script: &str) -> (TempDir, Project) {
    let folder = tempfile::tempdir().unwrap();
    let manifest = "id = \"p\"\nversion = \"1.0.0\"\nkind = \"sampling-policy\"\nruntime = \"lua\"\n\
                    entry = \"p.lua\"\nsdk = \"0.2\"\n";
    fs::write(folder.path().join("plugin.toml"), manifest).unwrap();
    fs::write(folder.path().join("p.lua"), script).unwrap();
    let project = Project::open(folder.path()).unwrap();
    (folder, project)
}

fn record(path: &Path, project: &Project, left_bytes: Option<usize>) -> Recorded {
    record_of(path, project, left_bytes, run)
}

fn record_of(
    path: &Path,
    project: &Project,
    left_bytes: Option<usize>,
    run: impl Fn(&mut dyn PolicyInstance),
) -> Recorded {
    let package = project.package().unwrap();
    let params = json!({ "text": "b" }).as_object().unwrap().clone();
    let policy = RecordedPolicy {
        digest: package.digest().as_hex().to_owned(),
        params: params.clone(),
        grants: Grants::new([Right::FullLogits]),
        special_ids: vec![0],
    };
    let recorder = Recorder::new(path, policy, Arc::new(FakeVocabulary::new(Family::Tiny)));
    if let Some(left) = left_bytes {
        pages(&recorder.pages).left_bytes = left;
    }
    let opened = tools().policy(&package, host_plugins::Budget::default()).unwrap();
    let text = Value::Object(params).to_string();
    let instance = opened.open(&text, recorder.vocabulary(), &Grants::default()).unwrap();
    run(&mut *recorder.record(instance).unwrap());
    recorder.finish().unwrap()
}

/// A prompt, two tokens, one taken back, a fork that goes on beside, logits that are no numbers, and an error.
fn run(instance: &mut dyn PolicyInstance) {
    let odd = Row::of_some(32, &[(5, 150.0), (6, 0.1 + 0.2), (7, f32::NAN)]);
    let sure = Row::of_some(32, &[(9, 101.0)]);
    let plain = |position| Row::of_formula(1, position, 32);
    let step = |instance: &mut dyn PolicyInstance, row: &Row, accepted: &[u32], generated: &[u32]| {
        instance
            .step(&PolicyInput { row: Some(&RowView::new(row, 0)), accepted, generated, seed: 11 })
            .is_ok()
    };
    assert!(step(instance, &plain(0), &[3, 4], &[]));
    assert!(step(instance, &plain(1), &[5], &[5]));
    let mut fork = instance.fork().unwrap();
    assert!(step(&mut *fork, &plain(2), &[6], &[5, 6]));
    instance.rollback(1).unwrap();
    assert!(step(instance, &plain(3), &[7, 8], &[7, 8]));
    assert!(!step(&mut *fork, &odd, &[], &[5, 6]), "150 is more than 100");
    assert!(!step(instance, &sure, &[1], &[7, 8, 1]));
}

fn replay(project: &Project, path: &Path) -> Result<Replayed, AuthorError> {
    project.replay(&tools(), path)
}

#[test]
fn a_run_comes_out_again_and_a_changed_plugin_at_its_first_other_step() {
    let (folder, project) = plugin(SCRIPT);
    let path = folder.path().join("new/run.jsonl");
    assert_eq!(record(&path, &project, None), Recorded { steps: 6, is_whole: true });
    let again = replay(&project, &path).unwrap();
    assert!(again.is_quiet() && again.is_same_plugin && again.is_whole, "{again:?}");
    assert_eq!(again.acts, 8, "six steps, a fork, a rollback");

    for (from, to, acts, at) in [
        ("% 7", "% 8", 1, "step 1, at position 0,"),
        ("self.n += #step", "self.n = #step", 2, "step 2, at position 1,"),
        ("self.n -= n", "self.n -= n + 1", 6, "step 4, at position 2,"),
        ("table.clone(self), Policy", "{ n = 0, text = self.text }, Policy", 4, "step 3, at position 2,"),
        ("> 100", "> 200", 7, "step 5, at position 2,"),
        ("'too sure'", "'surer'", 7, "step 5, at position 2,"),
    ] {
        let (_other, changed) = plugin(&SCRIPT.replace(from, to));
        let replayed = replay(&changed, &path).unwrap();
        let difference = replayed.difference.unwrap_or_else(|| panic!("{to} is not seen"));
        assert_eq!(difference.code, "author.replay-differs");
        assert!(difference.message.starts_with(at), "{to}: {difference}");
        assert!(difference.expected != difference.found && !replayed.is_same_plugin);
        assert_eq!(replayed.acts, acts, "{to}");
    }

    // Another file is not written over.
    let taken = Recorder::new(
        &path,
        RecordedPolicy {
            digest: String::new(),
            params: Map::new(),
            grants: Grants::default(),
            special_ids: Vec::new(),
        },
        Arc::new(FakeVocabulary::new(Family::Tiny)),
    );
    let opened = tools().policy(&project.package().unwrap(), host_plugins::Budget::default()).unwrap();
    let instance = opened.open("{\"text\": \"b\"}", taken.vocabulary(), &Grants::default()).unwrap();
    assert_eq!(taken.record(instance).unwrap_err().report().code, "author.file");
}

#[test]
fn what_a_record_does_not_hold_is_said() {
    let (folder, project) = plugin(SCRIPT);
    let path = folder.path().join("run.jsonl");
    record(&path, &project, None);
    let cases = [
        ("top_k = 3", "top_k = 4", "needs = top-k(4)"),
        ("needs = { top_k = 3 }", "needs = 'full-logits'", "needs = full-logits"),
    ];
    for (from, to, expected) in cases {
        let report = replay(&plugin(&SCRIPT.replace(from, to)).1, &path).map(drop).unwrap_err().report();
        assert_eq!((report.code, report.expected.as_deref()), ("author.record-lacks", Some(expected)));
        assert_eq!(report.found.as_deref(), Some("a run with needs = top-k(3)"));
    }
    let (_less, less) = plugin(&SCRIPT.replace("top_k = 3", "top_k = 2"));
    assert!(replay(&less, &path).unwrap().is_quiet());
    // A text that nobody had encoded.
    let (_other, other) = plugin(
        &SCRIPT.replace("params:str('text'))", "'b')").replace("n = 0 }", "n = 0, vocabulary:encode('xy') }"),
    );
    let report = replay(&other, &path).map(drop).unwrap_err().report();
    assert_eq!(report.code, "policy.parameter", "the text cannot be spelled: {report}");
    let (_other, other) =
        plugin(&SCRIPT.replace("n = 0 }", "n = 0, pcall(vocabulary.encode, vocabulary, 'xy') }"));
    let replayed = replay(&other, &path).unwrap();
    let finding = replayed.finding.unwrap();
    assert_eq!((finding.code, finding.found.as_deref()), ("author.record-lacks", Some("\"xy\"")));
}

#[test]
fn a_record_has_a_bound_and_says_where_it_stops() {
    let (folder, project) = plugin(SCRIPT);
    let whole = folder.path().join("whole.jsonl");
    record(&whole, &project, None);
    let text = fs::read_to_string(&whole).unwrap();
    // As far as the third line of steps: header, encoded text, two steps, the fork.
    let kept: usize = text.lines().take(5).map(|line| line.len() + 1).sum();
    for (left, steps) in [(kept, 2), (kept + 10, 2), (kept - 1, 2)] {
        let path = folder.path().join(format!("cut-{left}.jsonl"));
        assert_eq!(record(&path, &project, Some(left)), Recorded { steps, is_whole: false });
        let cut = fs::read_to_string(&path).unwrap();
        assert!(cut.len() <= left + 100, "{} bytes of {left}", cut.len());
        let replayed = replay(&project, &path).unwrap();
        assert!(replayed.is_quiet() && !replayed.is_whole, "{replayed:?}");
    }
}

/// Changes a record and expects it refused with these words.
fn refuses(folder: &Path, project: &Project, text: &str, says: &str) {
    let path: PathBuf = folder.join("bad.jsonl");
    fs::write(&path, text).unwrap();
    let report = replay(project, &path).map(drop).expect_err(says).report();
    assert_eq!(report.code, "author.trace", "{says}: {report}");
    let found = report.found.as_deref().unwrap_or_default();
    assert!(found.contains(says), "{says}: {report}");
}

#[test]
fn what_is_no_whole_record_is_refused() {
    let (folder, project) = plugin(SCRIPT);
    let path = folder.path().join("run.jsonl");
    record(&path, &project, None);
    let text = fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let n = lines.len();
    let refuses = |text: &str, says: &str| refuses(folder.path(), &project, text, says);
    // Cut off after each line, and within the last ones.
    for kept in 1..n {
        let cut = lines[..kept].join("\n") + "\n";
        refuses(&cut, &format!("line {kept}: no end stands behind it"));
    }
    refuses(&text[..text.len() - 10], &format!("line {n}: "));
    refuses("", "EOF");
    refuses("{}", "missing field");

    let changed = |from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        text.replacen(from, to, 1)
    };
    for (from, to, says) in [
        ("\"record\":1", "\"record\":2", "line 1: format 2, and this program reads 1"),
        ("\"n_vocab\":32", "\"n_vocab\":31", "line 1: a vocabulary of 31 ids with 32 tokens"),
        ("\"n_vocab\":32", "\"n_vocab\":4294967295", "line 1: a vocabulary of 4294967295 ids"),
        ("\"n_vocab\":32", "\"n_vocab\":-1", "line 1: invalid value"),
        ("\"special_ids\":[0]", "\"special_ids\":[99]", "line 1: token 99 is beyond the vocabulary of 32"),
        ("\"eos_ids\":[0]", "\"eos_ids\":[32]", "line 1: token 32 is beyond the vocabulary of 32"),
        ("\"61\"", "\"6\"", "line 1: a token that is not two hexadecimal digits a byte"),
        ("\"61\"", "\"é\"", "line 1: a token that is not two hexadecimal digits a byte"),
        ("\"digest\"", "\"digset\"", "line 1: unknown field `digset`"),
        ("{\"step\":{\"on\":0", "{\"step\":{\"on\":1", "line 3: there is no instance 1"),
        ("{\"step\":{", "{\"leap\":{", "line 3: unknown variant `leap`"),
        ("\"position\":0", "\"position\":-1", "line 3: invalid value"),
        ("{\"fork\":{\"on\":0}}", "{\"fork\":{\"on\":7}}", "line 5: there is no instance 7"),
        ("{\"rollback\":{\"on\":0", "{\"rollback\":{\"on\":2", "line 7: there is no instance 2"),
        ("\"logits\":\"", "\"logits\":\"0", "line 3: logits that are not 8 hexadecimal digits each"),
        ("\"logits\":\"", "\"logits\":\"+0000000", "line 3: logits that are not"),
        ("\"logits\":\"", "\"logits\":\"00000000", "line 3: 4 logits for 3 tokens"),
        ("{\"end\":{\"steps\":6", "{\"end\":{\"steps\":5", "the end of 5 steps, behind 6"),
    ] {
        refuses(&changed(from, to), says);
    }
    refuses(&(text.clone() + lines[n - 1] + "\n"), "something stands behind the end");
    let row = changed("\"seen\":{\"top\":", "\"seen\":{\"row\":\"00000000\",\"top\":");
    refuses(&row, "line 3: ");
    let top = lines[2].find("\"seen\":").unwrap();
    let outcome = lines[2].find(",\"outcome\"").unwrap();
    let row = text.replacen(&lines[2][top..outcome], "\"seen\":{\"row\":\"00000000\"}", 1);
    refuses(&row, "line 3: 1 logits for 32 tokens");
    let far = text.replacen(
        &lines[2][top..outcome],
        "\"seen\":{\"top\":{\"ids\":[40],\"logits\":\"00000000\"}}",
        1,
    );
    refuses(&far, "line 3: token 40 is beyond the vocabulary of 32");

    let (quant, graph) = (folder.path().join("other"), text);
    fs::create_dir(&quant).unwrap();
    let manifest = "id = \"q\"\nversion = \"1.0.0\"\nkind = \"quant-profile\"\nruntime = \"lua\"\n\
                    entry = \"q.lua\"\nsdk = \"0.2\"\n";
    fs::write(quant.join("plugin.toml"), manifest).unwrap();
    fs::write(quant.join("q.lua"), "").unwrap();
    fs::write(quant.join("run.jsonl"), graph).unwrap();
    let report =
        replay(&Project::open(&quant).unwrap(), &quant.join("run.jsonl")).map(drop).unwrap_err().report();
    assert_eq!(report.code, "author.trace");
    assert!(report.found.unwrap().contains("of another kind of plugin: this one is a quant-profile"));
}

/// A constraint looks at what was generated, which a record tells through what was accepted and taken back.
#[test]
fn what_was_taken_back_is_not_generated_in_a_replay() {
    let (folder, project) = plugin(
        "function describe() return { supports_rollback = true, supports_fork = true } end
         function open(_, vocabulary)
             local constraint = vocabulary:regex('a(b|c)(d|e)')
             local policy = { step = function(_, step) step:constrain(constraint) end, rollback = function() end }
             function policy.fork() return policy end
             return policy
         end",
    );
    let path = folder.path().join("run.jsonl");
    record_of(&path, &project, None, |instance| {
        let row = Row::of_formula(1, 0, 32);
        let step = |instance: &mut dyn PolicyInstance, accepted: &[u32], generated: &[u32]| {
            let row = RowView::new(&row, 0);
            let input = PolicyInput { row: Some(&row), accepted, generated, seed: 0 };
            instance.step(&input).unwrap().allowed.unwrap().iter().collect::<Vec<_>>()
        };
        assert_eq!(step(instance, &[24], &[]), [1]);
        assert_eq!(step(instance, &[1], &[1]), [2, 3]);
        assert_eq!(step(instance, &[2], &[1, 2]), [4, 5]);
        instance.rollback(1).unwrap();
        assert_eq!(step(instance, &[3], &[1, 3]), [4, 5]);
    });
    let replayed = replay(&project, &path).unwrap();
    assert!(replayed.is_quiet() && replayed.acts == 5, "{replayed:?}");
}

/// Positions beyond what was told are no reason to panic.
#[test]
fn a_position_that_cannot_be_shows_all_that_was_told() {
    let (folder, project) =
        plugin("function open() return { step = function(_, step) step:force({ step:position() }) end } end");
    let package = project.package().unwrap();
    let path = folder.path().join("run.jsonl");
    let header = json!({
        "record": 1, "plugin": "p 1.0.0", "digest": package.digest().as_hex(), "params": {}, "grants": [],
        "needs": "mask-only",
        "vocabulary": { "n_vocab": 4, "eos_ids": [], "special_ids": [], "bytes": [] },
    });
    let step = json!({ "step": {
        "on": 0, "accepted": [1, 2], "position": 99, "seed": 0, "outcome": { "edits": { "forced": [2] } },
    } });
    fs::write(&path, format!("{header}\n{step}\n{{\"end\":{{\"steps\":1,\"is_whole\":true}}}}\n")).unwrap();
    assert!(replay(&project, &path).unwrap().is_quiet());
}
