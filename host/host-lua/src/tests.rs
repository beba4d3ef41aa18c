//! Tests of the Lua runtime: the sandbox, arguments, places in errors.

use std::collections::BTreeSet;
use std::path::Path;

use host_core::{Report, Reported};
use host_graph::{Catalogue, Graph, TensorFacts};
use host_plugins::{Budget, GraphPlugin, LogSink, PluginError, PluginPackage};

use crate::LuaPlugin;

mod policies;
mod stubs;

fn open(source: &str) -> Result<LuaPlugin, PluginError> {
    let manifest = "id = \"t\"\nversion = \"1.0.0\"\nkind = \"model-graph\"\nruntime = \"lua\"\n\
                    entry = \"t.lua\"\nsdk = \"0.2\"";
    let package = PluginPackage::from_parts(manifest, source.as_bytes().to_vec(), Path::new("t")).unwrap();
    let budget = Budget { time_ms: 200, memory_bytes: 16 << 20, ..Budget::default() };
    LuaPlugin::open(&package, budget, LogSink::discard())
}

fn run(source: &str) -> Result<Graph, PluginError> {
    let facts = |shape: &[usize]| TensorFacts { shape: shape.to_vec(), is_dense: true };
    let catalogue = Catalogue::from([("e".to_owned(), facts(&[10, 4]))]);
    open(source)?.build("{\"n\": 1, \"s\": \"x\", \"z\": null, \"list\": [1, 2]}", catalogue)
}

/// The body of `build`, which may use `g`, `config` and the value `h` `[B,T,4]`; gives the report.
fn fails(body: &str) -> Report {
    let source = format!(
        "function build(config, g)\nlocal h = g:embedding(g:tokens(), 'e')\n{body}\nreturn g:linear(h, 'e')\nend"
    );
    run(&source).expect_err(body).report()
}

/// The same, for a body that must not fail.
fn holds(body: &str) {
    let source = format!(
        "function build(config, g)\nlocal h = g:embedding(g:tokens(), 'e')\n{body}\nreturn g:linear(h, 'e')\nend"
    );
    if let Err(error) = run(&source) {
        panic!("{body}\n{}", error.report());
    }
}

/// Everything that a script can reach, by name. A new name here is a decision, not an accident.
const ALLOWED: &str = "
_G _VERSION assert error getmetatable ipairs next pairs pcall print rawequal rawget rawlen rawset rope select
setmetatable tonumber tostring type typeof unpack xpcall
buffer buffer.copy buffer.create buffer.fill buffer.fromstring buffer.len buffer.readbits buffer.readf32
buffer.readf64 buffer.readi16 buffer.readi32 buffer.readi8 buffer.readstring buffer.readu16 buffer.readu32
buffer.readu8 buffer.tostring buffer.writebits buffer.writef32 buffer.writef64 buffer.writei16 buffer.writei32
buffer.writei8 buffer.writestring buffer.writeu16 buffer.writeu32 buffer.writeu8
math math.e math.nan math.phi math.sqrt2 math.tau math.abs math.acos math.asin math.atan math.atan2 math.ceil math.clamp math.cos math.cosh math.deg
math.exp math.floor math.fmod math.frexp math.huge math.isfinite math.isinf math.isnan math.ldexp math.lerp
math.log math.log10 math.map math.max math.min math.modf math.noise math.pi math.pow math.rad math.round
math.sign math.sin math.sinh math.sqrt math.tan math.tanh
rope.from_config rope.from_parameters
string string.byte string.char string.find string.format string.gmatch string.gsub string.len string.lower
string.match string.pack string.packsize string.rep string.reverse string.split string.sub string.unpack
string.upper
table table.clear table.clone table.concat table.create table.find table.foreach table.foreachi table.freeze
table.getn table.insert table.isfrozen table.maxn table.move table.pack table.remove table.sort table.unpack
utf8 utf8.char utf8.charpattern utf8.codepoint utf8.codes utf8.graphemes utf8.len utf8.nfcnormalize
utf8.nfdnormalize utf8.offset
";

