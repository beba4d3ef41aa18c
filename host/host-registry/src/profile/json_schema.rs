//! The profile schema as JSON Schema (draft 2020-12), for editors. It judges form: keys, types, names, ranges. What
//! needs more than one key, another file or a host (`extends`, two bounds, a plugin that is there) is for
//! `tenon explain` and the loader to judge.
//!
//! A profile that extends another has only some of the keys, so nothing but the head is required of it.

use std::ops::Bound;

use host_core::sampling::parameters::{FLAT_KEYS, Form, Parameter, Range};
use host_core::{Sampler, TokenizerKey};
use serde_json::{Map, Value, json};

use super::SCHEMA_VERSION;
use super::budget::CEILINGS;
use crate::tokenizer::TOKENIZER;

/// The schema. It stands for every text that the loader reads without a report of form.
pub fn json_schema() -> Value {
    let whole = ["match", "compose", "kv", "kernels", "sampling", "serve", "limits"];
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A profile: which models it fits, and every choice for them",
        "type": "object",
        "required": ["schema", "id", "about"],
        "if": { "not": { "required": ["extends"] } },
        "then": {
            "required": whole,
            "properties": {
                "match": { "minProperties": 1 },
                "compose": { "required": ["graph", "loader", "quant", "loop", "device", "numeric"] },
                "kv": { "required": ["kind", "dtype"] },
                "kernels": { "required": ["require"] },
                "sampling": { "$ref": "#/$defs/whole-sampling" },
                "serve": { "required": ["max_tokens", "chat", "stop"] },
                "limits": { "required": ["context_tokens", "max_sequences", "max_step_tokens"] },
                "without": { "maxItems": 0 },
            },
        },
        "properties": {
            "schema": { "description": "The schema version", "const": SCHEMA_VERSION },
            "id": told("The name it is chosen by", name()),
            "about": told("One line for people", line()),
            "extends": told("The profile whose values hold where this one is silent", text()),
            "without": told("Keys of the base that it does without: limits.memory_bytes", list(text())),
            "only_named": told("Used only where it is named; takes no part in the choice for a model", boolean()),
            "fallbacks": told("Profiles to try, in order, where this one is refused", names()),
            "source": told("Where its model comes from", source()),
            "match": told("Which models it fits: keys of config.json, parts joined by dots", matching()),
            "compose": told("The parts it names", compose()),
            "kv": told("How keys and values are stored", kv()),
            "kernels": told("Kernels it will not do without", object([("require", names())])),
            "sampling": told("The sampling settings of a request that gives none", sampling()),
            "serve": told("What else a request that says nothing gets", serve()),
            "limits": told("How much it may use", limits()),
            "plugins": told("What its plugins may spend, by id", budgets()),
        },
        "additionalProperties": false,
        "$defs": {
            "sampler": { "oneOf": samplers() },
            "predicate": predicate(),
            "literal": literal(),
            "whole-sampling": whole_sampling(),
        },
    })
}

fn told(description: &str, schema: Value) -> Value {
    let Value::Object(keys) = schema else { return schema };
    let mut told = Map::from_iter([("description".to_owned(), json!(description))]);
    told.extend(keys);
    Value::Object(told)
}

/// An object with these keys and no others, none of which is required.
fn object<const N: usize>(keys: [(&str, Value); N]) -> Value {
    let properties: Map<String, Value> =
        keys.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    json!({ "type": "object", "properties": properties, "additionalProperties": false })
}

fn requiring(mut object: Value, keys: &[&str]) -> Value {
    object["required"] = json!(keys);
    object
}

fn text() -> Value {
    json!({ "type": "string" })
}

fn line() -> Value {
    json!({ "type": "string", "pattern": "^[^\\u0000-\\u001f\\u007f-\\u009f]*\\S[^\\u0000-\\u001f\\u007f-\\u009f]*$" })
}

fn boolean() -> Value {
    json!({ "type": "boolean" })
}

fn name() -> Value {
    json!({ "type": "string", "pattern": "^[a-z0-9][a-z0-9._-]*$" })
}

fn names() -> Value {
    json!({ "type": "array", "items": name(), "uniqueItems": true })
}

