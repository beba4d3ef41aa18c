//! Sampling policies in Lua: the guide's first script, the names of the step, and what `describe` may say.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use host_core::Reported;
use host_device::{Logits, argmax, top};
use host_plugins::{
    Budget, Grants, LogSink, NoVocabulary, PluginError, PluginPackage, PolicyInput, SamplingPolicy,
};
use host_sampling::{Edits, RowView};

use crate::LuaPolicy;

struct Row([f32; 3]);

impl Logits for Row {
    fn n_rows(&self) -> usize {
        1
    }

    fn n_vocab(&self) -> usize {
        3
    }

    fn read(&self, _: usize, out: &mut Vec<f32>) {
        *out = self.0.to_vec();
    }

    fn argmax(&self, _: usize) -> Option<u32> {
        argmax(&self.0)
    }

    fn top(&self, _: usize, n: usize) -> Vec<(u32, f32)> {
        top(&self.0, n)
    }
}

/// Three tokens.
pub(super) struct Abc;

impl host_plugins::PolicyVocabulary for Abc {
    fn n_vocab(&self) -> u32 {
        3
    }

    fn eos_ids(&self) -> Vec<u32> {
        vec![2]
    }

    fn token_bytes(&self, id: u32) -> Option<Vec<u8>> {
        b"abc".get(id as usize).map(|byte| vec![*byte])
    }

    fn encode(&self, text: &str) -> Option<Vec<u32>> {
        text.bytes().map(|byte| u32::from(byte).checked_sub(97).filter(|id| *id < 3)).collect()
    }
}

fn policy(source: &str) -> LuaPolicy {
    policy_of("0.2", source)
}

/// A policy against this contract.
fn policy_of(sdk: &str, source: &str) -> LuaPolicy {
    let manifest = format!(
        "id = \"t\"\nversion = \"1.0.0\"\nkind = \"sampling-policy\"\nruntime = \"lua\"\n\
         entry = \"t.lua\"\nsdk = \"{sdk}\""
    );
    let package = PluginPackage::from_parts(&manifest, source.as_bytes().to_vec(), Path::new("t")).unwrap();
    LuaPolicy::open(&package, Budget::default(), LogSink::discard()).unwrap()
}

/// One step after the tokens 0 and 1.
fn step(source: &str) -> Result<Edits, PluginError> {
    let mut instance = policy(source).open("{}", Arc::new(Abc), &Grants::default())?;
    let row = Row([1.0, 3.0, 2.0]);
    let input = PolicyInput { row: Some(&RowView::new(&row, 0)), accepted: &[0, 1], generated: &[], seed: 7 };
    instance.step(&input)
}

/// The body of `step`, of a policy that reads two tokens.
fn body(body: &str) -> Result<Edits, PluginError> {
    step(&format!(
        "function describe() return {{ needs = {{ top_k = 2 }} }} end\n\
         function open(params, vocabulary)\nreturn {{ step = function(self, step)\n{body}\nend }}\nend"
    ))
}

