//! The attacks.

use super::Guest::{Build, BuildAlone, Describe, Graph, Package, Plan, Policy, Script};
use super::made::{
    bytecode, core_module, cut_component, imports_a_core_function, imports_a_function_we_lack,
    imports_another_interface, imports_clock, imports_environment, imports_files, imports_random, lua_noise,
    lua_version_9, much_code, much_text, nested, nested_lua, no_export, noise, other_export, policy_as_graph,
    version_9,
};
use super::{Attack, harmless, pair, refused, twins};

const TIME: &str = "plugin.time-budget";
const MEMORY: &str = "plugin.memory-budget";
const OUTPUT: &str = "plugin.output-budget";
const TRAP: &str = "plugin.trap";
const SCRIPT: &str = "plugin.script-error";
const GUEST: &str = "plugin.guest-error";

/// All of them.
pub fn attacks() -> Vec<Attack> {
    let parts = [loops, native_calls, memory, traps, answers, steps, lies, sandboxes, packages];
    parts.into_iter().flat_map(|part| part()).collect()
}

/// Loops in every place that is called.
fn loops() -> Vec<Attack> {
    vec![
        pair(
            "a loop before any hook",
            refused(
                Build(
                    "",
                    r#"(func $spin (loop (br 0))) (start $spin)
                    (func (export "build") (param i32 i32) (result i32) (i32.const 0))"#,
                ),
                TIME,
                &["`build`", "300 ms"],
            ),
            refused(Script("sampling-policy", "while true do end"), TIME, &["`describe`", "300 ms"]),
        ),
        twins("a loop in `describe`", Describe("loop"), TIME, &["`describe`", "300 ms"]),
        twins("a loop in `open`", Policy("loop in open"), TIME, &["`open`", "300 ms"]),
        twins("a loop in `step`", Policy("loop"), TIME, &["`step`", "150 ms"]),
        twins("a loop in `rollback`", Policy("loop in rollback"), TIME, &["`rollback`", "150 ms"]),
        twins("a loop in `fork`", Policy("loop in fork"), TIME, &["`fork`", "150 ms"]),
        pair(
            "a loop in a destructor",
            refused(Policy("loop in drop"), "plugin.ended", &["spent its time in `drop`", "before `step`"]),
            harmless(Policy("loop in drop")),
        ),
        twins("a loop in `build`", Graph("loop"), TIME, &["`build`", "300 ms"]),
        pair(
            "a loop in `plan`",
            refused(
                Plan(
                    r#"(func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (i32.const 32768))
                    (func (export "plan") (param i32 i32 i32 i32 i32 i32) (result i32) (loop (br 0)) unreachable)"#,
                ),
                TIME,
                &["`plan`", "300 ms"],
            ),
            refused(
                Script("quant-profile", "function plan() while true do end end"),
                TIME,
                &["`plan`", "300 ms"],
            ),
        ),
        pair(
            "a loop in what the host calls on its way",
            refused(
                BuildAlone(
                    "",
                    r#"(func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (loop (br 0)) unreachable)
                    (func (export "build") (param i32 i32) (result i32) (i32.const 0))"#,
                ),
                TIME,
                &["`build`", "300 ms"],
            ),
            refused(
                Script(
                    "model-graph",
                    "function build() print(setmetatable({}, { __tostring = function() while true do end end })) end",
                ),
                TIME,
                &["`build`", "300 ms"],
            ),
        ),
        pair(
            "a loop after the answer",
            refused(
                Build(
                    "",
                    r#"(func (export "build") (param i32 i32) (result i32) (i32.const 0))
                    (func (export "cabi_post_build") (param i32) (loop (br 0)))"#,
                ),
                TIME,
                &["`build`", "300 ms"],
            ),
            harmless(Script(
                "model-graph",
                "function build(config, g)
                    setmetatable({}, { __gc = function() while true do end end })
                    return g:linear(g:embedding(g:tokens(), 'table'), 'table')
                end",
            )),
        ),
        pair(
            "a loop that holds on to its end",
            refused(Policy("refused for ever"), OUTPUT, &["`step`", "1000 calls in a step"]),
            refused(
                Script(
                    "model-graph",
                    "function build() while true do pcall(function() while true do end end) end end",
                ),
                TIME,
                &["`build`", "300 ms"],
            ),
        ),
        pair(
            "a loop in another strand",
            refused(
                Build(
                    "",
                    r#"(type $f (func)) (table 1 funcref) (elem (i32.const 0) $spin)
                    (func $spin (loop (br 0)))
                    (func (export "build") (param i32 i32) (result i32)
                        (call_indirect (type $f) (i32.const 0)) (i32.const 0))"#,
                ),
                TIME,
                &["`build`", "300 ms"],
            ),
            refused(
                Script(
                    "model-graph",
                    "function build() coroutine.wrap(function() while true do end end)() end",
                ),
                SCRIPT,
                &["`build`", "index nil with 'wrap'"],
            ),
        ),
        twins("a search that never ends", Policy("exponential"), TIME, &["`step`", "150 ms"]),
    ]
}