fn list(items: Value) -> Value {
    json!({ "type": "array", "items": items })
}

fn count() -> Value {
    json!({ "type": "integer", "minimum": 1 })
}

fn digest() -> Value {
    json!({ "type": "string", "pattern": "^(sha256:)?[0-9a-fA-F]{64}$" })
}

/// A version range. The pattern knows each part of a range; only the reader knows all of them together.
fn range() -> Value {
    let one = r"\s*(=|>=|>|<=|<|~|\^)?\s*v?(\d+|\*)(\.(\d+|\*))?(\.(\d+|\*))?(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?\s*";
    json!({ "type": "string", "pattern": format!("^{one}(,{one})*$") })
}

fn bytes() -> Value {
    json!({ "oneOf": [
        { "type": "integer", "minimum": 1 },
        { "type": "string", "pattern": "^0*[1-9][0-9]{0,18} *(B|KiB|MiB|GiB|TiB)?$" },
    ] })
}

fn source() -> Value {
    let files = json!({
        "type": "object",
        "propertyNames": { "pattern": "\\S" },
        "additionalProperties": digest(),
    });
    requiring(object([("model", line()), ("sha256", files)]), &["model"])
}

fn matching() -> Value {
    let lines = TokenizerKey::ALL.map(|key| (format!("{TOKENIZER}.{}", key.name()), of_tokenizer(key)));
    let names: Vec<&String> = lines.iter().map(|(name, _)| name).collect();
    let names = json!([{ "enum": names }, { "not": { "pattern": format!("^{TOKENIZER}(\\.|$)") } }]);
    json!({
        "type": "object",
        "propertyNames": { "pattern": "^[^.]+(\\.[^.]+)*$", "anyOf": names },
        "properties": Map::from_iter(lines),
        "additionalProperties": { "$ref": "#/$defs/predicate" },
    })
}

/// A line on the tokenizer: any line whose values are of the one type that its question has answers of.
fn of_tokenizer(key: TokenizerKey) -> Value {
    let (about, value) = match key {
        TokenizerKey::Kind => ("What splits text: BPE, Unigram, gpt2, llama", word()),
        TokenizerKey::Pre => ("The pre-tokenizer that a GGUF file names", word()),
        TokenizerKey::Class => ("tokenizer_class of tokenizer_config.json", word()),
        TokenizerKey::NVocab => ("How many ids there are, added tokens included", count()),
        TokenizerKey::Digest => {
            ("SHA-256 of tokenizer.json, or of a GGUF file's tokenizer keys, as explain shows it", hex_64())
        }
    };
    // Text has no bounds, and no answer has parts.
    let bound = key == TokenizerKey::NVocab;
    let asks = json!({ "type": "object", "properties": {
        "equals": value, "in": list(value.clone()), "min": bound, "max": bound, "contains": false, "keys": false,
    } });
    told(about, json!({ "$ref": "#/$defs/predicate", "anyOf": [value, asks] }))
}

fn word() -> Value {
    json!({ "type": "string", "pattern": "\\S" })
}

fn hex_64() -> Value {
    json!({ "type": "string", "pattern": "^[0-9a-f]{64}$" })
}

/// Numbers, texts, truth values, or lists of them.
fn literal() -> Value {
    json!({ "oneOf": [
        { "type": ["number", "string", "boolean"] },
        { "type": "array", "items": { "$ref": "#/$defs/literal" } },
    ] })
}

