//! `tenon doctor`: what this machine and this build can do, and what is missing.

use std::path::Path;
use std::process::Command;

use host_core::Reported as _;
use host_device::Device;
use host_plugins::PluginFolder;
use host_service::{Host, n_threads};
use serde::Serialize;
use serde_json::json;

use super::models::bytes;
use super::{print, print_json};
use crate::args::{DoctorArgs, FolderArgs};
use crate::draw::{Style, drawn};
use crate::error::Failure;
use crate::exit::Exit;
use crate::open::load_host;

/// What was found.
#[derive(Debug, Serialize)]
struct Findings {
    version: &'static str,
    target: String,
    threads: usize,
    devices: Vec<DeviceLine>,
    /// Devices that other builds have, and why this one has not.
    absent_devices: Vec<(&'static str, &'static str)>,
    plugin_folders: Vec<String>,
    plugins: Vec<PluginLine>,
    profile_folders: Vec<String>,
    profiles: Vec<ProfileLine>,
    cache: String,
    free_bytes: Option<u64>,
    n_models: Option<usize>,
    python: ToolLine,
    pip: ToolLine,
}

#[derive(Debug, Serialize)]
struct DeviceLine {
    id: &'static str,
    capabilities: Vec<(&'static str, String)>,
}

impl DeviceLine {
    fn of(device: &dyn Device) -> Self {
        let capabilities = device.capabilities().into_iter().map(|found| (found.name, found.value));
        DeviceLine { id: device.id(), capabilities: capabilities.collect() }
    }
}

fn absent_devices() -> Vec<(&'static str, &'static str)> {
    host_mlx::absence().map(|why| (host_mlx::DEVICE_ID, why)).into_iter().collect()
}

#[derive(Debug, Serialize)]
struct PluginLine {
    id: String,
    version: String,
    kind: &'static str,
    runtime: &'static str,
    digest: String,
    folder: String,
}

#[derive(Debug, Serialize)]
struct ProfileLine {
    id: String,
    about: String,
    file: String,
}

/// A program that `pip:` sources need.
#[derive(Debug, Serialize)]
struct ToolLine {
    command: String,
    version: Option<String>,
}

pub(crate) fn run(folders: &FolderArgs, args: &DoctorArgs) -> Result<Exit, Failure> {
    if args.metal {
        return prove_kernels();
    }
    let host = load_host(folders)?;
    let findings = findings(&host);
    if args.json {
        let problems: Vec<_> = host.plugins().problems().iter().map(|problem| problem.report()).collect();
        let mut object = json!(findings);
        object["problems"] = json!(problems);
        print_json(&object)?;
    } else {
        print(&text(&findings, host.plugins()))?;
    }
    Ok(if host.plugins().problems().is_empty() { Exit::Done } else { Exit::Failed })
}

/// Runs every kernel's cases on the GPU and prints a report to paste into an issue.
#[cfg(any(feature = "mlx", all(target_os = "macos", target_arch = "aarch64")))]
fn prove_kernels() -> Result<Exit, Failure> {
    let device = host_mlx::MlxDevice::new();
    let mut lines = vec![format!(
        "tenon {} on {} {}: kernels on {}",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::ARCH,
        std::env::consts::OS,
        device.backend()
    )];
    lines.extend(device.capabilities().iter().map(|found| format!("  {:<9} {}", found.name, found.value)));
    let proofs = device.prove_kernels();
    for proof in &proofs {
        let (verdict, allowed) = (if proof.holds() { "ok    " } else { "FAILED" }, proof.tolerance);
        let found = match &proof.difference {
            Ok(difference) => format!("{difference:.1e} of {allowed:.1e}"),
            Err(said) => said.clone(),
        };
        let micros = proof.micros.map_or(String::new(), |micros| format!("{micros:.1} us"));
        lines.push(format!("{verdict} {:<17} {:<36} {found:<22} {micros:>10}", proof.kernel, proof.case));
    }
    let n_good = proofs.iter().filter(|proof| proof.holds()).count();
    lines.push(if proofs.is_empty() {
        "nothing was run: MLX has no GPU here".to_owned()
    } else {
        format!("{n_good} of {} cases agree", proofs.len())
    });
    print(&(lines.join("\n") + "\n"))?;
    Ok(if !proofs.is_empty() && n_good == proofs.len() { Exit::Done } else { Exit::Failed })
}

#[cfg(not(any(feature = "mlx", all(target_os = "macos", target_arch = "aarch64"))))]
fn prove_kernels() -> Result<Exit, Failure> {
    let why = host_mlx::absence().unwrap_or("it has none");
    print(&format!("nothing was run: this build has no MLX device; {why}\n"))?;
    Ok(Exit::Failed)
}

fn findings(host: &Host) -> Findings {
    let python = host.machine().settings().python.clone();
    let paths = |dirs: &[std::path::PathBuf]| dirs.iter().map(|dir| dir.display().to_string()).collect();
    Findings {
        version: env!("CARGO_PKG_VERSION"),
        target: format!("{} {}", std::env::consts::ARCH, std::env::consts::OS),
        threads: n_threads(),
        devices: host.machine().devices().map(DeviceLine::of).collect(),
        absent_devices: absent_devices(),
        plugin_folders: paths(&host.folders().plugins),
        plugins: plugins(host.plugins()),
        profile_folders: paths(&host.folders().profiles),
        profiles: profiles(host),
        cache: host.machine().settings().cache.display().to_string(),
        free_bytes: free_bytes(&host.machine().settings().cache),
        n_models: host.machine().store().list().ok().map(|listing| listing.models.len()),
        pip: tool(&python, &["-m", "pip", "--version"]),
        python: tool(&python, &["--version"]),
    }
}

fn plugins(folder: &PluginFolder) -> Vec<PluginLine> {
    let line = |package: &host_plugins::PluginPackage| {
        let manifest = package.manifest();
        PluginLine {
            id: manifest.id.clone(),
            version: manifest.version.to_string(),
            kind: manifest.kind.name(),
            runtime: manifest.runtime.name(),
            digest: package.digest().as_hex().to_owned(),
            folder: package.folder().display().to_string(),
        }
    };
    folder.packages().map(line).collect()
}

fn profiles(host: &Host) -> Vec<ProfileLine> {
    let line = |loaded: &std::sync::Arc<host_registry::LoadedProfile>| ProfileLine {
        id: loaded.id().to_owned(),
        about: loaded.profile().about.clone(),
        file: loaded.source().file().to_owned(),
    };
    host.profiles().iter().map(line).collect()
}

/// Runs a program for its version.
fn tool(program: &str, arguments: &[&str]) -> ToolLine {
    let command = std::iter::once(program).chain(arguments.iter().copied()).collect::<Vec<_>>().join(" ");
    let output = Command::new(program).args(arguments).output().ok().filter(|output| output.status.success());
    let version = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    ToolLine { command, version }
}

/// Free space where the cache is, or will be.
#[cfg(unix)]
fn free_bytes(cache: &Path) -> Option<u64> {
    let folder = cache.ancestors().find(|folder| folder.is_dir())?;
    let found = rustix::fs::statvfs(folder).ok()?;
    Some(found.f_bavail * found.f_frsize)
}

#[cfg(not(unix))]
fn free_bytes(_cache: &Path) -> Option<u64> {
    None
}

fn text(found: &Findings, folder: &PluginFolder) -> String {
    let style = Style::for_stdout();
    let mut lines = vec![
        format!("{:<10} {} on {}", style.bold("tenon     "), found.version, found.target),
        format!("threads    {}", found.threads),
    ];
    for device in &found.devices {
        lines.push(format!("device     {}", device.id));
        lines.extend(device.capabilities.iter().map(|(name, value)| format!("           {name:<9} {value}")));
    }
    lines.extend(found.absent_devices.iter().map(|(id, why)| format!("no device  {id}: {why}")));
    lines.extend(found.plugin_folders.iter().map(|dir| format!("plugins    {dir}")));
    for plugin in &found.plugins {
        let PluginLine { id, version, runtime, digest, .. } = plugin;
        lines.push(format!("           {id} {version} ({runtime}) {}", &digest[..16]));
    }
    lines.extend(found.profile_folders.iter().map(|dir| format!("profiles   {dir}")));
    lines.extend(
        found.profiles.iter().map(|profile| format!("           {:<16} {}", profile.id, profile.about)),
    );
    let free = found.free_bytes.map_or(String::new(), |free| format!(", {} free", bytes(free)));
    let models = found.n_models.map_or(String::new(), |n| format!(", {n} models"));
    lines.push(format!("cache      {}{free}{models}", found.cache));
    for (name, tool, use_) in [("python", &found.python, "pip: sources"), ("pip", &found.pip, "pip: sources")]
    {
        let state =
            tool.version.clone().unwrap_or(format!("`{}` does not run; {use_} need it", tool.command));
        lines.push(format!("{name:<10} {state}"));
    }
    let problems = folder.problems().iter().map(|problem| drawn(&problem.report(), style));
    lines.join("\n") + "\n" + &problems.collect::<String>()
}