/// Work that the runtime itself does for a guest.
fn native_calls() -> Vec<Attack> {
    let script = |source| refused(Script("model-graph", source), TIME, &["`build`", "300 ms"]);
    let bulk = |text| refused(Build("", text), TIME, &["`build`", "300 ms"]);
    vec![
        twins("native calls that take long", Policy("long native call"), TIME, &["`step`", "150 ms"]),
        pair(
            "one native call over much",
            bulk(
                r#"(memory 1) (func (export "build") (param i32 i32) (result i32)
                (drop (memory.grow (i32.const 100)))
                (loop (memory.fill (i32.const 0) (i32.const 0) (i32.const 6000000)) (br 0)) unreachable)"#,
            ),
            script(
                "function build()
                    local text = string.rep('a', 1000000)
                    while true do string.split(text, string.rep('a', 100000) .. 'b') end
                end",
            ),
        ),
        pair(
            "one native call over nothing",
            bulk(
                r#"(func (export "build") (param i32 i32) (result i32)
                (loop (memory.copy (i32.const 0) (i32.const 1) (i32.const 60000)) (br 0)) unreachable)"#,
            ),
            script("function build() while true do table.move({ 1 }, 1, 1000000000, 5) end end"),
        ),
        pair(
            "a sort of much",
            harmless(Policy("bad order")),
            script(
                "function build()
                    local numbers = table.create(200000, 0)
                    while true do table.sort(numbers) end
                end",
            ),
        ),
        pair(
            "an order that is none",
            harmless(Policy("bad order")),
            refused(Policy("bad order"), SCRIPT, &["`step`", "invalid order function"]),
        ),
    ]
}

