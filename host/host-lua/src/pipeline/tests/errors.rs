//! What is wrong with a script is told with its code and its line.

use super::*;

/// Code, line and a part of the message.
fn check(text: &str, code: &str, line: Option<u32>, part: &str) {
    let found = report(text);
    assert_eq!(found.code, code, "{found}\n{text}");
    assert!(found.message.contains(part), "{found}\n{text}");
    let place = found.place.as_ref();
    assert_eq!(place.and_then(|place| place.line), line, "{found}\n{text}");
    if let Some(place) = place {
        assert_eq!(place.file, "pipe/main.lua");
        let excerpt = text.lines().nth(line.expect("it has one") as usize - 1);
        assert_eq!(place.excerpt.as_deref(), excerpt);
    }
}

#[test]
fn errors_name_the_line() {
    check("function main()\n  local x = = 1\nend", "pipeline.syntax", Some(2), "");
    check("function main()\n  local x\n  return x.y\nend", "pipeline.script-error", Some(3), "nil");
    check("\nerror('at the top')", "pipeline.script-error", Some(2), "at the top");
    check("local x = 1", "pipeline.missing-main", None, "main");
    check(
        "function main()\n  error({ code = 'no-luck', message = 'three tries' })\nend",
        "pipeline.raised",
        Some(2),
        "no-luck: three tries",
    );
    check(
        "function main()\n  model():generate('a')\n  error({ code = 'after' })\nend",
        "pipeline.raised",
        Some(3),
        "after",
    );
    check("function main()\n  error({ 'x' })\nend", "pipeline.script-error", Some(2), "without `code`");
    check(
        "function main()\n\n  model():generate('refuse')\nend",
        "pipeline.raised",
        Some(3),
        "engine.empty-prompt",
    );
    check(
        "function main()\n  return model():generate('x fail').text\nend",
        "pipeline.raised",
        Some(2),
        "engine.planted",
    );
    check("function main() return function() end end", "pipeline.script-error", None, "plain data");
    check(
        "function main()\n  local t = {}\n  t.t = t\n  return t\nend",
        "pipeline.script-error",
        None,
        "cycle",
    );
}

#[test]
fn arguments_that_do_not_fit_are_refused_at_their_line() {
    let cases = [
        ("model('other')", "pipeline.unknown-model", "no model"),
        ("model():generate(1)", "pipeline.argument", "`prompt` is 1"),
        ("model():generate('a', { max_token = 1 })", "pipeline.argument", "`max_token`"),
        ("model():generate('a', { max_tokens = 1.5 })", "pipeline.argument", "`max_tokens` is 1.5"),
        ("model():generate('a', { stop = { 1 } })", "pipeline.argument", "`stop` is 1"),
        ("model():generate('a', { on_text = 1 })", "pipeline.argument", "`on_text`"),
        (
            "model():generate('a', { sampling = { top_k = 1 }, chain = {} })",
            "pipeline.argument",
            "one of them",
        ),
        ("model():generate('a', { policy = 'no-repeat' })", "pipeline.argument", "`policy` is \"no-repeat\""),
        ("model():generate('a', { json_schema = 1 })", "pipeline.argument", "`json_schema` is 1"),
        ("model():generate('a', { regex = {} })", "pipeline.argument", "`regex` is a table"),
        ("model():generate('a', { grammar = true })", "pipeline.argument", "`grammar` is true"),
        (
            "model():generate('a', { regex = 'a', grammar = 'b' })",
            "pipeline.argument",
            "`regex` and `grammar`",
        ),
        ("model():session({ polcy = {} })", "pipeline.argument", "`polcy`"),
        ("model():session({ policy = 3 })", "pipeline.argument", "`policy` is 3"),
        ("model():generate({ { role = 'user' } })", "pipeline.argument", "message"),
        ("model():session({ form = 'x' })", "pipeline.argument", "`form` is \"x\""),
        ("model():session():trim('a')", "pipeline.argument", "`n` is \"a\""),
        ("model().generate({}, 'a')", "pipeline.argument", "expected a model"),
        ("spawn(1)", "pipeline.argument", "`fn` is a number"),
        ("join_all({ 1 })", "pipeline.argument", "expected a task"),
        ("join_all({ a = spawn(function() end) })", "pipeline.argument", "without gaps and names"),
        ("emit(1)", "pipeline.argument", "`text` is a number"),
        ("json.encode(print)", "pipeline.argument", "function"),
        ("require('../secret')", "pipeline.module-name", "no name of a module"),
        ("require('/etc/passwd')", "pipeline.module-name", "no name of a module"),
        ("require('absent')", "pipeline.module-missing", "absent"),
    ];
    for (call, code, part) in cases {
        let found = report(&format!("function main()\n\n    {call}\nend"));
        let told = format!("{code}: ");
        assert_eq!(found.code, "pipeline.raised", "{call}: {found}");
        assert!(found.message.starts_with(&told) && found.message.contains(part), "{call}: {found}");
        assert_eq!(found.place.and_then(|place| place.line), Some(3), "{call}");
    }
}

