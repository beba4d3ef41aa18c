//! The native folder: MLX's library, the C interface compiled against it, the bindings, and Cargo's override.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::Kind;
use super::wheels::{self, MLX_VERSION};
use crate::workspace::{self, Failure, Outcome, Workspace, say};

/// The name under which the bindings crate declares its native library.
const LINKS: &str = "mlx";
const APPLE: &str = "aarch64-apple-darwin";

/// A finished native folder.
pub(crate) struct Native {
    folder: PathBuf,
    config: PathBuf,
}

impl Native {
    /// Makes it where it is not there yet; a folder that was interrupted is made again.
    pub(crate) fn make(workspace: &Workspace, kind: Kind) -> Outcome<Native> {
        if std::env::consts::OS != "linux" {
            return Err(Failure::new("this command is for Linux")
                .mend("on a Mac, `cargo build --release` has the MLX device already"));
        }
        let native = Native::at(workspace, kind);
        let stamp = native.folder.join("done");
        let wanted = stamp_text(workspace)?;
        if fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
            return Ok(native);
        }
        let _ = fs::remove_dir_all(&native.folder);
        let wheel = wheels::fetch(wheels::mlx(kind))?;
        say("unpacking MLX");
        wheels::unpack(
            &wheel,
            &["mlx/lib", "mlx/include", "mlx_cpu.libs", "mlx_cuda_13.libs"],
            &native.folder,
        )?;
        let source = mlx_c_source(workspace)?;
        native.compile(workspace, &source)?;
        native.write_bindings(workspace, &source)?;
        native.write_config()?;
        fs::write(&stamp, wanted).map_err(|error| Failure::io("write", &stamp, &error))?;
        Ok(native)
    }

    /// The folder of an earlier run, if it was finished.
    pub(crate) fn existing(workspace: &Workspace) -> Option<Native> {
        [Kind::Cpu, Kind::Cuda]
            .map(|kind| Native::at(workspace, kind))
            .into_iter()
            .find(|native| native.folder.join("done").is_file())
    }

    fn at(workspace: &Workspace, kind: Kind) -> Native {
        let folder = workspace.target.join("mlx").join(format!("{}-{MLX_VERSION}", kind.name()));
        let config = folder.join("cargo.toml");
        Native { folder, config }
    }

    /// Cargo with the override, and with the libraries where programs that it runs find them.
    pub(crate) fn cargo<S: AsRef<OsStr>>(
        &self,
        workspace: &Workspace,
        arguments: impl IntoIterator<Item = S>,
    ) -> Command {
        let mut command = workspace.cargo([OsStr::new("--config"), self.config.as_os_str()]);
        command.args(arguments);
        self.with_libraries(&mut command);
        command
    }

    /// A program that finds the libraries.
    pub(crate) fn with_libraries<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        let own = self.folder.join("mlx/lib");
        let paths = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        let all = std::iter::once(own).chain(std::env::split_paths(&paths));
        match std::env::join_paths(all) {
            Ok(all) => command.env("LD_LIBRARY_PATH", all),
            Err(_) => command,
        }
    }

    /// Refuses to start a program for which the system's linker would not find a library of MLX.
    ///
    /// MLX's CUDA build needs NVIDIA's driver and libraries; the program could say nothing of it, since it would not
    /// even start.
    pub(crate) fn check_libraries(&self) -> Outcome {
        let mut ldd = Command::new("ldd");
        let library = self.folder.join("mlx/lib/libmlx.so");
        let listed = workspace::captured(self.with_libraries(&mut ldd).arg(&library))?;
        let missing = not_found(&listed);
        if missing.is_empty() {
            return Ok(());
        }
        let failure = Failure::new(format!("libraries of MLX are not there: {}", missing.join(", ")));
        Err(failure.mend(mend_for(&missing)))
    }

    /// Compiles every file of the C interface into `lib/libmlxc.a`.
    fn compile(&self, workspace: &Workspace, source: &Path) -> Outcome {
        let ours = workspace.root.join("host/host-mlx/native");
        let folder = source.join("mlx/c");
        let entries = fs::read_dir(&folder).map_err(|error| Failure::io("list", &folder, &error))?;
        let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        files.retain(|path| path.extension().is_some_and(|extension| extension == "cpp"));
        files.push(ours.join("mach_time.cpp"));
        files.sort();
        say(format!("compiling MLX's C interface: {} files, about a minute on two cores", files.len()));
        let (objects, lib) = (self.folder.join("objects"), self.folder.join("lib"));
        for folder in [&objects, &lib] {
            fs::create_dir_all(folder).map_err(|error| Failure::io("create", folder, &error))?;
        }
        let (next, n_done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let work = || -> Outcome {
            while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                let object = objects.join(file.file_stem().unwrap_or_default()).with_extension("o");
                let mut compiler = Command::new(compiler());
                compiler.args(["-std=c++20", "-O2", "-fPIC", "-DNDEBUG", "-include"]);
                compiler.arg(ours.join("shim.hpp"));
                compiler.arg("-I").arg(source).arg("-I").arg(self.folder.join("mlx/include"));
                compiler.arg("-c").arg(file).arg("-o").arg(object);
                workspace::captured(&mut compiler)?;
                let n_done = n_done.fetch_add(1, Ordering::Relaxed) + 1;
                eprint!("\r   {n_done} of {}", files.len());
            }
            Ok(())
        };
        let n_threads = thread::available_parallelism().map_or(1, usize::from);
        let results = thread::scope(|scope| {
            let threads: Vec<_> = (0..n_threads).map(|_| scope.spawn(work)).collect();
            threads.into_iter().map(|thread| thread.join()).collect::<Vec<_>>()
        });
        eprintln!();
        for result in results {
            result.map_err(|_| Failure::new("a thread that compiles ended early"))??;
        }
        let archive = lib.join("libmlxc.a");
        let mut ar = Command::new("ar");
        ar.arg("rcs").arg(&archive);
        for file in &files {
            ar.arg(objects.join(file.file_stem().unwrap_or_default()).with_extension("o"));
        }
        workspace::run(&mut ar)?;
        fs::remove_dir_all(&objects).map_err(|error| Failure::io("remove", &objects, &error))
    }

    /// Has a build of this program with bindgen write the bindings; libclang comes from its wheel.
    fn write_bindings(&self, workspace: &Workspace, source: &Path) -> Outcome {
        let clang = self.folder.join("libclang");
        wheels::unpack(&wheels::fetch(&wheels::LIBCLANG)?, &["clang", "libclang-18.1.1.data"], &clang)?;
        let library = find_folder_of("libclang.so", &clang)
            .ok_or_else(|| Failure::new("the wheel of libclang holds no libclang.so"))?;
        let headers = compiler_headers()?;
        say("bindings");
        let mut cargo =
            workspace.cargo(["run", "--release", "--package", "xtask", "--features", "mlx-bindings"]);
        cargo.args(["--", "mlx", "--bindings"]).arg(source).arg(self.folder.join("bindings.rs"));
        cargo.env("LIBCLANG_PATH", library);
        cargo.env("BINDGEN_EXTRA_CLANG_ARGS", format!("-isystem {}", headers.display()));
        workspace::run(&mut cargo)?;
        fs::remove_dir_all(&clang).map_err(|error| Failure::io("remove", &clang, &error))
    }

    fn write_config(&self) -> Outcome {
        let text = config_text(&self.folder, std::env::consts::ARCH);
        fs::write(&self.config, text).map_err(|error| Failure::io("write", &self.config, &error))
    }
}

