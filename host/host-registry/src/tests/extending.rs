//! `extends`: the merged profile, where each of its values comes from, and what is refused.

use host_core::Reported;
use serde_json::json;

use super::{PROFILE, config, model, registry, shown, table};
use crate::{LoadedProfile, Overrides, ProfileError, ProfileSet, SamplingDefaults, Verdict};

/// A profile over `tiny` in a file of its own.
fn over_tiny(rest: &str) -> String {
    over("child", "tiny", rest)
}

fn over(id: &str, base: &str, rest: &str) -> String {
    format!("schema = 1\nid = \"{id}\"\nabout = \"Extends {base}\"\nextends = \"{base}\"\n{rest}")
}

fn set(texts: &[(&str, &str)]) -> Result<ProfileSet, Vec<ProfileError>> {
    ProfileSet::from_texts(texts.iter().copied())
}

fn child(rest: &str) -> LoadedProfile {
    let text = over_tiny(rest);
    let set = set(&[("child.toml", &text), ("tiny.toml", PROFILE)]).unwrap_or_else(|e| panic!("{e:#?}"));
    (**set.by_id("child").unwrap()).clone()
}

#[test]
fn what_the_profile_does_not_say_its_base_says() {
    let tiny = LoadedProfile::parse("tiny.toml", PROFILE).unwrap();
    let loaded = child("[limits]\ncontext_tokens = 64\n");
    let (own, base) = (loaded.profile(), tiny.profile());
    assert_eq!((own.id.as_str(), own.about.as_str()), ("child", "Extends tiny"));
    assert_eq!((&own.match_, &own.compose, &own.kv), (&base.match_, &base.compose, &base.kv));
    assert_eq!((&own.sampling, &own.serve), (&base.sampling, &base.serve));
    assert_eq!(own.limits.context_tokens.limit(), 64);
    assert_eq!(own.limits.max_sequences, base.limits.max_sequences);
    let bases: Vec<_> = loaded.bases().iter().map(|base| (base.id.as_str(), base.file.as_str())).collect();
    assert_eq!(bases, [("tiny", "tiny.toml")]);
}

#[test]
fn every_value_knows_its_file_and_line() {
    let loaded = child("[limits]\ncontext_tokens = 64\n\n[match]\nhidden_size = 48\nhead_dim = 8\n");
    let at = |path: &[&str]| loaded.source().line_of(path);
    assert_eq!(at(&["id"]), "child.toml:2");
    assert_eq!(at(&["limits", "context_tokens"]), "child.toml:6");
    assert_eq!(at(&["limits", "max_sequences"]), "tiny.toml:53");
    assert_eq!(at(&["match", "hidden_size"]), "child.toml:9");
    assert_eq!(at(&["match", "hidden_act"]), "tiny.toml:7");
    assert_eq!(at(&["kv", "dtype"]), "tiny.toml:22");
    // A section that both have is shown where the profile itself has it, one of the base there.
    assert_eq!(
        (at(&["limits", "nothing"]), at(&["serve", "nothing"])),
        ("child.toml:5".into(), "tiny.toml:46".into())
    );
    // The order of the lines: those of the base, then the new ones.
    let keys: Vec<_> = loaded.profile().match_.keys().collect();
    let expected = ["model_type", "hidden_act", "hidden_size", "quantization", "vision_config", "head_dim"];
    assert_eq!(keys, expected);
    let config = config(json!({ "head_dim": 8 }));
    let composition = registry().resolve(&loaded, model(&config), &Overrides::default()).unwrap();
    let setting = |key: &str| {
        let found = composition.settings().iter().find(|setting| setting.key == key).unwrap();
        format!("{:?}", found.origin)
    };
    assert!(
        setting("limits.context_tokens").contains("child.toml:6"),
        "{}",
        setting("limits.context_tokens")
    );
    assert!(setting("limits.max_sequences").contains("tiny.toml:53"));
}

