//! The folders: a hundred profiles and twenty plugins, with one of each that changes.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use guests::forced_wasm;
use host_plugins::{LogSink, MonotonicClock};
use host_service::reload::{
    ColdStart, Event, GenerationStore, ReloadSettings, Scope, ServedModel, Service, ServiceOptions,
};
use host_service::{Failure, Folders, Machine, NoProgress};
use tempfile::TempDir;

use crate::places::{fixture, workspace};

/// The name of the model that is served.
pub const MODEL: &str = "tiny";
/// Profiles beside the served one, and plugins beside the forcing one.
const N_PROFILES: usize = 99;
const N_PLUGINS: usize = 19;

/// Folders of profiles and plugins, a cache, and nothing else.
pub struct Bed {
    dir: TempDir,
}

impl Bed {
    /// Everything sound, with the token 40 and the offset 0.
    pub fn new() -> Self {
        let bed = Bed { dir: tempfile::tempdir().expect("a temporary folder") };
        bed.write("profiles/served.toml", &profile("served", 40));
        bed.write("profiles/service/reload.toml", &shipped("profiles/service/reload.toml"));
        for n in 0..N_PROFILES {
            let (id, plugin) = (format!("other-{n:02}"), format!("\"other-{}\"", 10 + n % 9));
            let text = profile(&id, n % 100).replace("\"forced\"", &plugin);
            bed.write(&format!("profiles/{id}.toml"), &text);
        }
        bed.write("plugins/forced/plugin.toml", &manifest("forced"));
        bed.write("plugins/forced/forced.lua", &forced("sound", 0));
        let mut scripts: Vec<PathBuf> = folders(&workspace().join("plugins"));
        scripts.retain(|path| path.to_string_lossy().ends_with("-lua"));
        for from in &scripts {
            copy(from, &bed.path("plugins").join(from.file_name().expect("a name")));
        }
        for n in scripts.len()..N_PLUGINS {
            bed.write(&format!("plugins/other-{n:02}/plugin.toml"), &manifest(&format!("other-{n:02}")));
            bed.write(&format!("plugins/other-{n:02}/forced.lua"), &forced("sound", n));
        }
        assert_eq!(folders(&bed.path("plugins")).len(), N_PLUGINS + 1);
        bed
    }

    /// The same with the forcing plugin as a component too, for the served profile to name in its turn.
    pub fn with_component() -> Self {
        let bed = Bed::new();
        bed.write(&format!("{COMPONENT}/plugin.toml"), &component_manifest("1.0.0"));
        bed.write(&format!("{COMPONENT}/plugin.wasm"), &component("sound", 0));
        bed
    }

    /// A path inside.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a file where it stands, as a careless editor does.
    pub fn write(&self, name: &str, content: &(impl AsRef<[u8]> + ?Sized)) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, content).expect("a file");
    }

    /// Writes a file beside its place and renames it over, as a careful editor does.
    pub fn replace(&self, name: &str, content: &(impl AsRef<[u8]> + ?Sized)) {
        let path = self.path(name);
        let beside = path.with_file_name(".new");
        fs::write(&beside, content).expect("a file");
        fs::rename(beside, path).expect("a file");
    }

    /// The folders.
    pub fn folders(&self) -> Folders {
        Folders { plugins: vec![self.path("plugins")], profiles: vec![self.path("profiles")] }
    }

    /// The store of good generations.
    pub fn store(&self) -> GenerationStore {
        GenerationStore::of(&self.path("cache"), &self.folders())
    }

    /// A service of the tiny model.
    ///
    /// # Errors
    /// What is wrong with the folders.
    pub fn serve(
        &self,
        settings: ReloadSettings,
        cold_start: ColdStart,
        tell: impl Fn(&Event) + Send + Sync + 'static,
    ) -> Result<Arc<Service>, Failure> {
        let model = fixture("tiny-mlx-q8-g64").display().to_string();
        let served = ServedModel {
            name: MODEL.to_owned(),
            model: Some(model),
            profile: Some("served".to_owned()),
            ..Default::default()
        };
        let options = ServiceOptions {
            folders: self.folders(),
            served: vec![served],
            scope: Scope::Everything,
            settings,
            cold_start,
            store: self.store(),
        };
        let machine = Machine::new(LogSink::discard())?;
        Service::start(machine, options, Arc::new(MonotonicClock::start()), &mut NoProgress::default(), tell)
    }
}

impl Default for Bed {
    fn default() -> Self {
        Bed::new()
    }
}

/// The shipped numbers.
pub fn settings() -> ReloadSettings {
    let path = "profiles/service/reload.toml";
    ReloadSettings::parse(&shipped(path), Path::new(path)).expect("the shipped settings are sound")
}

fn shipped(path: &str) -> String {
    fs::read_to_string(workspace().join(path)).expect("it is shipped")
}

