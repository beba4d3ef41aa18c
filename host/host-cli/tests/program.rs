//! The program as a user runs it, on tiny models with random weights and plugins in Lua, which need no build.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// Folders of our own: profiles that name the Lua plugins, and an empty cache.
struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let profiles = folder.path().join("profiles");
        fs::create_dir(&profiles).expect("a new folder");
        for id in ["llama", "gemma3"] {
            let text =
                fs::read_to_string(root().join(format!("profiles/{id}.toml"))).expect("a shipped profile");
            let text = text.replace(&format!("plugin = \"{id}\""), &format!("plugin = \"{id}-lua\""));
            fs::write(profiles.join(format!("{id}.toml")), text).expect("a new file");
            let (from, to) =
                (root().join(format!("plugins/{id}-lua")), folder.path().join(format!("plugins/{id}")));
            fs::create_dir_all(&to).expect("a new folder");
            for name in ["plugin.toml".to_owned(), format!("{id}.lua")] {
                fs::copy(from.join(&name), to.join(&name)).expect("a shipped plugin");
            }
        }
        Place { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// `tenon` with these folders; output is captured, so nothing is a terminal.
    fn tenon(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tenon"));
        command
            .args(arguments)
            .env("TENON_PLUGINS", self.path("plugins"))
            .env("TENON_PROFILES", self.path("profiles"))
            .env("TENON_CACHE", self.path("cache"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.tenon(arguments).output().expect("the program was built")
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("one JSON object")
    }

    /// Exit code and the error's report.
    fn refusal(&self, arguments: &[&str]) -> (i32, Value) {
        let output = self.run(arguments);
        let object: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
        (output.status.code().expect("no signal"), object["error"].clone())
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn fixture(name: &str) -> String {
    root().join("tests/fixtures").join(name).display().to_string()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

fn ids(value: &Value) -> Vec<u64> {
    value.as_array().expect("an array").iter().map(|id| id.as_u64().expect("an id")).collect()
}

#[test]
fn generate_gives_the_golden_tokens_as_json() {
    let place = Place::new();
    let golden =
        fs::read_to_string(format!("{}/golden.json", fixture("tiny-llama-gqa-f32"))).expect("a golden");
    let golden: Value = serde_json::from_str(&golden).expect("JSON");
    let prompt: Vec<String> = ids(&golden["input_ids"]).iter().map(u64::to_string).collect();
    let found = place.json(&[
        "generate",
        "--model",
        &fixture("tiny-llama-gqa-f32"),
        "--numeric",
        "exact",
        "--prompt-ids",
        &prompt.join(","),
        "--temperature",
        "0",
        "--max-tokens",
        "16",
        "--ignore-eos",
        "--logprobs",
        "3",
        "--threads",
        "1",
        "--json",
    ]);
    assert_eq!(found["prompt_ids"], golden["input_ids"]);
    assert_eq!(found["token_ids"], golden["greedy_output_ids"]);
    assert_eq!(found["finish_reason"], "length");
    assert_eq!(found["composition"].as_str().map(str::len), Some(64));
    for timing in ["open", "prefill", "decode"] {
        assert!(found["timings_ms"][timing].as_f64().is_some_and(|ms| ms > 0.0), "{timing}");
    }
    assert!(found["tokens_per_second"].as_f64().is_some_and(|speed| speed > 0.0));
    let logprobs = found["logprobs"].as_array().expect("one entry a token");
    assert_eq!(logprobs.len(), 16);
    for (position, token_id) in logprobs.iter().zip(ids(&found["token_ids"])) {
        assert_eq!(position["token_id"], token_id);
        assert_eq!(position["top"][0]["token_id"], token_id, "greedy takes the first");
        assert_eq!(position["top"].as_array().map(Vec::len), Some(3));
    }
}

#[test]
fn the_same_seed_gives_the_same_answer_and_settings_are_recorded() {
    let place = Place::new();
    let model = fixture("tiny-llama-tied");
    let generate = |seed: &str| {
        place.json(&[
            "generate",
            "--model",
            &model,
            "--raw",
            "--temperature",
            "1.5",
            "--top-p",
            "0.95",
            "--seed",
            seed,
            "--max-tokens",
            "24",
            "--ignore-eos",
            "--json",
            "one two three",
        ])
    };
    let (first, again, other) = (generate("7"), generate("7"), generate("8"));
    assert_eq!(first["token_ids"], again["token_ids"]);
    assert_ne!(first["token_ids"], other["token_ids"]);
    assert_eq!(first["sampling"]["temperature"], 1.5);
    assert_eq!(first["sampling"]["seed"], 7);
}

#[test]
fn the_prompt_may_come_from_standard_input_and_the_text_streams() {
    let place = Place::new();
    let model = fixture("tiny-llama-tied");
    let arguments = ["generate", "--model", &model, "--raw", "--max-tokens", "5", "--ignore-eos"];
    let as_argument = place.run(&[&arguments[..], &["one two"]].concat());
    assert!(as_argument.status.success(), "{}", text(&as_argument.stderr));
    assert!(as_argument.stderr.is_empty(), "{}", text(&as_argument.stderr));
    let mut child = place.tenon(&arguments).stdin(Stdio::piped()).spawn().expect("it starts");
    child.stdin.take().expect("a pipe").write_all(b"one two\n").expect("it reads");
    let piped = child.wait_with_output().expect("it ends");
    assert_eq!(text(&piped.stdout), text(&as_argument.stdout));
    assert!(text(&piped.stdout).ends_with('\n'));
}

#[test]
fn a_stop_text_ends_the_answer_before_it() {
    let place = Place::new();
    let model = fixture("tiny-llama-tied");
    let arguments =
        ["generate", "--model", &model, "--raw", "--temperature", "0", "--max-tokens", "12", "--json"];
    let prompt = ["--ignore-eos", "one two"];
    let whole = place.json(&[&arguments[..], &prompt].concat());
    let whole_text = whole["text"].as_str().expect("a text").to_owned();
    let middle = whole_text.char_indices().nth(whole_text.chars().count() / 2).expect("some text").0;
    let stop: String = whole_text[middle..].chars().take(2).collect();
    let at = whole_text.find(&stop).expect("it is there");
    let cut = place.json(&[&arguments[..], &["--stop", &stop], &prompt].concat());
    assert_eq!(cut["text"], whole_text[..at]);
    assert_eq!(cut["finish_reason"], "stop");
    assert!(ids(&cut["token_ids"]).len() <= ids(&whole["token_ids"]).len());
}

#[cfg(target_os = "linux")]
#[test]
fn an_output_without_room_is_refused_with_a_mend() {
    let place = Place::new();
    let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("Linux has it");
    let model = fixture("tiny-llama-tied");
    let arguments = ["generate", "--model", &model, "--raw", "--max-tokens", "4", "--ignore-eos", "one"];
    let output = place.tenon(&arguments).stdout(full).output().expect("the program was built");
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.starts_with("error[cli.stream]") && told.contains("\n  mend "), "{told}");
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let place = Place::new();
    let model = fixture("tiny-llama-tied");
    let arguments = ["generate", "--model", &model, "--raw", "--max-tokens", "100", "--ignore-eos", "one"];
    let mut child = place.tenon(&arguments).spawn().expect("it starts");
    drop(child.stdout.take());
    let mut stderr = String::new();
    child.stderr.take().expect("a pipe").read_to_string(&mut stderr).expect("UTF-8");
    assert_eq!(child.wait().expect("it ends").code(), Some(0), "{stderr}");
    assert_eq!(stderr, "");
}

#[test]
fn refusals_have_codes_places_and_exit_codes() {
    let place = Place::new();
    let (llama, gemma) = (fixture("tiny-llama-tied"), fixture("tiny-gemma3-window"));
    let cases: [(&[&str], i32, &str); 9] = [
        (&["generate", "--json", "hello"], 2, "usage.no-model"),
        (&["generate", "--json", "--model", "smollm2", "hello"], 2, "models.source-form"),
        (&["generate", "--json", "--model", "./nothing-here", "hello"], 1, "models.absent"),
        (&["generate", "--json", "--model", &llama, "--profile", "lama", "hello"], 2, "profile.unknown-id"),
        (&["generate", "--json", "--model", &llama, "--profile", "gemma3", "hello"], 3, "profile.mismatch"),
        (&["generate", "--json", "--profile", "llama", "hello"], 2, "usage.no-source"),
        (
            &["generate", "--json", "--model", &gemma, "--device", "mlx", "hello"],
            3,
            "registry.device-missing",
        ),
        (
            &["generate", "--json", "--model", &llama, "--raw", "--top-p", "7", "a"],
            2,
            "sampling.out-of-range",
        ),
        (&["generate", "--json", "--model", &llama, "--prompt-ids", "999999"], 1, "engine.prompt-token"),
    ];
    for (arguments, exit, code) in cases {
        let (found_exit, report) = place.refusal(arguments);
        assert_eq!((found_exit, report["code"].as_str()), (exit, Some(code)), "{arguments:?}: {report:#}");
    }
}

#[test]
fn errors_are_drawn_with_the_line_underlined() {
    let place = Place::new();
    let profile = place.path("profiles/llama.toml");
    let shipped = fs::read_to_string(&profile).expect("a profile");
    fs::write(&profile, shipped.replace("max_step_tokens = 512", "max_step_tokens = 0")).expect("a file");
    let output = place.run(&["explain", &fixture("tiny-llama-tied")]);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert!(stderr.starts_with("error[profile.value]: "), "{stderr}");
    assert!(stderr.contains("│ max_step_tokens = 0") && stderr.contains("───"), "{stderr}");
    assert!(stderr.contains("\n  expected  ") && stderr.contains("\n  mend      "), "{stderr}");
    assert!(!stderr.contains('\x1b'), "no colour where there is no terminal");
}

#[test]
fn explain_tells_the_whole_decision_and_reads_no_weights() {
    let place = Place::new();
    let model = fixture("tiny-llama-tied");
    let found = place.json(&["explain", &model, "--json", "--threads", "1"]);
    assert_eq!(found["profile"], "llama");
    assert_eq!(found["candidates"].as_array().map(Vec::len), Some(2));
    assert_eq!(found["graph"]["n_layers"], 2);
    assert!(found["memory"]["weights_bytes"].as_u64().is_some_and(|bytes| bytes > 0));
    assert!(found["refusal"].is_null());
    let output = place.run(&["explain", &model]);
    let shown = text(&output.stdout);
    for word in [
        "model ",
        "profile ",
        "llama-lua 1.",
        "limits.context_tokens",
        "fingerprint",
        "memory",
        "composition",
    ] {
        assert!(shown.contains(word), "{word}: {shown}");
    }
    // The composition is the one that would run.
    let generated = place.json(&[
        "generate",
        "--model",
        &model,
        "--threads",
        "1",
        "--prompt-ids",
        "1,2",
        "--max-tokens",
        "1",
        "--json",
    ]);
    assert_eq!(generated["composition"], found["composition"]);
}

#[test]
fn explain_refuses_an_altered_config_without_opening_weights() {
    let place = Place::new();
    let model = place.path("model");
    fs::create_dir(&model).expect("a new folder");
    let config = fs::read_to_string(format!("{}/config.json", fixture("tiny-llama-tied"))).expect("a config");
    fs::write(model.join("config.json"), config.replace("\"silu\"", "\"gelu\"")).expect("a new file");
    // Not safetensors at all: reading its header would be another error.
    fs::write(model.join("model.safetensors"), b"unreadable").expect("a new file");
    let output = place.run(&["explain", &model.display().to_string(), "--json"]);
    assert_eq!(output.status.code(), Some(3));
    let found: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!(found["refusal"]["code"], "profile.no-match");
    assert!(found["refusal"].to_string().contains("hidden_act"), "{found:#}");
    assert!(found["profile"].is_null());
}

#[test]
fn a_graph_is_shown_in_its_canonical_text() {
    let place = Place::new();
    let model = fixture("tiny-llama-tied");
    let shown = text(&place.run(&["graph", "show", &model]).stdout);
    assert!(shown.contains("model.embed_tokens.weight"), "{shown}");
    let fingerprint = text(&place.run(&["graph", "show", &model, "--fingerprint"]).stdout);
    assert_eq!(fingerprint.trim().len(), 64);
    let explained = place.json(&["explain", &model, "--json"]);
    assert_eq!(explained["graph"]["fingerprint"], fingerprint.trim());
}

#[test]
fn an_imported_folder_gives_the_same_answer() {
    let place = Place::new();
    let out = place.path("imported").display().to_string();
    let model = fixture("tiny-mlx-q4-g64");
    let output = place.run(&["import", &model, "--out", &out]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let generate = |model: &str| {
        place.json(&[
            "generate",
            "--model",
            model,
            "--numeric",
            "exact",
            "--raw",
            "--temperature",
            "0",
            "--max-tokens",
            "8",
            "--ignore-eos",
            "--json",
            "one two",
        ])
    };
    assert_eq!(generate(&out)["token_ids"], generate(&model)["token_ids"]);
    let again = place.run(&["import", &model, "--out", &out]);
    assert_eq!(again.status.code(), Some(2), "{}", text(&again.stderr));
    let left: Vec<_> = fs::read_dir(place.folder.path()).expect("a folder").flatten().collect();
    assert!(left.iter().all(|entry| !entry.file_name().to_string_lossy().starts_with('.')), "{left:?}");
}

#[test]
fn a_chat_keeps_to_its_commands() {
    let place = Place::new();
    let saved = place.path("talk.json");
    let mut child = place
        .tenon(&["chat", "--model", &fixture("tiny-mlx-q4-g64"), "--max-tokens", "4", "--temperature", "0"])
        .stdin(Stdio::piped())
        .spawn()
        .expect("it starts");
    let lines =
        format!("/help\n/system Be brief.\nhello\nand again\n/oops\n/save {}\n/quit\n", saved.display());
    child.stdin.take().expect("a pipe").write_all(lines.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    let stderr = text(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert!(stderr.contains("/reset") && stderr.contains("no command /oops"), "{stderr}");
    let messages: Value =
        serde_json::from_str(&fs::read_to_string(&saved).expect("it was saved")).expect("JSON");
    let roles: Vec<&str> =
        messages.as_array().expect("a list").iter().filter_map(|message| message["role"].as_str()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "user", "assistant"]);
}

#[test]
fn the_doctor_tells_what_is_there() {
    let place = Place::new();
    let found = place.json(&["doctor", "--json"]);
    assert_eq!(found["devices"][0]["id"], "cpu");
    assert!(found["plugins"].to_string().contains("llama-lua"));
    assert_eq!(found["profiles"].as_array().map(Vec::len), Some(2));
    assert_eq!(found["cache"], place.path("cache").display().to_string());
    assert!(text(&place.run(&["doctor"]).stdout).contains("simd"));
}

#[test]
fn bench_measures_what_was_asked() {
    let place = Place::new();
    let arguments = [
        "bench",
        "--model",
        &fixture("tiny-llama-tied"),
        "--prompt-tokens",
        "16",
        "--new-tokens",
        "4",
        "--context",
        "4",
        "--sequences",
        "1,3",
        "--repeat",
        "2",
        "--json",
    ];
    let found = place.json(&arguments);
    assert_eq!(found["measured"]["decode"][1]["sequences"], 3);
    for pointer in [
        "/measured/open_ms",
        "/measured/start_to_first_token_ms",
        "/measured/first_token_ms/median",
        "/measured/prefill_tokens_per_second/median",
        "/measured/decode/0/tokens_per_second/median",
        "/measured/decode/1/tokens_per_second/median",
    ] {
        assert!(
            found.pointer(pointer).and_then(Value::as_f64).is_some_and(|x| x > 0.0),
            "{pointer}: {found:#}"
        );
    }
    let (exit, report) =
        place.refusal(&["bench", "--model", &fixture("tiny-llama-tied"), "--sequences", "99", "--json"]);
    assert_eq!((exit, report["code"].as_str()), (2, Some("usage.value")));
}

#[test]
fn models_are_listed_and_unknown_ones_not_removed() {
    let place = Place::new();
    let found = place.json(&["models", "list", "--json"]);
    assert_eq!(found["models"], Value::Array(Vec::new()));
    let removed = place.run(&["models", "remove", "hf:nobody/nothing"]);
    assert_eq!(removed.status.code(), Some(1));
    assert!(text(&removed.stderr).contains("error[models.not-fetched]"));
}

#[test]
fn folders_that_are_not_there_are_named() {
    let place = Place::new();
    let output = place.tenon(&["doctor"]).env("TENON_PLUGINS", "/nowhere/at/all").output().expect("it ran");
    assert_eq!(output.status.code(), Some(2));
    let stderr = text(&output.stderr);
    assert!(stderr.contains("/nowhere/at/all") && stderr.contains("TENON_PLUGINS"), "{stderr}");
}

#[test]
fn completions_know_the_commands() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = text(&place.run(&["completion", shell]).stdout);
        assert!(script.contains("explain") && script.contains("repetition-penalty"), "{shell}");
    }
}
