//! `tenon` from end to end, as a user or a script runs it: the built program, its WASM plugins and its profiles.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::io::Read;
use std::path::Path;
use std::process::Command;

use host_core::Numeric;
use serde_json::{Value, json};
use tests::golden::{Generation, Tiny};
use tests::model::overrides;
use tests::places::{fixture, workspace};
use tests::program::{Ended, Tenon};
use tests::{Host, skip};

mod recorded_runs;

const TINY: &str = "tiny-llama-gqa-f32";
/// A tiny model with a chat template.
const CHATTY: &str = "tiny-mlx-q8-g64";

/// `generate` on a tiny model, greedily and exactly, with one JSON object.
fn generate<'a>(model: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let mut line = vec!["generate", "--model", model, "--numeric", "exact", "--threads", "1", "--json"];
    line.extend(["--temperature", "0", "--max-tokens", "16", "--ignore-eos"]);
    line.extend(more);
    line
}

fn path(name: &str) -> String {
    fixture(name).display().to_string()
}

fn comma_separated(ids: &[u32]) -> String {
    ids.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn generate_gives_the_oracles_tokens_in_the_documented_object() {
    let Some(tenon) = Tenon::find() else { return };
    for name in [TINY, "tiny-llama-rope-yarn", "tiny-gemma3-window", CHATTY] {
        let golden = Tiny::read(&fixture(name));
        let (model, ids) = (path(name), comma_separated(&golden.input_ids));
        let answer = tenon.run(&generate(&model, &["--prompt-ids", &ids, "--logprobs", "3"])).json();
        assert_eq!(answer["prompt_ids"], json!(golden.input_ids), "{name}");
        assert_eq!(answer["token_ids"], json!(golden.greedy_output_ids), "{name}");
        check_object(&answer, 16);
    }
}

/// Names and types are a promise to other programs.
fn check_object(answer: &Value, n_tokens: usize) {
    let promised = [
        "prompt_ids",
        "token_ids",
        "text",
        "finish_reason",
        "profile",
        "composition",
        "sampling",
        "timings_ms",
        "tokens_per_second",
        "logprobs",
        "plan_runs",
    ];
    assert_eq!(keys(answer), promised);
    assert_eq!(keys(&answer["timings_ms"]), ["open", "prefill", "decode"]);
    for part in ["open", "prefill", "decode"] {
        assert!(answer["timings_ms"][part].as_f64().unwrap() > 0.0);
    }
    assert!(answer["tokens_per_second"].as_f64().unwrap() > 0.0);
    assert_eq!(answer["finish_reason"], "length");
    assert!(answer["text"].is_string());
    let composition = answer["composition"].as_str().unwrap();
    assert!(composition.len() == 64 && composition.bytes().all(|byte| byte.is_ascii_hexdigit()));
    // The prompt in one step, then a step a token but the last.
    assert_eq!(answer["plan_runs"], json!({ "specialised": n_tokens, "general": 0 }));
    check_logprobs(&answer["logprobs"], &answer["token_ids"], n_tokens);
}

/// Greedy tokens are the first of the top three, which fall from there.
fn check_logprobs(logprobs: &Value, token_ids: &Value, n_tokens: usize) {
    let positions = logprobs.as_array().unwrap();
    assert_eq!(positions.len(), n_tokens);
    for (position, id) in positions.iter().zip(token_ids.as_array().unwrap()) {
        assert_eq!(keys(position), ["token_id", "text", "logprob", "top"]);
        let top = position["top"].as_array().unwrap();
        let logprobs: Vec<f64> = top.iter().map(|entry| entry["logprob"].as_f64().unwrap()).collect();
        assert_eq!((top.len(), &top[0]["token_id"], &position["token_id"]), (3, id, id));
        assert!(logprobs.is_sorted_by(|a, b| a >= b) && logprobs[0] <= 1e-6);
        assert_eq!(position["logprob"], top[0]["logprob"]);
    }
}

#[test]
fn a_prompt_is_an_argument_or_standard_input() {
    let Some(tenon) = Tenon::find() else { return };
    let model = path(CHATTY);
    let ids = |ended: Ended| ended.json()["prompt_ids"].clone();
    let raw = ids(tenon.run(&generate(&model, &["--raw", "a tenon\n"])));
    assert_eq!(
        ids(tenon.run_with(&generate(&model, &["--raw"]), b"a tenon\n\n")),
        raw,
        "one newline is the shell's"
    );
    assert_eq!(ids(tenon.run_with(&generate(&model, &["--raw", "-"]), b"a tenon\n\n")), raw);
    let chat = ids(tenon.run(&generate(&model, &["a tenon\n"])));
    assert!(
        chat.as_array().unwrap().len() > raw.as_array().unwrap().len(),
        "the template adds to {raw}: {chat}"
    );
    let system = ids(tenon.run(&generate(&model, &["--system", "Be brief.", "a tenon\n"])));
    assert_ne!(system, chat);
}

#[test]
fn text_is_the_same_streamed_and_in_the_object() {
    let Some(tenon) = Tenon::find() else { return };
    let model = path(CHATTY);
    let line = generate(&model, &["--raw", "hello"]);
    let text = tenon.run(&line).json()["text"].as_str().unwrap().to_owned();
    let streamed: Vec<&str> = line.into_iter().filter(|word| *word != "--json").collect();
    let ended = tenon.run(&streamed);
    let newline = if text.ends_with('\n') { "" } else { "\n" };
    assert_eq!(ended.done(), format!("{text}{newline}"));
}

#[test]
fn a_seed_repeats_its_answer() {
    let Some(tenon) = Tenon::find() else { return };
    let model = path(TINY);
    let answer = |seed: &str| {
        let line = ["--prompt-ids", "5,6,7", "--temperature", "1.5", "--seed", seed];
        let line: Vec<&str> = generate(&model, &[])
            .into_iter()
            .filter(|word| !["--temperature", "0"].contains(word))
            .chain(line)
            .collect();
        tenon.run(&line).json()["token_ids"].clone()
    };
    assert_eq!(answer("7"), answer("7"));
    assert_ne!(answer("7"), answer("8"));
}

#[test]
fn a_stop_text_ends_the_answer() {
    let Some(tenon) = Tenon::find() else { return };
    let model = path(CHATTY);
    let whole = tenon.run(&generate(&model, &["--raw", "hello"])).json();
    let text = whole["text"].as_str().unwrap();
    let half: usize = text.chars().count() / 2;
    let stop: String = text.chars().skip(half).take(2).collect();
    assert_eq!(stop.chars().count(), 2, "{text:?} is long enough");
    let answer = tenon.run(&generate(&model, &["--raw", "--stop", &stop, "hello"])).json();
    assert_eq!(answer["finish_reason"], "stop");
    assert_eq!(answer["text"].as_str().unwrap(), text.split(&stop).next().unwrap());
}

/// Arguments, standard input, exit code and the report's code.
#[test]
fn what_is_wrong_is_refused_with_a_code() {
    let Some(tenon) = Tenon::find() else { return };
    let (model, long) = (path(TINY), vec!["9"; 129].join(","));
    let cases: [(&[&str], &[u8], i32, &str); 13] = [
        (&["--raw"], b"\xff\xfe", 2, "usage.prompt-encoding"),
        (&["--prompt-ids", &long], b"", 1, "engine.prompt-too-long"),
        (&["--prompt-ids", "256"], b"", 1, "engine.prompt-token"),
        (&["--raw", ""], b"", 1, "engine.empty-prompt"),
        (&["--prompt-ids", "1", "--context-tokens", "129"], b"", 3, "profile.context-too-long"),
        (&["--prompt-ids", "1", "--kv-dtype", "f16"], b"", 3, "registry.kv-not-exact"),
        (&["--prompt-ids", "1", "--kv-dtype", "f12"], b"", 3, "registry.kv-missing"),
        (&["--prompt-ids", "1", "--device", "gpu"], b"", 3, "registry.device-missing"),
        (&["--prompt-ids", "1", "--memory-bytes", "1KiB"], b"", 3, "device.memory"),
        (&["--prompt-ids", "1", "--profile", "lama"], b"", 2, "profile.unknown-id"),
        (&["--prompt-ids", "1", "--profile", "gemma3"], b"", 3, "profile.mismatch"),
        (&["--prompt-ids", "1", "--top-p", "0"], b"", 2, "sampling.out-of-range"),
        (&["--prompt-ids", "1", "--logprobs", "257"], b"", 2, "request.logprobs"),
    ];
    for (more, input, code, report) in cases {
        let error = tenon.run_with(&generate(&model, more), input).error(code);
        assert_eq!(error["code"], report, "{more:?}: {error}");
        assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()), "{error}");
    }
}

