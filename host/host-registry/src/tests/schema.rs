//! Every way in which one file can fail to be a profile.

use std::ops::Bound;

use host_core::sampling::parameters::{FLAT_KEYS, Form, Parameter, Range};
use host_core::{Reported, Sampler};
use serde_json::{Map, Value, json};

use super::{FILE, PROFILE, edited, table};
use crate::{LoadedProfile, ProfileError, ProfileSet};

fn refused(text: &str) -> Vec<ProfileError> {
    LoadedProfile::parse(FILE, text).map(|loaded| loaded.id().to_owned()).expect_err("the text is refused")
}

/// Each case with its text: what does not fit the schema.
fn of_form() -> Vec<(String, String)> {
    let cases: &[(&str, &str, &str)] = &[
        ("unclosed string", "about = \"A tiny llama\"", "about = \"A tiny llama"),
        ("key twice", "max_tokens = 32", "max_tokens = 32\nmax_tokens = 33"),
        ("table twice", "[kernels]", "[kv]\n[kernels]"),
        ("no equals sign", "chat = true", "chat true"),
        ("no schema", "schema = 1\n", ""),
        ("newer schema", "schema = 1\n", "schema = 2\n"),
        ("schema as text", "schema = 1\n", "schema = \"1\"\n"),
        ("negative schema", "schema = 1\n", "schema = -1\n"),
        ("unknown top-level key", "about =", "abuot ="),
        ("unknown table", "[kernels]", "[kernel]"),
        ("unknown compose key", "device = \"cpu\"", "devise = \"cpu\""),
        ("unknown sampling key", "top_k = 40", "topk = 40"),
        ("seed among sampling defaults", "top_k = 40", "top_k = 40\nseed = 7"),
        ("unknown limit", "n_threads = \"all\"", "threads = \"all\""),
        ("unknown key of the plugin", "version = \"^0.1\"", "version = \"^0.1\", digst = \"00\""),
        ("unknown condition", "min = 32", "minimum = 32"),
        ("date as condition", "hidden_size = { min = 32, max = 64 }", "hidden_size = 1979-05-27"),
        ("missing about", "about = \"A tiny llama\"\n", ""),
        ("missing table", "[serve]\nmax_tokens = 32\nchat = true\nstop = [\"</s>\"]\n", ""),
        ("missing temperature", "temperature = 0.2\n", ""),
        ("missing plugin version", "plugin = \"llama\", version = \"^0.1\"", "plugin = \"llama\""),
        ("text for a number", "max_tokens = 32", "max_tokens = \"32\""),
        ("negative number", "max_tokens = 32", "max_tokens = -1"),
        ("fraction for a count", "top_k = 40", "top_k = 40.5"),
        ("number beyond 64 bits", "max_tokens = 32", "max_tokens = 99999999999999999999"),
        ("unknown numeric", "numeric = \"fast\"", "numeric = \"quick\""),
        ("no version range", "version = \"^0.1\"", "version = \"latest\""),
        ("short digest", "version = \"^0.1\"", "version = \"^0.1\", digest = \"b179\""),
        (
            "digest of other letters",
            "version = \"^0.1\"",
            &format!("version = \"^0.1\", digest = \"{}\"", "g".repeat(64)),
        ),
        ("unknown unit", "\"1GiB\"", "\"1GB\""),
        ("bytes beyond 64 bits", "\"1GiB\"", "\"99999999999TiB\""),
        ("fraction of bytes", "\"1GiB\"", "1.5"),
        ("negative bytes", "\"1GiB\"", "-1"),
        ("word for threads", "n_threads = \"all\"", "n_threads = \"some\""),
        ("negative threads", "n_threads = \"all\"", "n_threads = -2"),
        ("word for the context", "context_tokens = 128", "context_tokens = \"model\""),
        ("unknown form of context", "context_tokens = 128", "context_tokens = { at_least = 8 }"),
        ("number for a loader", "loader = [\"safetensors\", \"gguf\"]", "loader = 3"),
        ("number for an element type", "dtype = { exact = \"f32\", fast = \"f16\" }", "dtype = 16"),
    ];
    let edited = cases.iter().map(|(name, from, to)| ((*name).to_owned(), edited(&[(from, to)])));
    let bare = [("empty file", ""), ("control characters", "\u{0}\u{1}")];
    edited.chain(bare.map(|(name, text)| (name.to_owned(), text.to_owned()))).collect()
}