/// Type-checks the device for Apple's machines against the bindings that were made here.
pub(crate) fn apple_check(workspace: &Workspace) -> Outcome {
    let Some(native) = Native::existing(workspace) else {
        eprintln!("   left out: host-mlx, whose bindings are not here; `cargo xtask mlx` makes them");
        return Ok(());
    };
    let mut check =
        native.cargo(workspace, ["check", "--release", "--target", APPLE, "--package", "host-mlx"]);
    workspace::run(&mut check)
}

/// The libraries that `ldd` did not find.
fn not_found(listed: &str) -> Vec<&str> {
    let missing = listed.lines().filter(|line| line.trim_end().ends_with("=> not found"));
    missing.filter_map(|line| line.split_whitespace().next()).collect()
}

/// The packages of the Python index that hold NVIDIA's libraries, as the wheel of MLX names them.
const CUDA_PACKAGES: [(&str, &str); 5] = [
    ("libcudnn", "nvidia-cudnn-cu13==9.*"),
    ("libnccl", "nvidia-nccl-cu13"),
    ("libcublas", "nvidia-cublas==13.*"),
    ("libcufft", "nvidia-cufft==12.*"),
    ("libnvrtc", "nvidia-cuda-nvrtc==13.*"),
];

/// How missing libraries are got.
fn mend_for(missing: &[&str]) -> String {
    let mut mends = Vec::new();
    if missing.iter().any(|name| name.starts_with("libcuda.so")) {
        mends.push(
            "libcuda.so comes with NVIDIA's driver: CUDA works only on a machine that has one".to_owned(),
        );
    }
    let has = |library: &str| missing.iter().any(|name| name.starts_with(library));
    let packages = CUDA_PACKAGES.iter().filter(|(library, _)| has(library)).map(|(_, package)| *package);
    let packages: Vec<&str> = packages.collect();
    if !packages.is_empty() {
        let names = packages.join(" ");
        mends.push(format!(
            "`python3 -m pip install {names} nvidia-cuda-runtime==13.*`, then put the folders `nvidia/*/lib` of \
             that Python environment into LD_LIBRARY_PATH"
        ));
    }
    if mends.is_empty() {
        mends.push("install them with the system's packages".to_owned());
    }
    mends.join("; ")
}

