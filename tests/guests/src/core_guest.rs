//! Guests written by hand, instruction by instruction: what no compiler would make.

use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

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
