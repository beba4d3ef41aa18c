//! Fallbacks: only those that are named, in their order, and only where a profile is refused while it is resolved.

use host_core::Reported;
use serde_json::json;

use super::{PROFILE, config, edited, host, model, table};
use crate::{Composition, FallbackCounts, Overrides, ProfileSet, Refusal, Registry, Threads};

/// `first` wants a kernel that is not there, `second` a device; `third` is whole.
fn set(fallbacks: &str) -> ProfileSet {
    let profile = |id: &str, edits: &[(&str, &str)]| {
        let id = format!("id = \"{id}\"\nonly_named = {}", id != "first");
        edited(&[&[("id = \"tiny\"", id.as_str())], edits].concat())
    };
    let listed = format!("\"A tiny llama\"\nfallbacks = {fallbacks}");
    let first = profile("first", &[("\"A tiny llama\"", &listed), ("require = []", "require = [\"flash\"]")]);
    let second = profile("second", &[("device = \"cpu\"", "device = \"mlx\"")]);
    let other = profile("other", &[("hidden_size = { min = 32, max = 64 }", "hidden_size = 7")]);
    let third = profile("third", &[]);
    let texts =
        [("first.toml", first), ("second.toml", second), ("other.toml", other), ("third.toml", third)];
    ProfileSet::from_texts(texts).unwrap()
}

fn resolve(fallbacks: &str, overrides: &Overrides) -> Result<Composition, Refusal> {
    let (set, config) = (set(fallbacks), config(json!({})));
    let decision = set.match_config(&config);
    let registry = Registry::new(host()).unwrap();
    registry.resolve_with_fallbacks(&set, decision.chosen().unwrap(), model(&config), overrides)
}

#[test]
fn the_first_of_the_list_that_resolves_serves_and_is_told() {
    let resolved = resolve("[\"second\", \"other\", \"third\"]", &Overrides::default()).unwrap();
    assert_eq!(resolved.profile_id(), "third");
    let refused: Vec<_> =
        resolved.refused().iter().map(|refused| (refused.profile.as_str(), refused.report.code)).collect();
    let expected = [
        ("first", "registry.kernel-missing"),
        ("second", "registry.device-missing"),
        ("other", "profile.mismatch"),
    ];
    assert_eq!(refused, expected);
    snapshot!(resolved.fallback_lines().join("\n"));
    let counts = FallbackCounts::default();
    counts.count(&resolved);
    counts.count(&resolved);
    assert_eq!(counts.all(), [("first".to_owned(), "third".to_owned(), 2)]);
}

#[test]
fn a_profile_that_resolves_needs_none() {
    let set = ProfileSet::from_texts([
        ("tiny.toml", edited(&[("\"A tiny llama\"", "\"A tiny llama\"\nfallbacks = [\"third\"]")])),
        ("third.toml", edited(&[("id = \"tiny\"", "id = \"third\"\nonly_named = true")])),
    ])
    .unwrap();
    let config = config(json!({}));
    let registry = Registry::new(host()).unwrap();
    let chosen = set.by_id("tiny").unwrap();
    let resolved =
        registry.resolve_with_fallbacks(&set, chosen, model(&config), &Overrides::default()).unwrap();
    assert_eq!((resolved.profile_id(), resolved.refused().len()), ("tiny", 0));
    let counts = FallbackCounts::default();
    counts.count(&resolved);
    assert!(counts.all().is_empty() && PROFILE.contains("tiny"));
}

#[test]
fn nothing_is_tried_beyond_the_list_or_for_a_flag() {
    let all_refused = resolve("[\"second\", \"other\"]", &Overrides::default()).unwrap_err();
    snapshot!(table([("each fallback is refused".to_owned(), vec![all_refused])]));
    // Without a list the refusal is the profile's own.
    let alone = resolve("[]", &Overrides::default()).unwrap_err().report();
    assert_eq!((alone.code, alone.notes.len()), ("registry.kernel-missing", 1));
    // A flag that asks for nonsense is the caller's, and would be in every other profile.
    let flag = Overrides { n_threads: Some(Threads::Count(0)), ..Overrides::default() };
    let refused = resolve("[\"third\"]", &flag).unwrap_err();
    assert!(matches!(refused, Refusal::Parts { .. }), "{refused}");
}