#[test]
fn a_script_reaches_what_is_on_the_list_and_nothing_else() {
    let walk = "
        local names = {}
        local function walk(prefix, object)
            for key, value in object do
                table.insert(names, prefix .. key)
                if type(value) == 'table' and prefix == '' and value ~= _G then walk(key .. '.', value) end
            end
        end
        walk('', getmetatable(_G) and getmetatable(_G).__index or _G)
        error(table.concat(names, ' '))";
    let message = fails(walk).message;
    let found: BTreeSet<_> = message.rsplit(": ").next().unwrap().split_whitespace().collect();
    let allowed: BTreeSet<_> = ALLOWED.split_whitespace().collect();
    let unexpected: Vec<_> = found.difference(&allowed).collect();
    assert!(unexpected.is_empty(), "reachable, not allowed: {unexpected:?}");
    assert!(found.contains("string.format") && found.contains("rope.from_config"), "{message}");
}

#[test]
fn nothing_reaches_around_the_sandbox() {
    for name in [
        "collectgarbage",
        "coroutine",
        "debug",
        "dofile",
        "gcinfo",
        "getfenv",
        "io",
        "load",
        "loadfile",
        "loadstring",
        "newproxy",
        "os",
        "package",
        "require",
        "setfenv",
        "bit32",
        "vector",
    ] {
        holds(&format!("assert({name} == nil, '{name} is there')"));
    }
    holds("assert(math.random == nil and math.randomseed == nil)");
    for body in [
        "string.format = nil",
        "math.pi = 3",
        "rope.from_config = nil",
        "rawset(string, 'x', 1)",
        "rawset(table, 'insert', nil)",
        "table.clear(math)",
        "setmetatable(string, {})",
        "getmetatable('').__index = nil",
        "setmetatable('', {})",
    ] {
        assert_eq!(fails(body).code, "plugin.script-error", "{body}");
    }
}

#[test]
fn no_address_tells_one_run_from_another() {
    holds(
        "local things = { {}, function() end, print, buffer.create(1) }
        for _, thing in things do
            local kind = type(thing)
            assert(tostring(thing) == kind, tostring(thing))
            assert(string.format('%* %d', thing, 1) == kind .. ' 1', string.format('%*', thing))
            assert(not pcall(string.format, '%s', thing))
        end
        local named = setmetatable({}, { __tostring = function() return 'a name' end })
        assert(tostring(named) == 'a name' and ('%* %*'):format(named, nil) == 'a name nil')
        assert(tostring(nil) == 'nil' and tostring(1.5) == '1.5' and tostring(true) == 'true')
        assert(not pcall(string.format, '%* %d', 1, {}))",
    );
}

#[test]
fn a_state_is_fresh_in_each_build() {
    let source = "
        count = (count or 0) + 1
        function build(config, g)
            count = count + 1
            assert(count == 2, 'the last build is still here')
            return g:linear(g:embedding(g:tokens(), 'e'), 'e')
        end";
    run(source).unwrap();
    let plugin = open(source).unwrap();
    for _ in 0..2 {
        let facts = TensorFacts { shape: vec![10, 4], is_dense: true };
        plugin.build("{}", Catalogue::from([("e".to_owned(), facts)])).unwrap();
    }
}

