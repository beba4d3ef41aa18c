//! What a component says of itself, read from its bytes before anything is compiled.

use host_plugins::{ContractVersion, PluginError, PluginName};
use wasmparser::{ComponentExternalKind, ComponentTypeRef, Encoding, Parser, Payload, Validator};

/// The section that the SDK writes: major, minor and patch as big-endian u16, then the world's name.
const SECTION: &str = "tenon:api";
/// Interfaces of our package, any version: a wrong version is refused as such, by the section.
const PACKAGE: &str = "tenon:plugin/";

/// A world of the contract, and the export that a component of it must have.
#[derive(Clone, Copy)]
pub(crate) struct World {
    pub(crate) name: &'static str,
    pub(crate) export: Export,
}

/// What a component gives to the host.
#[derive(Clone, Copy)]
pub(crate) enum Export {
    /// A function.
    Function(&'static str),
    /// An interface of our package.
    Interface(&'static str),
}

/// Builds the graph of a model.
pub(crate) const MODEL_GRAPH: World = World { name: "model-graph", export: Export::Function("build") };
/// Takes part in the choice of each token.
pub(crate) const SAMPLING_POLICY: World =
    World { name: "sampling-policy", export: Export::Interface("policy") };
/// Chooses how each tensor is stored.
pub(crate) const QUANT_PROFILE: World = World { name: "quant-profile", export: Export::Function("plan") };

/// What stands in a component's bytes.
#[derive(Default)]
struct Component {
    sections: Vec<Vec<u8>>,
    imports: Vec<String>,
    functions: Vec<String>,
    interfaces: Vec<String>,
}

impl Component {
    /// The name of the export, if it is missing.
    fn missing(&self, export: Export) -> Option<&'static str> {
        let (name, is_there) = match export {
            Export::Function(name) => (name, self.functions.iter().any(|found| found == name)),
            Export::Interface(name) => {
                let is_it = |found: &String| {
                    let own = found.strip_prefix(PACKAGE);
                    own.and_then(|own| own.split('@').next()) == Some(name)
                };
                (name, self.interfaces.iter().any(is_it))
            }
        };
        (!is_there).then_some(name)
    }
}

/// Validates the whole binary, before any part of it is trusted. What lies compiled in the cache went through here when
/// it was compiled.
pub(crate) fn validate(bytes: &[u8], plugin: &PluginName) -> Result<(), PluginError> {
    let validated = Validator::new().validate_all(bytes);
    validated.map(drop).map_err(|error| invalid(plugin, error.to_string()))
}

fn invalid(plugin: &PluginName, message: String) -> PluginError {
    PluginError::Binary { plugin: plugin.clone(), message }
}

/// Checks that a valid component was made for a served contract, imports only that contract and has the hook. Gives
/// that contract's version.
pub(crate) fn check(
    bytes: &[u8],
    plugin: &PluginName,
    manifest: ContractVersion,
    world: World,
) -> Result<ContractVersion, PluginError> {
    let component = read(bytes).map_err(|message| invalid(plugin, message))?;
    let version = version_of(&component.sections, manifest, world.name, plugin)?;
    if let Some(import) = component.imports.iter().find(|name| !name.starts_with(PACKAGE)) {
        return Err(PluginError::ForeignImport { plugin: plugin.clone(), import: import.clone() });
    }
    match component.missing(world.export) {
        Some(export) => Err(PluginError::MissingExport { plugin: plugin.clone(), export }),
        None => Ok(version),
    }
}

fn read(bytes: &[u8]) -> Result<Component, String> {
    let mut component = Component::default();
    // Nested modules and components come between their begin and their `End`.
    let mut depth = 0;
    for payload in Parser::new(0).parse_all(bytes) {
        match payload.map_err(|error| error.to_string())? {
            Payload::Version { encoding, .. } => {
                depth += 1;
                if depth == 1 && encoding == Encoding::Module {
                    return Err("it is a core module, not a component".to_owned());
                }
            }
            Payload::End(_) => depth -= 1,
            Payload::CustomSection(section) if section.name() == SECTION => {
                component.sections.push(section.data().to_vec());
            }
            Payload::ComponentImportSection(imports) if depth == 1 => {
                for import in imports {
                    let import = import.map_err(|error| error.to_string())?;
                    // A name for a type gives the guest nothing to call; the world's `use` makes such an import.
                    if !matches!(import.ty, ComponentTypeRef::Type(_)) {
                        component.imports.push(import.name.name.to_owned());
                    }
                }
            }
            Payload::ComponentExportSection(exports) if depth == 1 => {
                for export in exports {
                    let export = export.map_err(|error| error.to_string())?;
                    let name = export.name.name.to_owned();
                    match export.kind {
                        ComponentExternalKind::Func => component.functions.push(name),
                        ComponentExternalKind::Instance => component.interfaces.push(name),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    Ok(component)
}

/// The contract that a component's section names, if it is served and is the manifest's.
fn version_of(
    sections: &[Vec<u8>],
    manifest: ContractVersion,
    expected: &str,
    plugin: &PluginName,
) -> Result<ContractVersion, PluginError> {
    let none = |found| PluginError::NoContract { plugin: plugin.to_string(), found };
    let section = match sections {
        [] => return Err(none(format!("no `{SECTION}` section"))),
        [section] => section,
        more => return Err(none(format!("{} `{SECTION}` sections", more.len()))),
    };
    let [m0, m1, n0, n1, p0, p1, world @ ..] = section.as_slice() else {
        return Err(none(format!("a `{SECTION}` section of {} bytes", section.len())));
    };
    let [major, minor, patch] = [[*m0, *m1], [*n0, *n1], [*p0, *p1]].map(u16::from_be_bytes);
    let found = ContractVersion { major, minor };
    let world: String = String::from_utf8_lossy(world).chars().take(64).collect();
    if !found.is_served() {
        let found = format!("{world} {found}.{patch}");
        return Err(PluginError::Contract { plugin: plugin.to_string(), found });
    }
    if found != manifest {
        return Err(none(format!("contract {found} in its component and {manifest} in plugin.toml")));
    }
    if world != expected {
        return Err(none(format!("world `{world}`, not `{expected}`")));
    }
    Ok(found)
}