/// Llama's profile with the graph in Lua, on one thread, and a policy that forces `token` and the plugin's offset.
pub fn profile(id: &str, token: usize) -> String {
    let policy = format!(
        "[sampling]\npolicy = {{ plugin = \"forced\", version = \"^1.0\", params = {{ token = {token} }} }}\n"
    );
    let changes = [
        ("id = \"llama\"", format!("id = \"{id}\"")),
        ("plugin = \"llama\"", "plugin = \"llama-lua\"".to_owned()),
        ("[sampling]\n", policy),
        ("n_threads = \"all\"", "n_threads = 1".to_owned()),
        ("at_most = 8192", "at_most = 64".to_owned()),
        ("max_step_tokens = 512", "max_step_tokens = 64".to_owned()),
    ];
    changes.iter().fold(shipped("profiles/llama.toml"), |text, (from, to)| {
        assert!(text.contains(from), "the shipped profile has {from}");
        text.replacen(from, to, 1)
    })
}

fn manifest(id: &str) -> String {
    format!(
        "id = \"{id}\"\nversion = \"1.0.0\"\nkind = \"sampling-policy\"\nruntime = \"lua\"\nentry = \"forced.lua\"\n\
        sdk = \"0.2\"\n"
    )
}

/// A policy that forces the same token at each step, and what else it does there.
pub fn forced(deed: &str, offset: usize) -> String {
    let body = match deed {
        "sound" => "",
        "slow" => "while true do end",
        "traps" => "error('I am not well')",
        "traps late" => "if self.n > 3 then error('I am not well') end",
        other => unreachable!("no policy does `{other}`"),
    };
    format!(
        "-- deed: {deed}\nlocal OFFSET = {offset}\nlocal Forced = {{}}\nForced.__index = Forced\n\
        function open(params, vocabulary)\n    return setmetatable({{ token = params:usize(\"token\"), n = 0 }}, Forced)\nend\n\
        function Forced:step(step)\n    self.n += 1\n    {body}\n    step:force({{ self.token + OFFSET }})\nend\n"
    )
}

/// The folder of the forcing plugin as a component.
pub(super) const COMPONENT: &str = "plugins/forced-wasm";

/// What stands in the component in front of its deed, and in front of its offset.
const DEED: &str = "deed: ";
const OFFSET: &str = "offset: ";
/// Bytes of both together.
const WRITTEN: usize = 32;

/// The profile whose policy is the component.
pub(super) fn profile_of_component(id: &str, token: usize) -> String {
    let text = profile(id, token);
    assert_eq!(text.matches("plugin = \"forced\"").count(), 1);
    text.replace("plugin = \"forced\"", "plugin = \"forced-wasm\"")
}

/// The component's manifest.
pub(super) fn component_manifest(version: &str) -> String {
    format!(
        "id = \"forced-wasm\"\nversion = \"{version}\"\nkind = \"sampling-policy\"\nruntime = \"wasm\"\n\
         entry = \"plugin.wasm\"\nsdk = \"0.2\"\n"
    )
}

/// The component that forces the same token at each step, as [`forced`] does.
pub(super) fn component(deed: &str, offset: usize) -> Vec<u8> {
    static BUILT: OnceLock<Vec<u8>> = OnceLock::new();
    let mut bytes = BUILT.get_or_init(|| forced_wasm().entry().to_vec()).clone();
    let written = format!("{:<18}{:<14}", format!("{DEED}{deed}"), format!("{OFFSET}{offset:03}"));
    assert_eq!(written.len(), WRITTEN);
    let at = written_at(&bytes).expect("the component has its bytes to write over");
    bytes[at..at + WRITTEN].copy_from_slice(written.as_bytes());
    bytes
}

/// What a component was written over with: its deed and its offset.
pub(super) fn read_component(bytes: &[u8]) -> Option<(String, u32)> {
    let at = written_at(bytes)?;
    let text = std::str::from_utf8(bytes.get(at..at + WRITTEN)?).ok()?;
    let (deed, offset) = text.strip_prefix(DEED)?.split_once(OFFSET)?;
    Some((deed.trim().to_owned(), offset.trim().parse().ok()?))
}

/// Where the deed stands, followed by the offset as no other text of the component is.
fn written_at(bytes: &[u8]) -> Option<usize> {
    let is_here =
        |window: &[u8]| window.starts_with(DEED.as_bytes()) && window[18..].starts_with(OFFSET.as_bytes());
    bytes.windows(WRITTEN).position(is_here)
}

fn folders(of: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(of).expect("a folder").map(|entry| entry.expect("an entry").path());
    let mut folders: Vec<PathBuf> = entries.filter(|path| path.is_dir()).collect();
    folders.sort();
    folders
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry");
        fs::copy(entry.path(), to.join(entry.file_name())).expect("a file");
    }
}
