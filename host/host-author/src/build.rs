//! `plugin build`: the component of a crate, beside its manifest; of a script, the proof that it parses.

use std::path::PathBuf;

use host_build::TARGET;
use host_plugins::{Budget, Kind, PluginPackage, Runtime};

use crate::error::AuthorError;
use crate::project::Project;
use crate::tools::Tools;
use crate::{files, sdk};

/// What a build made.
#[derive(Debug)]
pub struct Built {
    /// The file that is run.
    pub entry: PathBuf,
    /// Its size.
    pub bytes: usize,
}

impl Project {
    /// Builds the plugin; `say` hears what takes long or changes the machine.
    ///
    /// A crate is compiled by cargo for [`TARGET`], whose standard library is added where it is missing, and becomes
    /// a component in the file that the manifest names. A script is parsed.
    ///
    /// # Errors
    /// [`AuthorError::Build`], [`AuthorError::Plugin`] for a script that does not parse, [`AuthorError::File`].
    pub fn build(&self, tools: &Tools, say: &mut dyn FnMut(&str)) -> Result<Built, AuthorError> {
        if self.manifest().runtime == Runtime::Lua {
            return self.parse_script(tools);
        }
        if !self.is_crate() {
            // Made by other means, such as another language's compiler; `check` judges it.
            let package = PluginPackage::read(self.folder())?;
            return Ok(Built { entry: self.entry(), bytes: package.entry().len() });
        }
        let manifest = self.cargo_manifest()?;
        let sdk_folder = self.folder().join(sdk::FOLDER);
        if names_sdk_folder(&manifest) && !sdk_folder.exists() {
            say(&format!("unpacking the SDK of this program into {}", sdk_folder.display()));
            sdk::write(&sdk_folder)?;
        }
        if !host_build::has_target(self.folder(), TARGET)? {
            say(&format!("the standard library for {TARGET} is missing: rustup adds it once"));
            host_build::add_target(self.folder(), TARGET)?;
        }
        say("compiling with cargo");
        let has_own = manifest.get("profile").is_some_and(|profiles| profiles.get("plugin").is_some());
        let profile = if has_own { "plugin" } else { "release" };
        let module = host_build::compile(self.folder(), &["--profile", profile])?;
        let component = host_build::encode(&module)?;
        files::write(&self.entry(), &component)?;
        Ok(Built { entry: self.entry(), bytes: component.len() })
    }

    fn parse_script(&self, tools: &Tools) -> Result<Built, AuthorError> {
        let package = PluginPackage::read(self.folder())?;
        let budget = Budget::default();
        match self.manifest().kind {
            Kind::ModelGraph => drop(tools.graph(&package, budget)?),
            Kind::SamplingPolicy => drop(tools.policy(&package, budget)?),
            Kind::QuantProfile => drop(tools.quant(&package, budget)?),
            Kind::Pipeline => {}
        }
        Ok(Built { entry: self.entry(), bytes: package.entry().len() })
    }

    /// `Cargo.toml`; an empty one where it does not parse, which cargo tells better.
    fn cargo_manifest(&self) -> Result<toml::Table, AuthorError> {
        Ok(files::read(&self.folder().join("Cargo.toml"))?.parse().unwrap_or_default())
    }
}

/// Whether a crate takes the SDK from its own folder.
fn names_sdk_folder(manifest: &toml::Table) -> bool {
    let sdk = manifest.get("dependencies").and_then(|dependencies| dependencies.get(sdk::CRATE));
    sdk.and_then(|sdk| sdk.get("path")).and_then(toml::Value::as_str) == Some(sdk::FOLDER)
}
