//! Properties: a profile survives a round trip, the superset rule is one whatever the order, and no text panics.

use std::collections::BTreeMap;

use host_core::{Breaker, Numeric, Sampler, SamplingSettings};
use host_plugins::{QuarantineRules, Right};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{FILE, PROFILE};
use crate::{
    ByCase, Bytes, Compose, ContextTokens, FrozenRef, GraphRef, ImplementationRef, Kernels, Kv, Limits,
    LoadedProfile, Match, Names, OnReload, PluginRef, PolicyRef, Predicate, Profile, ProfileSet, Quant,
    QuantRef, SamplingDefaults, SamplingTable, Serve, Sha256Digest, Source, Threads,
};

fn name() -> impl Strategy<Value = String> {
    "[a-z][a-z0-9.-]{0,12}"
}

fn text() -> impl Strategy<Value = String> {
    // Quotes, backslashes, dots and letters beyond ASCII: what a TOML writer must take care of.
    "[a-zA-Z0-9 \"'\\\\.=#äß中🦀]{0,20}[a-z]"
}

fn literal() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1e6..1e6f64).prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    prop_oneof![4 => scalar.clone(), 1 => prop::collection::vec(scalar, 0..4).prop_map(Value::from)]
}

/// What a line can ask of a value: one kind of condition, since no value meets two that contradict each other.
fn asked() -> impl Strategy<Value = Predicate> {
    let none = Predicate::default;
    let values = || prop::collection::vec(literal(), 1..4);
    prop_oneof![
        literal().prop_map(move |value| Predicate { equals: Some(value), ..none() }),
        values().prop_map(move |values| Predicate { one_of: Some(values), ..none() }),
        // A value of the list stands alone as well: both conditions hold for it.
        values().prop_map(move |values| Predicate {
            equals: values.first().cloned(),
            one_of: Some(values),
            ..none()
        }),
        (-1e3..0f64, 0f64..1e3).prop_map(move |(min, max)| Predicate {
            min: Some(min),
            max: Some(max),
            ..none()
        }),
        (-1e3..0f64).prop_map(move |min| Predicate { min: Some(min), ..none() }),
        values().prop_map(move |values| Predicate { contains: Some(values), ..none() }),
        (prop::collection::vec(text(), 1..4), any::<bool>()).prop_map(move |(keys, modules)| Predicate {
            keys: Some(keys),
            modules,
            ..none()
        }),
    ]
}

fn predicate() -> impl Strategy<Value = Predicate> {
    let on_value = (asked(), any::<bool>()).prop_map(|(asked, optional)| Predicate { optional, ..asked });
    prop_oneof![
        literal().prop_map(Predicate::equals),
        on_value,
        any::<bool>().prop_map(|present| Predicate { present: Some(present), ..Predicate::default() }),
    ]
}

fn lines() -> impl Strategy<Value = Match> {
    let key = prop_oneof!["[a-z_]{1,8}", "[A-Z]{1,6}\\.[a-z_ \"]{1,6}"];
    prop::collection::btree_map(key, predicate(), 1..6).prop_map(|map| {
        let mut lines: Vec<_> = map.into_iter().collect();
        // A TOML writer puts values before tables.
        let is_table = |predicate: &Predicate| {
            *predicate != Predicate { equals: predicate.equals.clone(), ..Predicate::default() }
        };
        lines.sort_by_key(|(_, predicate)| is_table(predicate));
        Match(lines)
    })
}

fn digest() -> impl Strategy<Value = Sha256Digest> {
    any::<[u8; 4]>().prop_map(|bytes| Sha256Digest::of(&bytes))
}

fn compose() -> impl Strategy<Value = Compose> {
    let version =
        prop_oneof![Just("^0.1"), Just("=1.2.3"), Just(">=1.0, <2.0"), Just("*"), Just("~0.3.1-rc.1")];
    let graph = (name(), version, prop::option::of(name()), prop::option::of(digest()))
        .prop_map(|(plugin, version, runtime, digest)| PluginRef {
            plugin,
            version: version.parse().expect("a range"),
            runtime,
            digest,
        })
        .boxed();
    let plugin =
        (graph.clone(), prop::collection::vec((name(), any::<i32>()), 0..3)).prop_map(|(named, params)| {
            let PluginRef { plugin, version, runtime, digest } = named;
            let params = params.into_iter().map(|(key, value)| (key, value.into())).collect();
            Quant::Plugin(Box::new(QuantRef { plugin, version, runtime, digest, params }))
        });
    let quant = prop_oneof![name().prop_map(Quant::Named), name().prop_map(Quant::Scheme), plugin];
    let frozen =
        (name(), digest()).prop_map(|(frozen, digest)| GraphRef::Frozen(FrozenRef { frozen, digest }));
    let graph = prop_oneof![graph.prop_map(GraphRef::Plugin), frozen];
    let loader =
        prop::collection::btree_set(name(), 1..4).prop_map(|names| Names(names.into_iter().collect()));
    let numeric = prop_oneof![Just(Numeric::Exact), Just(Numeric::Fast)];
    let implementation = (name(), prop_oneof![Just("*"), Just("^1.2")], prop::option::of(digest())).prop_map(
        |(id, version, digest)| ImplementationRef { id, version: version.parse().expect("a range"), digest },
    );
    (graph, loader, quant, prop::option::of(implementation), name(), by_case("linux", "macos"), numeric)
        .prop_map(|(graph, loader, quant, implementation, loop_, device, numeric)| Compose {
            graph,
            loader,
            quant,
            implementation,
            loop_,
            device,
            numeric,
        })
}

