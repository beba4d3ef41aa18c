//! `cargo xtask mlx`: the native parts of the MLX device on Linux, and the program or its tests with them.
//!
//! The build script of the bindings knows Apple's machines only. Here the library comes from the wheel of the
//! same version, the published C interface is compiled against it, and Cargo is told to use both in place of
//! that build script. Nothing else of the workspace needs any of this.

#[cfg(feature = "mlx-bindings")]
mod bindings;
mod native;
pub(crate) mod wheels;

use std::path::PathBuf;
use std::process::Command;

use crate::tests_run;
use crate::workspace::{self, Outcome, Workspace, say};

use native::Native;
pub(crate) use native::apple_check;

/// The MLX device on Linux: make its native parts, then build, run or test with them.
///
/// Without a flag the native parts are made and `tenon` is built with feature `mlx`.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// Take MLX's CUDA build instead of its CPU build
    #[arg(long)]
    cuda: bool,
    /// Run `tenon` with all that follows, e.g. `--run -- doctor`
    #[arg(long)]
    run: bool,
    /// Run the device's tests
    #[arg(long, conflicts_with = "run")]
    test: bool,
    /// Write the bindings of the C interface: used by this command itself
    #[arg(long, hide = true, num_args = 2, value_names = ["SOURCE", "OUT"])]
    bindings: Option<Vec<PathBuf>>,
    /// What `tenon` gets, or the test's filter
    #[arg(last = true)]
    rest: Vec<String>,
}

/// Which of MLX's builds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Cpu,
    Cuda,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Cpu => "cpu",
            Kind::Cuda => "cuda",
        }
    }
}

pub(crate) fn run(workspace: &Workspace, arguments: &Arguments) -> Outcome {
    if let Some(paths) = &arguments.bindings {
        return write_bindings(&paths[0], &paths[1]);
    }
    let kind = if arguments.cuda { Kind::Cuda } else { Kind::Cpu };
    let native = Native::make(workspace, kind)?;
    if arguments.test {
        native.check_libraries()?;
        return test(workspace, &native, &arguments.rest);
    }
    say(format!("tenon with MLX's {} build", kind.name()));
    let build = ["build", "--release", "--workspace", "--bins", "--features", "host-cli/mlx"];
    workspace::run(&mut native.cargo(workspace, build))?;
    if arguments.run {
        native.check_libraries()?;
        let mut tenon = Command::new(workspace.tenon());
        return workspace::run(native.with_libraries(&mut tenon).args(&arguments.rest));
    }
    eprintln!("   {}", workspace.tenon().display());
    eprintln!(
        "   run it by `cargo xtask mlx {}--run -- ARGUMENTS`",
        if arguments.cuda { "--cuda " } else { "" }
    );
    if let Err(failure) = native.check_libraries() {
        eprintln!("   it is built, and does not start here yet\n{failure}");
    }
    Ok(())
}

fn test(workspace: &Workspace, native: &Native, rest: &[String]) -> Outcome {
    say("tests of the MLX device");
    let test = ["test", "--release", "--package", "host-mlx", "--features", "mlx", "--"];
    workspace::run(native.cargo(workspace, test).args(rest))?;
    say("whole models on the MLX device");
    let test = ["test", "--release", "--workspace", "--features", "tests/mlx", "--test", "mlx_device", "--"];
    let models = tests_run::models(workspace);
    let mut command = native.cargo(workspace, test);
    command.args(["--show-output"]).args(rest);
    if let Some(models) = models {
        command.env("TENON_TEST_MODELS", models);
    }
    workspace::run(&mut command)
}

#[cfg(feature = "mlx-bindings")]
fn write_bindings(source: &std::path::Path, out: &std::path::Path) -> Outcome {
    bindings::write(source, out)
}

#[cfg(not(feature = "mlx-bindings"))]
fn write_bindings(_source: &std::path::Path, _out: &std::path::Path) -> Outcome {
    Err(workspace::Failure::new("this build of xtask cannot write bindings").mend("run `cargo xtask mlx`"))
}
