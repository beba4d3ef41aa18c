//! `cargo xtask plugins`: every first-party plugin, built and laid out as the program looks for it.
//!
//! ```text
//! target/plugins/ID/plugin.toml     the manifest, as it is
//! target/plugins/ID/plugin.wasm     the entry that the manifest names: a validated component, or Lua scripts
//! target/profiles/*.toml            the profiles
//! target/profiles/quant/*.toml      the quantisation rules
//! target/profiles/service/*.toml    the numbers of reloading
//! ```

use std::fs;
use std::path::{Path, PathBuf};

use host_build::TARGET;

use crate::workspace::{self, Failure, Outcome, Workspace, say};

/// Build every first-party plugin into target/plugins, and lay the profiles beside them.
///
/// A Rust plugin is compiled for wasm32-unknown-unknown with the profile `plugin` (small, one unit), made a
/// component and validated. A Lua plugin is copied. `target/release/tenon` finds both, and the profiles.
#[derive(clap::Args)]
pub(crate) struct Arguments {}

/// A folder of `plugins/` with what its manifest says.
struct Plugin {
    folder: PathBuf,
    id: String,
    entry: String,
    /// The name of its crate, for a plugin in Rust.
    package: Option<String>,
}

pub(crate) fn run(workspace: &Workspace, _arguments: &Arguments) -> Outcome {
    build(workspace)
}

/// Builds all plugins and copies the profiles.
pub(crate) fn build(workspace: &Workspace) -> Outcome {
    say("plugins: building every first-party plugin");
    let plugins = find(&workspace.root.join("plugins"))?;
    let packages: Vec<&str> = plugins.iter().filter_map(|plugin| plugin.package.as_deref()).collect();
    if !packages.is_empty() {
        need_target(workspace, TARGET)?;
        let mut command = workspace.cargo(["build", "--target", TARGET, "--profile", "plugin"]);
        command.args(packages.iter().flat_map(|package| ["--package", package]));
        workspace::run(&mut command)?;
    }
    let out = workspace.target.join("plugins");
    // Built anew, so that a plugin that is gone from the source is gone here.
    if out.exists() {
        fs::remove_dir_all(&out).map_err(|error| Failure::io("delete", &out, &error))?;
    }
    for plugin in &plugins {
        let bytes = lay_out(workspace, plugin, &out.join(&plugin.id))?;
        eprintln!(
            "   {:<24} {:>8.1} KiB  {}",
            plugin.id,
            bytes as f64 / 1024.0,
            out.join(&plugin.id).display()
        );
    }
    copy_profiles(workspace)
}

/// Installs the standard library of a target if it is missing, and says so.
pub(crate) fn need_target(workspace: &Workspace, target: &str) -> Outcome {
    if host_build::has_target(&workspace.root, target)? {
        return Ok(());
    }
    eprintln!("   the standard library for {target} is missing: rustup installs it once");
    Ok(host_build::add_target(&workspace.root, target)?)
}

fn find(folder: &Path) -> Outcome<Vec<Plugin>> {
    let mut plugins: Vec<Plugin> = Vec::new();
    for folder in workspace::entries(folder)?.into_iter().filter(|path| path.is_dir()) {
        let plugin = read_manifest(folder)?;
        if let Some(twin) = plugins.iter().find(|other| other.id == plugin.id) {
            let places = format!("{} and {}", twin.folder.display(), plugin.folder.display());
            return Err(Failure::new(format!("two plugins call themselves `{}`: {places}", plugin.id)));
        }
        plugins.push(plugin);
    }
    Ok(plugins)
}

