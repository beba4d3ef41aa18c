//! What real hardware lets pass and the emulator must not: one planted fault a case.

use super::emulator::{Emulated, Entry, Ran, has_compiler, launch};
use crate::case::{Data, Dtype};

/// Runs bodies over 64 numbers, each in one group of 64 threads.
fn run(bodies: &[String]) -> Vec<Ran> {
    let numbers: Vec<f32> = (0..64).map(|i| i as f32).collect();
    let x = Data::floats(&[64], Dtype::F32, &numbers);
    let launch = launch(64, 64, 64);
    let entry =
        |body| Entry { body, inputs: vec![("x", 64, Dtype::F32)], outputs: vec!["out"], launch: &launch };
    let entries: Vec<Entry<'_>> = bodies.iter().map(|body| entry(body.as_str())).collect();
    let emulated = Emulated::new(&entries);
    (0..bodies.len()).map(|index| emulated.run(index, &[("x", &x)], &launch)).collect()
}

#[test]
fn planted_faults_are_caught() {
    if !has_compiler() {
        return;
    }
    let start = "const int i = int(thread_index_in_threadgroup);\nthreadgroup float tile[64];\n";
    let barrier = "threadgroup_barrier(mem_flags::mem_threadgroup);\n";
    let cases = [
        (
            "a barrier that half of the threads reach",
            format!("{start}if (i < 32) {{ {barrier} }}\nout[i] = x[i];"),
            "fault[divergence]",
        ),
        (
            "different barriers",
            format!("{start}if (i < 32) {{\n{barrier} }} else {{\n{barrier} }}\nout[i] = x[i];"),
            "fault[divergence]",
        ),
        (
            "an operation that some lanes do not reach",
            format!("{start}float s = 0.0f; if (i % 2 == 0) {{ s = simd_sum(x[i]); }}\nout[i] = s;"),
            "fault[divergence]",
        ),
        (
            "a neighbour's number without a barrier",
            format!("{start}tile[i] = x[i];\nout[i] = tile[i ^ 1];"),
            "fault[",
        ),
        (
            "a number overwritten that others still read",
            format!("{start}tile[i] = x[i];\n{barrier}float a = tile[i ^ 1];\ntile[i] = a;\nout[i] = a;"),
            "fault[race]",
        ),
        ("two threads in one place", format!("{start}tile[i / 2] = x[i];\nout[i] = 0.0f;"), "fault[race]"),
        ("an output written twice", format!("{start}out[i / 2] = x[i];"), "fault[race]"),
        (
            "an input's end passed by a vector",
            format!(
                "{start}const vec<float, 4> v = *(const device vec<float, 4>*)(x + 4 * i);\nout[i] = v[0];"
            ),
            "fault[out-of-bounds]",
        ),
        (
            "a vector at no whole place",
            format!(
                "{start}const vec<float, 4> v = *(const device vec<float, 4>*)(x + (i % 8));\nout[i] = v[0];"
            ),
            "fault[alignment]",
        ),
        (
            "an element beyond a vector",
            format!(
                "{start}const vec<float, 4> v = *(const device vec<float, 4>*)(x + (i & 60));\nout[i] = v[i % 8];"
            ),
            "fault[out-of-bounds]",
        ),
        ("an input's end passed", format!("{start}out[i] = x[i + 1];"), "fault[out-of-bounds]"),
        (
            "threadgroup memory's end passed",
            format!("{start}tile[i + 1] = 1.0f;\nout[i] = 0.0f;"),
            "fault[out-of-bounds]",
        ),
        ("an output's end passed", format!("{start}out[i + 1] = x[i];"), "fault[out-of-bounds]"),
        (
            "threadgroup memory that nobody wrote",
            format!("{start}{barrier}out[i] = tile[i];"),
            "fault[uninitialised]",
        ),
        ("an output left out", format!("{start}if (i != 5) {{ out[i] = x[i]; }}"), "fault[unwritten]"),
    ];
    let bodies = cases.each_ref().map(|(_, body, _)| body.clone());
    for ((name, _, expected), found) in cases.into_iter().zip(run(&bodies)) {
        let found = found.expect_err(name);
        assert!(found.contains(expected), "{name}: {found}");
    }
}

#[test]
fn sound_bodies_pass() {
    if !has_compiler() {
        return;
    }
    let body = "const int i = int(thread_index_in_threadgroup);\nthreadgroup float tile[64];\ntile[i] = x[i];\n\
        threadgroup_barrier(mem_flags::mem_threadgroup);\nconst float mirrored = tile[63 - i];\n\
        const float sum = simd_sum(x[i]);\nconst float top = simd_max(x[i]);\n\
        out[i] = mirrored + 1000.0f * sum + 0.001f * top;";
    let found = run(&[body.to_owned()]).remove(0).unwrap().remove(0);
    for (i, found) in found.iter().enumerate() {
        let (sum, top) = if i < 32 { (496.0, 31.0) } else { (1520.0, 63.0) };
        assert_eq!(*found, (63 - i) as f32 + 1000.0 * sum + 0.001 * top, "thread {i}");
    }
}

/// Metal's half types round to nearest even after each operation.
#[test]
fn small_floats_round_once() {
    if !has_compiler() {
        return;
    }
    let body = "const int i = int(thread_index_in_threadgroup);\n\
        const bfloat b = bfloat(1.0f) + bfloat(x[i] / 512.0f);\nconst half h = half(1.0f) + half(x[i] / 4096.0f);\n\
        out[i] = float(b) * 2.0f + float(h);";
    let found = run(&[body.to_owned()]).remove(0).unwrap().remove(0);
    for (i, found) in found.iter().enumerate() {
        let b = Dtype::Bf16.round(1.0 + Dtype::Bf16.round(i as f32 / 512.0));
        let h = Dtype::F16.round(1.0 + Dtype::F16.round(i as f32 / 4096.0));
        assert_eq!(*found, b * 2.0 + h, "thread {i}");
    }
}