fn predicate() -> Value {
    let literals = json!({ "type": "array", "items": { "$ref": "#/$defs/literal" }, "minItems": 1 });
    let mut conditions = object([
        ("equals", told("The one value that holds", json!({ "$ref": "#/$defs/literal" }))),
        ("in", told("The values that hold", literals.clone())),
        ("min", told("The least number that holds", json!({ "type": "number" }))),
        ("max", told("The greatest number that holds", json!({ "type": "number" }))),
        ("contains", told("What the list must have", literals)),
        ("present", told("Whether the key must be there or must not", boolean())),
        (
            "keys",
            told(
                "The only keys that the object may have",
                json!({
                    "type": "array", "items": text(), "minItems": 1,
                }),
            ),
        ),
        ("modules", told("Whether the object may override `keys` by module path", boolean())),
        ("optional", told("Whether the key may be absent", boolean())),
    ]);
    let of_value = ["equals", "in", "min", "max", "contains", "keys"].map(|key| json!({ "required": [key] }));
    conditions["anyOf"] = json!([&of_value[..], &[json!({ "required": ["present"] })]].concat());
    conditions["dependentRequired"] = json!({ "modules": ["keys"] });
    conditions["allOf"] = json!([
        {
            "if": { "required": ["present"] },
            "then": { "not": { "properties": { "optional": { "const": true } }, "required": ["optional"] } },
        },
        {
            "if": { "properties": { "present": { "const": false } }, "required": ["present"] },
            "then": { "not": { "anyOf": of_value } },
        },
    ]);
    json!({ "oneOf": [{ "$ref": "#/$defs/literal" }, conditions] })
}