#[test]
fn a_value_replaces_a_value_whole() {
    let loaded =
        child("[compose]\ngraph = { plugin = \"gemma3\", version = \"^0.2\" }\n[kv]\ndtype = \"f32\"\n");
    let graph = serde_json::to_value(&loaded.profile().compose.graph).unwrap();
    assert_eq!(graph["plugin"], "gemma3");
    assert_eq!(loaded.profile().kv.dtype.to_string(), "f32");
    // A list is a value, and so is a line of [match].
    let loaded = child("[compose]\nloader = \"gguf\"\n[match]\nhidden_size = { max = 8 }\n");
    assert_eq!(loaded.profile().compose.loader.0, ["gguf"]);
    let line = loaded.profile().match_.0.iter().find(|(key, _)| key == "hidden_size").unwrap();
    assert_eq!(line.1.to_string(), "at most 8");
    // A graph that names no version does not inherit one: it is another plugin's.
    let errors = set(&[
        ("child.toml", &over_tiny("[compose]\ngraph = { plugin = \"gemma3\" }\n")),
        ("tiny.toml", PROFILE),
    ]);
    assert_eq!(errors.unwrap_err()[0].report().code, "profile.missing-key");
}

#[test]
fn a_chain_takes_the_place_of_all_flat_keys() {
    let loaded = child("[sampling]\nchain = [{ sampler = \"temperature\", temperature = 0.5 }]\n");
    assert!(
        matches!(&loaded.profile().sampling.defaults, SamplingDefaults::Chain(chain) if chain.len() == 1)
    );
    let loaded = child("[sampling]\ntemperature = 0.5\n");
    assert_eq!(loaded.profile().sampling.defaults.flat().unwrap().temperature, 0.5);
    assert_eq!(loaded.profile().sampling.defaults.flat().unwrap().top_k, 40);
}

#[test]
fn what_is_not_wanted_is_named() {
    let loaded =
        child("without = [\"limits.memory_bytes\", \"match.vision_config\", \"limits.n_threads\"]\n");
    assert_eq!(loaded.profile().limits.memory_bytes, None);
    assert_eq!(loaded.profile().limits.n_threads, None);
    assert!(loaded.profile().match_.keys().all(|key| key != "vision_config"));
    // A line of [match] keeps its dots.
    let middle = over(
        "middle",
        "tiny",
        "[match]\n\"rope_scaling.rope_type\" = { equals = \"yarn\", optional = true }\n",
    );
    let last = over("last", "middle", "without = [\"match.rope_scaling.rope_type\"]\n");
    let set = set(&[("m.toml", &middle), ("l.toml", &last), ("tiny.toml", PROFILE)]).unwrap();
    let keys = |id: &str| set.by_id(id).unwrap().profile().match_.0.len();
    assert_eq!((keys("tiny"), keys("middle"), keys("last")), (5, 6, 5));
    let bases: Vec<_> = set.by_id("last").unwrap().bases().iter().map(|base| base.id.as_str()).collect();
    assert_eq!(bases, ["middle", "tiny"]);
}

#[test]
fn what_belongs_to_one_file_alone_is_not_inherited() {
    let own = "only_named = true\nfallbacks = [\"tiny\"]\nwithout = [\"limits.memory_bytes\"]\n";
    let (middle, last) = (over("middle", "tiny", own), over("last", "middle", ""));
    let set = set(&[("m.toml", &middle), ("l.toml", &last), ("tiny.toml", PROFILE)]).unwrap();
    let last = set.by_id("last").unwrap().profile();
    assert!(!last.only_named && last.fallbacks.is_empty() && last.without.is_empty(), "{last:?}");
    assert_eq!(last.limits.memory_bytes, None, "what the base does without, it does not have to give");
}

