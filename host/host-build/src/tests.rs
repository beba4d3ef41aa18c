//! Tests of what needs no compiler.

use std::path::{Path, PathBuf};

use host_core::Reported;

use crate::compile::last_module;
use crate::{compile, encode};

#[test]
fn the_module_is_found_among_cargos_messages() {
    let library =
        r#"{"reason":"compiler-artifact","target":{"kind":["lib"]},"filenames":["/t/libsdk.rlib"]}"#;
    let plugin = r#"{"reason":"compiler-artifact","target":{"kind":["cdylib","rlib"]},
        "filenames":["/t/p.wasm","/t/libp.rlib"]}"#
        .replace('\n', "");
    let end = r#"{"reason":"build-finished","success":true}"#;
    let messages = [library, "chatter", &plugin, end].join("\n");
    assert_eq!(last_module(&messages), Some(PathBuf::from("/t/p.wasm")));
    assert_eq!(last_module(&[library, end].join("\n")), None);
    assert_eq!(last_module(""), None);
}

#[test]
fn what_is_no_module_makes_no_component() {
    for bytes in [&b""[..], b"text", b"\0asm\x01\0\0"] {
        assert_eq!(encode(bytes).unwrap_err().report().code, "build.no-component");
    }
}

#[test]
fn a_folder_without_a_crate_does_not_compile() {
    let empty = tempfile::tempdir().unwrap();
    let report = compile(empty.path(), &["--release"]).unwrap_err().report();
    assert_eq!(report.code, "build.compile");
    assert!(report.message.contains(&*empty.path().to_string_lossy()), "{report}");
    let report = compile(Path::new("/no/such/folder"), &[]).unwrap_err().report();
    assert_eq!(report.code, "build.not-started");
}
