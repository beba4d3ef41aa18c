//! `generate --record-policy` and `plugin replay`: a real run on SmolLM2, in both runtimes, once more without the model.

use std::fs;

use serde_json::Value;
use tests::golden::Generation;
use tests::places::{target, workspace};
use tests::program::Tenon;
use tests::skip;

#[test]
fn a_run_on_smollm2_is_recorded_and_replayed_in_both_runtimes() {
    let Some(tenon) = Tenon::find() else { return };
    let golden = Generation::read("smollm2-135m");
    let Some(file) = skip::model_file(&golden.model_file, &golden.model_sha256) else { return };
    let (file, folder) = (file.display().to_string(), tempfile::tempdir().unwrap());
    let in_rust = |id: &str| target().join("plugins").join(id).display().to_string();
    let in_lua = |id: &str| workspace().join("plugins").join(format!("{id}-lua")).display().to_string();
    let replay = |record: &str, plugin: &str| tenon.run(&["plugin", "replay", record, plugin, "--json"]);

    // What reads nothing, what reads every logit and draws, and a grammar over the whole vocabulary.
    let schema = "{\"schema\": {\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"integer\"}}}, \
                  \"whitespace\": \"none\"}";
    for (id, params, grant) in [
        ("no-repeat", "{\"ngram\": 1}", None),
        ("entropy-adaptive", "{\"low\": 0.5, \"high\": 1.5, \"half\": 2}", Some("full-logits")),
        ("json", schema, None),
    ] {
        let record = folder.path().join(format!("{id}.jsonl")).display().to_string();
        let mut line =
            vec!["generate", "--model", &file, "--policy", id, "--policy-params", params, "--json"];
        line.extend(grant.iter().flat_map(|grant| ["--policy-grant", grant]));
        line.extend([
            "--seed",
            "5",
            "--max-tokens",
            "8",
            "--record-policy",
            &record,
            "The capital of France is",
        ]);
        let answer = tenon.run(&line).json();
        let n_tokens = answer["token_ids"].as_array().unwrap().len();
        for (plugin, is_same) in [(in_rust(id), true), (in_lua(id), false)] {
            let replayed = replay(&record, &plugin).json();
            assert_eq!(replayed["is_same_plugin"], is_same, "{plugin}");
            assert!(replayed["acts"].as_u64().unwrap() as usize >= n_tokens, "{plugin}: {replayed}");
            assert!(
                replayed["difference"].is_null() && replayed["finding"].is_null(),
                "{plugin}: {replayed}"
            );
        }
    }

    // A changed plugin is told by its first other step: with this change, when a token has been there before.
    let record = folder.path().join("no-repeat.jsonl").display().to_string();
    let changed = folder.path().join("changed");
    fs::create_dir(&changed).unwrap();
    let source = workspace().join("plugins/no-repeat-lua");
    fs::copy(source.join("plugin.toml"), changed.join("plugin.toml")).unwrap();
    let script = fs::read_to_string(source.join("no-repeat.lua")).unwrap();
    fs::write(changed.join("no-repeat.lua"), script.replace("-math.huge", "-1")).unwrap();
    let ended = replay(&record, &changed.display().to_string());
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let replayed: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(replayed["difference"]["code"], "author.replay-differs");
    assert_eq!(replayed["difference"]["message"], "step 1, at position 0, came out otherwise");

    // A record that was cut off, one that lacks what the plugin reads, a run without a policy, a file that is there.
    let text = fs::read_to_string(&record).unwrap();
    let cut = folder.path().join("cut.jsonl").display().to_string();
    fs::write(&cut, &text[..text.len() - 5]).unwrap();
    assert_eq!(replay(&cut, &in_rust("no-repeat")).error(1)["code"], "author.trace");
    assert_eq!(replay(&record, &in_lua("entropy-adaptive")).error(1)["code"], "author.record-lacks");
    let plain = ["generate", "--model", &file, "--json", "--max-tokens", "1", "--record-policy"];
    let run = |more: &[&str]| tenon.run(&[&plain, more].concat());
    assert_eq!(run(&[&cut, "hi"]).error(2)["code"], "usage.no-policy");
    let taken = run(&[&record, "--policy", "no-repeat", "--policy-params", "{\"ngram\": 1}", "hi"]);
    assert_eq!(taken.error(1)["code"], "author.file");
    assert_eq!(fs::read_to_string(&record).unwrap(), text, "as it was");
    let refused = folder.path().join("refused.jsonl");
    let path = refused.display().to_string();
    let ended =
        run(&[&path, "--policy", "no-repeat", "--policy-params", "{\"ngram\": 1}", "--regex", "(", "hi"]);
    assert!(ended.code != Some(0) && !refused.exists(), "a refused request leaves no record: {ended:?}");
}