fn memory() -> Vec<Attack> {
    let build = |text| Build("", text);
    vec![
        twins("a hoard", Policy("bomb"), MEMORY, &["`step`", "8388608 bytes"]),
        twins("a hoard in `build`", Graph("bomb"), MEMORY, &["`build`", "8388608 bytes"]),
        twins("one large block", Policy("one large block"), MEMORY, &["`step`", "8388608 bytes"]),
        twins("a text that doubles", Policy("doubling"), MEMORY, &["`step`", "8388608 bytes"]),
        pair(
            "memory from the start",
            refused(
                build(r#"(memory 1000) (func (export "build") (param i32 i32) (result i32) (i32.const 0))"#),
                MEMORY,
                &["`build`", "8388608 bytes"],
            ),
            refused(
                Script("model-graph", "hoard = buffer.create(1e9)"),
                MEMORY,
                &["`build`", "8388608 bytes"],
            ),
        ),
        pair(
            "memory page by page",
            refused(
                build(
                    r#"(func (export "build") (param i32 i32) (result i32)
                    (loop (drop (memory.grow (i32.const 16))) (br 0)) unreachable)"#,
                ),
                MEMORY,
                &["`build`", "8388608 bytes"],
            ),
            refused(
                Script("model-graph", "function build() local t = {} for i = 1, 1e9 do t[i] = { i } end end"),
                MEMORY,
                &["`build`", "8388608 bytes"],
            ),
        ),
        pair(
            "a large table",
            refused(
                build(
                    r#"(table 1000000 funcref) (func (export "build") (param i32 i32) (result i32) (i32.const 0))"#,
                ),
                OUTPUT,
                &["`build`", "100000 table elements"],
            ),
            refused(
                Script("model-graph", "function build() table.create(5e7, 0) end"),
                MEMORY,
                &["`build`", "8388608 bytes"],
            ),
        ),
        pair(
            "a table that grows",
            refused(
                build(
                    r#"(table 1 funcref) (func (export "build") (param i32 i32) (result i32)
                    (loop (drop (table.grow 0 (ref.null func) (i32.const 1000))) (br 0)) unreachable)"#,
                ),
                OUTPUT,
                &["`build`", "100000 table elements"],
            ),
            refused(
                Script(
                    "model-graph",
                    "function build() table.concat(table.create(1000000, string.rep('z', 1000))) end",
                ),
                MEMORY,
                &["`build`", "8388608 bytes"],
            ),
        ),
        pair(
            "a hoard of handles",
            refused(Policy("handle leak"), TRAP, &["`open`", "handle"]),
            refused(Policy("handle leak"), MEMORY, &["`open`", "8388608 bytes"]),
        ),
    ]
}

