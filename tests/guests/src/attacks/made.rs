//! Packages that are made by hand to be refused.

use std::path::Path;

use host_plugins::{PluginError, PluginPackage};

use crate::core_guest::API_SECTION;
use crate::packages::{manifest, misbehave_policy_wasm, misbehave_wasm};

fn component(text: &str) -> Result<PluginPackage, PluginError> {
    wasm(component_bytes(text))
}

fn component_bytes(text: &str) -> Vec<u8> {
    wat::parse_str(format!("(component {API_SECTION} {text})")).expect("the suite's own text")
}

fn wasm(bytes: Vec<u8>) -> Result<PluginPackage, PluginError> {
    PluginPackage::from_parts(&manifest("guest", "wasm"), bytes, Path::new("guest"))
}

fn lua(bytes: Vec<u8>) -> Result<PluginPackage, PluginError> {
    PluginPackage::from_parts(&manifest("guest", "lua"), bytes, Path::new("guest"))
}

/// A component with `build`, whose form is another, and an import.
fn importing(import: &str) -> Result<PluginPackage, PluginError> {
    component(&format!(r#"(import {import}) {OTHER_BUILD}"#))
}

const OTHER_BUILD: &str = r#"(core module $m (func (export "f"))) (core instance $i (instantiate $m))
    (func $f (canon lift (core func $i "f"))) (export "build" (func $f))"#;

pub(super) fn imports_files() -> Result<PluginPackage, PluginError> {
    importing(r#""wasi:filesystem/preopens@0.2.0" (instance)"#)
}

pub(super) fn imports_environment() -> Result<PluginPackage, PluginError> {
    importing(r#""wasi:cli/environment@0.2.0" (instance)"#)
}

pub(super) fn imports_clock() -> Result<PluginPackage, PluginError> {
    importing(r#""wasi:clocks/monotonic-clock@0.2.0" (instance)"#)
}

pub(super) fn imports_random() -> Result<PluginPackage, PluginError> {
    importing(r#""wasi:random/random@0.2.0" (instance)"#)
}

pub(super) fn imports_another_interface() -> Result<PluginPackage, PluginError> {
    importing(r#""tenon:plugin/files@0.1.0" (instance (export "read" (func)))"#)
}

pub(super) fn imports_a_core_function() -> Result<PluginPackage, PluginError> {
    importing(r#""env" (func)"#)
}

pub(super) fn imports_a_function_we_lack() -> Result<PluginPackage, PluginError> {
    importing(r#""tenon:plugin/graph@0.1.0" (instance (export "steal" (func)))"#)
}

pub(super) fn no_export() -> Result<PluginPackage, PluginError> {
    component("")
}

pub(super) fn other_export() -> Result<PluginPackage, PluginError> {
    component(OTHER_BUILD)
}

fn other_export_bytes() -> Vec<u8> {
    component_bytes(OTHER_BUILD)
}

pub(super) fn cut_component() -> Result<PluginPackage, PluginError> {
    let whole = misbehave_wasm().entry().to_vec();
    wasm(whole[..whole.len() / 2].to_vec())
}

pub(super) fn core_module() -> Result<PluginPackage, PluginError> {
    wasm(wat::parse_str("(module)").expect("the suite's own text"))
}

pub(super) fn noise() -> Result<PluginPackage, PluginError> {
    wasm(vec![0xff; 1_000])
}

/// Components within components, beside what a component must have.
pub(super) fn nested() -> Result<PluginPackage, PluginError> {
    const PREAMBLE: &[u8] = b"\0asm\x0d\0\x01\0";
    const COMPONENT: u8 = 4;
    // From the inside to the outside, the last byte first.
    let mut nested: Vec<u8> = PREAMBLE.iter().rev().copied().collect();
    for _ in 0..20_000 {
        let size = leb(nested.len());
        nested.extend(size.iter().rev());
        nested.push(COMPONENT);
        nested.extend(PREAMBLE.iter().rev());
    }
    nested.reverse();
    wasm([other_export_bytes(), vec![COMPONENT], leb(nested.len()), nested].concat())
}

/// A number in groups of seven bits, lowest first.
fn leb(mut n: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while n > 0x7f {
        bytes.push((n & 0x7f) as u8 | 0x80);
        n >>= 7;
    }
    bytes.push(n as u8);
    bytes
}

/// Three megabytes of constants that are dropped.
pub(super) fn much_code() -> Result<PluginPackage, PluginError> {
    let [module_id, types_id, functions_id, code_id] = [1, 1, 3, 10];
    let section = |id: u8, body: Vec<u8>| [vec![id], leb(body.len()), body].concat();
    let vector = |n: usize, item: &[u8]| [leb(n), item.repeat(n)].concat();
    let body = [&[0][..], &b"\x41\x07\x1a".repeat(25_000), &[0x0b]].concat();
    let function = [leb(body.len()), body].concat();
    let (types, functions) =
        (section(types_id, vector(1, &[0x60, 0, 0])), section(functions_id, vector(40, &[0])));
    let code = section(code_id, vector(40, &function));
    let module = [b"\0asm\x01\0\0\0".to_vec(), types, functions, code].concat();
    wasm([other_export_bytes(), section(module_id, module)].concat())
}

pub(super) fn much_text() -> Result<PluginPackage, PluginError> {
    lua(vec![b' '; (1 << 20) + 1])
}

pub(super) fn version_9() -> Result<PluginPackage, PluginError> {
    let section = r#"(@custom "tenon:api" "\00\09\01\00\00\03model-graph")"#;
    wasm(wat::parse_str(format!("(component {section})")).expect("the suite's own text"))
}

pub(super) fn policy_as_graph() -> Result<PluginPackage, PluginError> {
    let policy = misbehave_policy_wasm();
    let sdk = format!("sdk = \"{}\"", policy.manifest().sdk);
    let manifest = manifest("guest", "wasm").replace("sdk = \"0.1\"", &sdk);
    PluginPackage::from_parts(&manifest, policy.entry().to_vec(), Path::new("guest"))
}

/// Compiled code is not text: its first byte is no beginning of a script.
pub(super) fn bytecode() -> Result<PluginPackage, PluginError> {
    lua(vec![6, 3, 0, 0])
}

pub(super) fn lua_noise() -> Result<PluginPackage, PluginError> {
    lua(vec![0xff; 1_000])
}

pub(super) fn nested_lua() -> Result<PluginPackage, PluginError> {
    lua(format!("x = {}1{}", "(".repeat(100_000), ")".repeat(100_000)).into_bytes())
}

pub(super) fn lua_version_9() -> Result<PluginPackage, PluginError> {
    let manifest = manifest("guest", "lua").replace("sdk = \"0.1\"", "sdk = \"9.9\"");
    PluginPackage::from_parts(&manifest, b"function build() end".to_vec(), Path::new("guest"))
}
