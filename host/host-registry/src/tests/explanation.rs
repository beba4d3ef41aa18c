//! What `tenon explain` says, as people and as programs read it.

use host_core::Numeric;
use host_device::MemoryPlan;
use serde_json::json;

use super::{PROFILE, config, edited, graph, model, registry};
use crate::{Explanation, Overrides, ProfileSet};

fn set() -> ProfileSet {
    let small = edited(&[("id = \"tiny\"", "id = \"smaller\""), ("{ min = 32, max = 64 }", "16")]);
    let general =
        edited(&[("id = \"tiny\"", "id = \"general\""), ("hidden_size = { min = 32, max = 64 }\n", "")]);
    ProfileSet::from_texts([
        ("profiles/tiny.toml", PROFILE),
        ("profiles/smaller.toml", &small),
        ("profiles/general.toml", &general),
    ])
    .unwrap()
}

/// A model that is served, by its width.
fn served(hidden_size: usize, overrides: &Overrides) -> Explanation {
    let config = config(json!({ "hidden_size": hidden_size }));
    let decision = set().match_config(&config);
    let composition = registry().resolve(decision.chosen().unwrap(), model(&config), overrides).unwrap();
    let memory = MemoryPlan { weights_bytes: 90 << 20, state_bytes: 3 << 20, activation_bytes: 1 << 19 };
    Explanation::new("./tiny", "safetensors", &config, &decision)
        .with_composition(&composition)
        .with_graph(&graph())
        .with_memory(memory)
}

#[test]
fn a_served_model_is_told_whole() {
    insta::assert_snapshot!(served(48, &Overrides::default()));
    let overrides = Overrides {
        numeric: Some(Numeric::Exact),
        n_threads: Some(crate::Threads::All),
        context_tokens: Some(64),
        ..Overrides::default()
    };
    insta::assert_snapshot!("with_flags", served(16, &overrides));
}

#[test]
fn a_program_reads_the_same() {
    let explanation = serde_json::to_string_pretty(&served(48, &Overrides::default())).unwrap();
    insta::assert_snapshot!(explanation);
}

#[test]
fn a_refused_model_is_told_with_the_reason() {
    let altered = config(json!({ "hidden_act": "gelu" }));
    let decision = set().match_config(&altered);
    insta::assert_snapshot!("no_profile", Explanation::new("./tiny", "safetensors", &altered, &decision));

    let fits = config(json!({}));
    let decision = set().match_config(&fits);
    let overrides = Overrides { device: Some("mlx".to_owned()), ..Overrides::default() };
    let refusal = registry().resolve(decision.chosen().unwrap(), model(&fits), &overrides).unwrap_err();
    let explanation = Explanation::new("./tiny", "safetensors", &fits, &decision).with_refusal(&refusal);
    insta::assert_snapshot!("no_composition", explanation.with_refusal(&crate::MatchRefusal::NoProfiles));
}