fn traps() -> Vec<Attack> {
    let build = |text| Build("", text);
    let script = |source| Script("model-graph", source);
    vec![
        pair(
            "recursion without end",
            refused(Policy("recurse"), TRAP, &["`step`", "stack"]),
            refused(Policy("recurse"), SCRIPT, &["`step`", "stack"]),
        ),
        pair(
            "recursion through the runtime",
            refused(
                build(r#"(func $down (call $down)) (func (export "build") (param i32 i32) (result i32)
                    (call $down) (i32.const 0))"#),
                TRAP,
                &["`build`", "stack"],
            ),
            refused(
                script("local function f(n) return string.gsub('x', 'x', function() return f(n + 1) end) .. 'y' end
                    function build() f(0) end"),
                SCRIPT,
                &["`build`", "stack overflow"],
            ),
        ),
        pair(
            "a panic in `step`",
            refused(Policy("panic"), TRAP, &["`step`", "I am not well"]),
            refused(Policy("panic"), SCRIPT, &["`step`", "I am not well"]),
        ),
        pair(
            "a panic in `open`",
            refused(Policy("panic in open"), TRAP, &["`open`", "I am not well"]),
            refused(Policy("panic in open"), SCRIPT, &["`open`", "I am not well"]),
        ),
        pair(
            "a panic in `describe`",
            refused(Describe("panic"), TRAP, &["`describe`", "I am not well"]),
            refused(Describe("panic"), SCRIPT, &["`describe`", "I am not well"]),
        ),
        pair(
            "an end without words",
            refused(
                build(r#"(func (export "build") (param i32 i32) (result i32) unreachable)"#),
                TRAP,
                &["`build`", "unreachable"],
            ),
            refused(script("function build() error({}) end"), SCRIPT, &["`build`", "not a string"]),
        ),
        pair(
            "a division by zero",
            refused(
                build(r#"(func (export "build") (param i32 i32) (result i32)
                    (i32.div_u (i32.const 1) (i32.const 0)))"#),
                TRAP,
                &["`build`", "divide by zero"],
            ),
            refused(script("function build() local x = nil + 1 end"), SCRIPT, &["`build`", "arithmetic"]),
        ),
        pair(
            "a read out of bounds",
            refused(
                build(r#"(func (export "build") (param i32 i32) (result i32) (i32.load (i32.const 0x7ffffff0)))"#),
                TRAP,
                &["`build`", "out of bounds"],
            ),
            refused(
                script("function build() buffer.readu8(buffer.create(4), 1e6) end"),
                SCRIPT,
                &["`build`", "out of bounds"],
            ),
        ),
        pair(
            "a call of what is no function",
            refused(
                build(r#"(type $f (func)) (table 1 funcref) (func (export "build") (param i32 i32) (result i32)
                    (call_indirect (type $f) (i32.const 0)) (i32.const 0))"#),
                TRAP,
                &["`build`", "uninitialized element"],
            ),
            refused(script("function build() local f = {} f() end"), SCRIPT, &["`build`", "call a table"]),
        ),
    ]
}

/// What a hook returns.
fn answers() -> Vec<Attack> {
    let build = |text| Build("", text);
    let script = |source| Script("model-graph", source);
    vec![
        pair(
            "an answer of no known form",
            refused(
                build(
                    r#"(func (export "build") (param i32 i32) (result i32)
                    (i32.store8 (i32.const 0) (i32.const 7)) (i32.const 0))"#,
                ),
                TRAP,
                &["`build`", "discriminant"],
            ),
            refused(script("function build() return 'x' end"), SCRIPT, &["`build`", "`the logits` is"]),
        ),
        pair(
            "an answer that lies nowhere",
            refused(
                build(r#"(func (export "build") (param i32 i32) (result i32) (i32.const -4))"#),
                TRAP,
                &["`build`"],
            ),
            refused(script("function build() end"), SCRIPT, &["`build`", "`the logits` is"]),
        ),
        pair(
            "words that lie nowhere",
            // "err", `internal`, a string outside of memory.
            refused(
                build(
                    r#"(func (export "build") (param i32 i32) (result i32)
                    (i32.store8 (i32.const 0) (i32.const 1)) (i32.store8 (i32.const 4) (i32.const 3))
                    (i32.store (i32.const 8) (i32.const 100)) (i32.store (i32.const 12) (i32.const 0x7fffffff))
                    (i32.const 0))"#,
                ),
                TRAP,
                &["`build`"],
            ),
            refused(
                script("function build(config) return config:usize(setmetatable({}, {})) end"),
                SCRIPT,
                &["`build`", "expected a string"],
            ),
        ),
        pair(
            "many words that are one",
            // "err", `unsupported`, two thousand fields whose three texts are the same 60 KB: more than 300 MB.
            refused(
                build(
                    r#"(func (export "build") (param i32 i32) (result i32) (local i32)
                    (loop
                        (i32.store (local.get 2) (i32.const 0)) (i32.store offset=4 (local.get 2) (i32.const 60000))
                        (local.set 2 (i32.add (local.get 2) (i32.const 8)))
                        (br_if 0 (i32.lt_u (local.get 2) (i32.const 48000))))
                    (i32.store8 (i32.const 60000) (i32.const 1)) (i32.store8 (i32.const 60004) (i32.const 1))
                    (i32.store (i32.const 60008) (i32.const 0)) (i32.store (i32.const 60012) (i32.const 2000))
                    (i32.const 60000))"#,
                ),
                TRAP,
                &["`build`"],
            ),
            refused(script("function build() error(string.rep('blah ', 100000)) end"), SCRIPT, &["`build`"]),
        ),
        pair(
            "a thousand complaints",
            // "err", `unsupported`, a thousand empty fields.
            refused(
                build(
                    r#"(func (export "build") (param i32 i32) (result i32)
                    (i32.store8 (i32.const 0) (i32.const 1)) (i32.store8 (i32.const 4) (i32.const 1))
                    (i32.store (i32.const 8) (i32.const 4096)) (i32.store (i32.const 12) (i32.const 1000))
                    (i32.const 0))"#,
                ),
                OUTPUT,
                &["`build`", "256 fields of an error"],
            ),
            refused(
                script(
                    "function build(config) config:refuse_unknown(table.create(1000, 'x')) error('no') end",
                ),
                SCRIPT,
                &["`build`"],
            ),
        ),
        pair(
            "a refusal that was never given",
            refused(
                build(
                    r#"(func (export "build") (param i32 i32) (result i32)
                    (i32.store8 (i32.const 0) (i32.const 1)) (i32.store8 (i32.const 4) (i32.const 2))
                    (i32.store8 (i32.const 20) (i32.const 7)) (i32.const 0))"#,
                ),
                GUEST,
                &["`build`", "never gave"],
            ),
            refused(
                script("function build() error({ code = 'graph.shape' }) end"),
                SCRIPT,
                &["`build`", "not a string"],
            ),
        ),
        pair(
            "long words",
            refused(Graph("long words"), GUEST, &["`build`", "blah"]),
            refused(Graph("long words"), SCRIPT, &["`build`", "blah"]),
        ),
        pair(
            "a handle that was never given",
            refused(
                build(r#"(func (export "build") (param i32 i32) (result i32) (i32.const 0))"#),
                "graph.unknown-value",
                &["`build`", "no value 0"],
            ),
            refused(
                script("function build(config, g) return g:neg(0) end"),
                SCRIPT,
                &["`build`", "expected a graph value"],
            ),
        ),
        twins(
            "a handle of another scope",
            Graph("inside a scan"),
            "graph.unknown-value",
            &["`build`", "no value"],
        ),
        pair(
            "a scheme that does not exist",
            refused(
                Plan(
                    r#"(func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (i32.const 32768))
                    (func (export "plan") (param i32 i32 i32 i32 i32 i32) (result i32)
                    (i32.store (i32.const 4) (i32.const 1024)) (i32.store (i32.const 8) (i32.const 1))
                    (i32.store (i32.const 1024) (i32.const 1)) (i32.store (i32.const 1028) (i32.const 9))
                    (i32.store (i32.const 1032) (i32.const 64)) (i32.const 0))"#,
                ),
                "quant.bits",
                &["`plan`"],
            ),
            refused(
                Script("quant-profile", "function plan() return { { bits = 9, group_size = 64 } } end"),
                "quant.bits",
                &["`plan`"],
            ),
        ),
        twins("a graph without logits", Graph("no logits"), "graph.shape", &["`build`", "[B,T,V]"]),
        pair(
            "a change of mind",
            refused(Graph("error after success"), GUEST, &["`build`", "I changed my mind"]),
            refused(Graph("error after success"), SCRIPT, &["`build`", "I changed my mind"]),
        ),
    ]
}

