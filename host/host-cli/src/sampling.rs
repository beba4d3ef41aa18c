//! The sampling settings of a request: the profile's, where no flag says otherwise.

use std::time::{SystemTime, UNIX_EPOCH};

use host_core::{SamplingError, SamplingSettings};
use host_registry::{Composition, SamplingDefaults};

use crate::args::SamplingArgs;

/// The settings, checked. Without `--seed` each run draws another.
///
/// # Errors
/// [`SamplingError`] names the setting out of range.
pub(crate) fn settings(
    args: &SamplingArgs,
    of_profile: &SamplingDefaults,
) -> Result<SamplingSettings, SamplingError> {
    let settings = SamplingSettings {
        temperature: args.temperature.unwrap_or(of_profile.temperature),
        top_k: args.top_k.unwrap_or(of_profile.top_k),
        top_p: args.top_p.unwrap_or(of_profile.top_p),
        min_p: args.min_p.unwrap_or(of_profile.min_p),
        repetition_penalty: args.repetition_penalty.unwrap_or(of_profile.repetition_penalty),
        repetition_context_tokens: args
            .repetition_context_tokens
            .unwrap_or(of_profile.repetition_context_tokens),
        seed: args.seed.unwrap_or_else(fresh_seed),
        ..SamplingSettings::GREEDY
    };
    settings.check()?;
    Ok(settings)
}

/// New tokens at most.
pub(crate) fn max_tokens(args: &SamplingArgs, composition: &Composition) -> usize {
    args.max_tokens.unwrap_or(composition.serve().max_tokens)
}

/// The texts that end an answer: the profile's and the command line's.
pub(crate) fn stop_texts(args: &SamplingArgs, composition: &Composition) -> Vec<String> {
    composition.serve().stop.iter().chain(&args.stop).cloned().collect()
}

/// Differs from run to run; below 2^53, so that every JSON reader gives it back exactly.
fn fresh_seed() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mixed = since_epoch.as_nanos() as u64 ^ u64::from(std::process::id()).rotate_left(32);
    mixed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 11
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROFILE: SamplingDefaults = SamplingDefaults {
        temperature: 0.2,
        top_k: 0,
        top_p: 0.9,
        min_p: 0.0,
        repetition_penalty: 1.0,
        repetition_context_tokens: 0,
    };

    #[test]
    fn flags_win_over_the_profile() {
        let args = SamplingArgs { temperature: Some(0.0), seed: Some(3), ..SamplingArgs::default() };
        let found = settings(&args, &PROFILE).expect("in range");
        assert_eq!(found, SamplingSettings { temperature: 0.0, ..PROFILE.with_seed(3) });
    }

    #[test]
    fn a_flag_out_of_range_is_refused() {
        let args = SamplingArgs { top_p: Some(1.5), ..SamplingArgs::default() };
        assert_eq!(settings(&args, &PROFILE).map_err(|error| error.name), Err("top_p"));
    }

    #[test]
    fn fresh_seeds_survive_json() {
        assert!(fresh_seed() < 1 << 53);
    }
}