fn kv() -> impl Strategy<Value = Kv> {
    (name(), by_case("exact", "fast")).prop_map(|(kind, dtype)| Kv { kind, dtype })
}

fn by_case(one: &'static str, other: &'static str) -> impl Strategy<Value = ByCase> {
    let by = (name(), name()).prop_map(|(first, second)| {
        ByCase::By(BTreeMap::from([(one.to_owned(), first), (other.to_owned(), second)]))
    });
    prop_oneof![name().prop_map(ByCase::Any), by]
}

fn sampling() -> impl Strategy<Value = SamplingTable> {
    let flat = (0f32..5.0, any::<u32>(), 0.001f32..=1.0, 0f32..=1.0, 0.001f32..9.0, any::<u32>()).prop_map(
        |(temperature, top_k, top_p, min_p, penalty, context_tokens)| {
            SamplingDefaults::Flat(Box::new(SamplingSettings {
                temperature,
                top_k,
                top_p,
                min_p,
                repetition_penalty: penalty,
                repetition_context_tokens: context_tokens,
                presence_penalty: penalty - 4.0,
                dry_sequence_breakers: vec![Breaker::Text("\n".into()), Breaker::Id(top_k)],
                ..SamplingSettings::GREEDY
            }))
        },
    );
    let sampler = prop_oneof![
        (0.001f32..=1.0).prop_map(|p| Sampler::TopP { p }),
        (0f32..3.0).prop_map(|temperature| Sampler::Temperature { temperature }),
        (0u32..100).prop_map(|k| Sampler::TopK { k }),
        (0f32..9.0, 0f32..1.0).prop_map(|(tau, eta)| Sampler::MirostatV2 { tau, eta }),
        (-9f32..9.0, any::<u32>()).prop_map(|(number, id)| Sampler::LogitBias { bias: vec![(id, number)] }),
        Just(Sampler::HlgOetf {}),
    ];
    let defaults = prop_oneof![flat, prop::collection::vec(sampler, 0..5).prop_map(SamplingDefaults::Chain)];
    let policy = prop::option::of(("[a-z]{1,8}", prop::collection::vec(Just(Right::FullLogits), 0..2)));
    let policy = policy.prop_map(|policy| {
        policy.map(|(plugin, grants)| PolicyRef {
            plugin,
            version: "^1.2".parse().expect("a range"),
            runtime: None,
            digest: None,
            params: [("n".to_owned(), 3.into())].into_iter().collect(),
            grants,
        })
    });
    (defaults, policy).prop_map(|(defaults, policy)| SamplingTable { defaults, policy })
}

fn limits() -> impl Strategy<Value = Limits> {
    let tokens = 1usize..1 << 40;
    let context =
        prop_oneof![tokens.clone().prop_map(ContextTokens::Exactly), tokens.prop_map(ContextTokens::AtMost)];
    let threads = prop_oneof![Just(Threads::All), (1usize..4096).prop_map(Threads::Count)];
    let bytes = prop::option::of((1u64..=u64::MAX).prop_map(Bytes));
    let rules = (1u32.., 1u32.., 1u32..100, 100u32..);
    let rules = rules.prop_map(|(faults, within_s, first_backoff_s, longest_backoff_s)| QuarantineRules {
        faults,
        within_s,
        first_backoff_s,
        longest_backoff_s,
    });
    let reload = prop::option::of(Just(OnReload::DrainFirst));
    let options = (bytes, prop::option::of(threads), prop::option::of(rules), reload);
    (context, 1usize..64, 64usize..4096, options).prop_map(
        |(
            context_tokens,
            max_sequences,
            max_step_tokens,
            (memory_bytes, n_threads, quarantine, on_reload),
        )| Limits {
            context_tokens,
            max_sequences,
            max_step_tokens,
            memory_bytes,
            n_threads,
            quarantine,
            on_reload,
        },
    )
}

