//! Pipelines from end to end: the built program, scripts in Lua, tiny models, and the examples on SmolLM2.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::fs;
#[cfg(unix)]
use std::io::Read;
use std::path::PathBuf;
#[cfg(unix)]
use std::process::Command;

use serde_json::{Value, json};
use tests::golden::Generation;
use tests::places::{fixture, prefix, workspace};
use tests::program::{Ended, Tenon};
use tests::skip;

/// A tiny model with a chat template.
const CHATTY: &str = "tiny-mlx-q8-g64";

/// Runs a script on the tiny model, greedily and exactly.
fn run(tenon: &Tenon, script: &str, more: &[&str]) -> Ended {
    let path = written(tenon, script);
    let (path, model) = (path.display().to_string(), fixture(CHATTY).display().to_string());
    let mut line = vec!["run", &path, "--model", &model, "--numeric", "exact", "--threads", "1"];
    line.extend(["--temperature", "0", "--max-tokens", "6"]);
    line.extend(more);
    tenon.run(&line)
}

fn written(tenon: &Tenon, script: &str) -> PathBuf {
    let folder = tenon.cache().join("scripts");
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join("pipe.lua");
    fs::write(&path, script).unwrap();
    path
}

#[test]
fn what_main_returns_is_printed_and_emitted_text_streams_before_it() {
    let Some(tenon) = Tenon::find() else { return };
    let text =
        run(&tenon, "function main(args) emit('a') return 'hi ' .. args.who end", &["--arg", "who=you"]);
    assert_eq!(text.done(), "a\nhi you\n");
    let table = run(&tenon, "function main() return { x = { 1, 2 } } end", &[]).done();
    assert_eq!(serde_json::from_str::<Value>(&table).unwrap(), json!({ "x": [1, 2] }));
    assert_eq!(run(&tenon, "function main() end", &[]).done(), "");
    let logged = run(&tenon, "function main() print('seen', 1) end", &[]);
    assert!(logged.stderr.contains("pipeline: seen\t1"), "{logged:?}");
    let object = run(&tenon, "function main() emit('a') return { x = true } end", &["--json"]).json();
    let keys: Vec<&String> = object.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["result", "output", "profile", "composition", "spent"]);
    assert_eq!((&object["result"], &object["output"]), (&json!({ "x": true }), &json!("a")));
}

