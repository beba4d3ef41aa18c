//! Lines of `[match]` on a model's tokenizer: what holds, every refusal with its report, and what is refused in a profile.

use std::collections::BTreeSet;

use host_core::{TokenizerFact, TokenizerFacts, TokenizerKey};
use serde_json::json;

use super::{FILE, config, edited, table};
use crate::{Explanation, LoadedProfile, MatchRefusal, ModelIdentity, ProfileSet, Subject};

use TokenizerFact::{Absent, Count, Text, Unreadable};
use TokenizerKey::{Class, Digest, Kind, NVocab, Pre};

const SHA: &str = "2a6f391145882dbdfa4acd53e15989eece24ae697e022f90fa39d289802e02e4";
const OTHER: &str = "f3b7efcb9927b9558a152ebfe248bdc33d1445f33bfde578b85c376accf4d832";

/// A folder's answers.
fn folder() -> TokenizerFacts {
    TokenizerFacts::from([
        (Kind, Text("BPE".to_owned())),
        (Pre, Absent("only a GGUF file names one".to_owned())),
        (Class, Text("GPT2Tokenizer".to_owned())),
        (NVocab, Count(49152)),
        (Digest, Text(SHA.to_owned())),
    ])
}

/// A GGUF file's answers.
fn gguf() -> TokenizerFacts {
    TokenizerFacts::from([
        (Kind, Text("gpt2".to_owned())),
        (Pre, Text("smollm".to_owned())),
        (Class, Absent("a GGUF file names none".to_owned())),
        (NVocab, Count(49152)),
        (Digest, Text(OTHER.to_owned())),
    ])
}

/// A folder with nothing in it but weights.
fn bare() -> TokenizerFacts {
    let without = |key: TokenizerKey, file: &str| (key, Absent(format!("there is no {file}")));
    TokenizerFacts::from([
        without(Kind, "tokenizer.json"),
        (Pre, Absent("only a GGUF file names one".to_owned())),
        without(Class, "tokenizer_config.json"),
        without(NVocab, "tokenizer.json"),
        without(Digest, "tokenizer.json"),
    ])
}

/// A folder whose files are broken.
fn broken() -> TokenizerFacts {
    let why = || Unreadable("tokenizer.json: EOF while parsing a value at line 1 column 0".to_owned());
    TokenizerFacts::from([(Kind, why()), (NVocab, why()), (Digest, Text(SHA.to_owned()))])
}

/// The profile with these lines in front of its `[match]`.
fn with_lines(lines: &str) -> String {
    edited(&[("[match]", &format!("[match]\n{lines}"))])
}

fn set(lines: &str) -> ProfileSet {
    ProfileSet::from_texts([(FILE, with_lines(lines))]).unwrap_or_else(|errors| panic!("{lines}: {errors:?}"))
}

fn refusal(lines: &str, tokenizer: Option<TokenizerFacts>) -> Option<MatchRefusal> {
    let (config, identity) = (config(json!({})), ModelIdentity { tokenizer, ..ModelIdentity::NONE });
    let decision = set(lines).match_named("tiny", Subject { config: &config, identity: &identity }).unwrap();
    decision.chosen().err().cloned()
}

#[test]
fn a_line_holds_for_the_tokenizer_that_it_asks_for() {
    let holds = |lines: &str, facts: TokenizerFacts| {
        assert_eq!(refusal(lines, Some(facts)), None, "{lines}");
    };
    holds("\"tokenizer.kind\" = \"BPE\"", folder());
    holds("\"tokenizer.kind\" = { in = [\"BPE\", \"gpt2\"] }", folder());
    holds("\"tokenizer.kind\" = { in = [\"BPE\", \"gpt2\"] }", gguf());
    holds("\"tokenizer.pre\" = \"smollm\"", gguf());
    holds("\"tokenizer.pre\" = { equals = \"smollm\", optional = true }", folder());
    holds("\"tokenizer.pre\" = { present = false }", folder());
    holds("\"tokenizer.class\" = \"GPT2Tokenizer\"", folder());
    holds("\"tokenizer.class\" = { present = true }", folder());
    holds("\"tokenizer.class\" = { present = false }", gguf());
    holds("\"tokenizer.n_vocab\" = 49152", folder());
    holds("\"tokenizer.n_vocab\" = { min = 49152, max = 49152 }", gguf());
    holds("\"tokenizer.n_vocab\" = { in = [32000, 49152] }", folder());
    holds(&format!("\"tokenizer.digest\" = \"{SHA}\""), folder());
    holds(&format!("\"tokenizer.digest\" = {{ in = [\"{OTHER}\", \"{SHA}\"] }}"), gguf());
    holds("\"tokenizer.digest\" = { present = false }", bare());
    // A key of the configuration that begins alike is one.
    assert!(refusal("tokenizer_class = { present = false }", None).is_none());
}