#[test]
fn a_text_that_does_not_fit_the_schema_is_refused_at_its_place() {
    snapshot!(table(of_form().into_iter().map(|(name, text)| (name, refused(&text)))));
}

#[test]
fn a_quantisation_is_a_name_rules_or_a_plugin_and_nothing_between() {
    for (quant, code, part) in [
        ("{ scheme = \"a\", plugin = \"b\" }", "profile.type", "`plugin` beside `scheme`"),
        ("{ scheme = \"a\", params = {} }", "profile.type", "`params` beside `scheme`"),
        ("{ plugin = \"b\" }", "profile.missing-key", "version"),
        ("{ params = { bits = 4 } }", "profile.type", "without `scheme` and `plugin`"),
        ("{}", "profile.type", "without `scheme` and `plugin`"),
        ("{ plugin = \"b\", version = \"latest\" }", "profile.type", "compose.quant.version"),
        ("{ plugin = \"b\", version = \"1\", bits = 4 }", "profile.unknown-key", "bits"),
        ("{ plugin = \"B\", version = \"1\" }", "profile.value", "compose.quant.plugin"),
        ("4", "profile.type", "4"),
    ] {
        let report = refused(&edited(&[("\"as-published\"", quant)]))[0].report();
        assert_eq!(report.code, code, "{quant}: {report}");
        assert!(report.to_string().contains(part), "{quant}: {report}");
        assert!(report.place.is_some_and(|place| place.line.is_some()), "{quant}");
    }
}

/// Each case with its text: what fits the schema's types and means nothing.
fn of_value() -> Vec<(String, String)> {
    let cases: &[(&str, &str, &str)] = &[
        ("id with a space", "id = \"tiny\"", "id = \"tiny llama\""),
        ("empty id", "id = \"tiny\"", "id = \"\""),
        ("id in capitals", "id = \"tiny\"", "id = \"Tiny\""),
        ("about of two lines", "\"A tiny llama\"", "\"A tiny\\nllama\""),
        ("empty source", "[match]", "[source]\nmodel = \"\"\n[match]"),
        (
            "digest of no file",
            "[match]",
            &format!("[source]\nmodel = \"./m\"\nsha256 = {{ \"\" = \"{}\" }}\n[match]", "0".repeat(64)),
        ),
        ("key with an empty part", "hidden_size =", "\"hidden_size.\" ="),
        ("infinite number", "{ min = 32, max = 64 }", "inf"),
        ("infinite bound", "max = 64", "max = inf"),
        ("table among the values", "[\"llama\", \"mistral\"]", "[{ a = 1 }]"),
        ("min above max", "min = 32", "min = 65"),
        ("no value to be one of", "[\"llama\", \"mistral\"]", "[]"),
        ("no keys", "keys = [\"bits\", \"group_size\", \"mode\"]", "keys = []"),
        ("modules without keys", "keys = [\"bits\", \"group_size\", \"mode\"], ", ""),
        ("no condition", "{ present = false }", "{}"),
        ("only optional", "{ present = false }", "{ optional = true }"),
        ("absent and more", "{ present = false }", "{ present = false, min = 1 }"),
        ("present and optional", "{ present = false }", "{ present = true, optional = true }"),
        ("plugin with a space", "plugin = \"llama\"", "plugin = \"my llama\""),
        ("no loader", "[\"safetensors\", \"gguf\"]", "[]"),
        ("loader twice", "[\"safetensors\", \"gguf\"]", "[\"gguf\", \"gguf\"]"),
        ("kernel twice", "require = []", "require = [\"a\", \"a\"]"),
        ("unknown numeric for an element type", "fast = \"f16\"", "quick = \"f16\""),
        ("no device", "device = \"cpu\"", "device = {}"),
        (
            "an operating system that is none",
            "device = \"cpu\"",
            "device = { linux = \"cpu\", darwin = \"mlx\" }",
        ),
        ("no element type", "dtype = { exact = \"f32\", fast = \"f16\" }", "dtype = {}"),
        ("negative temperature", "temperature = 0.2", "temperature = -0.5"),
        ("temperature that is no number", "temperature = 0.2", "temperature = nan"),
        ("top_p of 0", "top_p = 0.9", "top_p = 0"),
        ("min_p above 1", "min_p = 0.0", "min_p = 1.5"),
        ("negative penalty", "repetition_penalty = 1.0", "repetition_penalty = -0.1"),
        ("no tokens", "max_tokens = 32", "max_tokens = 0"),
        ("empty system message", "chat = true", "chat = true\nsystem = \"\""),
        ("empty stop text", "[\"</s>\"]", "[\"\"]"),
        ("stop text twice", "[\"</s>\"]", "[\"a\", \"a\"]"),
        ("no context", "context_tokens = 128", "context_tokens = 0"),
        ("no context at most", "context_tokens = 128", "context_tokens = { at_most = 0 }"),
        ("no sequences", "max_sequences = 4", "max_sequences = 0"),
        ("step smaller than the batch", "max_step_tokens = 64", "max_step_tokens = 3"),
        ("no memory", "\"1GiB\"", "0"),
        ("no threads", "n_threads = \"all\"", "n_threads = 0"),
    ];
    let one = cases.iter().map(|(name, from, to)| ((*name).to_owned(), edited(&[(from, to)])));
    let edits = [("top_p = 0.9", "top_p = 2"), ("max_tokens = 32", "max_tokens = 0"), ("\"tiny\"", "\"\"")];
    let several = ("three at once".to_owned(), edited(&edits));
    let bare = PROFILE.split("[match]").next().unwrap().to_owned()
        + "[match]\n"
        + PROFILE.split_once("[compose]").map(|(_, rest)| "[compose]".to_owned() + rest).unwrap().as_str();
    one.chain([several, ("match without lines".to_owned(), bare)]).collect()
}