#[test]
fn runaways_that_try_to_hold_on_are_stopped() {
    for (body, code) in [
        ("while true do end", "plugin.time-budget"),
        ("while true do pcall(function() while true do end end) end", "plugin.time-budget"),
        ("repeat xpcall(function() while true do end end, function() end) until false", "plugin.time-budget"),
        ("for i = 1, math.huge do end", "plugin.time-budget"),
        (
            "string.find(string.rep('a', 40), string.rep('a?', 40) .. string.rep('a', 40))",
            "plugin.time-budget",
        ),
        ("string.match(string.rep('a', 5000), '.-.-.-.-.-.-b')", "plugin.time-budget"),
        (
            "local t = table.create(100000, 1) while true do table.sort(t, function(a, b) return a < b end) end",
            "plugin.time-budget",
        ),
        (
            "local t = setmetatable({}, {__index = function(t, k) return t[k + 1] end}) local x = t[1]",
            "plugin.script-error",
        ),
        ("local s = 'x' while true do s = s .. s end", "plugin.memory-budget"),
        ("string.rep('x', 1e9)", "plugin.memory-budget"),
        ("table.create(5e7, 0)", "plugin.memory-budget"),
        ("buffer.create(1e9)", "plugin.memory-budget"),
        ("local t = {} for i = 1, 1e9 do t[i] = { i } end", "plugin.memory-budget"),
        (
            "local t = {} while true do table.insert(t, tostring(#t) .. string.rep('y', 10000)) end",
            "plugin.memory-budget",
        ),
        ("table.concat(table.create(1000000, string.rep('z', 1000)))", "plugin.memory-budget"),
        ("local function f() return pcall(f) end f()", ""),
        ("local function f(...) return f(1, ...) end f()", ""),
        (
            "string.format('%*', setmetatable({}, {__tostring = function() while true do end end}))",
            "plugin.time-budget",
        ),
        ("string.gsub(string.rep('a', 1000), 'a', function() while true do end end)", "plugin.time-budget"),
        (
            "g:linear(setmetatable({}, {__index = function() while true do end end}), 'e')",
            "plugin.script-error",
        ),
        ("config:refuse_unknown(setmetatable({}, {__index = function() while true do end end}))", ""),
    ] {
        let source = format!(
            "function build(config, g)\n{body}\nlocal h = g:embedding(g:tokens(), 'e')\nreturn g:linear(h, 'e')\nend"
        );
        let start = std::time::Instant::now();
        let result = run(&source);
        assert!(start.elapsed() < std::time::Duration::from_secs(5), "{body} took {:?}", start.elapsed());
        if !code.is_empty() {
            let report = result.expect_err(body).report();
            assert_eq!(report.code, code, "{body}: {report}");
        }
    }
}

#[test]
fn errors_name_file_and_line() {
    for (source, code, line, excerpt) in [
        ("function build()\n  local x = \nend", "plugin.syntax", 3, "end"),
        ("x = = 1", "plugin.syntax", 1, "x = = 1"),
        ("local t = nil\nt.x = 1", "plugin.script-error", 2, "t.x = 1"),
        ("function build(config, g)\n  error('no')\nend", "plugin.script-error", 2, "  error('no')"),
        (
            "local function deep(g)\n  return g:weight('nowhere')\nend\nfunction build(config, g)\n  return deep(g)\nend",
            "graph.missing-tensor",
            2,
            "  return g:weight('nowhere')",
        ),
        (
            "function build(config, g)\n  rope.from_config(config, 'wide')\n  return g:rope(g:tokens(), rope.from_config(config, 'wide'))\nend",
            "plugin.script-error",
            3,
            "  return g:rope(g:tokens(), rope.from_config(config, 'wide'))",
        ),
        (
            "function build(config, g)\n\n  config:usize('s')\nend",
            "plugin.invalid-config",
            3,
            "  config:usize('s')",
        ),
    ] {
        let report = run(source).expect_err(source).report();
        assert_eq!(report.code, code, "{source}\n{report}");
        let place = report.place.clone().unwrap_or_else(|| panic!("{source}\n{report}"));
        assert_eq!((place.file.as_str(), place.line), ("plugins/t/t.lua", Some(line)), "{source}\n{report}");
        assert_eq!(place.excerpt.as_deref(), Some(excerpt), "{source}");
    }
}

/// An error raised in the prelude points at the script's line that led there.
#[test]
fn the_prelude_points_at_its_caller() {
    let source = "function build(config, g)\n  local r = config:object('r')\n  return rope.from_parameters(r, config, 4, 1)\nend";
    let plugin = open(source).unwrap();
    let report = plugin.build("{\"r\": {\"type\": \"dynamic\"}}", Catalogue::new()).unwrap_err().report();
    assert_eq!(report.code, "plugin.unsupported-config");
    assert_eq!(report.found.as_deref(), Some("r.type: \"dynamic\""));
    assert_eq!(report.place.unwrap().line, Some(3));
}

#[test]
fn errors_that_are_no_strings_have_words() {
    for body in ["error({ code = 1 })", "error(nil)", "error(h)"] {
        let report = fails(body);
        assert_eq!(report.code, "plugin.script-error");
        assert!(!report.message.contains("0x"), "{report}");
    }
}

