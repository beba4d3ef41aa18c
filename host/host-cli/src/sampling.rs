//! The sampling settings of a request: the profile's, where no flag says otherwise.

use std::time::{SystemTime, UNIX_EPOCH};

use host_core::{Report, SamplingChain, SamplingSettings};
use host_plugins::pipeline::GenerateOptions;
use host_registry::{Composition, SamplingDefaults};
use host_text::Tokenizer;
use serde_json::{Map, Value, json};

use crate::args::SamplingArgs;
use crate::error::{CliError, Failure};

/// How a request chooses its tokens.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RequestSampling {
    /// What the engine runs.
    pub(crate) chain: SamplingChain,
    /// The flat settings behind it; `None` where the profile gives a chain.
    settings: Option<SamplingSettings>,
}

/// The profile's sampling with the flags in its place, checked. Without `--seed` each run draws another.
///
/// # Errors
/// [`host_core::SamplingError`] names the setting out of range; [`CliError::FlagBesideChain`]; a text that cannot be encoded.
pub(crate) fn of_request(
    args: &SamplingArgs,
    of_profile: &SamplingDefaults,
    tokenizer: &Tokenizer,
) -> Result<RequestSampling, Failure> {
    let seed = args.seed.unwrap_or_else(fresh_seed);
    let settings = match of_profile.flat() {
        Some(flat) => {
            let settings = SamplingSettings { seed, ..overridden(args, flat) };
            settings.check()?;
            Some(settings)
        }
        None => match given(args).first() {
            Some(flag) => return Err(CliError::FlagBesideChain { flag }.into()),
            None => None,
        },
    };
    let mut chain = settings.clone().map_or_else(|| of_profile.with_seed(seed), SamplingChain::from);
    tokenizer.resolve_chain(&mut chain)?;
    Ok(RequestSampling { chain, settings })
}

/// As [`of_request`], with what a pipeline's generation asks for in place of both.
///
/// # Errors
/// Those of [`of_request`]; an unknown setting or sampler; settings where the profile gives a chain.
pub(crate) fn of_options(
    args: &SamplingArgs,
    of_profile: &SamplingDefaults,
    options: &GenerateOptions,
    seed: u64,
    tokenizer: &Tokenizer,
) -> Result<SamplingChain, Failure> {
    let mut chain = match &options.chain {
        Some(chain) => {
            let samplers = serde_json::from_value(chain.clone()).map_err(|error| misfit("chain", &error))?;
            let chain = SamplingChain { samplers, special_ids: Vec::new(), seed };
            chain.check()?;
            chain
        }
        None => {
            let args = SamplingArgs { seed: Some(seed), ..args.clone() };
            let of_request = of_request(&args, of_profile, tokenizer)?;
            match (of_request.settings, options.sampling.keys().next()) {
                (_, None) => return Ok(of_request.chain),
                (Some(settings), _) => changed(&settings, &options.sampling)?.into(),
                (None, Some(key)) => {
                    return Err(Report::new(
                        "pipeline.argument",
                        format!("`sampling.{key}` has nothing to act on"),
                    )
                    .expected("`chain`, since the profile gives a sampling chain")
                    .into());
                }
            }
        }
    };
    tokenizer.resolve_chain(&mut chain)?;
    Ok(chain)
}

/// Settings with some of them replaced by name.
fn changed(settings: &SamplingSettings, by: &Map<String, Value>) -> Result<SamplingSettings, Failure> {
    let Value::Object(mut object) = json!(settings) else { unreachable!("a struct is an object") };
    object.remove("seed");
    for (key, value) in by {
        if !object.contains_key(key) {
            let known: Vec<_> = object.keys().map(String::as_str).collect();
            return Err(Report::new("pipeline.argument", format!("there is no sampling setting `{key}`"))
                .expected(known.join(", "))
                .found(key)
                .into());
        }
        object.insert(key.clone(), value.clone());
    }
    object.insert("seed".to_owned(), settings.seed.into());
    let settings: SamplingSettings =
        serde_json::from_value(Value::Object(object)).map_err(|error| misfit("sampling", &error))?;
    settings.check()?;
    Ok(settings)
}

fn misfit(name: &str, error: &serde_json::Error) -> Report {
    Report::new("pipeline.argument", format!("`{name}` does not fit: {error}"))
}

