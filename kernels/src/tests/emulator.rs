//! Compiles a body with the system's C++ compiler against the emulation of Metal, and runs it.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::case::{Data, Dtype, Launch, Template, numbers};

/// One body with one set of template arguments and shapes.
pub(super) struct Entry<'a> {
    pub(super) body: &'a str,
    /// Name, elements and type of each input.
    pub(super) inputs: Vec<(&'a str, usize, Dtype)>,
    pub(super) outputs: Vec<&'a str>,
    pub(super) launch: &'a Launch,
}

/// Compiled bodies, in one program: the compiler takes longer than any run.
pub(super) struct Emulated {
    folder: tempfile::TempDir,
}

/// What a run gave: outputs, or the emulator's fault.
pub(super) type Ran = Result<Vec<Vec<f32>>, String>;

/// Whether there is a C++ compiler; its absence is said aloud.
pub(super) fn has_compiler() -> bool {
    let found =
        Command::new(compiler()).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let is_there = found.is_ok_and(|status| status.success());
    if !is_there {
        println!("skipped: there is no C++ compiler `{}` for the kernels' emulator", compiler());
    }
    is_there
}

fn compiler() -> String {
    std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned())
}

impl Emulated {
    /// Compiles all bodies.
    pub(super) fn new(entries: &[Entry<'_>]) -> Emulated {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("kernel.cpp"), source(entries)).unwrap();
        let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("emulator");
        let output = Command::new(compiler())
            .args(["-std=c++20", "-O1", "-w", "-I"])
            .arg(header)
            .arg(folder.path().join("kernel.cpp"))
            .arg("-o")
            .arg(folder.path().join("kernel"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Emulated { folder }
    }

    /// Runs one of them over inputs.
    pub(super) fn run(&self, index: usize, inputs: &[(&str, &Data)], launch: &Launch) -> Ran {
        let mut child = Command::new(self.folder.path().join("kernel"))
            .arg(index.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let bytes: Vec<u8> = inputs.iter().flat_map(|(_, data)| data.bytes.clone()).collect();
        let writer = std::thread::spawn(move || stdin.write_all(&bytes));
        let output = child.wait_with_output().unwrap();
        // A program that ended with a fault has not read everything.
        let _ = writer.join().unwrap();
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
        }
        let mut rest = &output.stdout[..];
        let split = launch.outputs.iter().map(|(shape, dtype)| {
            let (own, behind) = rest.split_at(shape.iter().product::<usize>() * dtype.size_bytes());
            rest = behind;
            numbers(*dtype, own)
        });
        Ok(split.collect())
    }
}

/// The whole program: each body in a namespace of its own, chosen by its index.
fn source(entries: &[Entry<'_>]) -> String {
    let mut text = String::from("#include \"metal.hpp\"\n");
    entries.iter().enumerate().for_each(|(index, entry)| text += &entry.source(index));
    text += "int main(int, char** arguments) {\n  switch (std::atoi(arguments[1])) {\n";
    for index in 0..entries.len() {
        text += &format!("    case {index}: return entry_{index}::run();\n");
    }
    text + "  }\n  return 5;\n}\n"
}

impl Entry<'_> {
    /// The template arguments as constants, buffers as globals, the body as a function, and what runs it.
    fn source(&self, index: usize) -> String {
        let mut text = format!("namespace entry_{index} {{\n");
        for (name, value) in &self.launch.templates {
            text += &match value {
                Template::Type(dtype) => format!("using {name} = {};\n", dtype.metal()),
                Template::Int(n) => format!("constexpr int {name} = {n};\n"),
            };
        }
        for (name, n, dtype) in &self.inputs {
            let ty = dtype.metal();
            text += &format!("emulator::Input<{ty}> {name}{{\"{name}\", std::vector<{ty}>({n})}};\n");
        }
        for (name, (shape, dtype)) in self.outputs.iter().zip(&self.launch.outputs) {
            let (ty, n) = (dtype.metal(), shape.iter().product::<usize>());
            text += &format!(
                "emulator::Output<{ty}> {name}{{\"{name}\", std::vector<{ty}>({n}), std::vector<uint64_t>({n})}};\n"
            );
        }
        let triple = |[x, y, z]: [usize; 3]| format!("{{{x}, {y}, {z}}}");
        text +=
            &format!("#line 1 \"body\"\nvoid body() {{\n{}\n}}\nint run() {{\n", shared_arrays(self.body));
        for (name, ..) in &self.inputs {
            text += &format!("  if (!emulator::read({name})) return 4;\n");
        }
        let (grid, group) = (triple(self.launch.grid), triple(self.launch.group));
        text += &format!("  emulator::run_grid({grid}, {group}, body);\n");
        for name in &self.outputs {
            text += &format!("  emulator::write({name});\n");
        }
        text + "  return 0;\n}\n}\n"
    }
}

/// `threadgroup T name[A][B];` as an array that the emulator watches.
fn shared_arrays(body: &str) -> String {
    let line = |line: &str| {
        let trimmed = line.trim_start();
        let Some(declared) = trimmed.strip_prefix("threadgroup ") else { return line.to_owned() };
        let (typed, sizes) = declared.trim_end_matches(';').split_once('[').expect("an array");
        let (ty, name) = typed.rsplit_once(' ').expect("a type and a name");
        let sizes = sizes.trim_end_matches(']').replace("][", ", ");
        format!("static emulator::Shared<{ty}, {sizes}> {name};")
    };
    body.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// A launch of one output of float32.
pub(super) fn launch(grid: usize, group: usize, out: usize) -> Launch {
    Launch {
        grid: [grid, 1, 1],
        group: [group, 1, 1],
        templates: Vec::new(),
        outputs: vec![(vec![out], Dtype::F32)],
    }
}