/// Calls with too much, or with what makes no sense.
fn steps() -> Vec<Attack> {
    let name = |text| {
        Build(r#"(import "tenon:plugin/graph@0.1.0" "weight" (func $weight (param i32 i32 i32)))"#, text)
    };
    vec![
        twins("a flood of log lines", Policy("log flood"), OUTPUT, &["`step`", "4096 bytes of log text"]),
        twins(
            "a flood of log lines in `build`",
            Graph("log flood"),
            OUTPUT,
            &["`build`", "4096 bytes of log text"],
        ),
        twins("a flood of calls", Policy("many calls"), OUTPUT, &["`step`", "1000 calls in a step"]),
        twins("a flood of nodes", Graph("many nodes"), "graph.limit", &["`build`", "more than 1000 nodes"]),
        twins("a flood of slots", Graph("many slots"), "graph.limit", &["`build`", "more than 100 slots"]),
        twins("a shape that doubles", Graph("doubling"), "graph.limit", &["`build`", "elements"]),
        twins(
            "a shape beyond numbers",
            Graph("large reshape"),
            "graph.shape",
            &["`build`", "as many elements"],
        ),
        twins("a slot twice", Graph("reused slot"), "graph.slot", &["`build`", "used already"]),
        twins(
            "an oversized list of biases",
            Policy("oversized list"),
            "policy.limit",
            &["`step`", "8192 biases"],
        ),
        twins("an oversized mask", Policy("oversized mask"), "policy.limit", &["`step`", "2 words"]),
        twins(
            "too many forced tokens",
            Policy("long force"),
            "policy.limit",
            &["`step`", "8192 forced tokens"],
        ),
        twins("a long reason", Policy("long reason"), "policy.limit", &["`step`", "4096 bytes of a reason"]),
        twins("a long text", Policy("long text"), "policy.limit", &["`step`", "4096 bytes of a text"]),
        twins("a long name", Graph("huge name"), "graph.limit", &["`build`", "bytes of a name"]),
        pair(
            "a name that is no text",
            refused(
                name(
                    r#"(func (export "build") (param i32 i32) (result i32)
                    (i32.store8 (i32.const 0) (i32.const 0xff))
                    (call $weight (i32.const 0) (i32.const 1) (i32.const 8)) (i32.const 0))"#,
                ),
                TRAP,
                &["`build`", "utf-8"],
            ),
            refused(
                Script("model-graph", "function build(config, g) return g:weight('\\255') end"),
                SCRIPT,
                &["`build`", "expected a string"],
            ),
        ),
        pair(
            "a name beyond memory",
            refused(
                name(
                    r#"(func (export "build") (param i32 i32) (result i32)
                    (call $weight (i32.const 65000) (i32.const 5000) (i32.const 0)) (i32.const 0))"#,
                ),
                TRAP,
                &["`build`"],
            ),
            refused(
                Script("model-graph", "function build(config, g) error('\\255\\254') end"),
                SCRIPT,
                &["`build`"],
            ),
        ),
        twins(
            "lists of unequal lengths",
            Policy("unequal lists"),
            "policy.parameter",
            &["`step`", "1 values for 2"],
        ),
        twins("a bias that is no number", Policy("not a number"), "policy.parameter", &["`step`", "NaN"]),
        twins("an infinite bias", Policy("infinite"), "policy.parameter", &["`step`", "inf"]),
        twins(
            "a constant that is no number",
            Graph("not a number"),
            "graph.attribute",
            &["`build`", "finite"],
        ),
        twins(
            "a constant beyond float32",
            Graph("beyond float32"),
            "graph.attribute",
            &["`build`", "finite"],
        ),
        twins(
            "a bias for no token",
            Policy("unknown token"),
            "policy.unknown-token",
            &["`step`", "token 50"],
        ),
        twins(
            "a forced token that is none",
            Policy("unknown forced"),
            "policy.unknown-token",
            &["`step`", "4294967295"],
        ),
        twins(
            "a run beyond the vocabulary",
            Policy("unknown run"),
            "policy.unknown-token",
            &["`step`", "token 50"],
        ),
        twins(
            "a run that ends before it starts",
            Policy("inverted run"),
            "policy.parameter",
            &["`step`", "7..3"],
        ),
        pair(
            "runs without order, overlapping, empty",
            harmless(Policy("odd runs")),
            harmless(Policy("odd runs")),
        ),
        twins("a sampler out of range", Policy("out of range"), "policy.parameter", &["`step`", "top_p"]),
        pair("an end twice", harmless(Policy("finish twice")), harmless(Policy("finish twice"))),
        pair(
            "an end, then tokens",
            harmless(Policy("finish and force")),
            harmless(Policy("finish and force")),
        ),
        pair("a refusal that was mended", harmless(Policy("swallow")), harmless(Policy("swallow"))),
    ]
}