#[test]
fn a_value_without_meaning_is_refused_at_its_place() {
    snapshot!(table(of_value().into_iter().map(|(name, text)| (name, refused(&text)))));
}

/// A validator that knows nothing of our reader judges the schema that editors get.
fn editor_takes(text: &str) -> bool {
    let value: serde_json::Value = toml::from_str(text).expect("TOML");
    jsonschema::is_valid(&crate::json_schema(), &value)
}

/// What no JSON Schema can say of the text, and why.
const BEYOND_A_SCHEMA: [(&str, &str); 8] = [
    ("date as condition", "JSON has no dates: the reader hands one out as an object"),
    ("number beyond 64 bits", "JSON's integers have no end"),
    ("bytes beyond 64 bits", "a product of number and unit"),
    ("infinite number", "JSON has no infinity"),
    ("infinite bound", "JSON has no infinity"),
    ("temperature that is no number", "JSON has no NaN"),
    ("min above max", "two values are compared"),
    ("step smaller than the batch", "two values are compared"),
];

#[test]
fn the_schema_for_editors_refuses_what_the_reader_refuses_for_its_form() {
    assert!(editor_takes(PROFILE));
    for (name, text) in of_form().into_iter().chain(of_value()) {
        // What is no TOML never reaches a validator.
        let is_toml = toml::from_str::<toml::Table>(&text).is_ok();
        if is_toml && BEYOND_A_SCHEMA.iter().all(|(beyond, _)| *beyond != name) {
            assert!(!editor_takes(&text), "{name}: the schema takes it");
        }
    }
}

#[test]
fn the_schema_for_editors_takes_every_shipped_profile_and_what_extends_one() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../profiles");
    let mut n_profiles = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            assert!(editor_takes(&std::fs::read_to_string(&path).unwrap()), "{}", path.display());
            n_profiles += 1;
        }
    }
    assert!(n_profiles >= 5, "{n_profiles} profiles");
    let head = "schema = 1\nid = \"a\"\nabout = \"b\"\n";
    assert!(editor_takes(&format!("{head}extends = \"tiny\"\n[limits]\nmax_sequences = 3\n")));
    assert!(!editor_takes(head), "a profile without a base says everything");
}

