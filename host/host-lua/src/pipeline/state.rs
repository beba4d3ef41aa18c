//! The state in which a pipeline runs: plain libraries, the prelude, nothing else.

use std::sync::LazyLock;

use mlua::chunk::{ChunkMode, Compiler};
use mlua::{Function, Lua, LuaOptions, Result, StdLib, Table, VmState};

use super::calls;
use super::fault::Over;
use super::shared::Shared;
use crate::library;
use crate::sandbox::{REMOVED, REMOVED_MATH};

static PRELUDE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let source = include_str!("../../../../plugin-sdk/lua/pipeline_prelude.luau");
    Compiler::new().compile(source).expect("the prelude is part of this program and its tests load it")
});

/// A fresh state and what the scheduler needs of it.
pub(super) struct State {
    pub(super) lua: Lua,
    /// Makes the thread of a task.
    pub(super) task_thread: Function,
    /// What the first task runs, with the main chunk and the arguments.
    pub(super) run_main: Function,
    /// The metatable of arrays.
    pub(super) array: Table,
}

/// Builds the state and seals it.
pub(super) fn fresh(shared: &Shared) -> Result<State> {
    let libraries = StdLib::TABLE
        | StdLib::STRING
        | StdLib::MATH
        | StdLib::UTF8
        | StdLib::BUFFER
        | StdLib::BIT
        | StdLib::COROUTINE;
    let lua = Lua::new_with(libraries, LuaOptions::new())?;
    lua.set_memory_limit(shared.budget.lua_memory_bytes)?;
    let globals = lua.globals();
    for name in REMOVED {
        globals.raw_remove(name)?;
    }
    let math: Table = globals.get("math")?;
    for name in REMOVED_MATH {
        math.raw_remove(name)?;
    }
    library::bound(&lua)?;
    let array = lua.create_table()?;
    let host = calls::table(&lua, shared, &array)?;
    let prelude = lua.load(PRELUDE.as_slice()).set_mode(ChunkMode::Binary).set_name("=prelude");
    let (task_thread, run_main) = prelude.call(host)?;
    for name in ["json", "coroutine"] {
        globals.get::<Table>(name)?.set_readonly(true);
    }
    array.set_readonly(true);
    lua.sandbox(true)?;
    let of_interrupt = shared.clone();
    lua.set_interrupt(
        move |_| {
            if of_interrupt.is_over() { Err(Over.into_lua()) } else { Ok(VmState::Continue) }
        },
    );
    Ok(State { lua, task_thread, run_main, array })
}