/// Flags win over the profile.
fn overridden(args: &SamplingArgs, flat: &SamplingSettings) -> SamplingSettings {
    SamplingSettings {
        temperature: args.temperature.unwrap_or(flat.temperature),
        top_k: args.top_k.unwrap_or(flat.top_k),
        top_p: args.top_p.unwrap_or(flat.top_p),
        min_p: args.min_p.unwrap_or(flat.min_p),
        xtc_probability: args.xtc_probability.unwrap_or(flat.xtc_probability),
        xtc_threshold: args.xtc_threshold.unwrap_or(flat.xtc_threshold),
        repetition_penalty: args.repetition_penalty.unwrap_or(flat.repetition_penalty),
        repetition_context_tokens: args.repetition_context_tokens.unwrap_or(flat.repetition_context_tokens),
        presence_penalty: args.presence_penalty.unwrap_or(flat.presence_penalty),
        presence_context_tokens: args.presence_context_tokens.unwrap_or(flat.presence_context_tokens),
        frequency_penalty: args.frequency_penalty.unwrap_or(flat.frequency_penalty),
        frequency_context_tokens: args.frequency_context_tokens.unwrap_or(flat.frequency_context_tokens),
        dry_multiplier: args.dry_multiplier.unwrap_or(flat.dry_multiplier),
        dry_base: args.dry_base.unwrap_or(flat.dry_base),
        dry_allowed_length: args.dry_allowed_length.unwrap_or(flat.dry_allowed_length),
        dry_context_tokens: args.dry_context_tokens.unwrap_or(flat.dry_context_tokens),
        ..flat.clone()
    }
}

/// The flags that a chain leaves nothing to do for.
fn given(args: &SamplingArgs) -> Vec<&'static str> {
    let flags = [
        ("--temperature", args.temperature.is_some()),
        ("--top-k", args.top_k.is_some()),
        ("--top-p", args.top_p.is_some()),
        ("--min-p", args.min_p.is_some()),
        ("--xtc-probability", args.xtc_probability.is_some()),
        ("--xtc-threshold", args.xtc_threshold.is_some()),
        ("--repetition-penalty", args.repetition_penalty.is_some()),
        ("--repetition-context-tokens", args.repetition_context_tokens.is_some()),
        ("--presence-penalty", args.presence_penalty.is_some()),
        ("--presence-context-tokens", args.presence_context_tokens.is_some()),
        ("--frequency-penalty", args.frequency_penalty.is_some()),
        ("--frequency-context-tokens", args.frequency_context_tokens.is_some()),
        ("--dry-multiplier", args.dry_multiplier.is_some()),
        ("--dry-base", args.dry_base.is_some()),
        ("--dry-allowed-length", args.dry_allowed_length.is_some()),
        ("--dry-context-tokens", args.dry_context_tokens.is_some()),
    ];
    flags.into_iter().filter(|(_, is_given)| *is_given).map(|(flag, _)| flag).collect()
}

impl RequestSampling {
    /// For `--json`. Numbers stand as they were written: `0.7`, not the float32's digits in binary64.
    pub(crate) fn object(&self) -> Value {
        match &self.settings {
            Some(settings) => plain(json!(settings)),
            None => json!({ "chain": plain(json!(self.chain.samplers)), "seed": self.chain.seed }),
        }
    }
}

fn plain(value: Value) -> Value {
    match value {
        Value::Object(object) => object.into_iter().map(|(name, value)| (name, plain(value))).collect(),
        Value::Array(values) => values.into_iter().map(plain).collect(),
        Value::Number(number) if number.is_f64() => {
            let number = number.as_f64().unwrap_or_default();
            json!((number as f32).to_string().parse::<f64>().unwrap_or(number))
        }
        other => other,
    }
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
pub(crate) fn fresh_seed() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mixed = since_epoch.as_nanos() as u64 ^ u64::from(std::process::id()).rotate_left(32);
    mixed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 11
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile() -> SamplingSettings {
        SamplingSettings { temperature: 0.2, top_p: 0.9, ..SamplingSettings::GREEDY }
    }

    #[test]
    fn flags_win_over_the_profile() {
        let args =
            SamplingArgs { temperature: Some(0.0), dry_multiplier: Some(0.8), ..SamplingArgs::default() };
        let expected = SamplingSettings { temperature: 0.0, dry_multiplier: 0.8, ..profile() };
        assert_eq!(overridden(&args, &profile()), expected);
    }

    #[test]
    fn every_flag_of_a_setting_is_known_to_be_given() {
        let args =
            SamplingArgs { top_p: Some(0.5), seed: Some(1), max_tokens: Some(3), ..SamplingArgs::default() };
        assert_eq!(given(&args), ["--top-p"], "seed and length are no settings of a chain");
    }

    #[test]
    fn settings_are_recorded_as_they_were_written() {
        let settings = SamplingSettings { temperature: 0.7, seed: 1 << 52, ..SamplingSettings::GREEDY };
        let sampling = RequestSampling { chain: settings.clone().into(), settings: Some(settings) };
        assert_eq!(sampling.object()["temperature"].to_string(), "0.7");
        assert_eq!(sampling.object()["seed"].to_string(), (1_u64 << 52).to_string());
        let sampling = RequestSampling { settings: None, ..sampling };
        assert_eq!(sampling.object()["chain"][0]["temperature"].to_string(), "0.7");
    }

    #[test]
    fn fresh_seeds_survive_json() {
        assert!(fresh_seed() < 1 << 53);
    }
}
