//! What a request may ask of the choice of tokens, and why a generation ended.

use serde::{Deserialize, Serialize};

use crate::report::{Report, Reported};

/// The sampling settings of one request, with the field's names.
///
/// Order of application: repetition penalty, temperature 0 is argmax, else top-k, top-p, min-p, temperature,
/// then the draw with a counter-based generator (seed, position).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SamplingSettings {
    /// 0 takes the most likely token; otherwise logits are divided by it.
    pub temperature: f32,
    /// Keep the k most likely tokens; 0 keeps all.
    pub top_k: u32,
    /// Keep the smallest set whose probabilities sum to at least this; 1 keeps all.
    pub top_p: f32,
    /// Drop tokens less likely than this share of the most likely one; 0 keeps all.
    pub min_p: f32,
    /// Divide (positive) or multiply (negative) the logits of tokens already seen; 1 changes nothing.
    pub repetition_penalty: f32,
    /// How many of the last tokens (prompt included) the penalty looks at; 0 looks at all.
    pub repetition_context_tokens: u32,
    /// Seed of the draws. The same seed gives the same tokens.
    pub seed: u64,
}

impl SamplingSettings {
    /// Greedy decoding: the most likely token at each position.
    pub const GREEDY: SamplingSettings = SamplingSettings {
        temperature: 0.0,
        top_k: 0,
        top_p: 1.0,
        min_p: 0.0,
        repetition_penalty: 1.0,
        repetition_context_tokens: 0,
        seed: 0,
    };

    /// Checks every range.
    ///
    /// # Errors
    /// [`SamplingError`] names the first setting outside its range.
    pub fn check(&self) -> Result<(), SamplingError> {
        let rules = [
            ("temperature", self.temperature, self.temperature >= 0.0, "a finite number, 0 or more"),
            ("top_p", self.top_p, self.top_p > 0.0 && self.top_p <= 1.0, "above 0 and at most 1"),
            ("min_p", self.min_p, (0.0..=1.0).contains(&self.min_p), "from 0 to 1"),
            (
                "repetition_penalty",
                self.repetition_penalty,
                self.repetition_penalty > 0.0,
                "a finite number above 0",
            ),
        ];
        for (name, found, holds, expected) in rules {
            if !holds || !found.is_finite() {
                return Err(SamplingError { name, expected, found });
            }
        }
        Ok(())
    }
}

/// A sampling setting outside its range.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("sampling setting `{name}` is {found}, expected {expected}")]
pub struct SamplingError {
    /// The setting.
    pub name: &'static str,
    /// The range it must lie in.
    pub expected: &'static str,
    /// The value given.
    pub found: f32,
}

impl Reported for SamplingError {
    fn report(&self) -> Report {
        Report::new("sampling.out-of-range", format!("`{}` is out of range", self.name))
            .expected(self.expected)
            .found(self.found.to_string())
            .mend(format!("give `{}` a value in that range", self.name))
    }
}

/// Why a generation ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FinishReason {
    /// A stop token of the model or a stop string of the request.
    Stop,
    /// The request's token limit or the context's end.
    Length,
    /// The caller cancelled.
    Cancelled,
    /// The row failed; the error was reported on its own.
    Error,
}