/// What a plugin says of itself and does not keep.
fn lies() -> Vec<Attack> {
    vec![
        twins(
            "full logits without the grant",
            Describe("full logits"),
            "plugin.not-granted",
            &["full-logits"],
        ),
        pair(
            "an answer for those who ask, another for those who use",
            refused(Describe("change"), "plugin.not-granted", &["full-logits"]),
            harmless(Script(
                "sampling-policy",
                "n = (n or 0) + 1
                function describe()
                    n = n + 1
                    return { needs = if n > 2 then 'full-logits' else 'mask-only',
                             supports_rollback = true, supports_fork = true }
                end
                local policy = { step = function() end, rollback = function() end }
                policy.fork = function() return policy end
                function open() return policy end",
            )),
        ),
        twins(
            "a read that it did not name",
            Policy("not granted"),
            "policy.not-granted",
            &["`step`", "top-k(4)"],
        ),
        twins("more than it named", Policy("more than said"), "policy.not-granted", &["`step`", "top-k(5)"]),
        pair(
            "a fork that it claims",
            refused(Policy("claimed fork"), GUEST, &["`fork`", "cannot fork after all"]),
            refused(Policy("claimed fork"), SCRIPT, &["`fork`", "cannot fork after all"]),
        ),
        pair(
            "a step that it made up",
            refused(Policy("forged step"), TRAP, &["`step`", "handle"]),
            refused(Policy("forged step"), SCRIPT, &["`step`"]),
        ),
        pair(
            "a step that it kept",
            // A component's handle ends with its call, so what it kept is a number that means nothing.
            refused(Policy("forged step"), TRAP, &["`step`", "handle"]),
            refused(Policy("kept step"), "policy.no-step", &["`rollback`"]),
        ),
        pair(
            "something left for the next request",
            harmless(Policy("leave behind")),
            harmless(Policy("leave behind")),
        ),
    ]
}