#[test]
fn a_wait_where_none_can_be_is_refused() {
    let wait = "model():generate('a')";
    let cases = [
        format!("table.sort({{ 2, 1 }}, function(a, b) {wait} return a < b end)"),
        format!("string.gsub('a', 'a', function() {wait} end)"),
        format!("local _ = setmetatable({{}}, {{ __index = function() return {wait} end }}).x"),
        format!("table.sort({{ 2, 1 }}, coroutine.wrap(function() {wait} end))"),
    ];
    for line in cases {
        let (outcome, seen) = Case::default().run(&format!("function main()\n{line}\nend"));
        let found = outcome.expect_err("it cannot wait").report();
        assert!(found.message.starts_with("pipeline.no-wait-here: "), "{line}: {found}");
        assert_eq!(found.place.and_then(|place| place.line), Some(2), "{line}");
        assert!(seen.steps.is_empty(), "{line}: nothing was begun");
    }
    let top = report(&format!("\n{wait}\nfunction main() end"));
    assert!(top.message.contains("top level"), "{top}");
    let (outcome, _) = Case::default().module("m", wait).run("function main()\n  require('m')\nend");
    let found = outcome.expect_err("a module cannot wait").report();
    assert!(found.message.contains("top level"), "{found}");
    assert_eq!(found.place.expect("a place").file, "pipe/m.lua");
}

#[test]
fn modules_that_require_each_other_are_told_with_the_chain() {
    let case = Case::default().module("a", "return require('b')").module("b", "return require('a')");
    let (outcome, _) = case.run("function main()\n  return require('a')\nend");
    let found = outcome.expect_err("a cycle").report();
    assert!(found.message.contains("main") || found.message.contains("a -> b -> a"), "{found}");
    assert!(found.message.starts_with("pipeline.module-cycle"), "{found}");
}

#[test]
fn a_module_that_does_not_parse_is_refused_before_anything_runs() {
    let (outcome, seen) = Case::default().module("bad", "\nreturn ) 1").run("function main() emit('x') end");
    let found = outcome.expect_err("no Lua").report();
    assert_eq!((found.code, seen.emitted.as_str()), ("pipeline.syntax", ""));
    let place = found.place.expect("a place");
    assert_eq!((place.file.as_str(), place.line), ("pipe/bad.lua", Some(2)));
}

#[test]
fn tasks_that_wait_for_each_other_are_told() {
    let script = "function main()
        local a, b
        a = spawn(function() join_all({ b }) end)
        b = spawn(function() join_all({ a }) end)
        join_all({ a, b })
    end";
    assert_eq!(report(script).code, "pipeline.deadlock");
}

#[test]
fn yielding_from_a_task_is_refused() {
    check(
        "function main()\n  coroutine.yield(1)\nend",
        "pipeline.script-error",
        Some(2),
        "coroutine.yield is for",
    );
}