#[test]
fn a_generation_in_a_branch_is_the_one_that_generate_gives() {
    let Some(tenon) = Tenon::find() else { return };
    let model = fixture(CHATTY).display().to_string();
    let alone = |prompt: &str| {
        let line = [
            "generate",
            "--model",
            &model,
            "--numeric",
            "exact",
            "--threads",
            "1",
            "--temperature",
            "0",
            "--max-tokens",
            "6",
            "--raw",
            "--json",
            prompt,
        ];
        tenon.run(&line).json()["text"].clone()
    };
    let script = "function main()
        local m, tasks = model(), {}
        for i, prompt in { 'hello', 'one two', 'a b c' } do
            tasks[i] = spawn(function() return m:generate(prompt).text end)
        end
        local found = join_all(tasks)
        local pieces = {}
        local whole = m:generate('hello', { on_text = function(piece) pieces[#pieces + 1] = piece end })
        return { found[1], found[2], found[3], table.concat(pieces), whole.text }
    end";
    let found = run(&tenon, script, &["--json"]).json();
    let expected = json!([alone("hello"), alone("one two"), alone("a b c"), alone("hello"), alone("hello")]);
    assert_eq!(found["result"], expected);
}

#[test]
fn sessions_compute_only_what_is_new_and_forks_share_it() {
    let Some(tenon) = Tenon::find() else { return };
    let script = "function main()
        local m = model()
        local s = m:session({ form = 'text' })
        s:append('one two three four five six seven')
        local held = s:len()
        local first = s:generate({ max_tokens = 1 })
        s:trim(1)
        local fork = s:fork()
        local again, other = s:generate({ max_tokens = 2 }), fork:generate({ max_tokens = 2 })
        local chat = m:session()
        chat:append({ role = 'user', content = 'hello' })
        local said = chat:generate()
        return { held = held, first = first.reused_tokens, prompt = first.prompt_tokens,
                 again = again.reused_tokens, other = other.reused_tokens, same = again.text == other.text,
                 starts = string.sub(again.text, 1, #first.text) == first.text, messages = chat:len(),
                 rendered = said.text == m:generate(m:render({ { role = 'user', content = 'hello' } })).text }
    end";
    let found = run(&tenon, script, &["--json"]).json()["result"].clone();
    assert_eq!((&found["first"], &found["prompt"]), (&json!(0), &found["held"]));
    let reused = json!(found["held"].as_u64().unwrap() - 1);
    assert_eq!((&found["again"], &found["other"]), (&reused, &reused), "{found}");
    assert_eq!((&found["same"], &found["starts"]), (&json!(true), &json!(true)), "{found}");
    assert_eq!(found["messages"], 2);
}

/// Greedy and exact, with a raw prompt.
fn generate(tenon: &Tenon, prompt: &str, more: &[&str]) -> String {
    let model = fixture(CHATTY).display().to_string();
    let mut line = vec!["generate", "--model", &model, "--numeric", "exact", "--threads", "1"];
    line.extend(["--temperature", "0", "--max-tokens", "6", "--raw", "--json"]);
    line.extend(more);
    line.push(prompt);
    tenon.run(&line).json()["text"].as_str().unwrap().to_owned()
}

#[test]
fn a_constraint_is_the_one_that_generate_gives() {
    let Some(tenon) = Tenon::find() else { return };
    let script = "function main()
        local m = model()
        local s = m:session({ form = 'text' })
        s:append('hello')
        return { m:generate('hello', { regex = '[a-f]{2,4}' }).text, s:generate({ regex = '[a-f]{2,4}' }).text,
            m:generate('hello', { grammar = 'start: (\"yes\" | \"no\")' }).text,
            m:generate('hello', { json_schema = { type = 'object', required = { 'n' }, additionalProperties = false,
                properties = { n = { enum = { 1, 2 } } } }, max_tokens = 40 }).text }
    end";
    let found = run(&tenon, script, &["--json"]).json()["result"].clone();
    let expected = generate(&tenon, "hello", &["--regex", "[a-f]{2,4}"]);
    assert!(
        (2..=4).contains(&expected.len()) && expected.chars().all(|c| ('a'..='f').contains(&c)),
        "{expected}"
    );
    assert_eq!((found[0].as_str(), found[1].as_str()), (Some(expected.as_str()), Some(expected.as_str())));
    assert!(["yes", "no"].contains(&found[2].as_str().unwrap()), "{found}");
    let object: Value = serde_json::from_str(found[3].as_str().unwrap()).unwrap();
    assert!(object == json!({ "n": 1 }) || object == json!({ "n": 2 }), "{object}");
}

#[test]
fn a_policy_is_the_one_that_generate_gives() {
    let Some(tenon) = Tenon::find() else { return };
    let script = "function main()
        local m, policy = model(), { plugin = 'no-repeat', version = '^1.0', params = { ngram = 1 } }
        local s = m:session({ form = 'text', policy = policy })
        s:append('hello')
        local first = s:generate({ max_tokens = 3 }).text
        s:trim(1)
        local fork = s:fork()
        return { plain = m:generate('hello').text, named = m:generate('hello', { policy = policy }).text,
            first = first, rest = s:generate({ max_tokens = 4 }).text, fork = fork:generate({ max_tokens = 4 }).text,
            of_session = m:session({ form = 'text' }):append('hello'):generate({ policy = policy }).text }
    end";
    let found = run(&tenon, script, &["--json"]).json()["result"].clone();
    let flags = ["--policy", "no-repeat", "--policy-params", "{\"ngram\": 1}"];
    let expected = generate(&tenon, "hello", &flags);
    assert_eq!(found["plain"], generate(&tenon, "hello", &[]));
    assert_ne!(found["plain"], expected.as_str(), "the policy changes something");
    assert_eq!((&found["named"], &found["of_session"]), (&json!(expected), &json!(expected)));
    // Three tokens, the last one taken back, four more: the six of one generation, in a fork as well.
    assert_eq!(found["rest"], found["fork"]);
    let (first, rest) = (found["first"].as_str().unwrap(), found["rest"].as_str().unwrap());
    assert!(expected.starts_with(first) && expected.ends_with(rest), "{expected}: {first} + {rest}");
    // The profile's own policy is that of sessions and generations that name none.
    let script = "function main()
        local s = model():session({ form = 'text' })
        s:append('hello')
        return { model():generate('hello').text, s:generate().text }
    end";
    let found = run(&tenon, script, &[&["--json"], &flags[..]].concat()).json()["result"].clone();
    assert_eq!(found, json!([expected, expected]));
}

/// A policy that remembers all and can take nothing back.
const STUBBORN: &str = "function open(params, vocabulary)
    return { step = function(self, step) end }
end";

#[test]
fn a_policy_or_constraint_that_does_not_fit_is_refused_at_its_line() {
    let Some(tenon) = Tenon::find() else { return };
    let plugins = tempfile::tempdir().unwrap();
    let stubborn = plugins.path().join("stubborn");
    fs::create_dir(&stubborn).unwrap();
    let manifest = "id = \"stubborn\"\nversion = \"1.0.0\"\nkind = \"sampling-policy\"\nruntime = \"lua\"\n\
                    entry = \"stubborn.lua\"\nsdk = \"0.1\"\n";
    fs::write(stubborn.join("plugin.toml"), manifest).unwrap();
    fs::write(stubborn.join("stubborn.lua"), STUBBORN).unwrap();
    let folders =
        [prefix().join("plugins"), plugins.path().to_owned()].map(|path| path.display().to_string());
    let session =
        "local s = model():session({ form = 'text', policy = { plugin = 'stubborn', version = '1' } })
        s:append('a b') s:trim(1) s:append('b')";
    let cases = [
        (
            "model():generate('a', { policy = { plugin = 'no-repat', version = '^1.0' } })",
            "registry.plugin-missing",
        ),
        (
            "model():generate('a', { policy = { plugin = 'no-repeat', version = '^9' } })",
            "registry.plugin-version",
        ),
        (
            "model():generate('a', { policy = { plugin = 'llama', version = '^1.0' } })",
            "registry.plugin-kind",
        ),
        ("model():generate('a', { policy = { plugin = 'no-repeat' } })", "pipeline.argument"),
        (
            "model():generate('a', { policy = { plugin = 'no-repeat', version = '1' } })",
            "plugin.invalid-config",
        ),
        (
            "model():generate('a', { policy = { plugin = 'entropy-adaptive', version = '1', params = {} } })",
            "plugin.not-granted",
        ),
        ("model():session({ policy = { plugin = 'none', version = '1' } })", "registry.plugin-missing"),
        ("model():generate('a', { regex = '(' })", "constraint.syntax"),
        (
            "model():generate('a', { json_schema = { ['not'] = { type = 'string' } } })",
            "constraint.unsupported-schema",
        ),
        (&format!("{session} s:generate() s:trim(1)"), "plugin.hook-not-offered"),
        (&format!("{session} s:generate() s:fork()"), "plugin.hook-not-offered"),
    ];
    for (body, code) in cases {
        let more = ["--json", "--plugins", &folders[0], "--plugins", &folders[1]];
        let error = run(&tenon, &format!("function main()\n{body}\nend"), &more).error(1);
        let message = error["message"].as_str().unwrap();
        assert_eq!(error["code"], "pipeline.raised", "{body}: {error}");
        assert!(message.starts_with(&format!("{code}: ")), "{body}: {error}");
        let line = 1 + body.lines().count();
        assert_eq!(error["place"]["line"], line, "{body}: {error}");
    }
}

#[test]
fn errors_of_a_script_name_its_line() {
    let Some(tenon) = Tenon::find() else { return };
    let ended = run(&tenon, "function main()\n    local x\n    return x.y\nend", &[]);
    assert!(ended.code == Some(1) && ended.stderr.contains("pipeline.script-error"), "{ended:?}");
    assert!(ended.stderr.contains("pipe.lua:3") && ended.stderr.contains("return x.y"), "{ended:?}");
    let cases = [
        ("function main() error({ code = 'mine', message = 'no' }) end", "pipeline.raised", 1),
        ("function main( end", "pipeline.syntax", 1),
        ("x = 1", "pipeline.missing-main", 1),
        ("function main() model('other') end", "pipeline.raised", 1),
        ("function main() model():generate('a', { sampling = { heat = 1 } }) end", "pipeline.raised", 1),
        ("function main() model():generate('a', { sampling = { top_p = 7 } }) end", "pipeline.raised", 1),
        ("function main() model():generate('a', { max_tokens = 0 }) end", "pipeline.raised", 1),
    ];
    for (script, code, exit) in cases {
        assert_eq!(run(&tenon, script, &["--json"]).error(exit)["code"], code, "{script}");
    }
    let wrong = run(&tenon, "function main() end", &["--json", "--arg", "novalue"]).error(2);
    assert_eq!(wrong["code"], "usage.value");
}

#[test]
fn flags_lower_the_budget_and_each_has_its_code() {
    let Some(tenon) = Tenon::find() else { return };
    let cases = [
        ("while true do end", "--burst-ms", "50", "pipeline.burst-budget"),
        (
            "while true do for i = 1, 1e6 do end model():count_tokens('a') end",
            "--lua-ms",
            "50",
            "pipeline.lua-time-budget",
        ),
        ("while true do model():generate('a') end", "--wall-ms", "200", "pipeline.wall-budget"),
        (
            "local t = {} while true do t[#t + 1] = {} end",
            "--lua-memory-bytes",
            "1000000",
            "pipeline.memory-budget",
        ),
        ("while true do model() end", "--host-calls", "9", "pipeline.call-budget"),
        ("while true do spawn(function() end) end", "--tasks", "3", "pipeline.task-budget"),
        ("while true do emit('abc') end", "--output-bytes", "9", "pipeline.output-budget"),
        ("while true do print('abc') end", "--log-bytes", "9", "pipeline.log-budget"),
    ];
    for (body, flag, limit, code) in cases {
        let ended = run(&tenon, &format!("function main() {body} end"), &["--json", flag, limit]);
        assert_eq!(ended.error(1)["code"], code, "{body}");
    }
}

/// Runs an example on SmolLM2 and gives what its `main` returned.
fn example(name: &str, args: &[&str]) -> Option<(Value, String)> {
    let tenon = Tenon::find()?;
    let golden = Generation::read("smollm2-135m");
    let file = skip::model_file(&golden.model_file, &golden.model_sha256)?.display().to_string();
    let script = workspace().join("examples").join("pipelines").join(name).display().to_string();
    let mut line = vec!["run", &script, "--model", &file, "--seed", "7", "--json"];
    for arg in args {
        line.extend(["--arg", arg]);
    }
    let object = tenon.run(&line).json();
    Some((object["result"].clone(), object["output"].as_str().unwrap().to_owned()))
}

#[test]
fn best_of_n_chooses_one_of_n_answers() {
    let Some((found, _)) = example("best_of_n.lua", &["n=3", "question=What is the capital of France?"])
    else {
        return;
    };
    assert_eq!(found["of"], 3);
    assert!((1..=3).contains(&found["chosen"].as_u64().unwrap()), "{found}");
    let agreement = found["agreement"].as_f64().unwrap();
    assert!(agreement > 1.0 / 3.0 - 1e-9 && agreement <= 1.0, "{found}");
    assert!(found["answer"].as_str().unwrap().contains("Paris"), "{found}");
}

#[test]
fn extraction_gives_words_of_the_text_or_nothing() {
    let text = "Ada Lovelace was born in London in 1815.";
    let given = format!("text={text}");
    let Some((found, _)) = example("extract_with_retry.lua", &[&given, "fields=city,name"]) else { return };
    for field in ["city", "name"] {
        let tries = found[field]["tries"].as_u64().unwrap();
        assert!((1..=4).contains(&tries), "{found}");
        match found[field]["value"].as_str() {
            Some(value) => assert!(text.to_lowercase().contains(&value.to_lowercase()), "{found}"),
            None => assert_eq!((&found[field]["value"], tries), (&Value::Null, 4)),
        }
    }
    assert!(found["city"]["value"].is_string() || found["name"]["value"].is_string(), "{found}");
}

#[test]
fn branches_of_a_chat_share_what_was_computed() {
    let args = ["open=Tell me about oak.", "branches=How hard is it?|Where does it grow?"];
    let Some((found, output)) = example("branching_chat.lua", &args) else { return };
    assert!(!output.trim().is_empty());
    let branches = found["branches"].as_array().unwrap();
    assert_eq!((branches.len(), &found["trunk_messages"]), (2, &json!(1)));
    for branch in branches {
        let count = |key: &str| branch[key].as_u64().unwrap();
        assert!(!branch["answer"].as_str().unwrap().is_empty(), "{found}");
        assert!(count("reused_tokens") > 20 && count("reused_tokens") < count("prompt_tokens"), "{found}");
    }
}

/// Ctrl-C ends a pipeline; what was emitted stays.
#[cfg(unix)]
#[test]
fn ctrl_c_ends_a_pipeline_with_130() {
    let Some(tenon) = Tenon::find() else { return };
    let script = "function main() emit('begun') while true do model():generate('a') end end";
    let path = written(&tenon, script).display().to_string();
    let model = fixture(CHATTY).display().to_string();
    let mut child =
        tenon.start(&["run", &path, "--model", &model, "--threads", "1", "--host-calls", "100000000"]);
    let mut stdout = child.stdout.take().unwrap();
    let mut first = [0; 5];
    stdout.read_exact(&mut first).unwrap();
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
}