/// Ways out of the sandbox.
fn sandboxes() -> Vec<Attack> {
    let script = |source, says| refused(Script("model-graph", source), SCRIPT, says);
    vec![
        pair(
            "a file",
            refused(Package(imports_files), "plugin.foreign-import", &["wasi:filesystem"]),
            script(
                "function build() return io.open('/etc/passwd') end",
                &["`build`", "index nil with 'open'"],
            ),
        ),
        pair(
            "a process",
            refused(Package(imports_environment), "plugin.foreign-import", &["wasi:cli/environment"]),
            script("function build() os.execute('true') end", &["`build`", "index nil with 'execute'"]),
        ),
        pair(
            "a clock",
            refused(Package(imports_clock), "plugin.foreign-import", &["wasi:clocks"]),
            script("function build() return os.clock() end", &["`build`", "index nil with 'clock'"]),
        ),
        pair(
            "a random number that is not the request's",
            refused(Package(imports_random), "plugin.foreign-import", &["wasi:random"]),
            script("function build() return math.random() end", &["`build`", "call a nil"]),
        ),
        pair(
            "code from elsewhere",
            refused(Package(imports_another_interface), "plugin.load", &["tenon:plugin/files"]),
            script("function build() loadstring('return 1')() end", &["`build`", "call a nil"]),
        ),
        pair(
            "code from a file",
            refused(Package(imports_a_core_function), "plugin.foreign-import", &["env"]),
            script("function build() dofile('x') end", &["`build`", "call a nil"]),
        ),
        pair(
            "a module",
            refused(Package(imports_a_function_we_lack), "plugin.load", &["steal"]),
            script("function build() require('x') end", &["`build`", "call a nil"]),
        ),
        pair(
            "another's environment",
            refused(
                Build(
                    r#"(import "tenon:plugin/graph@0.1.0" "log" (func $log (param i32 i32)))"#,
                    r#"(func (export "build") (param i32 i32) (result i32)
                        (call $log (i32.const 0x7ffffff0) (i32.const 100)) (i32.const 0))"#,
                ),
                TRAP,
                &["`build`"],
            ),
            script("function build() return getfenv(2) end", &["`build`", "call a nil"]),
        ),
        pair(
            "the host's stack",
            // A host call from within a host call: what the host allocates for its answer is no place for calls.
            refused(
                BuildAlone(
                    r#"(import "tenon:plugin/graph@0.1.0" "log" (func $log (param i32 i32)))"#,
                    r#"(func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
                        (call $log (i32.const 0) (i32.const 1)) (i32.const 32768))
                    (func (export "build") (param i32 i32) (result i32) (i32.const 0))"#,
                ),
                TRAP,
                &["`build`", "leave"],
            ),
            script("function build() return debug.info(1, 'f') end", &["`build`", "index nil with 'info'"]),
        ),
        pair(
            "the library of all strings",
            harmless(Policy("leave behind")),
            script(
                "function build() string.rep = function() return 'mine' end end",
                &["`build`", "readonly"],
            ),
        ),
        pair(
            "the metatable of all strings",
            harmless(Policy("leave behind")),
            script("function build() getmetatable('').__index = {} end", &["`build`"]),
        ),
        pair(
            "the globals of the next script",
            harmless(Policy("leave behind")),
            harmless(Script(
                "model-graph",
                "assert(mine == nil, 'the last script is still here')
                mine, print, string = 1, nil, nil
                function build(config, g) return g:linear(g:embedding(g:tokens(), 'table'), 'table') end",
            )),
        ),
        pair(
            "the host within an order, a replacement and an index",
            // A component's functions are its own; the host is called from them like from any.
            harmless(Graph("nothing")),
            harmless(Script(
                "model-graph",
                "function build(config, g)
                    table.sort({ 3, 1, 2 }, function(a, b) g:log('x') return a < b end)
                    string.gsub('abc', '.', function() g:log('x') end)
                    local index = setmetatable({}, { __index = function() g:log('x') return 1 end })
                    assert(index.anything == 1)
                    return g:linear(g:embedding(g:tokens(), 'table'), 'table')
                end",
            )),
        ),
    ]
}