fn plugin_keys() -> [(&'static str, Value); 4] {
    [("plugin", name()), ("version", range()), ("runtime", name()), ("digest", digest())]
}

fn with_params(more: &[(&str, Value)]) -> Value {
    let mut plugin = requiring(object(plugin_keys()), &["plugin", "version"]);
    plugin["properties"]["params"] = json!({ "type": "object" });
    for (key, schema) in more {
        plugin["properties"][*key] = schema.clone();
    }
    plugin
}

fn compose() -> Value {
    let graph = json!({ "oneOf": [
        requiring(object(plugin_keys()), &["plugin", "version"]),
        requiring(object([("frozen", name()), ("digest", digest())]), &["frozen", "digest"]),
    ] });
    let loader = json!({ "oneOf": [name(), {
        "type": "array", "items": name(), "minItems": 1, "uniqueItems": true,
    }] });
    let quant = json!({ "oneOf": [
        name(),
        requiring(object([("scheme", name())]), &["scheme"]),
        with_params(&[]),
    ] });
    let implementation = object([("id", name()), ("version", range()), ("digest", digest())]);
    let implementation = json!({ "oneOf": [name(), requiring(implementation, &["id", "version"])] });
    object([
        ("graph", told("The plugin that builds the graph, or a graph that was frozen", graph)),
        ("loader", told("How the checkpoint may be stored", loader)),
        ("quant", told("What becomes of the weights: as-published, rules or a plugin", quant)),
        ("implementation", told("The code that makes the model, where it is not the device", implementation)),
        ("loop", told("The decoding loop", name())),
        ("device", told("The device, or one for each operating system", by_case("linux", "macos"))),
        ("numeric", told("How activations may be rounded", json!({ "enum": ["exact", "fast"] }))),
    ])
}

fn kv() -> Value {
    object([("kind", name()), ("dtype", by_case("exact", "fast"))])
}

/// A name, or one for at least one of two cases.
fn by_case(one: &'static str, other: &'static str) -> Value {
    let mut by = object([(one, name()), (other, name())]);
    by["minProperties"] = json!(1);
    json!({ "oneOf": [name(), by] })
}

/// What the list of samplers' parameters says of one.
fn parameter(form: Form) -> Value {
    match form {
        Form::Number(range) => in_range(range),
        Form::Count(least) => json!({ "type": "integer", "minimum": least.n, "maximum": u32::MAX }),
        Form::Word(words) => json!({ "enum": words }),
        Form::Breakers => list(json!({ "oneOf": [text(), token_id()] })),
        Form::Bias => pairs(token_id(), json!({ "type": "number" })),
        Form::Points => {
            let share = json!({ "type": "number", "minimum": 0, "maximum": 100 });
            let mut points = pairs(share.clone(), share);
            points["minItems"] = json!(2);
            points
        }
    }
}

fn in_range(range: Range) -> Value {
    let mut schema = json!({ "type": "number" });
    match range.from {
        Bound::Included(least) => schema["minimum"] = json!(least),
        Bound::Excluded(least) => schema["exclusiveMinimum"] = json!(least),
        Bound::Unbounded => {}
    }
    if let Some(most) = range.to {
        schema["maximum"] = json!(most);
    }
    schema
}

fn token_id() -> Value {
    json!({ "type": "integer", "minimum": 0, "maximum": u32::MAX })
}

fn pairs(first: Value, second: Value) -> Value {
    list(json!({ "type": "array", "prefixItems": [first, second], "minItems": 2, "maxItems": 2 }))
}

/// Every flat key, as the parameter that it stands for.
fn flat_keys() -> Map<String, Value> {
    let key = |(key, sampler, name): (&str, &str, &str)| {
        let known = Parameter::of(sampler, name).expect("a flat key stands for a parameter of the list");
        (key.to_owned(), parameter(known.form))
    };
    FLAT_KEYS.into_iter().map(key).collect()
}

fn sampling() -> Value {
    let mut properties = flat_keys();
    properties.insert("chain".to_owned(), list(json!({ "$ref": "#/$defs/sampler" })));
    let grants = list(json!({ "enum": ["full-logits"] }));
    properties.insert("policy".to_owned(), with_params(&[("grants", grants)]));
    let flat: Vec<Value> = flat_keys().keys().map(|key| json!({ "required": [key] })).collect();
    json!({
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
        "if": { "required": ["chain"] },
        "then": { "not": { "anyOf": flat } },
    })
}

/// All flat keys, or a chain.
fn whole_sampling() -> Value {
    let flat: Vec<String> = flat_keys().keys().cloned().collect();
    json!({ "if": { "not": { "required": ["chain"] } }, "then": { "required": flat } })
}

/// Each sampler by its name, with all of its parameters.
fn samplers() -> Vec<Value> {
    let sampler = |name: &str| {
        let known = Sampler::parameters(name).expect("a sampler of the list");
        let mut properties = Map::from_iter([("sampler".to_owned(), json!({ "const": name }))]);
        properties.extend(known.iter().map(|known| (known.name.to_owned(), parameter(known.form))));
        let required: Vec<&String> = properties.keys().collect();
        json!({
            "type": "object", "required": required, "properties": properties, "additionalProperties": false,
        })
    };
    Sampler::NAMES.into_iter().map(sampler).collect()
}

fn serve() -> Value {
    let stop = json!({
        "type": "array", "items": { "type": "string", "minLength": 1 }, "uniqueItems": true,
    });
    object([
        ("max_tokens", told("New tokens of one answer", count())),
        ("chat", told("Whether a prompt is put through the chat template", boolean())),
        (
            "system",
            told(
                "The system message of a chat that brings none",
                json!({
                    "type": "string", "minLength": 1,
                }),
            ),
        ),
        ("stop", told("Texts that end an answer", stop)),
    ])
}

fn limits() -> Value {
    let at_most = requiring(object([("at_most", count())]), &["at_most"]);
    let rules = ["faults", "within_s", "first_backoff_s", "longest_backoff_s"].map(|key| (key, count()));
    let threads = json!({ "oneOf": [{ "const": "all" }, count()] });
    object([
        ("context_tokens", told("Tokens of one sequence", json!({ "oneOf": [count(), at_most] }))),
        ("max_sequences", told("Sequences that live at once", count())),
        ("max_step_tokens", told("New tokens of one step, all sequences together", count())),
        ("memory_bytes", told("A memory plan above this is refused", bytes())),
        ("n_threads", told("Worker threads", threads)),
        ("on_reload", told("What becomes of old weights in a reload", json!({ "enum": ["drain-first"] }))),
        (
            "quarantine",
            told(
                "When faults keep a plugin out",
                requiring(object(rules), &["faults", "within_s", "first_backoff_s", "longest_backoff_s"]),
            ),
        ),
    ])
}

fn budgets() -> Value {
    let bound = |(key, most): (&str, u64)| {
        let number = json!({ "type": "integer", "minimum": 1, "maximum": most });
        let schema = if key.ends_with("_bytes") { json!({ "anyOf": [number, bytes()] }) } else { number };
        (key.to_owned(), schema)
    };
    let properties: Map<String, Value> = CEILINGS.into_iter().map(bound).collect();
    json!({
        "type": "object",
        "additionalProperties": { "type": "object", "properties": properties, "additionalProperties": false },
    })
}
