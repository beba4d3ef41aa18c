//! Frozen graphs: the text of every plugin's graph gives it back, what runs from one gives the same bits as what the
//! plugin built, and the program takes one for its model alone, without any plugin.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::fs;
use std::path::Path;

use host_core::Numeric;
use host_core::quant::Scheme;
use host_device::{Executable, LogitsFor, TokenRun, argmax};
use host_graph::{Graph, Limits};
use host_registry::{FrozenGraph, GraphPart, Subject};
use serde_json::{Value, json};
use tempfile::TempDir;
use tests::alter::Altered;
use tests::golden::Tiny;
use tests::model::{overrides, tensors, told};
use tests::places::{fixture, fixtures, name, workspace};
use tests::program::Tenon;
use tests::rows::{first_difference, step};
use tests::{Host, Model};

const TINY: [&str; 4] = ["tiny-llama", "tiny-gemma3", "tiny-mlx", "tiny-qwen3"];

fn open(host: &Host, folder: &Path) -> Model {
    host.open(folder, &overrides(Numeric::Fast, 64, 2, 64)).unwrap()
}

/// The graph of a model by way of a frozen file.
fn by_file(model: &Model) -> Graph {
    let GraphPart::Plugin(plugin) = model.composition.graph() else { panic!("a plugin builds it") };
    let config = &model.checkpoint.config().json;
    let tensors = tensors(&model.checkpoint);
    let text = told(FrozenGraph::freeze(&model.graph, &tensors, Subject::from(config), plugin, "0.2"));
    let frozen = told(FrozenGraph::parse("tiny", "tiny.graph", &text));
    told(frozen.check_model(Subject::from(config)).map_err(|fault| *fault));
    told(frozen.open(&tensors))
}

#[test]
fn every_graph_of_the_plugins_comes_back_from_its_text() {
    let host = Host::lua();
    let folders: Vec<_> = TINY.iter().flat_map(|prefix| fixtures(prefix)).collect();
    assert!(folders.len() >= 29, "all fixtures are there");
    for folder in folders {
        let model = open(&host, &folder);
        let text = model.graph.text();
        let read = told(Graph::parse(&text, tensors(&model.checkpoint), Limits::default()));
        assert!(read == model.graph, "{}", name(&folder));
        assert_eq!((read.text(), read.fingerprint()), (text, model.graph.fingerprint()));
        assert!(by_file(&model) == model.graph, "{}", name(&folder));
    }
}

/// Damaged texts of whole models: refused, or the text of the graph that they give. Never a panic.
#[test]
fn damaged_texts_of_models_do_no_harm() {
    let model = open(&Host::lua(), &fixture("tiny-gemma3-window"));
    let (text, tensors) = (model.graph.text(), tensors(&model.checkpoint));
    let mut state = 1_u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let letters = b" 0%\"()[],.:=ae-\n";
    for _ in 0..1500 {
        let mut bytes = text.clone().into_bytes();
        for _ in 0..=random(2) {
            let (at, from) = (random(bytes.len()), random(bytes.len()));
            match random(3) {
                0 => bytes[at] = letters[random(letters.len())],
                1 => bytes.truncate(at + 1),
                _ => bytes[at] = bytes[from],
            }
        }
        let damaged = String::from_utf8(bytes).unwrap();
        if let Ok(graph) = Graph::parse(&damaged, tensors.clone(), Limits::default()) {
            assert_eq!(graph.text(), damaged);
        }
    }
}

/// Prefill in two chunks, then greedy decoding, with every logit.
fn run(executable: &mut dyn Executable, prompt: &[u32]) -> Vec<Vec<f32>> {
    let sequence = told(executable.new_sequence());
    let (first, rest) = prompt.split_at(prompt.len() / 2);
    let mut rows = Vec::new();
    for tokens in [first, rest] {
        rows.extend(step(executable, &[(sequence, tokens)]).remove(0));
    }
    for _ in 0..8 {
        let token = argmax(rows.last().unwrap()).unwrap();
        rows.extend(step(executable, &[(sequence, &[token])]).remove(0));
    }
    executable.release(sequence);
    rows
}