fn profiles() -> impl Strategy<Value = Profile> {
    let source = (text(), prop::collection::btree_map(text(), digest(), 0..3))
        .prop_map(|(model, sha256)| Source { model, sha256 });
    let serve =
        (1usize..1 << 30, any::<bool>(), prop::option::of(text()), prop::collection::btree_set(text(), 0..3))
            .prop_map(|(max_tokens, chat, system, stop)| Serve {
                max_tokens,
                chat,
                system,
                stop: stop.into_iter().collect(),
            });
    let kernels = prop::collection::btree_set(name(), 0..3)
        .prop_map(|names| Kernels { require: names.into_iter().collect() });
    let head = (name(), text(), prop::option::of(source), lines());
    (head, compose(), kv(), kernels, sampling(), serve, limits()).prop_map(
        |((id, about, source, match_), compose, kv, kernels, sampling, serve, limits)| Profile {
            schema: 1,
            id,
            about,
            extends: None,
            without: Vec::new(),
            only_named: false,
            fallbacks: Vec::new(),
            source,
            match_,
            compose,
            kv,
            kernels,
            sampling,
            serve,
            limits,
            plugins: Default::default(),
        },
    )
}

/// Profiles with these match keys, all of which hold, in this order of files.
fn decide(key_sets: &[Vec<u8>], order: &[usize]) -> Option<String> {
    let (head, rest) = PROFILE.split_once("[match]").expect("a match table");
    let (_, rest) = rest.split_once("[compose]").expect("a compose table");
    let texts = order.iter().map(|i| {
        let lines: String = key_sets[*i].iter().map(|key| format!("k{key} = 1\n")).collect();
        let text = format!("{head}[match]\n{lines}[compose]{rest}").replace("\"tiny\"", &format!("\"p{i}\""));
        (format!("p{i}.toml"), text)
    });
    let set = ProfileSet::from_texts(texts.collect::<Vec<_>>()).expect("profiles");
    let config: Map<String, Value> = (0..6).map(|key| (format!("k{key}"), json!(1))).collect();
    set.match_config(&config).chosen().ok().map(|loaded| loaded.id().to_owned())
}

proptest! {
    #[test]
    fn a_profile_survives_a_round_trip(profile in profiles()) {
        let text = toml::to_string(&profile).expect("a profile is TOML");
        let loaded = LoadedProfile::parse(FILE, &text);
        let read = loaded.map(|loaded| loaded.profile().clone());
        prop_assert!(read.as_ref().is_ok_and(|read| *read == profile), "{text}\n{read:#?}\n{profile:#?}");
    }

    #[test]
    fn the_winner_contains_every_other_and_order_is_nothing(
        key_sets in prop::collection::vec(prop::collection::btree_set(0u8..3, 1..4), 1..5),
        seed in any::<prop::sample::Index>(),
    ) {
        let key_sets: Vec<Vec<u8>> = key_sets.into_iter().map(|keys| keys.into_iter().collect()).collect();
        let mut order: Vec<usize> = (0..key_sets.len()).collect();
        let winner = decide(&key_sets, &order);
        let contains = |one: &[u8], other: &[u8]| {
            other.iter().all(|key| one.contains(key)) && one.len() > other.len()
        };
        let expected = (0..key_sets.len()).find(|i| {
            (0..key_sets.len()).all(|other| other == *i || contains(&key_sets[*i], &key_sets[other]))
        });
        prop_assert_eq!(&winner, &expected.map(|i| format!("p{i}")));
        order.rotate_left(seed.index(key_sets.len()));
        prop_assert_eq!(decide(&key_sets, &order), winner);
    }

    #[test]
    fn no_text_panics(text in "\\PC{0,200}", at in any::<prop::sample::Index>(), cut in any::<prop::sample::Index>()) {
        let _ = LoadedProfile::parse(FILE, &text);
        // A real profile with a hole and foreign text in it reaches deeper.
        let start = at.index(PROFILE.len());
        let end = start + cut.index(PROFILE.len() - start);
        let broken = format!("{}{text}{}", &PROFILE[..start], &PROFILE[end..]);
        if let Err(errors) = LoadedProfile::parse(FILE, &broken) {
            for error in errors {
                let _ = super::shown(&host_core::Reported::report(&error));
            }
        }
    }

    #[test]
    fn bytes_print_as_they_read(n in any::<u64>(), shift in 0u32..50) {
        for bytes in [Bytes(n), Bytes(n >> shift << shift)] {
            prop_assert_eq!(bytes.to_string().parse(), Ok(bytes));
        }
    }
}
