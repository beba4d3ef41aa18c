//! `cargo xtask c-policy`: the example policy in C, compiled and made a component.
//!
//! ```text
//! target/c-policy/no-repeat-c/plugin.toml     the manifest, as it is
//! target/c-policy/no-repeat-c/plugin.wasm     the component
//! ```
//!
//! The compiler is the clang of one pinned wheel, so that a fresh machine makes the same bytes as any other.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use host_build::encode_for;
use host_core::Reported;

use crate::mlx::wheels::{self, Package};
use crate::workspace::{self, Failure, Outcome, Workspace, say};

/// Zig carries clang and wasm-ld for every target in one file.
const ZIG: Package = Package {
    requirement: "ziglang==0.13.0",
    sha256: &[
        ("x86_64", "3ce0c9f16547e5d61b32e0d226926e9a2552ef4b91fccf7ab5ea1a623a77824b"),
        ("aarch64", "5714a4d46f9246ba6180a0930e23df2bc8bc26e62b5fe0dc798b4afca1903308"),
    ],
};

const SOURCES: [&str; 3] = ["memory", "params", "no_repeat"];

/// Compile the example policy in C (examples/c-policy) into target/c-policy.
///
/// Fetches clang once, as a wheel of 81 MB, into the cache. Nothing else needs a C compiler for WebAssembly.
#[derive(clap::Args)]
pub(crate) struct Arguments {}

pub(crate) fn run(workspace: &Workspace, _arguments: &Arguments) -> Outcome {
    let folder = build(workspace)?;
    eprintln!("   {}", folder.display());
    Ok(())
}

/// Builds it and gives the folder of the plugin.
pub(crate) fn build(workspace: &Workspace) -> Outcome<PathBuf> {
    let source = workspace.root.join("examples/c-policy");
    let out = workspace.target.join("c-policy");
    let compiler = Compiler::unpacked(workspace)?;
    say("c-policy: the example policy in C");
    let objects = out.join("objects");
    fs::create_dir_all(&objects).map_err(|error| Failure::io("create", &objects, &error))?;
    let module = compiler.module(&source, &objects)?;
    let contract = workspace.root.join("plugin-sdk/wit/0.2");
    let component = encode_for(&contract, "sampling-policy", &module)
        .map_err(|error| Failure::new(format!("the policy in C: {}", error.report())))?;
    let plugin = out.join("no-repeat-c");
    let manifest = workspace::read(&source.join("plugin.toml"))?;
    workspace::write(&plugin.join("plugin.toml"), manifest.as_bytes())?;
    workspace::write(&plugin.join("plugin.wasm"), &component)?;
    Ok(plugin)
}

/// The compiler, unpacked in the target folder.
struct Compiler {
    program: PathBuf,
    headers: PathBuf,
}

impl Compiler {
    fn unpacked(workspace: &Workspace) -> Outcome<Self> {
        let folder = workspace.target.join("zig-0.13.0");
        let (program, headers) = (folder.join("ziglang/zig"), folder.join("ziglang/lib/include"));
        if !program.is_file() {
            // Unpacked beside its place, then renamed: there is a whole one or none.
            let partial = folder.with_extension("partial");
            let _ = fs::remove_dir_all(&partial);
            wheels::unpack(&wheels::fetch(&ZIG)?, &["ziglang/zig", "ziglang/lib/include"], &partial)?;
            make_executable(&partial.join("ziglang/zig"))?;
            let _ = fs::remove_dir_all(&folder);
            fs::rename(&partial, &folder).map_err(|error| Failure::io("rename to", &folder, &error))?;
        }
        Ok(Compiler { program, headers })
    }

    /// Compiles and links the sources to a core module.
    fn module(&self, source: &Path, out: &Path) -> Outcome<Vec<u8>> {
        let module = out.join("module.wasm");
        let object = |name: &str| out.join(name).with_extension("o");
        for name in SOURCES {
            let mut clang = Command::new(&self.program);
            clang.args(["clang", "--target=wasm32-unknown-unknown", "-std=c11", "-Oz"]);
            clang.args(["-ffreestanding", "-mbulk-memory", "-Wall", "-Wextra", "-Werror", "-isystem"]);
            clang.arg(&self.headers).arg("-c").arg(source.join(name).with_extension("c"));
            workspace::run(clang.arg("-o").arg(object(name)))?;
        }
        let mut linker = Command::new(&self.program);
        linker.args(["wasm-ld", "--no-entry", "--strip-all", "-o"]).arg(&module).args(SOURCES.map(object));
        workspace::run(&mut linker)?;
        fs::read(&module).map_err(|error| Failure::io("read", &module, &error))
    }
}

#[cfg(unix)]
fn make_executable(path: &Path) -> Outcome {
    use std::os::unix::fs::PermissionsExt;
    let permissions = fs::Permissions::from_mode(0o755);
    fs::set_permissions(path, permissions).map_err(|error| Failure::io("make executable", path, &error))
}

#[cfg(not(unix))]
fn make_executable(_: &Path) -> Outcome {
    Ok(())
}
