//! `tenon quantize` from end to end: what `mlx-lm` makes of the written folder, and that loading with a scheme is the
//! same as loading what was written with it.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use host_core::Numeric;
use host_core::quant::Role;
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tests::golden::Generation;
use tests::model::overrides;
use tests::places::{fixture, fixtures, prefix, read_json, workspace};
use tests::program::Tenon;
use tests::{Host, skip};

/// A tiny model with a tokenizer, whose rows are whole groups of 128.
const TINY: &str = "tiny-mlx-q8-g64";

/// What the real `mlx-lm` answered with the folder that this program wrote.
#[derive(Deserialize)]
struct MlxLm {
    n_steps: usize,
    quantization: Value,
    weights_sha256: String,
    prompts: Vec<MlxPrompt>,
}

#[derive(Deserialize)]
struct MlxPrompt {
    name: String,
    prompt_ids: Vec<u32>,
    output_ids: Vec<u32>,
    margins: Vec<f32>,
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// Greedy and exact, with one JSON object.
fn generate(tenon: &Tenon, model: &Path, ids: &[u32], n: usize, more: &[&str]) -> Value {
    let (model, n) = (text(model), n.to_string());
    let ids = ids.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let mut line = vec!["generate", "--model", &model, "--prompt-ids", &ids, "--max-tokens", &n];
    line.extend([
        "--numeric",
        "exact",
        "--temperature",
        "0",
        "--ignore-eos",
        "--json",
        "--context-tokens",
        "128",
    ]);
    line.extend(more);
    tenon.run(&line).json()
}

#[test]
fn mlx_lm_gives_the_same_greedy_tokens_with_the_written_folder() {
    let Some(tenon) = Tenon::find() else { return };
    let generation = Generation::read("smollm2-135m");
    let Some(model) = skip::model_file(&generation.model_file, &generation.model_sha256) else { return };
    let golden: MlxLm = read_json(&fixture("mlx-lm-smollm2-4bit").join("generation.json"));
    let parent = tempfile::tempdir().unwrap();
    let out = parent.path().join("smollm2-4bit");
    let (source, target) = (text(&model), text(&out));
    let told =
        tenon.run(&["quantize", &source, "--quant", "uniform-4bit", "--out", &target, "--json"]).json();
    // 4 bits and two halves for each 64 weights, and a little for the norms.
    let bits = told["bits_per_weight"].as_f64().unwrap();
    assert!((4.5..4.52).contains(&bits), "{bits} bits a weight");

    let config: Value = read_json(&out.join("config.json"));
    assert_eq!(config["quantization"], golden.quantization);
    let weights = fs::read(out.join("model.safetensors")).unwrap();
    let digest: String = Sha256::digest(weights).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(digest, golden.weights_sha256, "mlx-lm was given these very bytes");

    for prompt in golden.prompts {
        let answer = generate(&tenon, &out, &prompt.prompt_ids, golden.n_steps, &[]);
        let found: Vec<u32> = serde_json::from_value(answer["token_ids"].clone()).unwrap();
        let differs = (0..golden.n_steps).find(|step| found[*step] != prompt.output_ids[*step]);
        // Where the two best logits are this near, either may come first; from there on the texts differ.
        if let Some(step) = differs {
            let margin = prompt.margins[step];
            assert!(margin <= 0.01, "{}: step {step} differs at a margin of {margin}", prompt.name);
            assert!(step >= 32, "{}: only {step} tokens could be compared", prompt.name);
        }
    }
}

/// A folder of profiles in which `llama` quantises at load by these rules.
fn profiles_with_scheme(scheme: &str) -> tempfile::TempDir {
    profiles_with(&format!("{{ scheme = \"{scheme}\" }}"))
}

/// A folder of profiles in which `llama` has this `quant`.
fn profiles_with(quant: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let llama = fs::read_to_string(workspace().join("profiles/llama.toml")).unwrap();
    let published = "quant = \"as-published\"";
    assert!(llama.contains(published));
    let llama = llama.replace(published, &format!("quant = {quant}"));
    fs::write(folder.path().join("llama.toml"), llama).unwrap();
    let rules = folder.path().join("quant");
    fs::create_dir(&rules).unwrap();
    for name in ["uniform-4bit.toml", "uniform-8bit.toml"] {
        fs::copy(workspace().join("profiles/quant").join(name), rules.join(name)).unwrap();
    }
    folder
}

#[test]
fn loading_with_a_scheme_is_loading_what_was_written_with_it() {
    let Some(tenon) = Tenon::find() else { return };
    let parent = tempfile::tempdir().unwrap();
    let (source, out) = (fixture("tiny-mlx-q4-g128"), parent.path().join("out"));
    let (from, to) = (text(&source), text(&out));
    let profiles = profiles_with_scheme("uniform-4bit");
    let folder = text(profiles.path());
    tenon.run(&["quantize", &from, "--quant", "uniform-4bit", "--out", &to]).done();
    let ids: Vec<u32> = (3..40).collect();
    let written = generate(&tenon, &out, &ids, 16, &["--logprobs", "5"]);
    let at_load = generate(&tenon, &source, &ids, 16, &["--logprobs", "5", "--profiles", &folder]);
    assert_eq!(at_load["token_ids"], written["token_ids"]);
    assert_eq!(at_load["logprobs"], written["logprobs"], "to the last bit");
    let published = generate(&tenon, &source, &ids, 16, &["--logprobs", "5"]);
    assert_ne!(published["logprobs"], written["logprobs"], "the scheme changes something");
    assert_ne!(published["composition"], at_load["composition"], "the rules are part of the composition");

    let explained = tenon.run(&["explain", &from, "--profiles", &folder, "--json"]).json();
    let quant = explained["parts"].as_array().unwrap().iter().find(|part| part["part"] == "quant").unwrap();
    assert_eq!(quant["name"], "uniform-4bit");
    assert_eq!(quant["digest"].as_str().unwrap().len(), 64);
    let absent = profiles_with_scheme("uniform-5bit");
    let error = tenon.run(&["explain", &from, "--profiles", &text(absent.path())]);
    assert_eq!(error.code, Some(3));
    assert!(error.stdout.contains("registry.quant-missing"), "{error:?}");
}

/// Weights of a written folder.
fn weights(folder: &Path) -> Vec<u8> {
    fs::read(folder.join("model.safetensors")).unwrap()
}

#[test]
fn a_plugin_plans_what_rules_of_the_same_meaning_give() {
    let Some(tenon) = Tenon::find() else { return };
    let parent = tempfile::tempdir().unwrap();
    let source = fixture("tiny-mlx-q4-g128");
    let from = text(&source);
    let out = |name: &str| parent.path().join(name);
    tenon.run(&["quantize", &from, "--quant", "uniform-4bit", "--out", &text(&out("rules"))]).done();
    let params = "{\"bits\": 4, \"group_size\": 64}";
    for id in ["quant-uniform", "quant-uniform-lua"] {
        let to = text(&out(id));
        let line = ["quantize", &from, "--plugin", id, "--plugin-params", params, "--out", &to, "--json"];
        let told = tenon.run(&line).json();
        assert_eq!((&told["plugin"]["id"], &told["plugin"]["params"]["bits"]), (&json!(id), &json!(4)));
        assert!(weights(&out(id)) == weights(&out("rules")), "{id}");
        // What it planned can be applied without it.
        let (rules, again) = (text(&out(id).join("quantization.toml")), out(&format!("{id} again")));
        tenon.run(&["quantize", &from, "--quant", &rules, "--out", &text(&again)]).done();
        assert!(weights(&again) == weights(&out(id)), "{id}");
    }
    let quant = "{ plugin = \"quant-uniform\", version = \"^1.0\", params = { bits = 4, group_size = 64 } }";
    let profiles = profiles_with(quant);
    let folder = text(profiles.path());
    let ids: Vec<u32> = (3..40).collect();
    let written = generate(&tenon, &out("rules"), &ids, 16, &["--logprobs", "5"]);
    let at_load = generate(&tenon, &source, &ids, 16, &["--logprobs", "5", "--profiles", &folder]);
    assert_eq!(at_load["token_ids"], written["token_ids"]);
    assert_eq!(at_load["logprobs"], written["logprobs"], "to the last bit");
    let explained = tenon.run(&["explain", &from, "--profiles", &folder, "--json"]).json();
    let part = explained["parts"].as_array().unwrap().iter().find(|part| part["part"] == "quant").unwrap();
    let title = [&part["name"], &part["version"], &part["runtime"]];
    assert_eq!(title, [&json!("quant-uniform"), &json!("1.0.0"), &json!("wasm")]);
    assert_eq!(part["digest"].as_str().unwrap().len(), 64);
}

#[test]
fn mixed_precision_by_a_plugin_is_that_of_the_host() {
    let Some(tenon) = Tenon::find() else { return };
    let parent = tempfile::tempdir().unwrap();
    let out = |name: &str| parent.path().join(name);
    let source = fixture(TINY);
    let (model, calibration) = (text(&source), text(&fixture("kl-text").join("text.txt")));
    let measure = |to: &Path, more: &[&str]| {
        let to = text(to);
        let mut line = vec!["quantize", &model, "--measure", &calibration, "--out", &to, "--json"];
        line.extend(["--budget-bits-per-weight", "5.2", "--calibration-tokens", "32", "--group-size", "32"]);
        line.extend(more);
        tenon.run(&line)
    };
    let host = measure(&out("host"), &[]).json();
    let plugin = measure(&out("plugin"), &["--plugin", "quant-mixed"]).json();
    assert_eq!(plugin["measured"], host["measured"]);
    assert!(weights(&out("plugin")) == weights(&out("host")));

    // With the params that were told, a profile does the same at load.
    let (params, kl) = (&plugin["plugin"]["params"], &plugin["plugin"]["params"]["kl"]);
    let kl = format!(
        "{{ embedding = {}, attention = {}, mlp = {} }}",
        kl["embedding"], kl["attention"], kl["mlp"]
    );
    let (budget, bits, size) = (&params["budget_bits_per_weight"], &params["bits"], &params["group_size"]);
    let params =
        format!("{{ budget_bits_per_weight = {budget}, bits = {bits}, group_size = {size}, kl = {kl} }}");
    let profiles =
        profiles_with(&format!("{{ plugin = \"quant-mixed-lua\", version = \"^1.0\", params = {params} }}"));
    let folder = text(profiles.path());
    let ids: Vec<u32> = (3..40).collect();
    let written = generate(&tenon, &out("host"), &ids, 16, &["--logprobs", "5"]);
    let at_load = generate(&tenon, &source, &ids, 16, &["--logprobs", "5", "--profiles", &folder]);
    assert_eq!(at_load["logprobs"], written["logprobs"], "to the last bit");

    let given = ["--plugin", "quant-mixed", "--plugin-params", "{\"budget_bits_per_weight\": 6}"];
    assert_eq!(measure(&out("twice"), &given).error(2)["code"], "usage.value");
    assert!(!out("twice").exists());
}

/// A plugin whose plan no tensor of one dimension can take.
const CARELESS: &str = "function plan(params, tensors, config)
    local schemes = {}
    for i in tensors do schemes[i] = 'mxfp4' end
    return schemes
end";

#[test]
fn a_plugin_that_is_not_there_or_plans_what_cannot_be_is_refused() {
    let Some(tenon) = Tenon::find() else { return };
    let parent = tempfile::tempdir().unwrap();
    let (tiny, out) = (text(&fixture(TINY)), text(&parent.path().join("out")));
    let plugins = tempfile::tempdir().unwrap();
    let careless = plugins.path().join("careless");
    fs::create_dir(&careless).unwrap();
    let manifest = "id = \"careless\"\nversion = \"1.0.0\"\nkind = \"quant-profile\"\nruntime = \"lua\"\n\
                    entry = \"careless.lua\"\nsdk = \"0.1\"\n";
    fs::write(careless.join("plugin.toml"), manifest).unwrap();
    fs::write(careless.join("careless.lua"), CARELESS).unwrap();
    let folders = [prefix().join("plugins"), plugins.path().to_owned()].map(|path| text(&path));
    let both = ["--plugins", &folders[0], "--plugins", &folders[1]];
    for (plugin, params, code, part) in [
        ("quant-unifrm", "{}", "registry.plugin-missing", "quant-unifrm"),
        ("no-repeat", "{}", "registry.plugin-kind", "no-repeat"),
        ("quant-uniform", "{}", "plugin.invalid-config", "quant-uniform"),
        ("quant-uniform", "{\"bits\": 7, \"group_size\": 64}", "plugin.invalid-config", "quant-uniform"),
        ("careless", "{}", "quant.not-a-matrix", "plugin careless"),
    ] {
        let mut line = vec!["quantize", &tiny, "--plugin", plugin, "--plugin-params", params];
        line.extend(["--out", &out, "--json"]);
        line.extend(both);
        let error = tenon.run(&line).error(3);
        assert_eq!(error["code"], code, "{error}");
        assert!(error["message"].as_str().unwrap().contains(part), "{error}");
    }
    assert!(!parent.path().join("out").exists());
    for (quant, code) in [
        ("{ plugin = \"quant-uniform\", version = \"^9\" }", "registry.plugin-version"),
        ("{ plugin = \"llama\", version = \"^1\" }", "registry.plugin-kind"),
        ("{ plugin = \"quant-uniform\", version = \"^1\", runtime = \"lua\" }", "registry.plugin-runtime"),
        ("{ plugin = \"quant-uniform\", version = \"^1\" }", "plugin.invalid-config"),
        ("{ plugin = \"careless\", version = \"^1\" }", "quant.not-a-matrix"),
    ] {
        let profiles = profiles_with(quant);
        let folder = text(profiles.path());
        let mut line = vec!["explain", &tiny, "--profiles", &folder];
        line.extend(both);
        let refused = tenon.run(&line);
        assert_eq!(refused.code, Some(3), "{refused:?}");
        assert!(refused.stdout.contains(code), "{quant}: {refused:?}");
    }
}

#[test]
fn measured_rules_keep_to_their_budget_and_can_be_applied_again() {
    let Some(tenon) = Tenon::find() else { return };
    let parent = tempfile::tempdir().unwrap();
    let out = |name: &str| parent.path().join(name);
    let (model, calibration) = (text(&fixture(TINY)), text(&fixture("kl-text").join("text.txt")));
    let (mixed, again) = (text(&out("mixed")), text(&out("again")));
    let mut line = vec!["quantize", &model, "--measure", &calibration, "--out", &mixed, "--json"];
    line.extend(["--budget-bits-per-weight", "5.2", "--calibration-tokens", "32", "--group-size", "32"]);
    let told = tenon.run(&line).json();
    let groups = told["measured"]["groups"].as_array().unwrap();
    let names: Vec<_> = groups.iter().map(|group| group["group"].as_str().unwrap()).collect();
    assert_eq!(names, ["embedding", "layer 0 attention", "layer 0 mlp"]);
    assert!(groups.iter().all(|group| group["kl"].as_f64().unwrap() > 0.0), "{groups:?}");
    let bits = told["bits_per_weight"].as_f64().unwrap();
    assert!(bits <= 5.2, "{bits} bits a weight");
    assert!(groups.iter().any(|group| group["bits"] != 3), "some of the budget was spent: {groups:?}");

    let rules = text(&out("mixed").join("quantization.toml"));
    let retold = tenon.run(&["quantize", &model, "--quant", &rules, "--out", &again, "--json"]).json();
    for key in ["bytes", "rules", "rules_sha256", "quantised_tensors"] {
        assert_eq!(retold[key], told[key], "{key}");
    }
    assert!(weights(&out("mixed")) == weights(&out("again")));

    let too_small = text(&out("too-small"));
    let mut line = vec!["quantize", &model, "--measure", &calibration, "--out", &too_small, "--json"];
    line.extend(["--budget-bits-per-weight", "2", "--calibration-tokens", "32"]);
    assert_eq!(tenon.run(&line).error(2)["code"], "usage.value");
    assert!(!out("too-small").exists());
}

#[test]
fn what_cannot_be_quantised_as_asked_is_refused_and_leaves_nothing() {
    let Some(tenon) = Tenon::find() else { return };
    let parent = tempfile::tempdir().unwrap();
    let (tiny, narrow) = (text(&fixture(TINY)), text(&fixture("tiny-llama-gqa-f32")));
    let rules = |name: &str, body: &str| {
        let path = parent.path().join(name);
        fs::write(&path, format!("schema = 1\nid = \"mine\"\nabout = \"a test\"\n{body}")).unwrap();
        text(&path)
    };
    let keep = "[[rule]]\nmatch = \"*\"\nscheme = \"keep\"\n";
    let idle = rules("idle.toml", &format!("[[rule]]\nmatch = \"none\"\nscheme = \"keep\"\n{keep}"));
    let seven = rules("seven.toml", "[[rule]]\nmatch = \"*\"\nscheme = { bits = 7, group_size = 64 }\n");
    let silent = rules("silent.toml", "[[rule]]\nmatch = \"model.layers.*\"\nscheme = \"keep\"\n");
    let vector = rules("vector.toml", "[[rule]]\nmatch = \"*\"\nscheme = \"mxfp4\"\n");
    let cases = [
        (&tiny, "no-such-rules", 2, "quant.unknown-rules"),
        (&tiny, idle.as_str(), 3, "quant.idle-rule"),
        (&tiny, seven.as_str(), 3, "profile.type"),
        (&tiny, silent.as_str(), 3, "quant.unmatched-tensor"),
        (&tiny, vector.as_str(), 3, "quant.not-a-matrix"),
        // Its rows of 48 are no whole groups.
        (&narrow, "uniform-4bit", 3, "quant.indivisible"),
    ];
    let before = fs::read_dir(parent.path()).unwrap().count();
    let out = text(&parent.path().join("out"));
    for (model, rules, exit, code) in cases {
        let error = tenon.run(&["quantize", model, "--quant", rules, "--out", &out, "--json"]).error(exit);
        assert_eq!(error["code"], code, "{error}");
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), before, "{code} leaves nothing");
    }
    let taken = text(parent.path());
    let error =
        tenon.run(&["quantize", &tiny, "--quant", "uniform-4bit", "--out", &taken, "--json"]).error(2);
    assert_eq!(error["code"], "usage.out-taken");
}

