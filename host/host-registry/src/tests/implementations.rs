//! Implementations of an embedding program: chosen by name and by everything that they are for, opened in an order that
//! leaves nothing behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use host_core::{Report, Reported};
use serde_json::{Value, json};

use super::{config, host, model, profile, table};
use crate::{
    Composition, Implementation, ImplementationFacts, Implementations, LoopFacts, Match, ModelFacts,
    Overrides, Parts, Predicate, Refusal, Registry, Sha256Digest,
};

/// Weights that tell how many of them live and how many were opened.
#[derive(Default)]
struct Counts {
    opened: AtomicUsize,
    living: AtomicUsize,
    created: AtomicUsize,
}

struct Weights(Arc<Counts>);

impl Weights {
    fn open(counts: &Arc<Counts>) -> Result<Weights, Report> {
        counts.opened.fetch_add(1, Ordering::Relaxed);
        counts.living.fetch_add(1, Ordering::Relaxed);
        Ok(Weights(Arc::clone(counts)))
    }
}

impl Drop for Weights {
    fn drop(&mut self) {
        self.0.living.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Counts {
    /// (opened, living, created)
    fn now(&self) -> (usize, usize, usize) {
        let of = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        (of(&self.opened), of(&self.living), of(&self.created))
    }
}

/// A model, or a failure after half of it was built.
struct Mine {
    facts: ImplementationFacts,
    fails: bool,
}

impl Implementation<Weights, Weights> for Mine {
    fn facts(&self) -> ImplementationFacts {
        self.facts.clone()
    }

    fn create(&self, weights: Weights, composition: &Composition) -> Result<Weights, Report> {
        weights.0.created.fetch_add(1, Ordering::Relaxed);
        assert_eq!(composition.profile_id(), "tiny");
        // Two more handles stand for what is built on the way.
        let _half = (Weights::open(&weights.0)?, Weights::open(&weights.0)?);
        if self.fails {
            return Err(Report::new("mine.broken", "the third layer has no norm")
                .mend("publish it")
                .note("layer 3"));
        }
        Ok(weights)
    }
}

fn facts(id: &str, version: &str) -> ImplementationFacts {
    let strings = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    ImplementationFacts {
        id: id.to_owned(),
        version: version.parse().unwrap(),
        digest: None,
        graph: "llama".to_owned(),
        loaders: strings(&["safetensors"]),
        loops: strings(&["autoregressive"]),
        devices: strings(&["cpu"]),
        caches: strings(&["plain:f16", "plain:f32"]),
        shapes: Match::default(),
    }
}

fn mine(facts: ImplementationFacts) -> Arc<dyn Implementation<Weights, Weights>> {
    Arc::new(Mine { facts, fails: false })
}

fn implementations(
    facts: Vec<ImplementationFacts>,
) -> Result<Implementations<Weights, Weights>, crate::DuplicatePart> {
    Implementations::new(facts.into_iter().map(mine).collect())
}

/// The tiny profile with `implementation` as it is written.
fn resolve(wanted: &str, known: &[ImplementationFacts]) -> Result<Composition, Refusal> {
    resolve_with(wanted, Parts { implementations: known.to_vec(), ..host() }, "safetensors", json!({}))
}

fn resolve_with(wanted: &str, parts: Parts, format: &str, edits: Value) -> Result<Composition, Refusal> {
    let config = config(edits);
    let loaded = profile(&[("device = \"cpu\"", &format!("device = \"cpu\"\nimplementation = {wanted}"))]);
    let model = ModelFacts { format, ..model(&config) };
    Registry::new(parts).unwrap().resolve(&loaded, model, &Overrides::default())
}

#[test]
fn the_one_that_is_named_and_fits_makes_the_model() {
    let known = [facts("mine", "1.0.0"), facts("mine", "2.1.0"), facts("other", "1.0.0")];
    for (wanted, title) in [
        ("{ id = \"mine\", version = \"^1\" }", "mine 1.0.0"),
        ("{ id = \"mine\", version = \"^2\" }", "mine 2.1.0"),
        ("\"other\"", "other 1.0.0"),
    ] {
        let composition = resolve(wanted, &known).unwrap();
        assert_eq!(composition.implementation().unwrap().title(), title);
        assert!(
            composition.canonical_text().contains("\nimplementation \""),
            "{}",
            composition.canonical_text()
        );
        let counts = Arc::default();
        let list = implementations(known.to_vec()).unwrap();
        let made = list.open(&composition, || Weights::open(&counts)).unwrap();
        assert_eq!(counts.now(), (3, 1, 1), "the model holds its weights, and nothing else lives");
        drop(made);
        assert_eq!(counts.now(), (3, 0, 1));
    }
    let hash = |wanted: &str| resolve(wanted, &known).unwrap().hash();
    assert_ne!(hash("{ id = \"mine\", version = \"^1\" }"), hash("\"other\""));
}

#[test]
fn two_builds_are_told_apart_by_their_digests() {
    let digest = |text: &str| Some(Sha256Digest::of(text.as_bytes()));
    let known = [ImplementationFacts { digest: digest("a"), ..facts("mine", "1.0.0") }];
    let wanted =
        |text: &str| format!("{{ id = \"mine\", version = \"1\", digest = \"{}\" }}", digest(text).unwrap());
    assert!(resolve(&wanted("a"), &known).is_ok());
    let refusal = resolve(&wanted("b"), &known).unwrap_err().report();
    assert_eq!(refusal.code, "registry.implementation-incompatible");
    assert!(refusal.message.ends_with("its digest"), "{refusal}");
}

#[test]
fn the_list_of_a_program_grows_only_into_another() {
    let first = implementations(vec![facts("mine", "1.0.0")]).unwrap();
    let second = first.with(vec![mine(facts("mine", "1.1.0"))]).unwrap();
    let titles = |list: &Implementations<_, _>| {
        list.facts().iter().map(ImplementationFacts::title).collect::<Vec<_>>()
    };
    assert_eq!(titles(&first), ["mine 1.0.0"]);
    assert_eq!(titles(&second), ["mine 1.0.0", "mine 1.1.0"]);
    // A composition of the second is none of the first, whatever the id.
    let composition = resolve("{ id = \"mine\", version = \"=1.1.0\" }", &second.facts()).unwrap();
    let counts = Arc::default();
    let refusal = first.open(&composition, || Weights::open(&counts)).map(drop).unwrap_err();
    assert_eq!((refusal.report().code, counts.now()), ("registry.implementation-missing", (0, 0, 0)));
}

#[test]
fn a_failure_leaves_nothing_open_and_is_the_one_that_is_told() {
    let known = [facts("mine", "1.0.0")];
    let composition = resolve("\"mine\"", &known).unwrap();
    let counts: Arc<Counts> = Arc::default();
    let failing: Arc<dyn Implementation<_, _>> = Arc::new(Mine { facts: known[0].clone(), fails: true });
    let failing = Implementations::new(vec![failing]).unwrap();
    let construction = failing.open(&composition, || Weights::open(&counts)).map(drop).unwrap_err();
    assert_eq!(counts.now(), (3, 0, 1), "weights and halves are gone");

    let broken =
        || Err::<Weights, Report>(Report::new("weights.truncated", "the file ends early").mend("fetch it"));
    let weights = failing.open(&composition, broken).map(drop).unwrap_err();
    assert_eq!(counts.now(), (3, 0, 1), "nothing was created of weights that did not open");

    let none = Implementations::<Weights, Weights>::new(Vec::new()).unwrap();
    let missing = none.open(&composition, || Weights::open(&counts)).map(drop).unwrap_err();
    assert_eq!(counts.now(), (3, 0, 1), "nothing was opened for nobody");

    let config = config(json!({}));
    let plain = super::registry().resolve(&profile(&[]), model(&config), &Overrides::default()).unwrap();
    let unnamed = failing.open(&plain, || Weights::open(&counts)).map(drop).unwrap_err();

    let streamed = Parts { streamed: vec!["safetensors".to_owned()], ..host() };
    let streamed = Registry::new(streamed).unwrap();
    let streamed = streamed.resolve(&profile(&[]), model(&config), &Overrides::default()).unwrap();
    assert!(streamed.is_streamed() && !composition.is_streamed());
    let mut bound = composition.clone();
    bound.is_streamed = true;
    let of_stream = failing.create(&bound, Weights::open(&counts).unwrap()).map(drop).unwrap_err();
    assert_eq!(counts.now(), (4, 0, 1), "the weights that were handed over are gone");
    snapshot!(table([
        ("the model cannot be made".to_owned(), vec![construction]),
        ("the weights do not open".to_owned(), vec![weights]),
        ("the program does not have it".to_owned(), vec![missing]),
        ("the composition names none".to_owned(), vec![unnamed]),
        ("weights of a loader that streams".to_owned(), vec![of_stream]),
    ]));
}

#[test]
fn what_does_not_fit_is_refused_before_weights_with_the_first_reason() {
    let known = facts("mine", "1.0.0");
    let case = |name: &str, wanted: &str, known: &[ImplementationFacts]| {
        (name.to_owned(), vec![resolve(wanted, known).map(|_| name.to_owned()).expect_err(name)])
    };
    let one = |name: &str, facts: ImplementationFacts| case(name, "\"mine\"", &[facts]);
    let narrow = Predicate { max: Some(32.0), ..Predicate::default() };
    let shapes =
        Match(vec![("hidden_act".to_owned(), Predicate::equals("silu")), ("hidden_size".to_owned(), narrow)]);
    let streamed =
        Parts { streamed: vec!["safetensors".to_owned()], implementations: vec![known.clone()], ..host() };
    let streamed = resolve_with("\"mine\"", streamed, "safetensors", json!({})).map(|_| ()).unwrap_err();
    let speculative = LoopFacts { name: "speculative".to_owned(), features: Vec::new() };
    let of_loop = Parts {
        implementations: vec![ImplementationFacts { loops: vec!["speculative".to_owned()], ..known.clone() }],
        loops: vec![LoopFacts::autoregressive(), speculative],
        ..host()
    };
    let of_loop = resolve_with("\"mine\"", of_loop, "safetensors", json!({})).map(|_| ()).unwrap_err();
    let of_loader = Parts { implementations: vec![known.clone()], ..host() };
    let of_loader = resolve_with("\"mine\"", of_loader, "gguf", json!({})).map(|_| ()).unwrap_err();
    snapshot!(table([
        case("there is none", "\"mine\"", &[]),
        case("there is none of that id", "\"mime\"", std::slice::from_ref(&known)),
        case("no version", "{ id = \"mine\", version = \"^2\" }", &[known.clone(), facts("mine", "1.4.2")]),
        one("another graph", ImplementationFacts { graph: "qwen3".to_owned(), ..known.clone() }),
        ("another loader".to_owned(), vec![of_loader]),
        ("another loop".to_owned(), vec![of_loop]),
        one("another device", ImplementationFacts { devices: vec!["mlx".to_owned()], ..known.clone() }),
        one("no device", ImplementationFacts { devices: Vec::new(), ..known.clone() }),
        one("another cache", ImplementationFacts { caches: vec!["plain:bf16".to_owned()], ..known.clone() }),
        one("other shapes", ImplementationFacts { shapes, ..known.clone() }),
        case("two versions fit", "\"mine\"", &[known.clone(), facts("mine", "1.4.2")]),
        (
            "each candidate has its own reason".to_owned(),
            vec![
                resolve(
                    "{ id = \"mine\", version = \"^1\" }",
                    &[
                        facts("mine", "0.9.0"),
                        ImplementationFacts { graph: "qwen3".to_owned(), ..facts("mine", "1.1.0") },
                        ImplementationFacts { devices: Vec::new(), ..facts("mine", "1.2.0") },
                    ],
                )
                .map(|_| ())
                .unwrap_err(),
            ],
        ),
        ("a loader that streams".to_owned(), vec![streamed]),
    ]));
}

#[test]
fn ids_are_there_and_unique() {
    let twice = implementations(vec![facts("mine", "1.0.0"), facts("mine", "1.0.0")]).map(drop).unwrap_err();
    let unnamed = implementations(vec![facts("", "1.0.0")]).map(drop).unwrap_err();
    snapshot!(table([("one twice".to_owned(), vec![twice]), ("one without id".to_owned(), vec![unnamed])]));
    let parts = Parts { implementations: vec![facts("mine", "1.0.0"); 2], ..host() };
    assert_eq!(Registry::new(parts).unwrap_err().kind, "implementation");
}