/// The keys of the schema are those of the reader, table by table, as its own report lists them.
#[test]
fn the_schema_for_editors_has_the_reader_s_keys() {
    let schema = crate::json_schema();
    for (table, place) in [
        ("compose", "[compose]"),
        ("kv", "[kv]"),
        ("kernels", "[kernels]"),
        ("sampling", "[sampling]"),
        ("serve", "[serve]"),
        ("limits", "[limits]"),
        ("", "schema = 1"),
    ] {
        let errors = refused(&edited(&[(place, &format!("{place}\nzzz = 1"))]));
        let ProfileError::UnknownKey { known, .. } = &errors[0] else { panic!("{table}: {errors:?}") };
        let at = if table.is_empty() {
            "/properties".to_owned()
        } else {
            format!("/properties/{table}/properties")
        };
        let listed = schema.pointer(&at).and_then(|keys| keys.as_object()).expect("a table of the schema");
        let (mut listed, mut known): (Vec<_>, Vec<_>) = (listed.keys().collect(), known.iter().collect());
        listed.sort();
        known.sort();
        assert_eq!(listed, known, "{table}");
    }
}

/// Four numbers, all of them, each at least 1; without the table no plugin is kept out.
#[test]
fn a_quarantine_is_read_and_checked() {
    let with = |table: &str| format!("{PROFILE}[limits.quarantine]\n{table}");
    let good = "faults = 3\nwithin_s = 60\nfirst_backoff_s = 10\nlongest_backoff_s = 600\n";
    let rules = |text: String| {
        let set = ProfileSet::from_texts([(FILE.to_owned(), text)]).expect("a sound profile");
        set.by_id("tiny").expect("it is there").profile().limits.quarantine
    };
    assert_eq!(rules(PROFILE.to_owned()), None);
    assert_eq!(rules(with(good)).map(|rules| rules.numbers().map(|(_, n)| n)), Some([3, 60, 10, 600]));
    for (from, to, code, says) in [
        ("faults = 3", "faults = 0", "profile.value", "at least 1"),
        ("within_s = 60", "within_s = 0", "profile.value", "at least 1"),
        ("longest_backoff_s = 600", "longest_backoff_s = 9", "profile.value", "at least first_backoff_s, 10"),
        ("within_s = 60\n", "", "profile.missing-key", "within_s"),
        ("within_s = 60", "within_ms = 60", "profile.unknown-key", "within_ms"),
        ("within_s = 60", "within_s = -1", "profile.type", "-1"),
    ] {
        let report = host_core::Reported::report(&refused(&with(&good.replace(from, to)))[0]);
        assert_eq!(report.code, code, "{to}: {report}");
        assert!(report.to_string().contains(says), "{to}: {report}");
    }
}

#[test]
fn a_place_counts_characters_and_ends_with_its_line() {
    let text = edited(&[("about = \"A tiny llama\"", "about = \"ä\\u0000 tiny\"")]);
    let report = host_core::Reported::report(&refused(&text)[0]);
    let place = report.place.unwrap();
    assert_eq!((place.line, place.column, place.width), (Some(3), Some(9), 14));
    let multi = edited(&[("\"A tiny llama\"", "\"\"\"\nA\ntiny\"\"\"")]);
    let place = host_core::Reported::report(&refused(&multi)[0]).place.unwrap();
    assert_eq!((place.line, place.excerpt.as_deref(), place.width), (Some(3), Some("about = \"\"\""), 3));
}

/// The profile with this in place of the flat sampling keys.
fn with_sampling(table: &str) -> String {
    let (head, rest) = PROFILE.split_once("[sampling]").expect("a sampling table");
    let (_, tail) = rest.split_once("[serve]").expect("a serve table");
    format!("{head}[sampling]\n{table}\n[serve]{tail}")
}

#[test]
fn a_chain_takes_the_place_of_the_flat_keys() {
    let text = with_sampling(
        "chain = [{ sampler = \"temperature\", temperature = 0.7 }, { sampler = \"min_p\", p = 0.05, min_keep = 1 }]",
    );
    let set = ProfileSet::from_texts([(FILE.to_owned(), text)]).expect("a sound profile");
    let sampling = &set.by_id("tiny").expect("it is there").profile().sampling.defaults;
    assert_eq!(
        sampling.with_seed(3).samplers,
        [Sampler::Temperature { temperature: 0.7 }, Sampler::MinP { p: 0.05, min_keep: 1 }]
    );
    assert!(sampling.flat().is_none());
}

