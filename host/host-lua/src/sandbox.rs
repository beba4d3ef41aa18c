//! The state in which a script runs.

use std::sync::LazyLock;

use mlua::chunk::{ChunkMode, Compiler};
use mlua::{Lua, LuaOptions, Result, StdLib, Variadic};

use crate::deadline::Deadline;
use crate::library;

/// Globals that load code, reach around the sandbox, steer the collector or tell one run from another.
pub(crate) const REMOVED: [&str; 12] = [
    "collectgarbage",
    "dofile",
    "gcinfo",
    "getfenv",
    "load",
    "loadfile",
    "loadstring",
    "newproxy",
    "require",
    "setfenv",
    "debug",
    "os",
];

/// Members of `math` that give another number in each run.
pub(crate) const REMOVED_MATH: [&str; 2] = ["random", "randomseed"];

/// What published configs tell in many ways, read once for all scripts.
static PRELUDE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let source = include_str!("../../../plugin-sdk/lua/prelude.luau");
    Compiler::new().compile(source).expect("the prelude is part of this program and its tests load it")
});

/// What is loaded before a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prelude {
    /// Nothing.
    None,
    /// The readers of published configs.
    ModelGraph,
}

/// A fresh state with nothing but the plain libraries, frozen. `log` hears what the script prints.
pub(crate) fn fresh_state(
    memory_bytes: usize,
    deadline: Deadline,
    prelude: Prelude,
    log: impl Fn(&Lua, &str) -> Result<()> + Send + 'static,
) -> Result<Lua> {
    let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH | StdLib::UTF8 | StdLib::BUFFER;
    let lua = Lua::new_with(libraries, LuaOptions::new())?;
    lua.set_memory_limit(memory_bytes)?;
    let globals = lua.globals();
    for name in REMOVED {
        globals.raw_remove(name)?;
    }
    let math: mlua::Table = globals.get("math")?;
    for name in REMOVED_MATH {
        math.raw_remove(name)?;
    }
    let print = lua.create_function(move |lua, values: Variadic<mlua::Value>| {
        let words: Vec<_> = values.iter().map(mlua::Value::to_string).collect::<Result<_>>()?;
        log(lua, &words.join("\t"))
    })?;
    globals.set("print", print)?;
    library::bound(&lua)?;
    if prelude == Prelude::ModelGraph {
        lua.load(PRELUDE.as_slice()).set_mode(ChunkMode::Binary).set_name("=prelude").exec()?;
    }
    lua.sandbox(true)?;
    // Host functions that read long lists look at it too.
    lua.set_app_data(deadline.clone());
    deadline.interrupt(&lua)?;
    Ok(lua)
}
