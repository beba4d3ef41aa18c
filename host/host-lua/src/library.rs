//! The parts of Luau's library that would escape a script's time, or tell one run from another: replaced, before the
//! script runs.
//!
//! The interrupt ends loops in Lua and in patterns. A search for a plain text, a sort without an order, a move of
//! many elements are loops in C that never look at it; some texts of a megabyte keep such a search busy for minutes.

use std::sync::LazyLock;

use memchr::memmem;
use mlua::chunk::{ChunkMode, Compiler};
use mlua::{Lua, LuaString, Result, Table};

/// The name of the chunk in messages.
pub(crate) const CHUNK: &str = "library";

static BOUNDED: LazyLock<Vec<u8>> = LazyLock::new(|| {
    Compiler::new()
        .compile(include_str!("library.luau"))
        .expect("it is part of this program and its tests load it")
});

/// Replaces them in a state whose libraries can still be written.
pub(crate) fn bound(lua: &Lua) -> Result<()> {
    let find = lua.create_function(|_, (text, pattern, first): (LuaString, LuaString, usize)| {
        let text = text.as_bytes();
        let from = first.checked_sub(1).and_then(|start| text.get(start..).map(|rest| (start, rest)));
        let found =
            from.and_then(|(start, rest)| memmem::find(rest, &pattern.as_bytes()).map(|at| start + at + 1));
        Ok(found)
    })?;
    let split = lua.create_function(|lua, (text, separator): (LuaString, LuaString)| {
        split(lua, &text.as_bytes(), &separator.as_bytes())
    })?;
    let chunk = lua.load(BOUNDED.as_slice()).set_mode(ChunkMode::Binary).set_name(format!("={CHUNK}"));
    chunk.call((find, split))
}

fn split(lua: &Lua, text: &[u8], separator: &[u8]) -> Result<Table> {
    let parts = lua.create_table()?;
    let mut start = 0;
    for at in memmem::find_iter(text, separator) {
        parts.raw_push(lua.create_string(&text[start..at])?)?;
        start = at + separator.len();
    }
    parts.raw_push(lua.create_string(&text[start..])?)?;
    Ok(parts)
}