#[test]
fn faults_of_a_chain_are_named() {
    let cases = [
        ("beside a flat key", "top_k = 3\nchain = []"),
        ("unknown sampler", "chain = [{ sampler = \"top_q\", p = 0.9 }]"),
        ("unknown parameter", "chain = [{ sampler = \"top_p\", p = 0.9, k = 1 }]"),
        ("missing parameter", "chain = [{ sampler = \"min_p\", p = 0.9 }]"),
        ("out of range", "chain = [{ sampler = \"top_k\", k = 3 }, { sampler = \"top_p\", p = 0 }]"),
    ];
    let reports = cases.iter().map(|(name, table)| ((*name).to_owned(), refused(&with_sampling(table))));
    snapshot!(table(reports));
}

/// Each chain is refused by the reader and by the schema for editors alike.
#[test]
fn the_schema_for_editors_knows_the_parameters_of_samplers() {
    let takes = |chain: &str| editor_takes(&with_sampling(&format!("chain = [{chain}]")));
    for chain in [
        "",
        "{ sampler = \"hlg_oetf\" }",
        "{ sampler = \"logit_bias\", bias = [[3, -1.5]] }",
        "{ sampler = \"dry\", multiplier = 0.8, base = 1.75, allowed_length = 2, context_tokens = 0, sequence_breakers = [\"\\n\", 7] }",
        "{ sampler = \"hlg\", gain = 1, width = 2, shoulder = 4, toe = 6, pivot = \"median\", offset = -1 }",
        "{ sampler = \"curve\", points = [[1, 1], [50, 60.5]] }",
    ] {
        assert!(takes(chain), "{chain}");
        LoadedProfile::parse(FILE, &with_sampling(&format!("chain = [{chain}]"))).expect(chain);
    }
    for chain in [
        "{ sampler = \"top_q\", p = 0.9 }",
        "{ sampler = \"top_p\" }",
        "{ sampler = \"top_p\", p = 0.9, k = 1 }",
        "{ sampler = \"top_p\", p = 0 }",
        "{ sampler = \"top_p\", p = \"0.9\" }",
        "{ sampler = \"min_p\", p = 0.05, min_keep = 0 }",
        "{ sampler = \"xtc\", probability = 0.5, threshold = 0.6 }",
        "{ sampler = \"top_k\", k = -1 }",
        "{ sampler = \"top_k\", k = 1.5 }",
        "{ sampler = \"mirostat_v1\", tau = 5, eta = 0.1, m = 1 }",
        "{ sampler = \"hlg\", gain = 1, width = 2, shoulder = 4, toe = 6, pivot = \"mode\", offset = -1 }",
        "{ sampler = \"curve\", points = [[1, 1]] }",
        "{ sampler = \"curve\", points = [[1, 1], [50, 101]] }",
        "{ sampler = \"logit_bias\", bias = [[3]] }",
        "{ p = 0.9 }",
    ] {
        assert!(!takes(chain), "{chain}");
        LoadedProfile::parse(FILE, &with_sampling(&format!("chain = [{chain}]"))).expect_err(chain);
    }
}

/// A value of each form that holds.
fn good(form: Form) -> Value {
    match form {
        Form::Number(Range { from, to, .. }) => match (from, to) {
            (Bound::Included(from) | Bound::Excluded(from), Some(to)) => json!((from + to) / 2.0),
            (Bound::Included(from) | Bound::Excluded(from), None) => json!(from + 0.25),
            (Bound::Unbounded, _) => json!(0.5),
        },
        Form::Count(least) => json!(least.n),
        Form::Word(words) => json!(words[0]),
        Form::Breakers => json!(["\n"]),
        Form::Bias => json!([[1, -0.5]]),
        Form::Points => json!([[1.0, 1.0], [50.0, 50.0]]),
    }
}

