//! What requests ask for, against what a composition offers.

use serde_json::json;

use super::{config, host, model, profile, registry, table};
use crate::{Composition, Feature, LoopFacts, Overrides, Parts, Registry, RequestFeatures, TextFacts};

const TEXT: TextFacts = TextFacts { n_vocab: 8, has_template: true, tells_tools: true };

fn composition() -> Composition {
    let config = config(json!({}));
    registry().resolve(&profile(&[]), model(&config), &Overrides::default()).unwrap()
}

fn bare() -> Composition {
    let config = config(json!({}));
    let loops = vec![LoopFacts { name: "autoregressive".to_owned(), features: Vec::new() }];
    let registry = Registry::new(Parts { loops, ..host() }).unwrap();
    registry.resolve(&profile(&[]), model(&config), &Overrides::default()).unwrap()
}

#[test]
fn what_is_offered_is_served() {
    let none = RequestFeatures::default();
    let everything = RequestFeatures {
        constraint: true,
        logprobs: Some(8),
        seed: true,
        chat: true,
        tools: 2,
        cache: Some("plain:f16".to_owned()),
        ..none.clone()
    };
    assert_eq!(composition().check_request(&everything, &TEXT), Ok(()));
    assert_eq!(
        bare().check_request(&none, &TextFacts { n_vocab: 8, has_template: false, tells_tools: false }),
        Ok(())
    );
    // A loop of an embedding program offers more.
    let features = vec![Feature::Images, Feature::Adapters, Feature::Speculation];
    let config = config(json!({}));
    let more = LoopFacts { name: "more".to_owned(), features };
    let registry = registry().with(Parts { loops: vec![more], ..Parts::default() }).unwrap();
    let loaded = profile(&[("\"autoregressive\"", "\"more\"")]);
    let composition = registry.resolve(&loaded, model(&config), &Overrides::default()).unwrap();
    let asked = RequestFeatures {
        images: 1,
        adapter: Some("a".to_owned()),
        speculation: Some("draft".to_owned()),
        ..none
    };
    assert_eq!(composition.check_request(&asked, &TEXT), Ok(()));
}

#[test]
fn what_is_not_offered_is_refused_before_the_prompt_is_computed() {
    let none = RequestFeatures::default;
    let case = |name: &str, composition: Composition, text: TextFacts, asked: RequestFeatures| {
        (name.to_owned(), vec![composition.check_request(&asked, &text).expect_err(name)])
    };
    let plain = |name: &str, asked: RequestFeatures| case(name, composition(), TEXT, asked);
    let without = |name: &str, asked: RequestFeatures| case(name, bare(), TEXT, asked);
    let no_template = TextFacts { has_template: false, tells_tools: false, ..TEXT };
    let no_tools = TextFacts { tells_tools: false, ..TEXT };
    let adapter = Some("mine".to_owned());
    snapshot!(table([
        without("a constraint", RequestFeatures { constraint: true, ..none() }),
        without("log-probabilities", RequestFeatures { logprobs: Some(3), ..none() }),
        plain("more log-probabilities than tokens", RequestFeatures { logprobs: Some(9), ..none() }),
        without("a seed", RequestFeatures { seed: true, ..none() }),
        case("a conversation", composition(), no_template, RequestFeatures { chat: true, ..none() }),
        case("tools without a template", composition(), no_template, RequestFeatures { tools: 1, ..none() }),
        case("tools", composition(), no_tools, RequestFeatures { chat: true, tools: 3, ..none() }),
        plain("images", RequestFeatures { images: 1, ..none() }),
        plain("an adapter", RequestFeatures { adapter: adapter.clone(), ..none() }),
        plain("speculation", RequestFeatures { speculation: Some("draft".to_owned()), ..none() }),
        plain("another cache", RequestFeatures { cache: Some("turboquant:4".to_owned()), ..none() }),
        plain("several at once", RequestFeatures { images: 1, adapter, logprobs: Some(99), ..none() }),
    ]));
}
