//! Hostile plugins: how each attacks, in both runtimes, and how it must end.
//!
//! An attack that makes sense in one runtime alone stands beside its nearest counterpart in the other. Most are deeds
//! of the guests `misbehave` and `misbehave-policy`, twins in Rust and in Lua; what no compiler would make is written
//! by hand.

mod arena;
mod made;
mod table;

use host_plugins::{PluginError, PluginPackage};

pub use arena::{Arena, CALLS, LIST_ENTRIES, LOG_BYTES, MEMORY_BYTES, STEP_MS, TIME_MS};
pub use table::attacks;

/// One attack, a form for each runtime.
pub struct Attack {
    /// What it does.
    pub name: &'static str,
    /// As a component.
    pub wasm: Form,
    /// As a script.
    pub lua: Form,
}

/// An attack on one runtime.
pub struct Form {
    /// Who attacks.
    pub guest: Guest,
    /// How it must end.
    pub end: End,
}

/// A plugin, and how it is used.
#[derive(Clone, Copy)]
pub enum Guest {
    /// `misbehave-policy` opened with this deed, then forked, stepped, taken back and dropped.
    Policy(&'static str),
    /// `misbehave-policy` whose `describe` does this.
    Describe(&'static str),
    /// `misbehave` building a graph with this deed.
    Graph(&'static str),
    /// A component by hand: the imports and the text of its core module, which exports `build`.
    Build(&'static str, &'static str),
    /// The same with an allocator of its own in the text.
    BuildAlone(&'static str, &'static str),
    /// A component by hand whose core module exports `plan`.
    Plan(&'static str),
    /// A script of this kind.
    Script(&'static str, &'static str),
    /// A model graph that must not even open.
    Package(fn() -> Result<PluginPackage, PluginError>),
}

/// How an attack ends.
#[derive(Clone, Copy)]
pub enum End {
    /// With this code; the report names the plugin and says each of these.
    Refused(&'static str, &'static [&'static str]),
    /// It achieves nothing.
    Harmless,
}

/// The same guest in both runtimes with the same end.
fn twins(name: &'static str, guest: Guest, code: &'static str, says: &'static [&'static str]) -> Attack {
    Attack { name, wasm: refused(guest, code, says), lua: refused(guest, code, says) }
}

fn pair(name: &'static str, wasm: Form, lua: Form) -> Attack {
    Attack { name, wasm, lua }
}

fn refused(guest: Guest, code: &'static str, says: &'static [&'static str]) -> Form {
    Form { guest, end: End::Refused(code, says) }
}

fn harmless(guest: Guest) -> Form {
    Form { guest, end: End::Harmless }
}
