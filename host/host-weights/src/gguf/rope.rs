//! Recovers `rope_scaling` from the table of rotary factors that GGUF stores in its place.
//!
//! Converters of Llama 3.1 and later write, for each rotary pair, the factor that its frequency is divided by
//! (`rope_freqs.weight`), and drop the parameters it was computed from. The published parameters are found again
//! by computing the table from them and comparing; a table that no known parameters give is refused.

use std::f32::consts::PI;

use host_core::DType;
use serde_json::{Value as Json, json};

use super::fault::GgufFault;
use super::ggml_type::GgmlType;
use super::header::HeaderTensor;

/// The name of the table.
pub(super) const TABLE: &str = "rope_freqs.weight";

/// What the published `llama3` scalings have in common.
const LOW_FREQ_FACTOR: f32 = 1.0;
const HIGH_FREQ_FACTOR: f32 = 4.0;
const ORIGINAL_CONTEXT: f32 = 8192.0;
/// Largest relative difference between two computations of one factor: a power, a division and four further
/// operations in f32, each off by at most 2^-23.
const TOLERANCE: f32 = 1e-5;

/// Reads the table: one f32 for each rotary pair.
pub(super) fn read_table(
    table: &HeaderTensor<'_>,
    file: &[u8],
    head_dim: usize,
) -> Result<Vec<f32>, GgufFault> {
    if table.ggml_type != GgmlType::Dense(DType::F32) || table.shape != [head_dim / 2] {
        let found = format!("{} {:?}", table.ggml_type.encoding(), table.shape);
        return Err(GgufFault::RopeTable { found });
    }
    let bytes = &file[table.begin..table.begin + table.bytes];
    Ok(bytes.as_chunks::<4>().0.iter().map(|number| f32::from_le_bytes(*number)).collect())
}

/// The `rope_scaling` block that gives these factors.
pub(super) fn llama3_scaling(factors: &[f32], base: f32, head_dim: usize) -> Result<Json, GgufFault> {
    // The slowest pairs are divided by the full factor.
    let factor = factors.last().copied().unwrap_or(f32::NAN);
    let matches = (0..factors.len()).all(|pair| {
        let expected = llama3_factor(pair, factor, base, head_dim);
        (factors[pair] - expected).abs() <= TOLERANCE * expected
    });
    if !matches {
        let found = format!("factors {:?} … {factor:?}", &factors[..factors.len().min(2)]);
        return Err(GgufFault::RopeTable { found });
    }
    Ok(json!({
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": LOW_FREQ_FACTOR,
        "high_freq_factor": HIGH_FREQ_FACTOR,
        "original_max_position_embeddings": ORIGINAL_CONTEXT as u32,
    }))
}

/// The factor of one pair: 1 for short wavelengths, `factor` for long ones, between them a smooth step.
///
/// Source: the `llama3` scaling of transformers and its converter in llama.cpp.
fn llama3_factor(pair: usize, factor: f32, base: f32, head_dim: usize) -> f32 {
    let wavelength = 2.0 * PI * base.powf(2.0 * pair as f32 / head_dim as f32);
    if wavelength < ORIGINAL_CONTEXT / HIGH_FREQ_FACTOR {
        return 1.0;
    }
    if wavelength > ORIGINAL_CONTEXT / LOW_FREQ_FACTOR {
        return factor;
    }
    let smooth = (ORIGINAL_CONTEXT / wavelength - LOW_FREQ_FACTOR) / (HIGH_FREQ_FACTOR - LOW_FREQ_FACTOR);
    1.0 / ((1.0 - smooth) / factor + smooth)
}