/// Packages that are not what they should be.
fn packages() -> Vec<Attack> {
    vec![
        pair(
            "half of its bytes",
            refused(Package(cut_component), "plugin.invalid-binary", &[]),
            refused(
                Script("model-graph", "function build(config, g) return g:linear("),
                "plugin.syntax",
                &[],
            ),
        ),
        pair(
            "compiled code",
            refused(Package(core_module), "plugin.invalid-binary", &["core module"]),
            refused(Package(bytecode), "plugin.syntax", &[]),
        ),
        pair(
            "bytes that are nothing",
            refused(Package(noise), "plugin.invalid-binary", &[]),
            refused(Package(lua_noise), "plugin.load", &[]),
        ),
        pair(
            "nesting without end",
            refused(Package(nested), "plugin.too-large", &["16 levels of nesting"]),
            refused(Package(nested_lua), "plugin.syntax", &[]),
        ),
        pair(
            "more code than can be compiled in time",
            refused(Package(much_code), "plugin.too-large", &["2097152 bytes of code"]),
            refused(Package(much_text), "plugin.load", &["1048576"]),
        ),
        pair(
            "another version",
            refused(Package(version_9), "plugin.contract-version", &["model-graph 9.256.3"]),
            refused(Package(lua_version_9), "plugin.contract-version", &["9.9"]),
        ),
        pair(
            "another world",
            refused(Package(policy_as_graph), "plugin.contract-version", &["sampling-policy"]),
            refused(Script("sampling-policy", "function build() end"), "plugin.missing-export", &["`open`"]),
        ),
        pair(
            "no hook",
            refused(Package(no_export), "plugin.missing-export", &["`build`"]),
            refused(
                Script("model-graph", "local function build() end"),
                "plugin.missing-export",
                &["`build`"],
            ),
        ),
        pair(
            "a hook of another form",
            refused(Package(other_export), "plugin.load", &["build"]),
            refused(Script("model-graph", "build = 7"), SCRIPT, &["`build`"]),
        ),
    ]
}