#[test]
fn a_profile_that_is_only_named_takes_no_part() {
    let text = over_tiny("only_named = true\n[compose]\nnumeric = \"exact\"\n");
    let set = set(&[("child.toml", &text), ("tiny.toml", PROFILE)]).unwrap();
    let decision = set.match_config(&config(json!({})));
    assert_eq!(decision.chosen().unwrap().id(), "tiny");
    assert_eq!(decision.candidates()[0].verdict, Verdict::OnlyNamed);
    assert_eq!(set.match_named("child", &config(json!({}))).unwrap().chosen().unwrap().id(), "child");
    // Alone it is no profile for a model that nobody names it for.
    let lonely = PROFILE.replace("about =", "only_named = true\nabout =");
    let set = ProfileSet::from_texts([("tiny.toml", &lonely)]).unwrap();
    insta::assert_snapshot!(shown(&set.match_config(&config(json!({}))).chosen().unwrap_err().report()), @r"
    error[profile.no-match]: no profile fits this model
      expected  a profile that is not `only_named`
      mend      name one that fits with --profile: tiny
    ");
}

#[test]
fn an_inheritance_that_does_not_hold_is_refused_at_its_place() {
    let case = |name: &str, texts: &[(&str, &str)]| {
        let texts = [texts, &[("tiny.toml", PROFILE)]].concat();
        (name.to_owned(), set(&texts).map(|set| set.ids().count()).expect_err(name))
    };
    let one = |name: &str, rest: &str| case(name, &[("child.toml", &over_tiny(rest))]);
    let deep: Vec<(String, String)> = (0..9)
        .map(|i| {
            let base = if i == 0 { "tiny".to_owned() } else { format!("p{}", i - 1) };
            (format!("p{i}.toml"), over(&format!("p{i}"), &base, "only_named = true\n"))
        })
        .collect();
    let deep: Vec<(&str, &str)> = deep.iter().map(|(file, text)| (file.as_str(), text.as_str())).collect();
    snapshot!(table([
        case("no such base", &[("child.toml", &over("child", "tyny", ""))]),
        case("itself", &[("child.toml", &over("child", "child", ""))]),
        case("each other", &[("a.toml", &over("a", "b", "")), ("b.toml", &over("b", "a", ""))]),
        case(
            "a base within a circle",
            &[
                ("a.toml", &over("a", "b", "")),
                ("b.toml", &over("b", "c", "")),
                ("c.toml", &over("c", "b", ""))
            ],
        ),
        case("a base without base", &[("a.toml", &over("a", "b", "")), ("b.toml", &over("b", "x", ""))]),
        case("too deep", &deep),
        case(
            "a base with faults",
            &[("a.toml", &over("a", "b", "")), ("b.toml", &over("b", "tiny", "[serve]\nmax_tokens = 0\n"))],
        ),
        case("a base that is no TOML", &[("a.toml", &over("a", "b", "")), ("b.toml", "schema = ")]),
        case("extends of another type", &[("a.toml", &over("a", "b", "").replace("\"b\"", "3"))]),
        one("doing without what is not there", "without = [\"limits.memory\"]\n"),
        one("doing without the id", "without = [\"id\"]\n"),
        one("doing without a line that is not there", "without = [\"match.head_dim\"]\n"),
        one("doing without a number", "without = [3]\n"),
        one("doing without what is needed", "without = [\"kv.dtype\"]\n"),
        one("doing without a section", "without = [\"serve\"]\n"),
        one("an unknown key", "[limits]\nthreads = 3\n"),
        one("a value of another type", "[limits]\nmax_sequences = \"many\"\n"),
        one("a value that the base's forbids", "[limits]\nmax_sequences = 65\n"),
        one("a flat key beside a chain", "[sampling]\ntop_k = 4\nchain = []\n"),
        case(
            "a flat key over a chain",
            &[
                ("a.toml", &over("a", "b", "[sampling]\ntop_k = 4\n")),
                ("b.toml", &over("b", "tiny", "[sampling]\nchain = []\n")),
            ],
        ),
        one("a number in a section's place", "serve = 3\n"),
        one("a line that the base forbids", "[match]\n\"vision_config.depth\" = 2\n"),
        one(
            "a line that the base's number leaves no key for",
            "[match]\n\"hidden_size.value\" = { present = true }\n"
        ),
        one(
            "a line that another's keys leave out",
            "[match]\nrope = { keys = [\"base\"] }\n\"rope.scale.kind\" = 1\n"
        ),
        one("a line that contradicts itself", "[match]\nhead_dim = { in = [1, 2], min = 3 }\n"),
        one("a line of two kinds", "[match]\nhead_dim = { keys = [\"a\"], max = 3 }\n"),
        one("no such fallback", "fallbacks = [\"tinny\"]\n"),
        one("a fallback twice", "fallbacks = [\"tiny\", \"tiny\"]\n"),
        one("itself as fallback", "fallbacks = [\"child\"]\n"),
        case(
            "without base",
            &[(
                "a.toml",
                &PROFILE.replace("\"tiny\"", "\"other\"").replace("about =", "without = [\"kv\"]\nabout =")
            )]
        ),
    ]));
}
