//! Tests of what needs no host: the config, the rotary settings, the version section.

use crate::{Config, Error, FieldError, RopeFrequencies, api_section, rope};

fn config(text: &str) -> Config {
    Config::parse(text).unwrap()
}

fn fields(error: Error) -> Vec<(String, String, String)> {
    let told = |field: FieldError| (field.path, field.expected, field.found);
    match error {
        Error::InvalidConfig(fields) | Error::Unsupported(fields) => fields.into_iter().map(told).collect(),
        other => panic!("{other}"),
    }
}

fn field(error: Error) -> (String, String, String) {
    fields(error).remove(0)
}

#[test]
fn texts_that_are_no_config() {
    for (text, expected) in [("", "JSON"), ("{", "JSON"), ("[1]", "a JSON object"), ("7", "a JSON object")] {
        let (path, wanted, _) = field(Config::parse(text).unwrap_err());
        assert_eq!((path.as_str(), wanted.as_str()), ("config.json", expected), "{text}");
    }
}

#[test]
fn typed_access_names_key_expected_and_found() {
    let c =
        config(r#"{"n": 7, "f": 1.5, "s": "x", "t": true, "l": [1, 2], "o": {"k": {"n": "y"}}, "z": null}"#);
    assert_eq!((c.usize("n").unwrap(), c.number("n").unwrap(), c.number("f").unwrap()), (7, 7.0, 1.5));
    assert_eq!((c.str("s").unwrap().as_str(), c.bool_or("t", false).unwrap()), ("x", true));
    assert_eq!(c.usizes("l").unwrap(), Some(vec![1, 2]));
    assert_eq!(c.numbers("l").unwrap(), Some(vec![1.0, 2.0]));
    let inner = c.object("o").unwrap().unwrap().object("k").unwrap().unwrap();
    let told = |error: Error| {
        let (path, expected, found) = field(error);
        format!("{path}|{expected}|{found}")
    };
    assert_eq!(told(inner.usize("n").unwrap_err()), "o.k.n|a whole number of at least 0|\"y\"");
    assert_eq!(told(c.usize("f").unwrap_err()), "f|a whole number of at least 0|1.5");
    assert_eq!(told(c.usize("missing").unwrap_err()), "missing|a whole number of at least 0|nothing");
    assert_eq!(told(c.number("s").unwrap_err()), "s|a number|\"x\"");
    assert_eq!(told(c.bool_or("n", true).unwrap_err()), "n|true or false|7");
    assert_eq!(told(c.str("t").unwrap_err()), "t|a string|true");
    assert_eq!(told(c.object("l").unwrap_err()), "l|an object|[1,2]");
    assert_eq!(told(c.strs("l").unwrap_err()), "l|a list of strings|[1,2]");
    assert_eq!(told(c.usizes("o").unwrap_err()), "o|a list of whole numbers|{\"k\":{\"n\":\"y\"}}");
}

#[test]
fn null_counts_as_absent() {
    let c = config(r#"{"z": null}"#);
    assert!(!c.has("z"));
    assert_eq!(c.keys().collect::<Vec<_>>(), ["z"]);
    assert_eq!(c.usize_or("z", 3).unwrap(), 3);
    assert_eq!(c.optional_number("z").unwrap(), None);
    assert_eq!(c.str_or("z", "d").unwrap(), "d");
    assert!(c.object("z").unwrap().is_none());
    assert!(c.usize("z").is_err());
    c.refuse_unknown(&[]).unwrap();
}

#[test]
fn whole_numbers_are_of_32_bits() {
    let c = config(r#"{"most": 4294967295, "more": 4294967296, "less": -1, "real": 2.0}"#);
    assert_eq!(c.usize("most").unwrap(), 4_294_967_295);
    for key in ["more", "less", "real"] {
        assert!(c.usize(key).is_err(), "{key}");
    }
}

#[test]
fn long_values_are_cut_in_errors() {
    let c = config(&format!("{{\"s\": \"{}\"}}", "é".repeat(500)));
    let (.., found) = field(c.usize("s").unwrap_err());
    assert_eq!(found.chars().count(), 61);
}

#[test]
fn unknown_keys_are_refused_but_for_harmless_ones_at_the_top() {
    let c = config(
        r#"{"known": 1, "torch_dtype": "f32", "quantization": {}, "odd": 1, "rope": {"torch_dtype": 1}}"#,
    );
    let unknown = fields(c.refuse_unknown(&["known"]).unwrap_err());
    let paths: Vec<_> = unknown.iter().map(|(path, ..)| path.as_str()).collect();
    assert_eq!(paths, ["odd", "rope"]);
    assert!(matches!(c.refuse_unknown(&["known"]).unwrap_err(), Error::Unsupported(_)));
    let inner = c.object("rope").unwrap().unwrap();
    assert_eq!(field(inner.refuse_unknown(&[]).unwrap_err()).0, "rope.torch_dtype");
    // A comment line of the list is no key.
    assert!(
        config(r##"{"# One key a line. Both runtimes accept these in every model-graph plugin.": 1}"##)
            .refuse_unknown(&[])
            .is_err()
    );
}

#[test]
fn yarn_attention_follows_the_paper_or_the_config() {
    let attention = |parameters: &str| {
        let text = format!(
            r#"{{"max_position_embeddings": 128,
                "rope_scaling": {{"rope_type": "yarn", "original_max_position_embeddings": 32{parameters}}}}}"#
        );
        rope::from_config(&config(&text), 16).unwrap()
    };
    let plain = attention("");
    assert_eq!(plain.attention_factor, 0.1 * 4f64.ln() + 1.0);
    assert_eq!(attention(r#", "factor": 0.5"#).attention_factor, 1.0);
    assert_eq!(attention(r#", "factor": 4.0, "attention_factor": 1.25"#).attention_factor, 1.25);
    let weighed = attention(r#", "factor": 4.0, "mscale": 2.0, "mscale_all_dim": 0.5"#);
    assert_eq!(weighed.attention_factor, (0.2 * 4f64.ln() + 1.0) / (0.05 * 4f64.ln() + 1.0));
    // One alone changes nothing.
    assert_eq!(attention(r#", "factor": 4.0, "mscale": 2.0"#).attention_factor, plain.attention_factor);
    let RopeFrequencies::Yarn { factor, beta_fast, beta_slow, original_max_position_embeddings, truncate } =
        plain.frequencies
    else {
        panic!("{plain:?}")
    };
    assert_eq!((factor, beta_fast, beta_slow), (4.0, 32.0, 1.0));
    assert_eq!((original_max_position_embeddings, truncate), (32.0, true));
}

#[test]
fn longrope_takes_the_factors_of_the_models_context() {
    let text = |max: u32| {
        format!(
            r#"{{"max_position_embeddings": {max}, "original_max_position_embeddings": 64, "rope_theta": 1e4,
                "rope_scaling": {{"type": "longrope", "short_factor": [1, 2], "long_factor": [3, 4]}}}}"#
        )
    };
    let long = rope::from_config(&config(&text(256)), 4).unwrap();
    assert_eq!(long.frequencies, RopeFrequencies::LongRope { factors: vec![3.0, 4.0] });
    assert_eq!(long.attention_factor, (1.0 + 4f64.ln() / 64f64.ln()).sqrt());
    let short = rope::from_config(&config(&text(64)), 4).unwrap();
    assert_eq!(short.frequencies, RopeFrequencies::LongRope { factors: vec![1.0, 2.0] });
    assert_eq!(short.attention_factor, 1.0);
}

#[test]
fn the_parameters_own_theta_counts_first() {
    let theta = |text: &str| rope::from_config(&config(text), 4).unwrap().theta;
    assert_eq!(theta("{}"), 10_000.0);
    assert_eq!(theta(r#"{"rope_theta": 5}"#), 5.0);
    assert_eq!(theta(r#"{"rope_theta": 5, "rope_parameters": {"rope_type": "default"}}"#), 5.0);
    assert_eq!(theta(r#"{"rope_theta": 5, "rope_parameters": {"rope_theta": 7}}"#), 7.0);
}

#[test]
fn the_version_section_is_as_the_contract_tells() {
    assert_eq!(&api_section::<17>("model-graph"), b"\0\0\0\x02\0\0model-graph");
}
