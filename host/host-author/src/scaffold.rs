//! `plugin new`: a folder that builds and passes its checks as it is.

use std::path::{Path, PathBuf};

use host_plugins::{ContractVersion, Kind, Manifest, Runtime};

use crate::error::AuthorError;
use crate::{files, sdk};

/// The language of a new plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// Rust, compiled to a WebAssembly component.
    Rust,
    /// Luau.
    Lua,
}

impl Language {
    /// What runs it.
    pub fn runtime(self) -> Runtime {
        match self {
            Language::Rust => Runtime::Wasm,
            Language::Lua => Runtime::Lua,
        }
    }
}

/// What a new plugin is.
#[derive(Clone, Copy, Debug)]
pub struct NewPlugin<'a> {
    /// Its id, and the name of its folder.
    pub name: &'a str,
    /// What it is for. A pipeline is no plugin with a folder, and is refused.
    pub kind: Kind,
    /// The language.
    pub language: Language,
}

/// The files of one template: where they go, and their text with `{{name}}`, `{{contract}}` and `{{toolchain}}`.
type Files = &'static [(&'static str, &'static str)];

/// Files of a template by their places below `templates/`.
macro_rules! template {
    ($($to:literal from $from:literal),+ $(,)?) => {
        &[$(($to, include_str!(concat!("../templates/", $from)))),+]
    };
}

const RUST: Files = template![
    "Cargo.toml" from "rust/Cargo.toml.txt",
    "rust-toolchain.toml" from "rust/rust-toolchain.toml.txt",
    ".gitignore" from "rust/gitignore.txt",
];
const LUA: Files = template![
    ".luaurc" from "lua/luaurc.json",
    ".vscode/settings.json" from "lua/vscode-settings.json",
    "tenon.d.luau" from "../../../plugin-sdk/lua/tenon.d.luau",
];
const SAMPLING_RUST: Files = template![
    "plugin.toml" from "sampling-policy/rust.plugin.toml",
    "src/lib.rs" from "sampling-policy/lib.rs",
    "tests/cases.toml" from "sampling-policy/cases.toml",
];
const SAMPLING_LUA: Files = template![
    "plugin.toml" from "sampling-policy/lua.plugin.toml",
    "{{name}}.lua" from "sampling-policy/script.lua",
    "tests/cases.toml" from "sampling-policy/cases.toml",
];

const GRAPH_RUST: Files = template![
    "plugin.toml" from "model-graph/rust.plugin.toml",
    "src/lib.rs" from "model-graph/lib.rs",
    "tests/cases.toml" from "model-graph/cases.toml",
];
const GRAPH_LUA: Files = template![
    "plugin.toml" from "model-graph/lua.plugin.toml",
    "{{name}}.lua" from "model-graph/script.lua",
    "tests/cases.toml" from "model-graph/cases.toml",
];
const QUANT_RUST: Files = template![
    "plugin.toml" from "quant-profile/rust.plugin.toml",
    "src/lib.rs" from "quant-profile/lib.rs",
    "tests/cases.toml" from "quant-profile/cases.toml",
];
const QUANT_LUA: Files = template![
    "plugin.toml" from "quant-profile/lua.plugin.toml",
    "{{name}}.lua" from "quant-profile/script.lua",
    "tests/cases.toml" from "quant-profile/cases.toml",
];

/// Writes a new plugin's folder as `parent/NAME` and gives its path.
///
/// # Errors
/// [`AuthorError::Name`], [`AuthorError::FolderTaken`], [`AuthorError::File`].
pub fn create(parent: &Path, plugin: NewPlugin<'_>) -> Result<PathBuf, AuthorError> {
    check_name(plugin)?;
    let folder = parent.join(plugin.name);
    if folder.symlink_metadata().is_ok() {
        return Err(AuthorError::FolderTaken { path: folder });
    }
    let contract = ContractVersion::newest().to_string();
    let toolchain = sdk::toolchain();
    let filled = |text: &str| {
        let text = text.replace("{{name}}", plugin.name);
        text.replace("{{contract}}", &contract).replace("{{toolchain}}", &toolchain)
    };
    for (path, text) in files_of(plugin) {
        files::write(&folder.join(filled(path)), filled(text))?;
    }
    if plugin.language == Language::Rust {
        sdk::write(&folder.join(sdk::FOLDER))?;
        files::write(&folder.join("Cargo.lock"), sdk::lock(plugin.name))?;
    }
    Ok(folder)
}

fn files_of(plugin: NewPlugin<'_>) -> impl Iterator<Item = &'static (&'static str, &'static str)> {
    let (common, own) = match (plugin.language, plugin.kind) {
        (Language::Rust, Kind::SamplingPolicy) => (RUST, SAMPLING_RUST),
        (Language::Lua, Kind::SamplingPolicy) => (LUA, SAMPLING_LUA),
        (Language::Rust, Kind::ModelGraph) => (RUST, GRAPH_RUST),
        (Language::Lua, Kind::ModelGraph) => (LUA, GRAPH_LUA),
        (Language::Rust, Kind::QuantProfile) => (RUST, QUANT_RUST),
        (Language::Lua, Kind::QuantProfile) => (LUA, QUANT_LUA),
        // A pipeline is a script alone, without a manifest.
        (_, Kind::Pipeline) => (&[][..], &[][..]),
    };
    common.iter().chain(own)
}

fn check_name(plugin: NewPlugin<'_>) -> Result<(), AuthorError> {
    let refuse = |expected| Err(AuthorError::Name { name: plugin.name.to_owned(), expected });
    if !Manifest::is_id(plugin.name) {
        return refuse("up to 64 lower-case letters, digits and hyphens, beginning with a letter");
    }
    if plugin.kind == Kind::Pipeline {
        return refuse("the name of a plugin; a pipeline is a script alone");
    }
    if plugin.language == Language::Rust && is_taken_in_rust(plugin.name) {
        return refuse("a name that is neither a word of Rust nor a crate that every plugin has");
    }
    Ok(())
}

/// Whether no crate can be called so.
fn is_taken_in_rust(name: &str) -> bool {
    const TAKEN: [&str; 54] = [
        "abstract",
        "alloc",
        "as",
        "async",
        "await",
        "become",
        "box",
        "break",
        "const",
        "continue",
        "core",
        "crate",
        "do",
        "dyn",
        "else",
        "enum",
        "extern",
        "false",
        "final",
        "fn",
        "for",
        "gen",
        "if",
        "impl",
        "in",
        "let",
        "loop",
        "macro",
        "match",
        "mod",
        "move",
        "mut",
        "override",
        "priv",
        "proc-macro",
        "pub",
        "ref",
        "return",
        "self",
        "static",
        "std",
        "struct",
        "super",
        "test",
        "trait",
        "true",
        "try",
        "type",
        "typeof",
        "unsafe",
        "use",
        "virtual",
        "where",
        "while",
    ];
    TAKEN.contains(&name) || name == "yield" || name == sdk::CRATE
}
