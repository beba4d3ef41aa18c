//! The graph builder as a script sees it.
//!
//! One method an operation, under the operation's name; arguments as told in [`host_graph::Op`], optional
//! ones in a table at the end. Axes count from 0 over all dimensions, B and T included.

use std::sync::{Arc, Mutex};

use host_graph::{BuildError, SlotId, Value};
use host_plugins::GraphSession;
use mlua::{Lua, Result, UserData, UserDataMethods};

use crate::args::{Argument, Call};
use crate::class::Registry;
use crate::fault::{Raised, calling_place};
use crate::luau::spelled;

mod methods;
mod options;
mod rope;

pub(crate) use methods::declare;
pub(crate) use options::{AttentionOptions, Experts, Facts, MASK, SectionWord};

/// The session, until the host takes it back.
pub(crate) type SharedSession = Arc<Mutex<Option<GraphSession>>>;

/// `g` in `build(config, g)`.
#[derive(Clone)]
pub(crate) struct Builder(pub(crate) SharedSession);

/// A graph value in Lua.
pub(crate) struct GraphValue(pub(crate) Value);

/// A state slot in Lua.
pub(crate) struct GraphSlot(pub(crate) SlotId);

spelled! {
    GraphValue => "GraphValue";
    GraphSlot => "Slot";
}

impl UserData for GraphValue {}
impl UserData for GraphSlot {}

impl mlua::FromLua for GraphValue {
    fn from_lua(value: mlua::Value, lua: &Lua) -> Result<Self> {
        Value::take(Call { lua, function: "build" }, "the logits", value).map(GraphValue)
    }
}

/// Writes a log line, or ends the run when the budget for log text is spent.
pub(crate) fn log(lua: &Lua, session: &SharedSession, line: &str) -> Result<()> {
    let is_within = with(lua, session, |session| Ok(session.log(line)))?;
    if is_within { Ok(()) } else { Err(Raised::Log.into_lua()) }
}

/// Runs one builder call; a refusal is raised at the calling line.
fn with<T>(
    lua: &Lua,
    session: &SharedSession,
    call: impl FnOnce(&mut GraphSession) -> std::result::Result<T, BuildError>,
) -> Result<T> {
    let mut guard = session.lock().map_err(|_| mlua::Error::runtime("the builder failed before"))?;
    let session = guard.as_mut().ok_or_else(|| mlua::Error::runtime("the graph is finished"))?;
    call(session).map_err(|error| Raised::Build(error, calling_place(lua)).into_lua())
}

impl UserData for Builder {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        declare(&mut Registry(methods));
    }
}