#[test]
fn a_command_line_that_is_wrong_ends_with_2() {
    let Some(tenon) = Tenon::find() else { return };
    let model = path(TINY);
    for line in [
        &["generate", "--model", &model, "--no-such-flag"][..],
        &["generate", "--model", &model, "--prompt-ids", "1,x"],
        &["generate", "--model", &model, "--prompt-ids", "1", "--numeric", "best"],
        &["generate", "--model", &model, "--prompt-ids", "1", "--threads", "some"],
        &["generate", "--model", &model, "--prompt-ids", "1", "two", "prompts"],
        &["no-such-command"],
        &[],
    ] {
        let ended = tenon.run(line);
        assert_eq!(ended.code, Some(2), "{line:?}: {ended:?}");
        assert!(ended.stdout.is_empty() && !ended.stderr.is_empty(), "{ended:?}");
    }
    for line in [&["--help"][..], &["--version"], &["generate", "--help"]] {
        assert!(tenon.run(line).done().contains("tenon"));
    }
}

#[test]
fn a_model_that_is_not_there_is_refused_by_its_name() {
    let Some(tenon) = Tenon::find() else { return };
    for (model, code, report) in [
        ("./no-such-folder", 1, "models.absent"),
        ("/no/such/file.gguf", 1, "models.absent"),
        ("nowhere:x", 2, "models.source-form"),
        ("hf:no-owner", 2, "models.source-form"),
    ] {
        let error = tenon.run(&generate(model, &["--prompt-ids", "1"])).error(code);
        assert_eq!(error["code"], report, "{error}");
    }
    let error = tenon.run(&["generate", "--prompt-ids", "1", "--json"]).error(2);
    assert_eq!(error["code"], "usage.no-model");
}

