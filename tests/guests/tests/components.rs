//! Components that are not what they should be: refused before compiling. Those that run wild are judged in `escape`.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs;
use std::path::Path;

use guests::{API_SECTION as API, manifest, wasm_package};
use host_core::{Report, Reported};
use host_plugins::{Budget, LogSink, PluginError, PluginPackage};
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
        (world("\\00\\00\\00\\03\\00\\00", "model-graph"), "plugin.contract-version", "model-graph 0.3.0"),
        (world("\\00\\09\\01\\00\\00\\03", "model-graph"), "plugin.contract-version", "model-graph 9.256.3"),
        (
            world("\\00\\00\\00\\02\\00\\00", "model-graph"),
            "plugin.contract-version",
            "contract 0.2 in its component and 0.1 in plugin.toml",
        ),
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