/// Numbers at and around the ends of a range.
fn probes(form: Form) -> Vec<f32> {
    match form {
        Form::Number(Range { from, to, .. }) => {
            let mut probes = vec![-1.0, 0.0, 1e-30, 0.25, 1.0];
            if let Bound::Included(end) | Bound::Excluded(end) = from {
                probes.extend([end, end.next_down(), end.next_up()]);
            }
            probes.extend(to.iter().flat_map(|end| [*end, end.next_down(), end.next_up()]));
            probes
        }
        Form::Count(least) => (0..least.n + 2).map(|n| n as f32).collect(),
        _ => Vec::new(),
    }
}

/// The list of parameters is what a chain is read with and what is checked: every name, every range.
#[test]
fn a_sampler_is_read_and_judged_as_the_list_of_parameters_says() {
    let mut n_probes = 0;
    for name in Sampler::NAMES {
        let parameters = Sampler::parameters(name).unwrap();
        let mut sampler = Map::from_iter([("sampler".to_owned(), json!(name))]);
        sampler.extend(parameters.iter().map(|known| (known.name.to_owned(), good(known.form))));
        // Ends that depend on each other.
        if name == "hlg_shaper" {
            sampler.extend([("x_foot".to_owned(), json!(0.125)), ("y_foot".to_owned(), json!(0.125))]);
        }
        let read = |sampler: &Map<String, Value>| serde_json::from_value::<Sampler>(json!(sampler));
        assert_eq!(read(&sampler).unwrap().check(), Ok(()), "{name}");
        let more = Map::from_iter(sampler.clone().into_iter().chain([("more".to_owned(), json!(1))]));
        assert!(read(&more).is_err(), "{name} with a parameter too many");
        for known in parameters {
            let mut less = sampler.clone();
            less.remove(known.name);
            assert!(read(&less).is_err(), "{name} without {}", known.name);
            for probe in probes(known.form) {
                if ["x_foot", "y_foot"].contains(&known.name) && probe > 0.125 {
                    continue;
                }
                let mut probed = sampler.clone();
                let (value, holds) = match known.form {
                    Form::Number(range) => (json!(probe), range.holds(probe)),
                    Form::Count(least) => (json!(probe as u32), probe as u32 >= least.n),
                    _ => continue,
                };
                probed.insert(known.name.to_owned(), value);
                // 0 and 1e-30 are one number for the middle of the shaper's curve, whose foot lies below.
                let below_foot = ["x_mid", "y_mid"].contains(&known.name) && probe <= 0.125;
                let judged = read(&probed).unwrap().check().is_ok();
                assert_eq!(judged, holds && !below_foot, "{name} {} {probe:e}", known.name);
                n_probes += 1;
            }
        }
    }
    assert!(n_probes > 200, "{n_probes}");
}

/// Each flat key is one parameter of one sampler, and is judged as that is.
#[test]
fn flat_keys_stand_for_parameters() {
    for (key, sampler, name) in FLAT_KEYS {
        let form = Parameter::of(sampler, name).unwrap_or_else(|| panic!("{key}")).form;
        for probe in probes(form) {
            let value =
                if matches!(form, Form::Count(_)) { format!("{probe}") } else { format!("{probe:?}") };
            let flat = PROFILE.lines().map(|line| match line.split(" =").next() {
                Some(found) if found == key => format!("{key} = {value}"),
                _ => line.to_owned(),
            });
            let text = flat.collect::<Vec<_>>().join("\n");
            let holds = match form {
                Form::Number(range) => range.holds(probe),
                Form::Count(least) => probe as u32 >= least.n,
                _ => true,
            };
            assert_eq!(LoadedProfile::parse(FILE, &text).is_ok(), holds, "{key} = {value}");
            assert_eq!(editor_takes(&text), holds, "the schema on {key} = {value}");
        }
    }
}

/// The registry lists samplers by the names that a chain is read with.
#[test]
fn the_names_of_samplers_are_those_that_are_read() {
    let error = serde_json::from_str::<Sampler>("{\"sampler\": \"none\"}").unwrap_err().to_string();
    let read: Vec<&str> = error.split('`').skip(3).step_by(2).collect();
    assert_eq!(read, Sampler::NAMES, "{error}");
}