/// A reader that goes away has what it wanted.
#[test]
fn a_broken_pipe_is_no_failure() {
    let Some(tenon) = Tenon::find() else { return };
    let model = path(CHATTY);
    let streamed: Vec<&str> =
        generate(&model, &["--raw", "hello"]).into_iter().filter(|word| *word != "--json").collect();
    for line in [&streamed[..], &["explain", &model], &["doctor", "--json"], &["completion", "bash"]] {
        let mut child = tenon.start(line);
        drop(child.stdout.take());
        drop(child.stdin.take());
        let mut stderr = String::new();
        child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        let code = child.wait().unwrap().code();
        assert_eq!((code, stderr.as_str()), (Some(0), ""), "{line:?}");
    }
}

#[test]
fn explain_tells_the_whole_decision() {
    let Some(tenon) = Tenon::find() else { return };
    let model = path(TINY);
    let found = tenon.run(&["explain", &model, "--json"]).json();
    assert_eq!(
        (&found["profile"], &found["format"], &found["refusal"]),
        (&json!("llama"), &json!("safetensors"), &Value::Null)
    );
    let verdict = |id: &str| {
        let candidates = found["candidates"].as_array().unwrap();
        candidates.iter().find(|candidate| candidate["id"] == id).unwrap()["verdict"].clone()
    };
    assert_eq!(
        (verdict("llama"), verdict("gemma3"), verdict("smollm2-135m")),
        (json!("chosen"), json!("failed"), json!("failed"))
    );
    let parts: Vec<&Value> = found["parts"].as_array().unwrap().iter().map(|part| &part["part"]).collect();
    assert_eq!(parts, ["graph", "loader", "quant", "loop"]);
    assert_eq!(
        (&found["parts"][0]["name"], &found["parts"][0]["runtime"]),
        (&json!("llama"), &json!("wasm"))
    );
    assert!(found["memory"]["weights_bytes"].as_u64().is_some_and(|bytes| bytes > 0));

    let text = tenon.run(&["explain", &model]).done();
    for word in [
        "llama: chosen",
        "gemma3: model_type is \"llama\", expected \"gemma3_text\"",
        "fingerprint",
        "composition",
    ] {
        assert!(text.contains(word), "{word}: {text}");
    }
    let answer = tenon.run(&generate(&model, &["--prompt-ids", "1"])).json();
    let exact = tenon.run(&["explain", &model, "--numeric", "exact", "--threads", "1", "--json"]).json();
    assert_eq!(exact["composition"], answer["composition"], "what was explained is what runs");
    assert_ne!(found["composition"], answer["composition"], "a flag is part of the composition");
}

