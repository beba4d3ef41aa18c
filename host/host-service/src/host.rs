//! What a program can compose from: the plugins, profiles and rules of its folders, and the registry over them.

use std::path::PathBuf;
use std::sync::Arc;

use host_device::Device;
use host_plugins::{
    Budget, GraphPlugin, LogSink, PluginFolder, PluginPackage, QuantPlugin, QuarantineRules, SamplingPolicy,
};
use host_registry::{
    Composition, FrozenSet, LoopFacts, Parts, PluginFacts, ProfileSet, QuantFacts, QuantSet, Registry,
    System, cache_kinds, sampler_kinds,
};

use crate::failure::Failure;
use crate::machine::Machine;

/// The checkpoint formats that `host-weights` reads.
const LOADERS: [&str; 2] = ["safetensors", "gguf"];
/// What can become of weights.
const QUANTS: [&str; 1] = ["as-published"];

/// Where plugins and profiles lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folders {
    /// Each holds a folder a plugin.
    pub plugins: Vec<PathBuf>,
    /// Each holds profiles, and may hold quantisation rules in `quant` and frozen graphs in `graphs`.
    pub profiles: Vec<PathBuf>,
}

/// Everything that does not depend on a model.
pub struct Host {
    machine: Arc<Machine>,
    folders: Folders,
    plugins: PluginFolder,
    profiles: ProfileSet,
    quants: QuantSet,
    registry: Registry,
}

impl Host {
    /// Reads the manifests of all plugins and all profiles.
    ///
    /// # Errors
    /// Folders that cannot be read, every fault of every profile, two plugins that cannot be told apart. A broken
    /// plugin or frozen graph alone is no error: it is reported when a profile names it.
    pub fn load(folders: Folders, log: LogSink) -> Result<Self, Failure> {
        let plugins = PluginFolder::scan(&folders.plugins)?;
        let profiles = load_profiles(&folders.profiles)?;
        let quants = QuantSet::load(&folders.profiles).map_err(|errors| Failure::several(&errors))?;
        let graphs = FrozenSet::load(&folders.profiles)?;
        Host::of(Machine::new(log)?, folders, plugins, profiles, quants, &graphs)
    }

    /// A host of parts that were read already.
    ///
    /// # Errors
    /// Two plugins that cannot be told apart.
    pub(crate) fn of(
        machine: Arc<Machine>,
        folders: Folders,
        plugins: PluginFolder,
        profiles: ProfileSet,
        quants: QuantSet,
        graphs: &FrozenSet,
    ) -> Result<Self, Failure> {
        let registry = registry(&plugins, &quants, graphs, &machine)?;
        Ok(Host { machine, folders, plugins, profiles, quants, registry })
    }

    /// What the process has whatever the folders say.
    pub fn machine(&self) -> &Arc<Machine> {
        &self.machine
    }

    /// Where everything was read from.
    pub fn folders(&self) -> &Folders {
        &self.folders
    }

    /// All plugins.
    pub fn plugins(&self) -> &PluginFolder {
        &self.plugins
    }

    /// All profiles.
    pub fn profiles(&self) -> &ProfileSet {
        &self.profiles
    }

    /// All quantisation rules.
    pub fn quants(&self) -> &QuantSet {
        &self.quants
    }

    /// Everything that a profile can name.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// The device of a composition.
    pub fn device(&self, composition: &Composition) -> &dyn Device {
        self.machine.device(composition)
    }

    /// A graph plugin of the registry, ready to build within `budget`; kept out as `rules` say.
    ///
    /// # Errors
    /// A plugin whose code cannot be loaded.
    pub fn graph_plugin(
        &self,
        plugin: &PluginFacts,
        budget: Budget,
        rules: Option<QuarantineRules>,
    ) -> Result<Box<dyn GraphPlugin>, Failure> {
        let package = self.package(plugin);
        let plugin = Box::new(self.machine.graph_code(package, budget)?);
        Ok(match rules {
            Some(rules) => self.machine.ledger(package).graph(rules, plugin),
            None => plugin,
        })
    }

    /// A sampling policy of the registry, ready for requests within `budget`; kept out as `rules` say.
    ///
    /// # Errors
    /// A plugin whose code cannot be loaded.
    pub fn sampling_policy(
        &self,
        plugin: &PluginFacts,
        budget: Budget,
        rules: Option<QuarantineRules>,
    ) -> Result<Box<dyn SamplingPolicy>, Failure> {
        let package = self.package(plugin);
        let plugin = Box::new(self.machine.policy_code(package, budget)?);
        Ok(match rules {
            Some(rules) => self.machine.ledger(package).policy(rules, plugin),
            None => plugin,
        })
    }

    /// A quantisation profile of the registry, ready to plan within `budget`; kept out as `rules` say.
    ///
    /// # Errors
    /// A plugin whose code cannot be loaded.
    pub fn quant_plugin(
        &self,
        plugin: &PluginFacts,
        budget: Budget,
        rules: Option<QuarantineRules>,
    ) -> Result<Box<dyn QuantPlugin>, Failure> {
        let package = self.package(plugin);
        let plugin = Box::new(self.machine.quant_code(package, budget)?);
        Ok(match rules {
            Some(rules) => self.machine.ledger(package).quant(rules, plugin),
            None => plugin,
        })
    }

    /// The package of a plugin of the registry.
    pub(crate) fn package(&self, wanted: &PluginFacts) -> &PluginPackage {
        let package = self.plugins.packages().find(|package| PluginFacts::from(*package) == *wanted);
        package.expect("the registry knows no other plugins than these")
    }
}

/// All profiles of these folders.
///
/// # Errors
/// A folder that cannot be read, and every fault of every profile.
pub fn load_profiles(folders: &[PathBuf]) -> Result<ProfileSet, Failure> {
    ProfileSet::load(folders).map_err(|errors| Failure::several(&errors))
}

fn registry(
    plugins: &PluginFolder,
    quants: &QuantSet,
    graphs: &FrozenSet,
    machine: &Machine,
) -> Result<Registry, Failure> {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    Ok(Registry::new(Parts {
        system: System::default(),
        plugins: plugins.packages().map(PluginFacts::from).collect(),
        graphs: graphs.files().to_vec(),
        devices: machine.device_facts(),
        loaders: names(&LOADERS),
        quants: names(&QUANTS),
        schemes: quants.iter().map(|rules| QuantFacts::from(&**rules)).collect(),
        loops: vec![LoopFacts::autoregressive()],
        caches: cache_kinds(),
        samplers: sampler_kinds(),
        ..Parts::default()
    })?)
}