#[test]
fn another_tokenizer_is_refused_with_what_it_is() {
    let case = |name: &str, lines: &str, facts: Option<TokenizerFacts>| {
        (name.to_owned(), vec![refusal(lines, facts).unwrap_or_else(|| panic!("{name} fits"))])
    };
    let digest = format!("\"tokenizer.digest\" = \"{SHA}\"");
    snapshot!(table([
        case("another kind", "\"tokenizer.kind\" = \"Unigram\"", Some(folder())),
        case("none of the kinds", "\"tokenizer.kind\" = { in = [\"llama\", \"Unigram\"] }", Some(gguf())),
        case("no tokenizer.json", "\"tokenizer.kind\" = \"BPE\"", Some(bare())),
        case("a broken tokenizer.json", "\"tokenizer.kind\" = \"BPE\"", Some(broken())),
        case("broken is not absent", "\"tokenizer.kind\" = { present = false }", Some(broken())),
        case(
            "broken is not optional",
            "\"tokenizer.kind\" = { equals = \"BPE\", optional = true }",
            Some(broken())
        ),
        case("a kind where none may be", "\"tokenizer.kind\" = { present = false }", Some(folder())),
        case("another pre-tokenizer", "\"tokenizer.pre\" = \"llama-bpe\"", Some(gguf())),
        case("a folder names no pre-tokenizer", "\"tokenizer.pre\" = \"smollm\"", Some(folder())),
        case("another class", "\"tokenizer.class\" = \"LlamaTokenizer\"", Some(folder())),
        case("a GGUF file has no class", "\"tokenizer.class\" = \"GPT2Tokenizer\"", Some(gguf())),
        case("no tokenizer_config.json", "\"tokenizer.class\" = { present = true }", Some(bare())),
        case("a class where none may be", "\"tokenizer.class\" = { present = false }", Some(folder())),
        case("another number of ids", "\"tokenizer.n_vocab\" = 32000", Some(folder())),
        case("too few ids", "\"tokenizer.n_vocab\" = { min = 50000 }", Some(gguf())),
        case("too many ids", "\"tokenizer.n_vocab\" = { min = 1, max = 32768 }", Some(folder())),
        case("no ids to count", "\"tokenizer.n_vocab\" = { min = 1 }", Some(bare())),
        case("another content", &digest, Some(gguf())),
        case("no content", &digest, Some(bare())),
        case("nobody looked", &digest, None),
        case(
            "several at once",
            &format!("\"tokenizer.n_vocab\" = 32000\n\"tokenizer.class\" = \"A\"\n{digest}"),
            Some(gguf())
        ),
    ]));
}

/// Each line is refused by the reader at its place, and by the schema for editors.
#[test]
fn lines_that_no_tokenizer_could_fit_are_refused() {
    let cases = [
        "\"tokenizer.kind\" = 3",
        "\"tokenizer.kind\" = \" \"",
        "\"tokenizer.kind\" = { min = 3 }",
        "\"tokenizer.pre\" = { in = [\"a\", true] }",
        "\"tokenizer.class\" = { contains = [\"a\"] }",
        "\"tokenizer.class\" = { keys = [\"a\"] }",
        "\"tokenizer.n_vocab\" = \"49152\"",
        "\"tokenizer.n_vocab\" = 0",
        "\"tokenizer.n_vocab\" = 1.5",
        "\"tokenizer.n_vocab\" = { in = [1, -1] }",
        "\"tokenizer.n_vocab\" = { contains = [1] }",
        "\"tokenizer.digest\" = \"2a6f\"",
        &format!("\"tokenizer.digest\" = \"{}\"", SHA.to_uppercase()),
        &format!("\"tokenizer.digest\" = \"sha256:{SHA}\""),
        "\"tokenizer.digest\" = { optional = true }",
        "\"tokenizer.vocab_size\" = 49152",
        "\"tokenizer.kind.name\" = \"BPE\"",
        "tokenizer = \"BPE\"",
        "tokenizer = { present = true }",
        "tokenizer.kind = \"BPE\"",
    ];
    let refused = cases.map(|lines| {
        let text = with_lines(lines);
        let value: serde_json::Value = toml::from_str(&text).unwrap();
        assert!(!jsonschema::is_valid(&crate::json_schema(), &value), "{lines}: the schema takes it");
        (lines.to_owned(), LoadedProfile::parse(FILE, &text).expect_err(lines))
    });
    snapshot!(table(refused));
}