/// The override for this machine, and for the type check of Apple's.
fn config_text(folder: &Path, arch: &str) -> String {
    let quoted = |path: PathBuf| format!("{:?}", path.display().to_string());
    let (lib, mlx) = (quoted(folder.join("lib")), quoted(folder.join("mlx/lib")));
    let (here, out) = (format!("{arch}-unknown-linux-gnu"), quoted(folder.to_owned()));
    format!(
        "# Written by `cargo xtask mlx`: in place of the build script of the MLX bindings.\n\
         [target.{here}.{LINKS}]\n\
         rustc-link-search = [{lib}, {mlx}]\n\
         rustc-link-lib = [\"static=mlxc\", \"dylib=mlx\", \"dylib=stdc++\"]\n\
         rustc-env = {{ OUT_DIR = {out} }}\n\
         \n\
         # For type checks only: nothing is linked.\n\
         [target.{APPLE}.{LINKS}]\n\
         rustc-env = {{ OUT_DIR = {out} }}\n"
    )
}

/// What the folder was made from; another version of anything makes it stale.
fn stamp_text(workspace: &Workspace) -> Outcome<String> {
    let mut text = format!("mlx {MLX_VERSION}\nfolder {}\n", workspace.target.display());
    for name in ["shim.hpp", "mach_time.cpp"] {
        let path = workspace.root.join("host/host-mlx/native").join(name);
        text += &fs::read_to_string(&path).map_err(|error| Failure::io("read", &path, &error))?;
    }
    Ok(text)
}

/// Where Cargo keeps the source of the C interface.
fn mlx_c_source(workspace: &Workspace) -> Outcome<PathBuf> {
    let arguments = ["metadata", "--format-version", "1", "--locked", "--features", "host-mlx/mlx"];
    let metadata = workspace::json(&workspace::captured(&mut workspace.cargo(arguments))?)?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let manifest = packages
        .filter(|package| package["name"] == "mlx-sys")
        .find_map(|package| package["manifest_path"].as_str().map(PathBuf::from));
    let folder = manifest.as_deref().and_then(Path::parent).map(|folder| folder.join("src/mlx-c"));
    folder
        .filter(|folder| folder.join("mlx/c").is_dir())
        .ok_or_else(|| Failure::new("the source of mlx-sys holds no src/mlx-c"))
}

fn compiler() -> std::ffi::OsString {
    std::env::var_os("CXX").unwrap_or_else(|| "c++".into())
}

/// The compiler's own headers, which libclang alone does not bring.
fn compiler_headers() -> Outcome<PathBuf> {
    let said = workspace::captured(Command::new(compiler()).arg("-print-file-name=include"))?;
    Ok(PathBuf::from(said.trim()))
}

fn find_folder_of(name: &str, folder: &Path) -> Option<PathBuf> {
    let entries: Vec<_> = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path()).collect();
    if entries.iter().any(|path| path.file_name().is_some_and(|found| found == name)) {
        return Some(folder.to_owned());
    }
    entries.iter().filter(|path| path.is_dir()).find_map(|path| find_folder_of(name, path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_missing_is_named_with_what_brings_it() {
        let listed = "\tlibcuda.so.1 => not found\n\tlibm.so.6 => /lib/libm.so.6 (0x1)\n\tlibcudnn.so.9 => not found\n";
        let missing = not_found(listed);
        assert_eq!(missing, ["libcuda.so.1", "libcudnn.so.9"]);
        let mend = mend_for(&missing);
        assert!(mend.contains("NVIDIA's driver") && mend.contains("nvidia-cudnn-cu13==9.*"), "{mend}");
        assert!(!mend.contains("nvidia-cublas"), "{mend}");
        assert_eq!(not_found("\tlibm.so.6 => /lib/libm.so.6 (0x1)\n"), Vec::<&str>::new());
    }

    #[test]
    fn the_override_names_absolute_folders_for_one_target_each() {
        let text = config_text(Path::new("/n"), "x86_64");
        let config: toml::Table = text.parse().unwrap();
        let here = &config["target"]["x86_64-unknown-linux-gnu"]["mlx"];
        assert_eq!(here["rustc-link-search"].as_array().unwrap()[0].as_str(), Some("/n/lib"));
        assert_eq!(here["rustc-env"]["OUT_DIR"].as_str(), Some("/n"));
        let apple = &config["target"][APPLE]["mlx"];
        assert_eq!(apple["rustc-env"]["OUT_DIR"].as_str(), Some("/n"));
        assert!(apple.get("rustc-link-lib").is_none());
    }
}