#[test]
fn graph_show_prints_what_the_script_builds_too() {
    let Some(tenon) = Tenon::find() else { return };
    for name in [TINY, "tiny-gemma3-softcap"] {
        let model = Host::lua().open(&fixture(name), &overrides(Numeric::Exact, 64, 1, 64)).unwrap();
        assert_eq!(tenon.run(&["graph", "show", &path(name)]).done(), model.graph.text());
        let fingerprint = tenon.run(&["graph", "show", &path(name), "--fingerprint"]).done();
        assert_eq!(fingerprint.trim(), model.graph.fingerprint().as_hex());
    }
}

#[test]
fn import_writes_the_same_model() {
    let Some(tenon) = Tenon::find() else { return };
    let parent = tempfile::tempdir().unwrap();
    let (model, out) = (path(CHATTY), parent.path().join("model").display().to_string());
    assert_eq!(tenon.run(&["import", &model, "--out", &out]).done(), format!("{out}\n"));
    let answers = [&model, &out].map(|model| tenon.run(&generate(model, &["a tenon"])).json());
    for key in ["prompt_ids", "token_ids", "text"] {
        assert_eq!(answers[0][key], answers[1][key], "{key}");
    }
    let ended = tenon.run(&["import", &model, "--out", &out]);
    assert!(ended.code == Some(2) && ended.stderr.contains("usage.out-taken"), "{ended:?}");
    assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 1, "nothing is left beside it");
}