fn read_manifest(folder: PathBuf) -> Outcome<Plugin> {
    let path = folder.join("plugin.toml");
    let manifest = workspace::read_toml(&path)?;
    let text = |key: &str| -> Outcome<String> {
        let value = manifest.get(key).and_then(toml::Value::as_str);
        let value = value.ok_or_else(|| Failure::new(format!("{} has no text `{key}`", path.display())))?;
        let is_one_name = !value.is_empty() && !value.contains(['/', '\\']) && value != "..";
        let wrong = || Failure::new(format!("{}: `{key}` is not one name: `{value}`", path.display()));
        is_one_name.then(|| value.to_owned()).ok_or_else(wrong)
    };
    let package = match text("runtime")?.as_str() {
        "wasm" => Some(package_name(&folder)?),
        "lua" => None,
        other => return Err(Failure::new(format!("{}: unknown runtime `{other}`", path.display()))),
    };
    let (id, entry) = (text("id")?, text("entry")?);
    Ok(Plugin { folder, id, entry, package })
}

fn package_name(folder: &Path) -> Outcome<String> {
    let path = folder.join("Cargo.toml");
    let manifest = workspace::read_toml(&path)?;
    let name = manifest.get("package").and_then(|package| package.get("name")).and_then(toml::Value::as_str);
    name.map(str::to_owned).ok_or_else(|| Failure::new(format!("{} names no package", path.display())))
}

/// Writes a plugin's files into `out`; gives the size of what runs, in bytes.
fn lay_out(workspace: &Workspace, plugin: &Plugin, out: &Path) -> Outcome<usize> {
    let manifest = workspace::read(&plugin.folder.join("plugin.toml"))?;
    workspace::write(&out.join("plugin.toml"), manifest.as_bytes())?;
    let Some(package) = &plugin.package else {
        return copy_scripts(plugin, out);
    };
    let module =
        workspace.target.join(TARGET).join("plugin").join(format!("{}.wasm", package.replace('-', "_")));
    let component = encode(&module)?;
    workspace::write(&out.join(&plugin.entry), &component)?;
    Ok(component.len())
}

/// Makes a component of a core module and validates it.
fn encode(module: &Path) -> Outcome<Vec<u8>> {
    let bytes = fs::read(module).map_err(|error| Failure::io("read", module, &error))?;
    host_build::encode(&bytes).map_err(|error| Failure::new(format!("{}: {error}", module.display())))
}

fn copy_scripts(plugin: &Plugin, out: &Path) -> Outcome<usize> {
    let is_script =
        |path: &PathBuf| path.extension().is_some_and(|extension| extension == "lua" || extension == "luau");
    let mut bytes = 0;
    for path in workspace::entries(&plugin.folder)?.into_iter().filter(is_script) {
        let script = workspace::read(&path)?;
        bytes += script.len();
        workspace::write(&out.join(path.file_name().unwrap_or_default()), script.as_bytes())?;
    }
    if !out.join(&plugin.entry).is_file() {
        return Err(Failure::new(format!("{} has no `{}`", plugin.folder.display(), plugin.entry)));
    }
    Ok(bytes)
}

fn copy_profiles(workspace: &Workspace) -> Outcome {
    let out = workspace.target.join("profiles");
    if out.exists() {
        fs::remove_dir_all(&out).map_err(|error| Failure::io("delete", &out, &error))?;
    }
    let is_toml = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "toml");
    let copy = |from: PathBuf, to: &Path| {
        let files: Vec<PathBuf> = workspace::entries(&from)?.into_iter().filter(is_toml).collect();
        for path in &files {
            workspace::write(
                &to.join(path.file_name().unwrap_or_default()),
                workspace::read(path)?.as_bytes(),
            )?;
        }
        Ok::<_, Failure>(files.len())
    };
    let profiles = copy(workspace.root.join("profiles"), &out)?;
    let rules = copy(workspace.root.join("profiles/quant"), &out.join("quant"))?;
    copy(workspace.root.join("profiles/pipelines"), &out.join("pipelines"))?;
    copy(workspace.root.join("profiles/service"), &out.join("service"))?;
    eprintln!("   {profiles} profiles and {rules} sets of quantisation rules in {}", out.display());
    Ok(())
}
