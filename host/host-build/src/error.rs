//! Why a plugin was not built.

use std::io;
use std::path::PathBuf;

use host_core::{Report, Reported};

use crate::target::TARGET;

/// Why a plugin was not built.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each field is told by its name and by the variant's message")]
pub enum BuildError {
    /// A program that is not there, or cannot be started.
    #[error("`{program}` cannot be started")]
    NotStarted { program: String, source: io::Error },
    /// A question to the compiler that it did not answer.
    #[error("`{command}` failed")]
    Tool { command: String, said: String },
    /// The target's standard library is missing and could not be added.
    #[error("the standard library for {target} is missing, and rustup could not add it")]
    Target { target: String, said: String },
    /// The crate does not compile; cargo has told why.
    #[error("the crate in {} does not compile", .folder.display())]
    Compile { folder: PathBuf },
    /// A crate that gives no module.
    #[error("the crate in {} makes no WebAssembly module", .folder.display())]
    NoModule { folder: PathBuf },
    /// A module that makes no component.
    #[error("the module makes no component: {message}")]
    NoComponent { message: String },
    /// A file that cannot be read.
    #[error("cannot read {}", .path.display())]
    Read { path: PathBuf, source: io::Error },
}

impl Reported for BuildError {
    fn report(&self) -> Report {
        let text = self.to_string();
        match self {
            BuildError::NotStarted { program, source } => Report::new("build.not-started", text)
                .expected(format!("`{program}` on the PATH"))
                .found(source.to_string())
                .mend("install Rust through https://rustup.rs, and open a new terminal"),
            BuildError::Tool { said, .. } => Report::new("build.tool", text).found(said),
            BuildError::Target { target, said } => Report::new("build.target", text)
                .expected(format!("rustup, and the network once: `rustup target add {target}`"))
                .found(said)
                .mend(format!(
                    "install Rust through https://rustup.rs, or your distribution's package of the Rust standard \
                     library for {target}"
                )),
            BuildError::Compile { .. } => Report::new("build.compile", text)
                .expected(format!("a crate that compiles for {TARGET}"))
                .found("the errors of cargo above")
                .mend("mend them and build again"),
            BuildError::NoModule { .. } => Report::new("build.no-module", text)
                .expected("`crate-type = [\"cdylib\", \"rlib\"]` under [lib] in Cargo.toml")
                .found("no .wasm among what cargo made"),
            BuildError::NoComponent { .. } => Report::new("build.no-component", text)
                .expected("one register macro of the SDK in the crate's root, and imports of tenon:plugin alone")
                .mend("leave out crates that bring their own WebAssembly imports, such as wasm-bindgen"),
            BuildError::Read { source, .. } => Report::new("build.read", text).found(source.to_string()),
        }
    }
}