#[test]
fn a_run_that_is_killed_leaves_no_folder_of_that_name() {
    let Some(tenon) = Tenon::find() else { return };
    let generation = Generation::read("smollm2-135m");
    let Some(model) = skip::model_file(&generation.model_file, &generation.model_sha256) else { return };
    let parent = tempfile::tempdir().unwrap();
    let out = parent.path().join("out");
    let (source, target) = (text(&model), text(&out));
    let mut child = tenon.start(&["quantize", &source, "--quant", "uniform-8bit", "--out", &target]);
    let begun = Instant::now();
    let something_is_written = || fs::read_dir(parent.path()).unwrap().next().is_some();
    let mut has_ended = || child.try_wait().unwrap().is_some();
    while !something_is_written() && !has_ended() && begun.elapsed() < Duration::from_secs(60) {
        thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!out.exists(), "the name appears when the folder is whole");
}

/// The published names say what a tensor is for; the graph must come to the same without them.
#[test]
fn roles_that_the_graph_tells_are_those_of_the_names() {
    let host = Host::lua();
    let roles = [
        ("embed_tokens.weight", Role::Embedding),
        ("q_proj.weight", Role::AttentionQ),
        ("k_proj.weight", Role::AttentionK),
        ("v_proj.weight", Role::AttentionV),
        ("o_proj.weight", Role::AttentionO),
        ("gate_proj.weight", Role::MlpGate),
        ("up_proj.weight", Role::MlpUp),
        ("down_proj.weight", Role::MlpDown),
        ("lm_head.weight", Role::Head),
        ("norm.weight", Role::Norm),
        ("bias", Role::Bias),
    ];
    let mut seen = std::collections::BTreeSet::new();
    let folders: Vec<PathBuf> =
        ["tiny-llama", "tiny-gemma3", "tiny-qwen3"].iter().flat_map(|prefix| fixtures(prefix)).collect();
    for folder in folders {
        let model = host.open(&folder, &overrides(Numeric::Exact, 64, 1, 64)).unwrap();
        for (name, found) in model.graph.uses() {
            let ending =
                |(ending, _): &&(&str, Role)| name.ends_with(ending) || name.ends_with("layernorm.weight");
            let (_, expected) = roles.iter().find(ending).unwrap_or_else(|| panic!("{name}"));
            let expected = if name.ends_with("norm.weight") { Role::Norm } else { *expected };
            assert_eq!(found.role, expected, "{name} of {}", folder.display());
            let layer = name.strip_prefix("model.layers.").map(|rest| rest.split('.').next().unwrap());
            assert_eq!(
                json!(found.layer),
                layer.map_or(json!(null), |layer| json!(layer.parse::<u32>().unwrap()))
            );
            seen.insert(found.role);
        }
    }
    assert_eq!(seen.len(), roles.len(), "{seen:?}");
}
