//! Rotary embeddings as published configs tell them.
//!
//! Its twin for Lua is `lua/prelude.luau`; both must read the same.

use crate::builder::{Rope, RopeFrequencies};
use crate::config::Config;
use crate::error::Error;

/// The rotation told by `rope_parameters` or `rope_scaling`, and `rope_theta` (10000 when absent).
///
/// `dims` is how many leading dimensions of a head are rotated.
///
/// ```
/// use plugin_sdk::{Config, RopeFrequencies, rope};
///
/// let config = Config::parse(r#"{"rope_theta": 500000, "rope_scaling": {"type": "linear", "factor": 4}}"#)?;
/// let rotation = rope::from_config(&config, 64)?;
/// assert_eq!(rotation.theta, 500000.0);
/// assert!(matches!(rotation.frequencies, RopeFrequencies::Linear { factor: 4.0 }));
/// # Ok::<(), plugin_sdk::Error>(())
/// ```
///
/// # Errors
/// As [`from_parameters`]; also when both objects are there.
pub fn from_config(config: &Config, dims: usize) -> Result<Rope, Error> {
    let (parameters, scaling) = (config.object("rope_parameters")?, config.object("rope_scaling")?);
    if parameters.is_some() && scaling.is_some() {
        return Err(config.unsupported("rope_scaling", "nothing beside rope_parameters"));
    }
    let theta = config.number_or("rope_theta", 10_000.0)?;
    from_parameters(parameters.or(scaling).as_ref(), config, dims, theta)
}

/// The rotation told by one object of parameters (or none) and the config around it.
///
/// `theta` counts where the object has no `rope_theta`. Types `default`, `linear`, `llama3`, `yarn` and
/// `longrope` are read. LongRoPE uses one set of factors for all positions: the long ones when the model's
/// context exceeds the original one. Changing the factors at some position, as the reference does, would
/// leave older keys rotated by others.
///
/// # Errors
/// [`Error::Unsupported`] for another type or an unknown key, [`Error::InvalidConfig`] for a missing one.
pub fn from_parameters(
    parameters: Option<&Config>,
    config: &Config,
    dims: usize,
    theta: f64,
) -> Result<Rope, Error> {
    let rope = Rope::new(dims, theta);
    let Some(parameters) = parameters else { return Ok(rope) };
    let key = if parameters.has("rope_type") { "rope_type" } else { "type" };
    let rope_type = parameters.str_or(key, "default")?;
    let Some(keys) = keys_of(&rope_type) else {
        return Err(parameters.unsupported(key, "default, linear, llama3, yarn or longrope"));
    };
    parameters.refuse_unknown(&[&["rope_type", "type", "rope_theta"], keys].concat())?;
    let rope = Rope { theta: parameters.number_or("rope_theta", theta)?, ..rope };
    match rope_type.as_str() {
        "linear" => {
            Ok(Rope { frequencies: RopeFrequencies::Linear { factor: parameters.number("factor")? }, ..rope })
        }
        "llama3" => llama3(parameters, rope),
        "yarn" => yarn(parameters, config, rope),
        "longrope" => longrope(parameters, config, rope),
        _ => Ok(rope),
    }
}

/// Keys that each type may have besides `rope_type`, `type` and `rope_theta`.
fn keys_of(rope_type: &str) -> Option<&'static [&'static str]> {
    Some(match rope_type {
        "default" => &[],
        "linear" => &["factor"],
        "llama3" => &["factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"],
        "yarn" => &[
            "factor",
            "original_max_position_embeddings",
            "attention_factor",
            "beta_fast",
            "beta_slow",
            "mscale",
            "mscale_all_dim",
            "truncate",
        ],
        "longrope" => {
            &["factor", "original_max_position_embeddings", "attention_factor", "short_factor", "long_factor"]
        }
        _ => return None,
    })
}

fn llama3(parameters: &Config, rope: Rope) -> Result<Rope, Error> {
    let frequencies = RopeFrequencies::Llama3 {
        factor: parameters.number("factor")?,
        low_freq_factor: parameters.number("low_freq_factor")?,
        high_freq_factor: parameters.number("high_freq_factor")?,
        original_max_position_embeddings: parameters.number("original_max_position_embeddings")?,
    };
    Ok(Rope { frequencies, ..rope })
}

fn yarn(parameters: &Config, config: &Config, rope: Rope) -> Result<Rope, Error> {
    let (original, factor) = extension(parameters, config)?;
    let attention_factor = match parameters.optional_number("attention_factor")? {
        Some(attention) => attention,
        None => match (set(parameters, "mscale")?, set(parameters, "mscale_all_dim")?) {
            (Some(one), Some(all)) => mscale(factor, one) / mscale(factor, all),
            _ => mscale(factor, 1.0),
        },
    };
    let frequencies = RopeFrequencies::Yarn {
        factor,
        beta_fast: set(parameters, "beta_fast")?.unwrap_or(32.0),
        beta_slow: set(parameters, "beta_slow")?.unwrap_or(1.0),
        original_max_position_embeddings: original,
        truncate: parameters.bool_or("truncate", true)?,
    };
    Ok(Rope { frequencies, attention_factor, ..rope })
}

fn longrope(parameters: &Config, config: &Config, rope: Rope) -> Result<Rope, Error> {
    let (original, factor) = extension(parameters, config)?;
    let is_extended = config.number("max_position_embeddings")? > original;
    let name = if is_extended { "long_factor" } else { "short_factor" };
    let factors = parameters.numbers(name)?.ok_or_else(|| parameters.invalid(name, "a list of numbers"))?;
    let attention_factor = match parameters.optional_number("attention_factor")? {
        Some(attention) => attention,
        None if factor <= 1.0 => 1.0,
        None => (1.0 + factor.ln() / original.ln()).sqrt(),
    };
    Ok(Rope { frequencies: RopeFrequencies::LongRope { factors }, attention_factor, ..rope })
}

/// From which context the model was extended, and how far.
fn extension(parameters: &Config, config: &Config) -> Result<(f64, f64), Error> {
    const ORIGINAL: &str = "original_max_position_embeddings";
    let original = match (config.optional_number(ORIGINAL)?, parameters.optional_number(ORIGINAL)?) {
        (Some(original), _) | (None, Some(original)) => original,
        (None, None) => config.number("max_position_embeddings")?,
    };
    let factor = match parameters.optional_number("factor")? {
        Some(factor) => factor,
        None => config.number("max_position_embeddings")? / original,
    };
    Ok((original, factor))
}

/// A number that is there and not 0: published configs write 0 for "as usual".
fn set(parameters: &Config, key: &str) -> Result<Option<f64>, Error> {
    Ok(parameters.optional_number(key)?.filter(|number| *number != 0.0))
}

/// YaRN, Peng et al. 2023, section 3.4: attention gets sharper as the context grows.
fn mscale(factor: f64, weight: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { 0.1 * weight * factor.ln() + 1.0 }
}
