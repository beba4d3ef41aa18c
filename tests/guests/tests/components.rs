//! Components that are not what they should be: refused before compiling, or stopped while running.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs;
use std::path::Path;

use guests::{API_SECTION as API, core_guest, manifest, wasm_package};
use host_core::{Report, Reported};
use host_graph::{Catalogue, TensorFacts};
use host_plugins::{Budget, GraphPlugin, LogSink, PluginError, PluginPackage};
use host_wasm::{WasmPlugin, WasmRuntime};

fn package(bytes: Vec<u8>) -> PluginPackage {
    PluginPackage::from_parts(&manifest("guest", "wasm"), bytes, Path::new("guest")).unwrap()
}

fn open(bytes: Vec<u8>) -> Result<WasmPlugin, PluginError> {
    let budget = Budget { time_ms: 200, memory_bytes: 16 << 20, ..Budget::default() };
    WasmRuntime::new(None)?.open(&package(bytes), budget, LogSink::discard())
}

fn refused(bytes: Vec<u8>) -> Report {
    open(bytes).expect_err("it is refused").report()
}

fn component(text: &str) -> Vec<u8> {
    wat::parse_str(format!("(component {text})")).unwrap()
}

#[test]
fn what_does_not_fit_is_refused_before_it_is_compiled() {
    let world = |version: &str, world: &str| format!(r#"(@custom "tenon:api" "{version}{world}")"#);
    let clock = r#"(import "wasi:clocks/monotonic-clock@0.2.0" (instance))"#;
    for (text, code, found) in [
        (String::new(), "plugin.contract-version", "no `tenon:api` section"),
        (API.repeat(2), "plugin.contract-version", "2 `tenon:api` sections"),
        (world("\\00", ""), "plugin.contract-version", "a `tenon:api` section of 1 bytes"),
        (world("\\00\\00\\00\\02\\00\\00", "model-graph"), "plugin.contract-version", "contract 0.2.0"),
        (world("\\00\\09\\01\\00\\00\\03", "model-graph"), "plugin.contract-version", "contract 9.256.3"),
        (
            world("\\00\\00\\00\\01\\00\\00", "sampling-policy"),
            "plugin.contract-version",
            "world `sampling-policy`, not `model-graph`",
        ),
        (format!("{API} {clock}"), "plugin.foreign-import", "wasi:clocks/monotonic-clock@0.2.0"),
        (format!(r#"{API} (import "env" (func))"#), "plugin.foreign-import", "env"),
        (API.to_owned(), "plugin.missing-export", "no such export"),
        (
            format!(
                r#"{API} (import "tenon:plugin/types@0.1.0" (instance $i)) (export "build" (instance $i))"#
            ),
            "plugin.missing-export",
            "no such export",
        ),
    ] {
        let report = refused(component(&text));
        assert_eq!(report.code, code, "{text}: {report}");
        assert_eq!(report.found.as_deref(), Some(found), "{text}");
    }
}

#[test]
fn functions_that_the_contract_does_not_have_are_refused_at_load() {
    let build = r#"(core module $m (func (export "f"))) (core instance $i (instantiate $m))
        (func $f (canon lift (core func $i "f"))) (export "build" (func $f))"#;
    for text in [
        // The right name, another type.
        format!("{API} {build}"),
        format!(r#"{API} (import "tenon:plugin/graph@0.1.0" (instance (export "steal" (func)))) {build}"#),
        format!(r#"{API} (import "tenon:plugin/graph@0.2.0" (instance (export "tokens" (func)))) {build}"#),
        format!(r#"{API} (import "tenon:plugin/files@0.1.0" (instance (export "read" (func)))) {build}"#),
    ] {
        let report = refused(component(&text));
        assert_eq!(report.code, "plugin.load", "{text}: {report}");
    }
}

#[test]
fn bytes_that_are_no_component_are_refused() {
    let real = wasm_package("llama").entry().to_vec();
    let mut cut: Vec<Vec<u8>> =
        (0..real.len()).step_by(real.len() / 40).map(|n| real[..n].to_vec()).collect();
    cut.push(b"\0asm".to_vec());
    cut.push(b"(component)".to_vec());
    cut.push(vec![0xff; 1_000]);
    cut.push(wat::parse_str("(module)").unwrap());
    for bytes in cut {
        let report = refused(bytes);
        assert_eq!(report.code, "plugin.invalid-binary", "{report}");
    }
}

/// Each altered byte gives an error or a plugin, never a panic.
#[test]
fn a_component_with_altered_bytes_does_not_panic_the_host() {
    let real = component(API);
    for at in 0..real.len() {
        for bit in 0..8 {
            let mut bytes = real.clone();
            bytes[at] ^= 1 << bit;
            let _ = open(bytes);
        }
    }
}

/// A component whose `build` is `text`; `result` writes what it returns at address 0.
fn build(imports: &str, text: &str) -> Report {
    let plugin = open(core_guest(imports, text)).unwrap();
    let catalogue =
        Catalogue::from([("table".to_owned(), TensorFacts { shape: vec![10, 4], is_dense: true })]);
    plugin.build("{}", catalogue).expect_err(text).report()
}

#[test]
fn guests_that_lie_or_run_wild_are_stopped() {
    let weight = r#"(import "tenon:plugin/graph@0.1.0" "weight" (func $weight (param i32 i32 i32)))"#;
    let log = r#"(import "tenon:plugin/graph@0.1.0" "log" (func $log (param i32 i32)))"#;
    let returns = |body: &str| format!(r#"(func (export "build") (param i32 i32) (result i32) {body})"#);
    for (imports, text, code, contains) in [
        ("", returns("(loop (br 0)) unreachable"), "plugin.time-budget", "200 ms"),
        ("", returns("unreachable"), "plugin.trap", "unreachable"),
        ("", returns("(i32.div_u (i32.const 1) (i32.const 0))"), "plugin.trap", "divide by zero"),
        (
            "",
            returns("(loop (drop (memory.grow (i32.const 16))) (br 0)) unreachable"),
            "plugin.memory-budget",
            "",
        ),
        // Any handle: a result of 0 ("ok") and the handle 0, which was never given.
        ("", returns("(i32.const 0)"), "graph.unknown-value", "no value 0"),
        (
            "",
            returns("(i32.store8 (i32.const 0) (i32.const 7)) (i32.const 0)"),
            "plugin.trap",
            "discriminant",
        ),
        ("", returns("(i32.const -4)"), "plugin.trap", ""),
        // "err", `internal`, a string outside of memory.
        (
            "",
            returns(
                "(i32.store8 (i32.const 0) (i32.const 1)) (i32.store8 (i32.const 4) (i32.const 3))
                 (i32.store (i32.const 8) (i32.const 100)) (i32.store (i32.const 12) (i32.const 0x7fffffff))
                 (i32.const 0)",
            ),
            "plugin.trap",
            "",
        ),
        // "err", `build`, an error that the builder never gave.
        (
            "",
            returns(
                "(i32.store8 (i32.const 0) (i32.const 1)) (i32.store8 (i32.const 4) (i32.const 2))
                 (i32.store8 (i32.const 20) (i32.const 7)) (i32.const 0)",
            ),
            "plugin.guest-error",
            "never gave",
        ),
        // "err", `unsupported`, a thousand empty fields.
        (
            "",
            returns(
                "(i32.store8 (i32.const 0) (i32.const 1)) (i32.store8 (i32.const 4) (i32.const 1))
                 (i32.store (i32.const 8) (i32.const 4096)) (i32.store (i32.const 12) (i32.const 1000))
                 (i32.const 0)",
            ),
            "plugin.output-budget",
            "fields of an error",
        ),
        // Strings outside of memory, and bytes that are no text.
        (
            weight,
            returns("(call $weight (i32.const 65000) (i32.const 5000) (i32.const 0)) (i32.const 0)"),
            "plugin.trap",
            "",
        ),
        (
            weight,
            returns(
                "(i32.store8 (i32.const 0) (i32.const 0xff))
                 (call $weight (i32.const 0) (i32.const 1) (i32.const 8)) (i32.const 0)",
            ),
            "plugin.trap",
            "",
        ),
        (
            log,
            returns("(loop (call $log (i32.const 0) (i32.const 60000)) (br 0)) unreachable"),
            "plugin.output-budget",
            "log text",
        ),
        // The deadline covers instantiation too.
        (
            "",
            format!("(func $spin (loop (br 0))) (start $spin) {}", returns("(i32.const 0)")),
            "plugin.time-budget",
            "200 ms",
        ),
        (
            "",
            format!("(func $down (call $down)) {}", returns("(call $down) (i32.const 0)")),
            "plugin.trap",
            "stack",
        ),
        (
            "",
            format!("(table 1000000 funcref) {}", returns("(i32.const 0)")),
            "plugin.output-budget",
            "table elements",
        ),
        ("", format!("(memory 1000) {}", returns("(i32.const 0)")), "plugin.memory-budget", ""),
    ] {
        let report = build(imports, &text);
        assert_eq!(report.code, code, "{text}: {report}");
        assert!(report.to_string().contains(contains), "{text}: {report}");
    }
}

#[test]
fn compiled_code_is_kept_and_checked() {
    let folder = tempfile::tempdir().unwrap();
    let entries = || -> Vec<_> {
        let mut paths: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().path()).collect();
        paths.sort();
        paths
    };
    let package = wasm_package("llama");
    let runtime = WasmRuntime::new(Some(folder.path())).unwrap();
    let open = || runtime.open(&package, Budget::default(), LogSink::discard());
    open().unwrap();
    let [path] = entries().try_into().unwrap();
    let kept = fs::read(&path).unwrap();
    // A second opening reads the entry and leaves it as it is.
    let written = fs::metadata(&path).unwrap().modified().unwrap();
    open().unwrap();
    assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), written);
    // A cut or altered entry is compiled anew.
    for damaged in [kept[..kept.len() / 2].to_vec(), Vec::new(), [&kept[..100], &[0], &kept[101..]].concat()]
    {
        fs::write(&path, damaged).unwrap();
        open().unwrap();
        assert_eq!(fs::read(&path).unwrap().len(), kept.len());
        open().unwrap();
    }
    // Another plugin has another entry.
    runtime.open(&wasm_package("gemma3"), Budget::default(), LogSink::discard()).unwrap();
    assert_eq!(entries().len(), 2);
}

#[test]
fn a_cache_folder_that_cannot_be_used_is_an_error() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let error = WasmRuntime::new(Some(&file.path().join("below"))).unwrap_err();
    assert_eq!(error.report().code, "plugin.cache");
}
