//! Generations, streams, sessions, tasks, coroutines, modules and data.

use host_sampling::{GrammarSpec, Whitespace};
use serde_json::json;

use super::*;
use crate::pipeline::options::GENERATE;

#[test]
fn main_gets_the_arguments_and_its_value_comes_back() {
    assert_eq!(value("function main(args) return 'hello ' .. args.who end"), "hello world");
    let script =
        "function main() return { list = { 1, 2.5, true, json.null }, empty = json.array {}, none = {} } end";
    assert_eq!(value(script), json!({ "list": [1, 2.5, true, null], "empty": [], "none": {} }));
    assert_eq!(value("function main() end"), json!(null));
}

#[test]
fn a_generation_gives_text_and_counts_whole_or_streamed() {
    let script = "function main()
        local m = model()
        local whole = m:generate('a b c')
        local heard = {}
        local chat = m:generate({ { role = 'user', content = 'x y' } }, { on_text = function(t) heard[#heard + 1] = t end })
        local stream = m:stream('p q')
        local first, second, third = stream:next(), stream:next(), stream:next()
        return { whole, heard, chat.text, { first, second, third == nil }, stream:result().text, m:name() }
    end";
    let whole = json!({ "text": "a b c", "finish_reason": "stop", "prompt_tokens": 3, "reused_tokens": 0,
        "generated_tokens": 3 });
    assert_eq!(value(script), json!([whole, ["x ", "y"], "x y", ["p ", "q", true], "p q", "echo"]));
}

#[test]
fn an_iterator_may_wait() {
    let script = "function main()
        local stream, heard = model():stream('a b c'), {}
        for piece in function() return stream:next() end do heard[#heard + 1] = piece end
        return heard
    end";
    assert_eq!(value(script), json!(["a ", "b ", "c"]));
}

#[test]
fn the_model_counts_and_renders() {
    let script = "function main()
        local m = model('echo.gguf')
        return { m:count_tokens('one two three'), m:render({ { role = 'user', content = 'hi' } }) }
    end";
    assert_eq!(value(script), json!([3, "<user>hi"]));
}

#[test]
fn options_reach_the_host_as_they_were_written() {
    let script = "function main()
        model():generate('a', { max_tokens = 7, seed = 3, stop = { '\\n', 'END' }, sampling = { temperature = 0.5 } })
        model():generate('a', { stop = '!', chain = { { sampler = 'draw' } } })
    end";
    let (outcome, seen) = Case::default().run(script);
    outcome.expect("a good script");
    let first = &seen.options[0];
    assert_eq!((first.max_tokens, first.seed), (Some(7), Some(3)));
    assert_eq!(first.stop, ["\n", "END"]);
    assert_eq!(first.sampling["temperature"], 0.5);
    assert_eq!(seen.options[1].stop, ["!"]);
    assert_eq!(seen.options[1].chain, Some(json!([{ "sampler": "draw" }])));
}

#[test]
fn a_policy_and_a_constraint_reach_the_host_as_they_were_written() {
    let script = "function main()
        local policy = { plugin = 'no-repeat', version = '^1.0', params = { ngram = 3 } }
        local m = model()
        m:generate('a', { policy = policy, regex = '[a-z]+' })
        m:generate('a', { json_schema = { type = 'object', required = { 'n' }, properties = json.decode('{}') } })
        m:generate('a', { json_schema = '{\"type\": \"integer\"}' })
        m:generate('a', { grammar = 'start: \"x\"' })
        m:session({ form = 'text', policy = policy })
        m:session()
    end";
    let (outcome, seen) = Case::default().run(script);
    outcome.expect("a good script");
    let policy = json!({ "plugin": "no-repeat", "version": "^1.0", "params": { "ngram": 3 } });
    assert_eq!(seen.options[0].policy.clone().map(serde_json::Value::Object), Some(policy.clone()));
    let of_json = |schema: &GrammarSpec| match schema {
        GrammarSpec::JsonSchema { schema, whitespace: Whitespace::None } => {
            serde_json::from_str::<serde_json::Value>(schema).expect("JSON")
        }
        other => panic!("{other:?}"),
    };
    let constraints: Vec<_> =
        seen.options.iter().map(|options| options.constraint.clone().expect("each has one")).collect();
    assert_eq!(constraints[0], GrammarSpec::Regex("[a-z]+".to_owned()));
    let object = json!({ "type": "object", "required": ["n"], "properties": {} });
    assert_eq!(of_json(&constraints[1]), object);
    assert_eq!(of_json(&constraints[2]), json!({ "type": "integer" }));
    assert_eq!(constraints[3], GrammarSpec::Lark("start: \"x\"".to_owned()));
    let sessions = &seen.session_options;
    assert_eq!((sessions[0].form, sessions[1].form), (SessionForm::Text, SessionForm::Chat));
    assert_eq!(sessions[0].policy.clone().map(serde_json::Value::Object), Some(policy));
    assert_eq!(sessions[1].policy, None);
}

#[test]
fn sessions_append_fork_trim_and_are_closed_at_the_end() {
    let script = "function main()
        local a = model():session()
        a:append({ role = 'user', content = 'one' }):append({ role = 'user', content = 'two' })
        local b = a:fork()
        b:append({ role = 'user', content = 'three' })
        a:trim(1)
        local texts = { a:generate().text, b:generate().text, a:len(), b:len() }
        b:close()
        local ok, problem = pcall(b.len, b)
        texts[5] = problem.code
        return texts
    end";
    let (outcome, seen) = Case::default().run(script);
    assert_eq!(
        outcome.expect("a good script").value,
        json!(["one", "one two three", 1, 3, "pipeline.closed-session"])
    );
    assert!(seen.open_sessions.is_empty(), "{seen:?}");
}

#[test]
fn branches_run_in_one_batch_and_are_joined_in_their_order() {
    let script = "function main()
        local function ask(text, n) return model():generate(text).text .. n end
        local tasks = {}
        for i, text in { 'a b c d', 'e', 'f g' } do tasks[i] = spawn(ask, text, i) end
        local answers = join_all(tasks)
        return { answers[1], answers[2], answers[3], answers.n }
    end";
    let (outcome, seen) = Case::default().run(script);
    assert_eq!(outcome.expect("a good script").value, json!(["a b c d1", "e2", "f g3", 3]));
    let widths: Vec<usize> = seen.steps.iter().map(Vec::len).collect();
    assert_eq!(widths, [3, 3, 2, 1, 1], "each leaves when it has ended");
}

#[test]
fn a_run_lasts_until_its_last_task() {
    let script = "function main()
        spawn(function() emit(model():generate('late').text) end)
        emit('early ')
    end";
    let (outcome, seen) = Case::default().run(script);
    outcome.expect("a good script");
    assert_eq!(seen.emitted, "early late");
}

#[test]
fn the_error_of_a_task_reaches_who_joins_it_else_the_run() {
    let script = "function main()
        local bad = spawn(function() error({ code = 'mine', message = 'no' }) end)
        local ok, problem = pcall(join_all, { bad })
        return { ok, problem.code }
    end";
    assert_eq!(value(script), json!([false, "mine"]));
    let found = report("function main()\n  spawn(function()\n    error('alone')\n  end)\nend");
    assert_eq!((found.code, found.message.as_str()), ("pipeline.script-error", "alone"));
    assert_eq!(found.place.expect("a place").line, Some(3));
}

#[test]
fn waits_inside_coroutines_of_the_script_behave() {
    let script = "function main()
        local produce = coroutine.wrap(function(first)
            local text = model():generate('a b').text
            local got = coroutine.yield(text .. first)
            coroutine.yield(got .. model():generate('c').text)
            return 'end'
        end)
        local inner = coroutine.create(function()
            local deep = coroutine.wrap(function() return model():generate('deep').text end)
            return deep()
        end)
        local seen = { produce(1), produce('x'), produce() }
        local ok, deep = coroutine.resume(inner)
        return { seen, ok, deep, coroutine.status(inner) }
    end";
    assert_eq!(value(script), json!([["a b1", "xc", "end"], true, "deep", "dead"]));
}

#[test]
fn a_coroutine_that_waits_is_not_resumed_by_another_task() {
    let script = "function main()
        local co = coroutine.create(function() return model():generate('a b').text end)
        local first = spawn(function() return select(2, coroutine.resume(co)) end)
        local second = spawn(function() return select(2, coroutine.resume(co)) end)
        local answers = join_all({ first, second })
        return { answers[1], answers[2] }
    end";
    assert_eq!(value(script), json!(["a b", "cannot resume a coroutine that waits for the host"]));
}

#[test]
fn a_caught_failure_is_a_table_with_code_and_message() {
    let script = "function main()
        local ok, refused = pcall(function() return model():generate('refuse') end)
        local _, failed = pcall(function() return model():generate('x fail') end)
        return { ok, refused.code, refused.message, failed.code }
    end";
    assert_eq!(
        value(script),
        json!([false, "engine.empty-prompt", "the prompt has no tokens", "engine.planted"])
    );
    let script = "function main()
        local ok, problem = pcall(function()
            return model():generate('a b', { on_text = function() error('enough', 0) end })
        end)
        return { ok, problem }
    end";
    let (outcome, seen) = Case::default().run(script);
    assert_eq!(outcome.expect("a good script").value, json!([false, "enough"]));
    assert_eq!(seen.cancelled.len(), 1, "nobody listens any more");
}

#[test]
fn modules_come_from_the_folder_once_and_see_the_host() {
    let case = Case::default()
        .module("words", "local inner = require('steps/one')\nreturn { n = inner.n + 1 }")
        .module("steps/one", "loads = (loads or 0) + 1\nreturn { n = 1 }");
    let (outcome, _) = case.run(
        "local words = require('words')
        function main() return { words.n, require('steps/one').n, loads, words == require('words') } end",
    );
    assert_eq!(outcome.expect("a good script").value, json!([2, 1, 1, true]));
}

#[test]
fn json_goes_both_ways() {
    let script = r#"function main()
        local found = json.decode('{"a": [1, {"b": null}], "e": []}')
        local nothing, why = json.decode('{"a": ')
        return { json.encode(found), found.a[2].b == json.null, nothing == nil, type(why) }
    end"#;
    assert_eq!(value(script), json!([r#"{"a":[1,{"b":null}],"e":[]}"#, true, true, "string"]));
}

#[test]
fn log_lines_and_output_go_where_they_belong() {
    let (outcome, seen) = Case::default().run("function main() print('a', 1, true) emit('x') emit('y') end");
    outcome.expect("a good script");
    assert_eq!((seen.emitted.as_str(), seen.log.as_slice()), ("xy", &["a\t1\ttrue".to_owned()][..]));
}

#[test]
fn a_state_holds_these_globals_and_no_others() {
    let script = "function main()
        local names = {}
        for name in _G do names[#names + 1] = name end
        table.sort(names)
        return table.concat(names, ' ')
    end";
    let expected = "_G _VERSION assert bit32 buffer coroutine emit error getmetatable ipairs join_all json math \
                    model next pairs pcall print rawequal rawget rawlen rawset require select setmetatable \
                    spawn string table tonumber tostring type typeof unpack utf8 xpcall";
    assert_eq!(value(script), expected);
    assert_eq!(value("function main() return pcall(function() string.rep = nil end) end"), false);
}

/// A function without types is one that editors do not show.
#[test]
fn what_a_script_calls_has_types() {
    let prelude = include_str!("../../../../../plugin-sdk/lua/pipeline_prelude.luau");
    let methods: Vec<_> = prelude.lines().filter(|line| line.contains("= function(self")).collect();
    assert!(methods.len() > 12, "{methods:?}");
    for line in methods {
        assert!(line.contains("(self: ") && line.contains("): "), "{line}");
    }
    let globals = prelude.lines().filter_map(|line| line.strip_prefix("function "));
    let untyped: Vec<_> = globals.filter(|rest| !rest.contains("): ")).collect();
    assert_eq!(untyped, ["pcall(f, ...)", "xpcall(f, handler, ...)", "error(value, level)"], "Luau's own");
}

#[test]
fn the_types_have_each_option_that_is_read() {
    let types = include_str!("../../../../../plugin-sdk/lua/pipeline.d.luau");
    let known = |name: &str, end: &str| -> Vec<&str> {
        let body = types.split(&format!("export type {name} = ")).nth(1).unwrap().split(end).next().unwrap();
        let lines = body.lines().flat_map(|line| line.split_once(": "));
        lines
            .map(|(key, _)| key.trim_start_matches("Options & {").trim())
            .filter(|key| !key.starts_with("--"))
            .collect()
    };
    assert_eq!([known("Options", "\n}\n"), known("GenerateOptions", "\n")].concat(), GENERATE);
}