#[test]
fn a_script_without_build_is_refused() {
    for source in ["", "local function build() end", "build = nil"] {
        assert_eq!(run(source).unwrap_err().report().code, "plugin.missing-export", "{source}");
    }
    assert_eq!(run("build = 7").unwrap_err().report().code, "plugin.script-error");
}

#[test]
fn what_build_returns_is_checked() {
    for value in ["", "nil", "7", "'x'", "g", "config", "g:kv_slot(0, { heads = 1, dim_k = 1, dim_v = 1 })"] {
        let report = run(&format!("function build(config, g) return {value} end")).unwrap_err().report();
        assert_eq!(report.code, "plugin.script-error", "{value}");
        assert!(report.message.contains("`the logits` is"), "{report}");
    }
}

#[test]
fn sources_that_are_no_text_are_refused() {
    let package = |bytes: Vec<u8>| {
        let manifest = "id = \"t\"\nversion = \"1.0.0\"\nkind = \"model-graph\"\nruntime = \"lua\"\n\
                        entry = \"t.lua\"\nsdk = \"0.2\"";
        let package = PluginPackage::from_parts(manifest, bytes, Path::new("t")).unwrap();
        LuaPlugin::open(&package, Budget::default(), LogSink::discard()).unwrap_err().report()
    };
    assert_eq!(package(vec![0xff, 0xfe]).code, "plugin.load");
    assert_eq!(package(vec![b' '; (1 << 20) + 1]).code, "plugin.load");
    // Compiled code is not text: its first byte is no beginning of a script.
    assert_eq!(package(vec![6, 3, 0, 0]).code, "plugin.syntax");
}

#[test]
fn arguments_are_read_strictly() {
    for (body, message) in [
        ("g:linear(1, 'e')", "linear: `x` is 1, expected a graph value"),
        ("g:linear(h, 7)", "linear: `weight` is 7, expected a string"),
        ("g:linear(h)", "linear: `weight` is nil, expected a string"),
        ("g:linear(h, 'e', 'b')", "linear: `options` is \"b\", expected a table"),
        ("g:linear(h, 'e', { bia = 'b' })", "linear: there is no option \"bia\"; known: bias"),
        ("g:linear(h, 'e', { 'b' })", "linear: there is no option 1; known: bias"),
        ("g:linear(h, 'e', { bias = 1 })", "linear: `bias` is 1, expected a string"),
        ("g:linear(h, 'e', {}, 1)", "linear: `one more argument` is 1, expected nothing"),
        ("g:tokens(1)", "tokens: `one more argument` is 1, expected nothing"),
        ("g:slice(h, '2', 0, 1)", "slice: `axis` is \"2\", expected a whole number of at least 0"),
        ("g:slice(h, 2.5, 0, 1)", "slice: `axis` is 2.5, expected a whole number of at least 0"),
        ("g:slice(h, -1, 0, 1)", "slice: `axis` is -1, expected a whole number of at least 0"),
        ("g:slice(h, 0/0, 0, 1)", "slice: `axis` is NaN, expected a whole number of at least 0"),
        ("g:slice(h, 2, 0, 2^33)", "slice: `stop` is 8589934592, expected a whole number of at least 0"),
        ("g:reshape(h, { 2, 'x' })", "reshape: `dims` is a table, expected a list of whole numbers"),
        ("g:reshape(h, { 2, n = 2 })", "reshape: `dims` is a table, expected a list of whole numbers"),
        ("g:concat({ h, 1 }, 2)", "concat: `values` is a table, expected a list of graph values"),
        ("g:scale(h, 'half')", "scale: `factor` is \"half\", expected a number"),
        ("g:scale(h, '0.5')", "scale: `factor` is \"0.5\", expected a number"),
        ("g:cast(h, 'double')", "cast: there is no type \"double\"; known: float, int, bool"),
        ("g:begin_section('tail')", "begin_section: there is no section \"tail\"; known: embed, layer, head"),
        ("g:begin_section('layer')", "begin_section: `layer` is nil, expected the index of a layer"),
        ("g:kv_slot(0, { heads = 1 })", "kv_slot: `dim_k` is nil, expected a whole number of at least 0"),
        (
            "g:add(h, g:kv_slot(0, { heads = 1, dim_k = 1, dim_v = 1 }))",
            "add: `b` is a slot, expected a graph value",
        ),
        ("g:attention(h, h, h, { scale = 1 })", "attention: `slot` is nil, expected a slot"),
        (
            "g:rope(h, { dims = 2, theta = 1, type = 'yarn2' })",
            "rope: `type` is \"yarn2\", expected `default` or `linear` or `llama3` or `yarn` or `longrope` or `proportional`",
        ),
        (
            "g:rope(h, { dims = 2, theta = 1, type = 'linear', factor = 1, beta_fast = 1 })",
            "rope: `beta_fast` is 1, expected nothing for type linear",
        ),
        ("config:usize(1)", "usize: `key` is 1, expected a string"),
        ("config:usize('n', 1)", "usize: `one more argument` is 1, expected nothing"),
        ("config:refuse_unknown('n')", "refuse_unknown: `known` is \"n\", expected a list of strings"),
    ] {
        let report = fails(body);
        assert_eq!(report.code, "plugin.script-error", "{body}: {report}");
        assert_eq!(report.message, format!("plugin t 1.0.0, in `build`: {message}"), "{body}");
        assert_eq!(report.place.unwrap().line, Some(3), "{body}");
    }
}