#[test]
fn the_schema_for_editors_takes_the_lines_that_the_reader_takes() {
    for lines in [
        "\"tokenizer.kind\" = \"BPE\"",
        "\"tokenizer.kind\" = { in = [\"BPE\", \"gpt2\"] }",
        "\"tokenizer.pre\" = { present = false }",
        "\"tokenizer.class\" = { equals = \"A\", optional = true }",
        "\"tokenizer.n_vocab\" = 49152",
        "\"tokenizer.n_vocab\" = { min = 1, max = 65536, optional = true }",
        &format!("\"tokenizer.digest\" = \"{SHA}\""),
        "tokenizer_class = \"A\"",
    ] {
        set(lines);
        let value: serde_json::Value = toml::from_str(&with_lines(lines)).unwrap();
        assert!(jsonschema::is_valid(&crate::json_schema(), &value), "{lines}");
    }
}

/// Reading a tokenizer costs time, so only what a profile asks is read.
#[test]
fn a_set_tells_what_is_asked() {
    assert_eq!(set("").tokenizer_keys(), BTreeSet::new());
    assert_eq!(set("tokenizer_class = { present = false }").tokenizer_keys(), BTreeSet::new());
    let lines = "\"tokenizer.kind\" = \"BPE\"\n\"tokenizer.n_vocab\" = 3\n";
    assert_eq!(set(lines).tokenizer_keys(), BTreeSet::from([Kind, NVocab]));
}

/// A profile that names the tokenizer too says more of the model.
#[test]
fn lines_on_the_tokenizer_count_in_the_choice() {
    let narrow = with_lines("\"tokenizer.kind\" = \"BPE\"").replace("\"tiny\"", "\"narrow\"");
    let set = ProfileSet::from_texts([(FILE, super::PROFILE.to_owned()), ("narrow.toml", narrow)]).unwrap();
    let config = config(json!({}));
    let chosen = |facts: TokenizerFacts| {
        let identity = ModelIdentity { tokenizer: Some(facts), ..ModelIdentity::NONE };
        set.match_config(Subject { config: &config, identity: &identity }).chosen().unwrap().id().to_owned()
    };
    assert_eq!(chosen(folder()), "narrow");
    assert_eq!(chosen(gguf()), "tiny");
}

#[test]
fn what_can_be_asked_is_explained() {
    let (config, set) = (config(json!({})), set("\"tokenizer.kind\" = \"BPE\"\n\"tokenizer.n_vocab\" = 3"));
    let identity = ModelIdentity { tokenizer: Some(folder()), ..ModelIdentity::NONE };
    let subject = Subject { config: &config, identity: &identity };
    let explanation = Explanation::new("./tiny", "safetensors", subject, &set.match_config(subject));
    insta::assert_snapshot!(explanation, @r#"
    model        ./tiny (safetensors)
    config       none: `num_attention_heads` is absent, expected a number above 0
    tokenizer
      kind: "BPE"
      class: "GPT2Tokenizer"
      n_vocab: 49152
      digest: "2a6f391145882dbdfa4acd53e15989eece24ae697e022f90fa39d289802e02e4"
    profile      none
      tiny: tokenizer.n_vocab is 49152, expected 3 (profiles/tiny.toml:7)
    error[profile.no-match]: no profile fits this model
      expected  tokenizer.n_vocab: 3 (the nearest profile, `tiny`, profiles/tiny.toml:7)
      found     49152
      mend      write a profile for this model, or use a model that one of these fits
      note      tiny: tokenizer.n_vocab is 49152, expected 3 (profiles/tiny.toml:7)
    "#);
    let read = json!({ "kind": "BPE", "class": "GPT2Tokenizer", "n_vocab": 49152, "digest": SHA });
    assert_eq!(json!(explanation)["tokenizer"], read);
}
