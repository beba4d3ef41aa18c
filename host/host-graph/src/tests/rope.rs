//! Frequency tables against those of `transformers` 5.24 (float32 on a CPU), as bits.
//!
//! The powers of the two differ by one unit in the last place here and there (torch uses a vectorised `pow`),
//! and at most three more roundings follow, so tables may differ by three units.

use crate::{RopeFrequencies, RopeSpec};

const TOLERANCE_ULP: u32 = 3;

fn check(name: &str, spec: &RopeSpec, expected: &[u32]) {
    let found = spec.inverse_frequencies();
    assert_eq!(found.len(), expected.len(), "{name}");
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        let difference = found.to_bits().abs_diff(*expected);
        assert!(difference <= TOLERANCE_ULP, "{name}[{i}]: {found} and {}", f32::from_bits(*expected));
    }
}

fn spec(dims: usize, theta: f32, frequencies: RopeFrequencies) -> RopeSpec {
    RopeSpec { frequencies, ..RopeSpec::new(dims, theta) }
}

#[rustfmt::skip]
#[test]
fn tables_equal_those_of_the_reference() {
    check("default", &spec(64, 100000.0, RopeFrequencies::Default), &[
        0x3f800000, 0x3f32a506, 0x3ef953cf, 0x3eadfcff, 0x3e72d423, 0x3e297409, 0x3dec7fd6, 0x3da50956,
        0x3d6655c2, 0x3d20bc1d, 0x3ce054d2, 0x3c9c8b97, 0x3c5a7bf2, 0x3c187705, 0x3bd4ca15, 0x3b947dae,
        0x3b4f3e38, 0x3b109edb, 0x3ac9d75c, 0x3a8cd9db, 0x3a44948c, 0x3a092e02, 0x39bf74d7, 0x39859aa9,
        0x393a7753, 0x39021f2b, 0x38b59b1b, 0x387d75d4, 0x3830df52, 0x37f6da96, 0x37ac431d, 0x37706b6d,
    ]);
    check("default_1e6", &spec(32, 1000000.0, RopeFrequencies::Default), &[
        0x3f800000, 0x3ed7e89b, 0x3e361887, 0x3d99940d, 0x3d0186e3, 0x3c5a7bf2, 0x3bb8449c, 0x3b1b690d,
        0x3a83126f, 0x39dd1725, 0x393a7753, 0x389d43a4, 0x3804a2b2, 0x375fba4f, 0x36bcb0c1, 0x361f23e4,
    ]);
    check("linear", &spec(32, 10000.0, RopeFrequencies::Linear { factor: 2.5 }), &[
        0x3ecccccd, 0x3e6655c3, 0x3e0186e2, 0x3d91ad39, 0x3d23d70a, 0x3cb8449b, 0x3c4f3e38, 0x3be91528,
        0x3b83126e, 0x3b136a16, 0x3aa5cb60, 0x3a3a7753, 0x39d1b718, 0x396bdcf0, 0x3904a2b3, 0x38952c42,
    ]);
    check("llama3", &spec(64, 500000.0, RopeFrequencies::Llama3 { factor: 32.0, low_freq_factor: 1.0, high_freq_factor: 4.0, original_max_position_embeddings: 8192.0 }), &[
        0x3f800000, 0x3f29e1c6, 0x3ee177bc, 0x3e959ee3, 0x3e4693b0, 0x3e03c6a0, 0x3daee4ad, 0x3d681e67,
        0x3d1a08c8, 0x3ccc6f49, 0x3c87a9c3, 0x3c340d6d, 0x3beef74f, 0x3b9e9402, 0x3b527720, 0x3aa9279b,
        0x39e13620, 0x38cb98f7, 0x37a3418d, 0x3758ac81, 0x370fc8f8, 0x36bed4f4, 0x367d45c3, 0x3628126b,
        0x35df10c4, 0x359406cb, 0x35447610, 0x35025f34, 0x34ad07a7, 0x3465a54d, 0x341864a7, 0x33ca41b0,
    ]);
    check("yarn", &spec(64, 10000.0, RopeFrequencies::Yarn { factor: 4.0, beta_fast: 32.0, beta_slow: 1.0, original_max_position_embeddings: 4096.0, truncate: true }), &[
        0x3f800000, 0x3f3ff911, 0x3f0ff59a, 0x3ed7e89b, 0x3ea1e89b, 0x3e72d423, 0x3e361887, 0x3e088d77,
        0x3dcccccd, 0x3d99940d, 0x3d6655c2, 0x3d22c30a, 0x3ce529b9, 0x3ca0a3f7, 0x3c601e30, 0x3c1b75ba,
        0x3bd64098, 0x3b927d78, 0x3b467145, 0x3b04dde8, 0x3aaf5c08, 0x3a632362, 0x3a0f6f7b, 0x39aec98e,
        0x3983126f, 0x3944948c, 0x39136a16, 0x38dd1725, 0x38a5cb60, 0x3878a815, 0x383a7753, 0x380bd472,
    ]);
    check("yarn_gptoss", &spec(64, 150000.0, RopeFrequencies::Yarn { factor: 32.0, beta_fast: 32.0, beta_slow: 1.0, original_max_position_embeddings: 4096.0, truncate: false }), &[
        0x3f800000, 0x3f306535, 0x3ef316a2, 0x3ea77faa, 0x3e66d3fa, 0x3e1f0cfd, 0x3ddb2f9f, 0x3d970764,
        0x3d502194, 0x3d01ddd5, 0x3c9e646f, 0x3c3dec94, 0x3bdea840, 0x3b7cfe14, 0x3b093803, 0x3a89f778,
        0x39ef543c, 0x390799b9, 0x3820adc6, 0x37dd6dfc, 0x37989328, 0x375242fa, 0x3710e12c, 0x36c7a82b,
        0x3689928c, 0x363d9647, 0x3602a245, 0x35b40668, 0x35781728, 0x352af200, 0x34eb93eb, 0x34a252d3,
    ]);
    check("yarn_short", &spec(16, 10000.0, RopeFrequencies::Yarn { factor: 4.0, beta_fast: 32.0, beta_slow: 1.0, original_max_position_embeddings: 32.0, truncate: true }), &[
        0x3f800000, 0x3e4a62c2, 0x3ccccccd, 0x3c0186e3, 0x3b23d70a, 0x3a4f3e38, 0x3983126f, 0x38a5cb60,
    ]);
    check("longrope", &spec(16, 10000.0, RopeFrequencies::LongRope { factors: vec![1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 5.5, 9.0] }), &[
        0x3f800000, 0x3e93308c, 0x3da3d70a, 0x3cacb3d8, 0x3ba3d70a, 0x3a8a297b, 0x393ea672, 0x38135f71,
    ]);
}

/// With a single pair the blend has no width; it must not divide by 0.
#[test]
fn a_blend_without_width_is_finite() {
    let frequencies = RopeFrequencies::Yarn {
        factor: 4.0,
        beta_fast: 1e-9,
        beta_slow: 1e-9,
        original_max_position_embeddings: 4096.0,
        truncate: true,
    };
    let table = spec(16, 10_000.0, frequencies).inverse_frequencies();
    assert!(table.iter().all(|f| f.is_finite()), "{table:?}");
}

#[test]
fn proportional_frequencies_divide_by_the_full_width() {
    let wide = RopeSpec::new(64, 1e6).inverse_frequencies();
    let frequencies = RopeFrequencies::Proportional { factor: 1.0, full_dims: 64 };
    assert_eq!(spec(16, 1e6, frequencies).inverse_frequencies(), wide[..8]);
}