#[test]
fn masks_are_read() {
    let attend = |mask: &str| {
        format!(
            "local q = g:reshape(h, {{ 1, 4 }})
             local slot = g:kv_slot(0, {{ heads = 1, dim_k = 4, dim_v = 4 }})
             h = g:reshape(g:attention(q, q, q, {{ slot = slot, scale = 1, mask = {mask} }}), {{ 4 }})"
        )
    };
    for mask in ["nil", "'causal'", "'bidirectional_prefix'", "{ window = 3 }", "{ chunked = 3 }"] {
        holds(&attend(mask));
    }
    for mask in ["'windowed'", "{ window = 'x' }", "{ window = 3, chunked = 3 }", "{}", "{ 3 }", "3", "true"]
    {
        let report = fails(&attend(mask));
        assert!(report.message.contains("attention: `mask` is"), "{mask}: {report}");
    }
}

#[test]
fn config_is_read_with_the_same_words_as_in_rust() {
    holds("assert(config:usize('n') == 1 and config:number('n') == 1 and config:str('s') == 'x')");
    holds(
        "assert(config:usize_or('z', 5) == 5 and config:optional_usize('z') == nil and not config:has('z'))",
    );
    holds("assert(config:bool_or('z', true) == true and config:optional_str('q') == nil)");
    holds(
        "assert(#config:numbers('list') == 2 and config:usizes('list')[2] == 2 and config:strs('q') == nil)",
    );
    holds("assert(table.concat(config:keys(), ' ') == 'n s z list')");
    holds("config:refuse_unknown({ 'n', 's', 'list' })");
    let report = fails("config:refuse_unknown({ 'n' })");
    assert_eq!(report.found.as_deref(), Some("s: \"x\""));
    assert_eq!(report.notes, ["list: expected a key that this plugin knows, found [1,2]"]);
    for (body, expected, found) in [
        ("config:usize('s')", "s: a whole number of at least 0", "s: \"x\""),
        ("config:number('q')", "q: a number", "q: nothing"),
        ("config:bool_or('n', true)", "n: true or false", "n: 1"),
        ("config:object('list')", "list: an object", "list: [1,2]"),
        ("config:strs('list')", "list: a list of strings", "list: [1,2]"),
        ("config:invalid('n', 'another')", "n: another", "n: 1"),
    ] {
        let report = fails(body);
        assert_eq!(report.code, "plugin.invalid-config", "{body}");
        assert_eq!((report.expected.as_deref(), report.found.as_deref()), (Some(expected), Some(found)));
    }
}

/// One name for one operation: in the contract and in Lua.
#[test]
fn contract_and_lua_have_the_same_functions() {
    let wit = include_str!("../../../plugin-sdk/wit/0.2/graph.wit");
    let in_wit: BTreeSet<String> = wit
        .lines()
        .filter_map(|line| line.trim().split_once(": func("))
        .map(|(name, _)| name.replace('-', "_"))
        .collect();
    assert!(in_wit.len() > 70, "{}", in_wit.len());
    assert_eq!(in_wit, stubs::declared("Graph"));
}
