//! Frozen graphs: written and read back, composed for one configuration, and refused for everything else.

use std::sync::Arc;

use host_core::Reported;
use host_graph::{Catalogue, TensorFacts};
use serde_json::{Map, Value, json};

use super::{FILE, PROFILE, config, graph, host, model, plugin, table};
use crate::{
    Composition, FrozenFault, FrozenFile, FrozenGraph, FrozenSet, GraphPart, LoadedProfile, Overrides, Parts,
    Refusal, Registry, Sha256Digest, Subject,
};

fn llama(edits: Value) -> Map<String, Value> {
    let mut all = json!({ "num_attention_heads": 4, "num_hidden_layers": 2 });
    all.as_object_mut().unwrap().extend(edits.as_object().cloned().unwrap());
    config(all)
}

fn tensors() -> Catalogue {
    [("embed.weight".to_owned(), TensorFacts { shape: vec![8, 4], is_dense: true })].into_iter().collect()
}

fn text() -> String {
    let config = llama(json!({}));
    FrozenGraph::freeze(&graph(), &tensors(), Subject::from(&config), &plugin("llama", "0.1.3"), "0.2")
        .unwrap()
}

fn file(name: &str, text: &str) -> FrozenFile {
    let content = FrozenGraph::parse(name, &format!("profiles/graphs/{name}.graph"), text);
    FrozenFile {
        name: name.to_owned(),
        file: format!("profiles/graphs/{name}.graph"),
        digest: Some(Sha256Digest::of(text.as_bytes())),
        content: content.map(Arc::new).map_err(|fault| fault.report()),
    }
}

/// A profile that names this graph.
fn naming(name: &str, digest: Sha256Digest) -> LoadedProfile {
    let frozen = format!("{{ frozen = \"{name}\", digest = \"{digest}\" }}");
    let text = PROFILE.replace("{ plugin = \"llama\", version = \"^0.1\" }", &frozen);
    LoadedProfile::parse(FILE, &text).unwrap()
}

fn resolve(
    graphs: Vec<FrozenFile>,
    profile: &LoadedProfile,
    config: &Map<String, Value>,
) -> Result<Composition, Refusal> {
    // The plugin is there all the time, and is never taken in the graph's place.
    let registry = Registry::new(Parts { graphs, ..host() }).unwrap();
    registry.resolve(profile, model(config), &Overrides::default())
}

#[test]
fn a_file_holds_what_was_frozen() {
    insta::assert_snapshot!(text());
    let frozen = FrozenGraph::parse("tiny", "tiny.graph", &text()).unwrap();
    assert!(frozen.open(&tensors()).unwrap() == graph());
    assert_eq!((frozen.name(), frozen.digest()), ("tiny", Sha256Digest::of(text().as_bytes())));
    assert_eq!(frozen.tensors(), tensors());
}

#[test]
fn a_frozen_graph_is_composed_for_its_configuration() {
    let profile = naming("tiny", Sha256Digest::of(text().as_bytes()));
    let composition = resolve(vec![file("tiny", &text())], &profile, &llama(json!({}))).unwrap();
    let GraphPart::Frozen(frozen) = composition.graph() else { panic!("{:?}", composition.graph()) };
    assert!(frozen.open(&tensors()).unwrap() == graph());
    let line = format!("\ngraph frozen \"tiny\" {}\n", Sha256Digest::of(text().as_bytes()));
    assert!(composition.canonical_text().contains(&line), "{}", composition.canonical_text());
    let decision = crate::ProfileSet::from_texts([(FILE, profile.source().text())]).unwrap();
    let decision = decision.match_config(&llama(json!({})));
    let explanation = crate::Explanation::new("./tiny", "safetensors", &llama(json!({})), &decision);
    let explanation = explanation.with_composition(&composition);
    let (digest, shown) = (frozen.digest().short(), explanation.to_string());
    assert!(
        shown.contains(&format!("\ngraph        tiny frozen {digest} profiles/tiny.toml:13\n")),
        "{shown}"
    );
}

#[test]
fn whatever_is_not_the_pinned_graph_for_this_model_is_refused() {
    let (sound, digest) = (file("tiny", &text()), Sha256Digest::of(text().as_bytes()));
    let changed = file("tiny", &text().replace("0.1.3", "0.1.4"));
    let broken = text().replace("[plugin]", "[plugins]");
    let broken = (file("tiny", &broken), Sha256Digest::of(broken.as_bytes()));
    let absent = FrozenFile { digest: None, ..FrozenFile::read(std::path::Path::new("/nowhere/tiny.graph")) };
    let this = llama(json!({}));
    let cases = [
        ("no graph at all", Vec::new(), digest, this.clone()),
        ("no graph of that name", vec![file("other", &text())], digest, this.clone()),
        ("another file", vec![changed], digest, this.clone()),
        ("a broken header", vec![broken.0], broken.1, this.clone()),
        ("another shape", vec![sound.clone()], digest, llama(json!({ "num_attention_heads": 2 }))),
        ("no shape", vec![sound.clone()], digest, llama(json!({ "num_attention_heads": null }))),
        ("another rotation", vec![sound], digest, llama(json!({ "rope_theta": 5e5 }))),
        ("a file that is gone", vec![absent], digest, this),
    ];
    let cases = cases.map(|(name, graphs, digest, config)| {
        (name.to_owned(), vec![resolve(graphs, &naming("tiny", digest), &config).unwrap_err()])
    });
    snapshot!(table(cases));
}

