//! Guests written by hand, instruction by instruction: what no compiler would make.

use wit_component::{ComponentEncoder, StringEncoding, dummy_module, embed_component_metadata};
use wit_parser::{LiftLowerAbi, ManglingAndAbi, Resolve};

use crate::packages::workspace;

/// The section that says: contract 0.1.0, world `model-graph`.
pub const API_SECTION: &str = r#"(@custom "tenon:api" "\00\00\00\01\00\00model-graph")"#;

/// Always the same address; what the host writes there overwrites what it wrote before.
const ALLOCATOR: &str =
    r#"(func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (i32.const 32768))"#;

/// A component around one core module in text form.
///
/// The module has a page of memory, an allocator that always gives address 32768, and the contract's section.
/// `imports` are those of the module, `text` the rest, which must export `build`.
pub fn core_guest(imports: &str, text: &str) -> Vec<u8> {
    world_guest("model-graph", imports, &format!("{ALLOCATOR} {text}"))
}

/// The same for any world; `text` brings the allocator and the world's exports.
pub fn world_guest(world: &str, imports: &str, text: &str) -> Vec<u8> {
    let api_section = API_SECTION.replace("model-graph", world);
    let memory = r#"(memory (export "memory") 1)"#;
    let module = format!("(module {imports} {memory} {text} {api_section})");
    let mut module = wat::parse_str(&module).unwrap_or_else(|error| panic!("{error}\n{module}"));
    let mut resolve = Resolve::default();
    let (package, _) =
        resolve.push_dir(workspace().join("plugin-sdk/wit/0.1")).expect("the contract is well formed");
    let world = resolve.select_world(&[package], Some(world)).expect("the contract has this world");
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).expect("the world is whole");
    // The host has to judge the module, so the encoder does not.
    let encoder = ComponentEncoder::default().module(&module);
    encoder.and_then(|mut encoder| encoder.encode()).expect("the module has what the world asks for")
}

/// A component that imports every function of its world and traps in every call: the contract's text, made a guest.
///
/// `version` is that of the contract, such as `0.1`.
pub fn whole_guest(version: &str, world: &str) -> Vec<u8> {
    let mut resolve = Resolve::default();
    let folder = workspace().join("plugin-sdk/wit").join(version);
    let (package, _) = resolve.push_dir(folder).expect("the contract is well formed");
    let id = resolve.select_world(&[package], Some(world)).expect("the contract has this world");
    let mut module = dummy_module(&resolve, id, ManglingAndAbi::Legacy(LiftLowerAbi::Sync));
    embed_component_metadata(&mut module, &resolve, id, StringEncoding::UTF8).expect("the world is whole");
    let encoder = ComponentEncoder::default().validate(true).module(&module);
    let component =
        encoder.and_then(|mut encoder| encoder.encode()).expect("the module has what the world asks for");
    let numbers = version.split('.').chain(["0"]).map(|part| part.parse::<u16>().expect("a number"));
    let section: Vec<u8> = numbers.flat_map(u16::to_be_bytes).chain(world.bytes()).collect();
    [component, custom_section("tenon:api", &section)].concat()
}

/// A custom section as it stands in a binary; both parts are short.
fn custom_section(name: &str, data: &[u8]) -> Vec<u8> {
    let short = |n: usize| u8::try_from(n).ok().filter(|n| *n < 128).expect("it is short");
    let head = [0, short(1 + name.len() + data.len()), short(name.len())];
    [&head[..], name.as_bytes(), data].concat()
}