#[test]
fn a_script_sees_step_and_vocabulary() {
    body(
        "local ids, logits = step:top(2)
         assert(ids[1] == 1 and ids[2] == 2 and logits[1] == 3 and #ids == 2)
         assert(step:position() == 0 and step:accepted()[2] == 1)
         assert(vocabulary:n_vocab() == 3 and vocabulary:eos_ids()[1] == 2)
         assert(vocabulary:token_bytes(0) == 'a' and vocabulary:token_bytes(3) == nil)
         assert(vocabulary:encode('cab')[1] == 2)
         assert(step:random_u32() ~= step:random_u32())",
    )
    .unwrap();
    let expected = host_sampling::random_u32(7, 0, 0);
    body(&format!("assert(step:random_u32() == {expected})")).unwrap();
}

#[test]
fn refusals_name_the_authors_line() {
    for (source, code, message) in [
        ("step:force({ 9 })", "policy.unknown-token", "force: token 9 is beyond the vocabulary of 3"),
        ("step:force({ 'a' })", "plugin.script-error", "force: `ids` is a table, expected a list"),
        ("step:apply('top_p', { q = 1 })", "plugin.script-error", "apply: unknown field `q`"),
        ("step:apply('mirostat_v2', { tau = 5, eta = 1 })", "policy.parameter", "`sampler` is mirostat_v2"),
        ("step:apply('luck')", "plugin.script-error", "unknown variant `luck`"),
        ("vocabulary:encode('xyz')", "policy.parameter", "`text` is \"xyz\""),
    ] {
        let report = body(source).unwrap_err().report();
        assert_eq!(report.code, code, "{source}: {report}");
        assert!(report.message.contains(message), "{source}: {report}");
        assert_eq!(report.place.and_then(|place| place.line), Some(4), "{source}");
    }
}

#[test]
fn what_describe_says_is_read_strictly() {
    for (given, message) in [
        ("3", "it gives no table"),
        ("{ needs = 'everything' }", "`needs` is none of"),
        ("{ need = 'mask-only' }", "there is no `need`"),
        ("{ supports_fork = 1 }", "`supports_fork` is not true or false"),
    ] {
        let source = format!("function describe() return {given} end");
        let report = policy(&source).describe().unwrap_err().report();
        assert_eq!(report.code, "plugin.script-error");
        assert!(report.message.contains(message), "{report}");
    }
    let error = policy("").open("{}", Arc::new(NoVocabulary), &Grants::default()).unwrap_err();
    assert_eq!(error.report().code, "plugin.missing-export");
}

/// One name for one call: in the contract, in Lua, and in the types for editors.
#[test]
fn contract_lua_and_stubs_have_the_same_calls_on_a_step() {
    let wit = include_str!("../../../../plugin-sdk/wit/0.2/sampling.wit");
    let stubs = include_str!("../../../../plugin-sdk/lua/tenon.d.luau");
    let functions = |text: &str| -> BTreeSet<String> {
        let is_function = |rest: &str| rest.starts_with("func(") || rest.starts_with("static func(");
        let lines = text.lines().filter_map(|line| line.trim().split_once(": "));
        lines.filter(|(_, rest)| is_function(rest)).map(|(name, _)| name.replace('-', "_")).collect()
    };
    let in_interface = wit.split("interface policy").next().unwrap();
    let stubbed = |class: &str| -> BTreeSet<String> {
        let class = stubs.split(&format!("declare class {class}\n")).nth(1).unwrap();
        let lines = class.split("\nend").next().unwrap().lines();
        let names = lines.filter_map(|line| line.trim().strip_prefix("function "));
        names.map(|rest| rest.split('(').next().unwrap().to_owned()).collect()
    };
    let mut in_lua = stubbed("Step");
    for name in &in_lua {
        body(&format!("assert(type(step.{name}) == 'function', '{name}')")).unwrap();
    }
    let of_vocabulary = stubbed("Vocabulary");
    for name in &of_vocabulary {
        body(&format!("assert(type(vocabulary.{name}) == 'function', '{name}')")).unwrap();
    }
    in_lua.extend(of_vocabulary);
    let of_constraint = stubbed("Constraint");
    for name in &of_constraint {
        body(&format!("assert(type(vocabulary:regex('a*').{name}) == 'function', '{name}')")).unwrap();
    }
    in_lua.extend(of_constraint);
    // Fields of a record in the contract.
    in_lua.retain(|name| !["n_vocab", "eos_ids"].contains(&name.as_str()));
    assert_eq!(functions(in_interface), in_lua);
}

/// A script sees what its contract has; what is newer is refused as such, at its line.
#[test]
fn a_script_of_the_first_contract_has_none_of_the_second() {
    let open = |sdk: &str, body: &str| {
        let source = format!("function open(params, vocabulary)\n{body}\nreturn {{}}\nend");
        let opened = policy_of(sdk, &source).open(r#"{"a": [1]}"#, Arc::new(Abc), &Grants::default());
        opened.map(drop).map_err(|error| error.report())
    };
    for (call, name) in [
        ("vocabulary:json_schema('true', 'none')", "json_schema"),
        ("vocabulary:regex('a*')", "regex"),
        ("vocabulary:grammar('start: \"a\"')", "grammar"),
        ("assert(params:json('a') == '[1]')", "json"),
    ] {
        open("0.2", call).unwrap();
        let report = open("0.1", call).unwrap_err();
        assert_eq!(report.code, "policy.not-in-contract", "{report}");
        assert_eq!(
            report.message,
            format!("plugin t 1.0.0, in `open`: {name}: contract 0.1 has no such call")
        );
        assert_eq!(report.expected.as_deref(), Some("sdk = \"0.2\" or newer"));
        assert_eq!(report.place.and_then(|place| place.line), Some(2));
    }
    let source = "function open() return { step = function(_, step) step:constrain(nil) end } end";
    let mut instance = policy_of("0.1", source).open("{}", Arc::new(Abc), &Grants::default()).unwrap();
    let row = Row([1.0, 3.0, 2.0]);
    let input = PolicyInput { row: Some(&RowView::new(&row, 0)), accepted: &[0], generated: &[], seed: 7 };
    assert_eq!(instance.step(&input).unwrap_err().report().code, "policy.not-in-contract");
}

#[test]
fn constraints_that_cannot_be_are_refused_by_name() {
    for (call, code, says) in [
        ("vocabulary:json_schema('{', 'none')", "constraint.not-json", "json_schema"),
        ("vocabulary:json_schema('{\"not\": {}}', 'none')", "constraint.unsupported-schema", "`not`"),
        ("vocabulary:json_schema('true', 'some')", "plugin.script-error", "`whitespace` is \"some\""),
        ("vocabulary:regex('(')", "constraint.syntax", "regular expression"),
        ("for _ = 1, 17 do held[#held + 1] = vocabulary:regex('a*') end", "policy.limit", "16 constraints"),
        (
            "held[1] = vocabulary:regex('a*') for _ = 1, 16 do held[#held + 1] = held[1]:fork() end",
            "policy.limit",
            "fork: more than 16 constraints",
        ),
        ("step:constrain(step)", "plugin.script-error", "none that `vocabulary` gave"),
    ] {
        let report = body(&format!("local held = {{}} {call}")).unwrap_err().report();
        assert_eq!(report.code, code, "{call}: {report}");
        assert!(report.message.contains(says), "{call}: {report}");
    }
}
