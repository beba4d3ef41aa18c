//! The Rust bindings of the C interface, as the build script of the bindings crate would write them.

use std::path::Path;

use crate::workspace::{Failure, Outcome};

/// Stand-ins for the half types, which the headers declare on Arm only.
const HALVES: &str = "#[repr(C)] #[derive(Default, Clone, Copy)] pub struct float16_t(pub u16);";
const BFLOAT: &str = "pub type bfloat16_t = u16;";

/// Writes the bindings of the headers in `source/mlx/c` to `out`.
pub(super) fn write(source: &Path, out: &Path) -> Outcome {
    let folder = source.join("mlx/c");
    let entries = std::fs::read_dir(&folder).map_err(|error| Failure::io("list", &folder, &error))?;
    let mut headers: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    headers.retain(|path| path.extension().is_some_and(|extension| extension == "h"));
    headers.sort();
    let start = bindgen::Builder::default()
        .rust_target("1.73.0".parse().expect("a version of the language"))
        .clang_arg(format!("-I{}", source.display()))
        .clang_arg("-include")
        .clang_arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../host-mlx/native/halves.h"))
        .blocklist_type("b?float16_t")
        .raw_line(HALVES)
        .raw_line(BFLOAT)
        .blocklist_function("malloc")
        .blocklist_function("realloc");
    let builder = headers.iter().fold(start, |builder, header| builder.header(header.to_string_lossy()));
    let bindings = builder
        .generate()
        .map_err(|error| Failure::new(format!("the headers of MLX's C interface cannot be read: {error}")))?;
    bindings.write_to_file(out).map_err(|error| Failure::io("write", out, &error))
}