/// Models of each family, as published in plain numbers, and with their matrices quantised.
#[test]
fn prefill_and_decode_give_the_bits_of_the_plugins_graph() {
    let host = Host::lua();
    let nvfp4 = |model: &mut Model| {
        let takes = |shape: &[usize]| matches!(shape, [_, cols] if cols % 16 == 0);
        let infos = model.checkpoint.catalogue().iter();
        let schemes: Vec<Scheme> =
            infos.map(|info| if takes(&info.shape) { Scheme::Nvfp4 } else { Scheme::Keep }).collect();
        assert!(schemes.contains(&Scheme::Nvfp4));
        let published = told(host_weights::Checkpoint::open(&model.path));
        model.checkpoint = told(published.quantised(&schemes));
    };
    for family in ["tiny-llama-gqa-bf16", "tiny-gemma3-window", "tiny-qwen3-gqa", "tiny-mlx-q4-g32"] {
        let folder = fixture(family);
        let prompt = Tiny::read(&folder).input_ids;
        for is_quantised in [false, true] {
            if is_quantised && family.starts_with("tiny-mlx") {
                continue;
            }
            let frozen = by_file(&open(&host, &folder));
            let mut model = open(&host, &folder);
            if is_quantised {
                nvfp4(&mut model);
            }
            let mut built = model.compile();
            model.graph = frozen;
            let mut from_file = model.compile();
            let [expected, found] =
                [&mut built, &mut from_file].map(|executable| run(&mut **executable, &prompt));
            assert_eq!(first_difference(&found, &expected), None, "{family}, quantised: {is_quantised}");
            assert_eq!(from_file.plan_runs(), built.plan_runs());
            assert_eq!((from_file.plan_runs().specialised, from_file.plan_runs().general), (10, 0));
        }
    }
}

/// A sequence that is not stored as the plan was made for gets the general form of the plan of a frozen graph.
#[test]
fn the_guard_fails_for_a_sequence_of_another_storage() {
    let host = Host::lua();
    let folder = fixture("tiny-qwen3-gqa");
    let frozen = by_file(&open(&host, &folder));
    let mut model = open(&host, &folder);
    model.graph = frozen;
    let mut executable = model.compile();
    let sequence = told(executable.new_sequence_stored(host_device::KvStorage::PlainBf16));
    told(executable.step(&[TokenRun { sequence, tokens: &[1, 2, 3], logits: LogitsFor::Last }]));
    assert_eq!((executable.plan_runs().specialised, executable.plan_runs().general), (0, 1));
}

/// A folder of profiles in which one names a frozen graph, and a folder without any plugin.
struct Frozen {
    folder: TempDir,
    plugins: TempDir,
}

const MODEL: &str = "tiny-llama-gqa-f32";

impl Frozen {
    /// Freezes the model and writes a profile for it.
    fn of(tenon: &Tenon, model: &str) -> Frozen {
        let frozen = Frozen { folder: tempfile::tempdir().unwrap(), plugins: tempfile::tempdir().unwrap() };
        fs::create_dir(frozen.folder.path().join("graphs")).unwrap();
        let out = frozen.file().display().to_string();
        let told = tenon.run(&["graph", "freeze", model, "-o", &out, "--json"]).json();
        assert_eq!((told["name"].as_str(), told["file"].as_str()), (Some("tiny"), Some(out.as_str())));
        frozen.profile(told["profile_line"].as_str().unwrap());
        frozen
    }

    fn file(&self) -> std::path::PathBuf {
        self.folder.path().join("graphs").join("tiny.graph")
    }

    /// The shipped profile of the family, with this line for the plugin's.
    fn profile(&self, line: &str) {
        let text = fs::read_to_string(workspace().join("profiles").join("llama.toml")).unwrap();
        let plugin = "graph = { plugin = \"llama\", version = \"^1.0\" }";
        assert!(text.contains(plugin));
        fs::write(self.folder.path().join("llama.toml"), text.replace(plugin, line)).unwrap();
    }

    /// Runs with these folders alone.
    fn run(&self, tenon: &Tenon, arguments: &[&str]) -> tests::program::Ended {
        let folders = [&self.plugins, &self.folder].map(|folder| folder.path().display().to_string());
        let mut line = vec!["--plugins", &folders[0], "--profiles", &folders[1]];
        line.extend(arguments);
        tenon.run(&line)
    }
}

fn generate<'a>(model: &'a str, ids: &'a str) -> Vec<&'a str> {
    let mut line =
        vec!["generate", "--model", model, "--prompt-ids", ids, "--numeric", "exact", "--threads", "1"];
    line.extend(["--temperature", "0", "--max-tokens", "8", "--ignore-eos", "--json"]);
    line
}