#[test]
fn a_file_that_does_not_hold_what_it_says_is_refused() {
    let parse = |from: &str, to: &str| {
        assert!(text().contains(from), "{from}");
        FrozenGraph::parse("tiny", "tiny.graph", &text().replacen(from, to, 1))
    };
    let header = |from: &str, to: &str| (format!("{from} -> {to}"), vec![parse(from, to).unwrap_err()]);
    let opened = |from: &str, to: &str| {
        (format!("{from} -> {to}"), vec![parse(from, to).unwrap().open(&tensors()).unwrap_err()])
    };
    let over = |name: &str, facts: &[(&str, &[usize], bool)]| {
        let facts = facts.iter().map(|(name, shape, is_dense)| {
            ((*name).to_owned(), TensorFacts { shape: shape.to_vec(), is_dense: *is_dense })
        });
        let frozen = FrozenGraph::parse("tiny", "tiny.graph", &text()).unwrap();
        (name.to_owned(), vec![frozen.open(&facts.collect()).unwrap_err()])
    };
    snapshot!(table([
        header("\n+++\n", "\n++\n"),
        header("format = 1", "format = 2"),
        header("format = 1", "format = one"),
        header("[tensors]", "[weights]"),
        header("dense = true", "dense = 1"),
        header("contract = ", "kontract = "),
        opened("tenon-graph 1", "tenon-graph 2"),
        opened("linear(", "softmax("),
        opened(
            "[graph]\nfingerprint = \"",
            "[graph]\nfingerprint = \"0000000000000000000000000000000000000000000000000000000000000000\"\n#"
        ),
        over("a tensor more", &[("embed.weight", &[8, 4], true), ("more", &[1], true)]),
        over("another name", &[("embedding.weight", &[8, 4], true)]),
        over("another shape", &[("embed.weight", &[8, 5], true)]),
        over("quantised", &[("embed.weight", &[8, 4], false)]),
    ]));
}

#[test]
fn a_graph_is_frozen_for_a_shape() {
    let shapeless = config(json!({ "num_attention_heads": null }));
    let frozen = FrozenGraph::freeze(
        &graph(),
        &tensors(),
        Subject::from(&shapeless),
        &plugin("llama", "0.1.3"),
        "0.2",
    );
    assert!(matches!(frozen, Err(FrozenFault::Config(_))), "{frozen:?}");
}

#[test]
fn graphs_are_found_by_name_in_the_profile_folders() {
    let folder = tempfile::tempdir().unwrap();
    assert!(FrozenSet::load(&[folder.path()]).unwrap().files().is_empty());
    let graphs = folder.path().join("graphs");
    std::fs::create_dir(&graphs).unwrap();
    for (name, text) in
        [("b.graph", text()), ("a.graph", "x".to_owned()), (".c.graph", text()), ("d.toml", text())]
    {
        std::fs::write(graphs.join(name), text).unwrap();
    }
    std::fs::write(graphs.join("e.graph"), b"\xff").unwrap();
    let set = FrozenSet::load(&[folder.path()]).unwrap();
    let found: Vec<_> = set.files().iter().map(|file| (file.name.as_str(), file.content.is_ok())).collect();
    assert_eq!(found, [("a", false), ("b", true), ("e", false)]);
    assert_eq!(set.files()[1].digest, Some(Sha256Digest::of(text().as_bytes())));
    let twice = set.files().iter().chain(set.files()).cloned().collect();
    let error = Registry::new(Parts { graphs: twice, ..host() }).unwrap_err();
    assert_eq!(error.to_string(), "there are two frozen graphs of the name `a`");
}

#[test]
fn a_profile_names_a_plugin_or_a_frozen_graph() {
    let digest = Sha256Digest::of(b"x");
    let cases = [
        format!("{{ frozen = \"tiny\", plugin = \"llama\", digest = \"{digest}\" }}"),
        "{ frozen = \"tiny\" }".to_owned(),
        format!("{{ frozen = \"../tiny\", digest = \"{digest}\" }}"),
        format!("{{ frozen = \"tiny\", digest = \"{digest}\", version = \"^1\" }}"),
        "{ frozen = \"tiny\", digest = \"12\" }".to_owned(),
        "{ version = \"^1\" }".to_owned(),
        "\"llama\"".to_owned(),
    ];
    let cases = cases.map(|graph| {
        let text = PROFILE.replace("{ plugin = \"llama\", version = \"^0.1\" }", &graph);
        let errors = LoadedProfile::parse(FILE, &text).unwrap_err();
        (graph.replace(&digest.to_string(), "…"), errors)
    });
    snapshot!(table(cases));
}