#[test]
fn models_lists_and_removes() {
    let Some(tenon) = Tenon::find() else { return };
    let listing = tenon.run(&["models", "list", "--json"]).json();
    assert_eq!(keys(&listing), ["folder", "models", "damaged"]);
    assert_eq!((&listing["models"], &listing["damaged"]), (&json!([]), &json!([])));
    assert!(Path::new(listing["folder"].as_str().unwrap()).starts_with(tenon.cache()));
    let ended = tenon.run(&["models", "remove", "pip:never-fetched==1.0"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
}

/// The names of what lies in a folder of the workspace, in order: folders of plugins, or profiles.
fn stems(folder: &str) -> Vec<String> {
    let of_plugins = folder == "plugins";
    let entries = std::fs::read_dir(workspace().join(folder)).unwrap().map(|entry| entry.unwrap().path());
    let wanted = entries.filter(|path| if of_plugins { path.is_dir() } else { path.is_file() });
    let mut names: Vec<_> =
        wanted.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    names.sort();
    names
}

#[test]
fn doctor_tells_what_is_here() {
    let Some(tenon) = Tenon::find() else { return };
    let found = tenon.run(&["doctor", "--json"]).json();
    assert_eq!(found["devices"][0]["id"], "cpu");
    let ids = |list: &str| -> Vec<String> {
        let list = found[list].as_array().unwrap().iter();
        list.map(|entry| entry["id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ids("plugins"), stems("plugins"));
    assert_eq!(ids("profiles"), stems("profiles"));
    assert_eq!(found["problems"], json!([]));
    assert!(tenon.run(&["doctor"]).done().contains("simd"));
}

#[test]
fn completion_scripts_name_the_commands() {
    let Some(tenon) = Tenon::find() else { return };
    for shell in ["bash", "zsh", "fish"] {
        let script = tenon.run(&["completion", shell]).done();
        assert!(["generate", "explain", "import"].iter().all(|command| script.contains(command)), "{shell}");
    }
    let ended =
        Command::new("bash").args(["-n", "-c"]).arg(tenon.run(&["completion", "bash"]).done()).status();
    assert!(ended.is_ok_and(|status| status.success()), "bash reads its script");
}

#[test]
fn a_chat_goes_on_turn_by_turn() {
    let Some(tenon) = Tenon::find() else { return };
    let (model, saved) = (path(CHATTY), tenon.cache().join("talk.json"));
    let input = format!("hello\nand again\n/save {}\n/rest\n/quit\n", saved.display());
    let line = ["chat", "--model", &model, "--temperature", "0", "--max-tokens", "4", "--threads", "1"];
    let ended = tenon.run_with(&line, input.as_bytes());
    assert!(ended.stderr.contains("there is no command /rest"), "{ended:?}");
    ended.done();
    let talk: Vec<Value> = tests::places::read_json(&saved);
    let roles: Vec<&Value> = talk.iter().map(|message| &message["role"]).collect();
    assert_eq!(roles, ["user", "assistant", "user", "assistant"]);
    assert_eq!((&talk[0]["content"], &talk[2]["content"]), (&json!("hello"), &json!("and again")));
}

/// The whole way a user goes: the GGUF file, its own template, an answer piece by piece.
#[test]
fn smollm2_answers_piece_by_piece() {
    let Some(tenon) = Tenon::find() else { return };
    let golden = Generation::read("smollm2-135m");
    let Some(file) = skip::model_file(&golden.model_file, &golden.model_sha256) else { return };
    let prompt = golden.prompts.iter().find(|prompt| prompt.name == "chat_capital").unwrap();
    let (file, question) = (file.display().to_string(), "What is the capital of France?");
    let line =
        ["generate", "--model", &file, "--numeric", "exact", "--temperature", "0", "--max-tokens", "64"];
    let json: Vec<&str> = line.iter().copied().chain(["--json", question]).collect();
    let answer = tenon.run(&json).json();
    assert_eq!(answer["prompt_ids"], json!(prompt.prompt_ids));
    let tokens: Vec<u32> = serde_json::from_value(answer["token_ids"].clone()).unwrap();
    assert!(!tokens.is_empty() && prompt.output_ids.starts_with(&tokens), "{tokens:?}");
    assert_eq!(answer["finish_reason"], "stop");

    let mut child = tenon.start(&line.iter().copied().chain(["--ignore-eos", question]).collect::<Vec<_>>());
    let mut stdout = child.stdout.take().unwrap();
    let (mut pieces, mut buffer) = (0, [0; 4096]);
    let mut text = Vec::new();
    loop {
        match stdout.read(&mut buffer).unwrap() {
            0 => break,
            n => text.extend(&buffer[..n]),
        }
        pieces += 1;
        assert!(pieces > 1 || child.try_wait().unwrap().is_none(), "text comes before the end");
    }
    assert!(child.wait().unwrap().success() && pieces > 10, "{pieces} pieces");
    assert!(String::from_utf8(text).unwrap().contains("Paris"));
}

/// Ctrl-C ends an answer; what was said stays.
#[cfg(unix)]
#[test]
fn ctrl_c_ends_an_answer_with_130() {
    let Some(tenon) = Tenon::find() else { return };
    let golden = Generation::read("smollm2-135m");
    let Some(file) = skip::model_file(&golden.model_file, &golden.model_sha256) else { return };
    let file = file.display().to_string();
    let mut child =
        tenon.start(&["generate", "--model", &file, "--raw", "--ignore-eos", "--max-tokens", "4000", "Once"]);
    let mut stdout = child.stdout.take().unwrap();
    let mut first = [0];
    stdout.read_exact(&mut first).unwrap();
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    assert!(rest.ends_with('\n'), "the line is ended");
    assert_eq!(child.wait().unwrap().code(), Some(130));
}