#[test]
fn the_program_opens_a_frozen_graph_without_any_plugin() {
    let Some(tenon) = Tenon::find() else { return };
    let model = fixture(MODEL).display().to_string();
    let frozen = Frozen::of(&tenon, &model);
    let ids: Vec<String> = Tiny::read(&fixture(MODEL)).input_ids.iter().map(u32::to_string).collect();
    let ids = ids.join(",");
    let by_plugin = tenon.run(&generate(&model, &ids)).json();
    let by_file = frozen.run(&tenon, &generate(&model, &ids)).json();
    assert_eq!(by_file["token_ids"], by_plugin["token_ids"]);
    assert_ne!(
        by_file["composition"], by_plugin["composition"],
        "a composition tells where its graph is from"
    );
    assert_eq!(by_file["plan_runs"], json!({ "specialised": 8, "general": 0 }));

    let explained = frozen.run(&tenon, &["explain", &model, "--json"]).json();
    let part = &explained["parts"][0];
    assert_eq!((part["part"].as_str(), part["name"].as_str()), (Some("graph"), Some("tiny")));
    assert_eq!(part["runtime"], "frozen");
    let shown = |name: &str| tenon.run(&["graph", "show", name, "--fingerprint"]).done();
    let file = frozen.file().display().to_string();
    assert_eq!(shown(&file), shown(&model));
    assert_eq!(explained["graph"]["fingerprint"], shown(&file).trim());

    let checked = tenon.run(&["graph", "check", &file, &model, "--json"]).json();
    assert_eq!(
        (checked["digest"].as_str(), &checked["config"]["fingerprint"]),
        (part["digest"].as_str(), &explained["config"])
    );
    assert_eq!(
        tenon.run(&["graph", "diff", &file, &model, "--json"]).json(),
        json!({ "equal": true, "differences": [] })
    );
    let other = fixture("tiny-llama-rope-linear").display().to_string();
    let differs = tenon.run(&["graph", "diff", &file, &other]);
    assert_eq!(differs.code, Some(1), "{differs:?}");
    assert!(differs.stdout.contains("type=linear"), "{}", differs.stdout);
    // The same again is no change; another graph does not take its place.
    tenon.run(&["graph", "freeze", &model, "-o", &file]).done();
    let taken = tenon.run(&["graph", "freeze", &other, "-o", &file, "--json"]).error(2);
    assert_eq!(taken["code"], "usage.graph-taken");
    // A frozen graph is not frozen again.
    let again = frozen.run(&tenon, &["graph", "freeze", &model, "--json"]).error(3);
    assert_eq!(again["code"], "graph.frozen-already");
}

/// Each refusal is exact, and the plugin, which is there, is not tried.
#[test]
fn the_program_refuses_whatever_is_not_the_frozen_graph_of_the_model() {
    let Some(tenon) = Tenon::find() else { return };
    let model = fixture(MODEL).display().to_string();
    let frozen = Frozen::of(&tenon, &model);
    let refused = |model: &str| {
        let profiles = frozen.folder.path().display().to_string();
        let arguments =
            ["--profiles", &profiles, "generate", "--model", model, "--prompt-ids", "1", "--json"];
        let error = tenon.run(&arguments).error(3);
        assert!(error["mend"].is_string(), "{error}");
        error["code"].clone()
    };
    let other = |edit: &dyn Fn(&mut serde_json::Map<String, Value>)| Altered::of(MODEL).config(edit);
    let shape = other(&|config| drop(config.insert("sliding_window".into(), json!(4))));
    assert_eq!(refused(shape.path().to_str().unwrap()), "registry.no-generated-graph");
    let rotation = other(&|config| drop(config.insert("rms_norm_eps".into(), json!(0.5))));
    assert_eq!(refused(rotation.path().to_str().unwrap()), "registry.frozen-config");
    let renamed = Altered::of(MODEL).rename_tensor("model.norm.weight", "model.nerm.weight");
    assert_eq!(refused(renamed.path().to_str().unwrap()), "graph.frozen-tensors");

    let text = fs::read_to_string(frozen.file()).unwrap();
    fs::write(frozen.file(), text.replace("version = \"", "version = \"9")).unwrap();
    assert_eq!(refused(&model), "registry.frozen-digest");
    fs::remove_file(frozen.file()).unwrap();
    assert_eq!(refused(&model), "registry.no-generated-graph");
    frozen.profile("graph = { frozen = \"tiny\" }");
    let error = frozen.run(&tenon, &["explain", &model, "--json"]).error(3);
    assert_eq!(error["code"], "profile.missing-key");
}
