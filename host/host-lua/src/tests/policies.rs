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

/// One name for one call: in the contract and in Lua.
#[test]
fn contract_and_lua_have_the_same_calls_on_a_step() {
    let wit = include_str!("../../../../plugin-sdk/wit/0.2/sampling.wit");
    let functions = |text: &str| -> BTreeSet<String> {
        let is_function = |rest: &str| rest.starts_with("func(") || rest.starts_with("static func(");
        let lines = text.lines().filter_map(|line| line.trim().split_once(": "));
        lines.filter(|(_, rest)| is_function(rest)).map(|(name, _)| name.replace('-', "_")).collect()
    };
    let in_interface = wit.split("interface policy").next().unwrap();
    let classes = ["Step", "Vocabulary", "Constraint"];
    let mut in_lua: BTreeSet<String> = classes.into_iter().flat_map(super::stubs::declared).collect();
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

#[test]
fn runs_and_words_come_as_lists_or_as_buffers() {
    let buffer = |words: &[u32]| -> String {
        let writes: String = words
            .iter()
            .enumerate()
            .map(|(i, word)| format!(" buffer.writeu32(b, {}, {word})", 4 * i))
            .collect();
        format!("local b = buffer.create({}){writes} ", 4 * words.len())
    };
    for (by_list, by_buffer) in [
        ("step:allow_runs({ { 0, 1 }, { 2, 3 } })", buffer(&[0, 1, 2, 3]) + "step:allow_runs(b)"),
        ("step:allow_runs({})", buffer(&[]) + "step:allow_runs(b)"),
        ("step:allow_words({ 6 })", buffer(&[6]) + "step:allow_words(b)"),
    ] {
        let expected = body(by_list).unwrap();
        assert!(expected.allowed.is_some(), "{by_list}");
        assert_eq!(body(&by_buffer).unwrap(), expected, "{by_buffer}");
    }
    // A list whose entries came in another order.
    let expected = body("step:allow_runs({ { 0, 1 }, { 1, 3 } })").unwrap();
    assert_eq!(
        body("local r = {} r[2] = { 1, 3 } r[1] = { [2] = 1, [1] = 0 } step:allow_runs(r)").unwrap(),
        expected
    );

    for (call, code, says) in [
        ("step:allow_runs(buffer.create(12))", "plugin.script-error", "`runs` is a buffer of 12 bytes"),
        ("step:allow_words(buffer.create(3))", "plugin.script-error", "`words` is a buffer of 3 bytes"),
        ("step:allow_words(buffer.create(8))", "policy.limit", "more than 1 words"),
        (&(buffer(&[2, 1]) + "step:allow_runs(b)"), "policy.parameter", "`runs` is 2..1"),
        (&(buffer(&[0, 4]) + "step:allow_runs(b)"), "policy.unknown-token", "token 3"),
        ("step:force(buffer.create(4))", "plugin.script-error", "`ids` is a buffer of 4 bytes"),
        ("step:allow_runs({ { 0, 1, 2 } })", "plugin.script-error", "`runs` is a table"),
        ("step:allow_runs({ { 0 } })", "plugin.script-error", "`runs` is a table"),
        ("step:allow_runs({ { 0, '1' } })", "plugin.script-error", "`runs` is a table"),
        ("step:allow_runs({ { 0, 1, x = 2 } })", "plugin.script-error", "`runs` is a table"),
        ("step:allow_runs({ { 0, 1 }, x = { 0, 1 } })", "plugin.script-error", "`runs` is a table"),
        ("step:allow_runs({ { 0.5, 1 } })", "plugin.script-error", "`runs` is a table"),
    ] {
        let report = body(call).unwrap_err().report();
        assert_eq!(report.code, code, "{call}: {report}");
        assert!(report.message.contains(says), "{call}: {report}");
        assert_eq!(report.place.and_then(|place| place.line), Some(4), "{call}");
    }
}

/// A step is looked up anew each time, and may be anything that can be called from a table's metatable.
#[test]
fn a_step_may_change_and_must_be_a_function() {
    let mut instance = policy(
        "local Policy = {} Policy.__index = Policy
         function Policy:step(step) self.step = function(_, step) step:force({ 1 }) end step:force({ 0 }) end
         function open() return setmetatable({}, Policy) end",
    )
    .open("{}", Arc::new(Abc), &Grants::default())
    .unwrap();
    let row = Row([1.0, 3.0, 2.0]);
    let input = PolicyInput { row: Some(&RowView::new(&row, 0)), accepted: &[0], generated: &[], seed: 7 };
    assert_eq!(instance.step(&input).unwrap().forced, [0]);
    assert_eq!(instance.step(&input).unwrap().forced, [1]);

    let report = step("function open() return {} end").unwrap_err().report();
    assert_eq!(report.code, "plugin.missing-export");
    let report = step("function open() return { step = 3 } end").unwrap_err().report();
    assert_eq!(report.code, "plugin.script-error");
    assert_eq!(report.message, "plugin t 1.0.0, in `step`: attempt to call a number value");
}

/// Waits until nothing more is made ahead.
fn settle(policy: &LuaPolicy) {
    let begun = std::time::Instant::now();
    while policy.stock.is_filling() {
        assert!(begun.elapsed() < std::time::Duration::from_secs(20), "it never ended");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

fn logged(source: &str) -> (LuaPolicy, Arc<std::sync::Mutex<Vec<String>>>) {
    let manifest = "id = \"t\"\nversion = \"1.0.0\"\nkind = \"sampling-policy\"\nruntime = \"lua\"\n\
                    entry = \"t.lua\"\nsdk = \"0.2\"";
    let package = PluginPackage::from_parts(manifest, source.as_bytes().to_vec(), Path::new("t")).unwrap();
    let lines: Arc<std::sync::Mutex<Vec<String>>> = Arc::default();
    let heard = Arc::clone(&lines);
    let log = LogSink::new(move |_, line| heard.lock().unwrap().push(line.to_owned()));
    let budget = Budget { log_bytes: 20, time_ms: 200, ..Budget::default() };
    (LuaPolicy::open(&package, budget, log).unwrap(), lines)
}

#[test]
fn a_guest_made_ahead_is_one_requests_alone_and_logs_for_it_alone() {
    let (policy, lines) = logged(
        "n = (n or 0) + 1
         print('made')
         function describe() print('asked') return {} end
         function open(params, vocabulary)
             assert(n == 1 and vocabulary:n_vocab() == 3 and vocabulary:eos_ids()[1] == 2)
             n = 2
             print(params:str('say'))
             return { step = function() print('stepped') end }
         end",
    );
    let open = |say: &str| policy.open(&format!("{{\"say\": \"{say}\"}}"), Arc::new(Abc), &Grants::default());
    assert_eq!(policy.stock.n_ready(), 0, "nobody asked yet");
    let mut expected = Vec::new();
    for (say, is_ahead) in [("one", false), ("two", true), ("three", true)] {
        assert_eq!(policy.stock.n_ready() > 0, is_ahead);
        let mut instance = open(say).unwrap();
        settle(&policy);
        expected.extend(["made", "asked", say]);
        assert_eq!(*lines.lock().unwrap(), expected, "what is ready says nothing");
        // 5 + 6 + 4 to 6 of 20 bytes are spent; the step's 8 are too many.
        let row = Row([1.0, 3.0, 2.0]);
        let input =
            PolicyInput { row: Some(&RowView::new(&row, 0)), accepted: &[0], generated: &[], seed: 7 };
        assert_eq!(instance.step(&input).unwrap_err().report().code, "plugin.output-budget");
    }
    // Faults of `open` end a guest that was made ahead as any other.
    let report = policy.open("{}", Arc::new(Abc), &Grants::default()).unwrap_err().report();
    assert_eq!(report.code, "plugin.invalid-config");
    let report = policy.open("{", Arc::new(Abc), &Grants::default()).unwrap_err().report();
    assert_eq!(report.code, "plugin.invalid-config");
}

#[test]
fn a_script_that_cannot_start_is_told_of_to_each_request_and_not_made_ahead() {
    for (source, code, line) in [
        ("print('begun')\nerror('no')", "plugin.script-error", Some(2)),
        ("print('begun') function describe() while true do end end", "plugin.time-budget", None),
        ("print('begun') print('more than there is')", "plugin.output-budget", None),
    ] {
        let (policy, lines) = logged(source);
        for n in 1..=2 {
            let report = policy.open("{}", Arc::new(Abc), &Grants::default()).unwrap_err().report();
            assert_eq!(report.code, code, "{report}");
            assert!(report.message.contains("in `describe`"), "{report}");
            assert_eq!(report.place.and_then(|place| place.line), line);
            assert_eq!(*lines.lock().unwrap(), vec!["begun"; n]);
            assert_eq!((policy.stock.n_ready(), policy.stock.is_filling()), (0, false));
        }
    }
}
