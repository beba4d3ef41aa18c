//! The parameters of every sampler: names, forms and ranges. This is the one list: what a check judges, what the flat
//! keys of profiles stand for and what editors are told come from here.

use std::ops::Bound;

use super::Sampler;

/// One parameter of a sampler. All of them are always given; none has a default.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameter {
    /// Its name in a chain.
    pub name: &'static str,
    /// What it may be.
    pub form: Form,
}

/// What a parameter may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Form {
    /// A finite number.
    Number(Range),
    /// A whole number below 2^32.
    Count(Least),
    /// One of these words.
    Word(&'static [&'static str]),
    /// A list of token ids and texts.
    Breakers,
    /// A list of pairs: a token id, and a number or negative infinity.
    Bias,
    /// A list of at least two pairs, both numbers from 0 to 100. That they rise is for the check to say.
    Points,
}

/// Numbers that hold, with the words that reports use for them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    /// The lower end.
    pub from: Bound<f32>,
    /// The greatest number that holds.
    pub to: Option<f32>,
    /// `from 0 to 1`.
    pub words: &'static str,
}

/// The least whole number that holds, with the words that reports use for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Least {
    /// The number.
    pub n: u32,
    /// `at least 1`.
    pub words: &'static str,
}

impl Range {
    /// Whether a number lies within.
    pub fn holds(&self, number: f32) -> bool {
        let is_above = match self.from {
            Bound::Included(least) => number >= least,
            Bound::Excluded(least) => number > least,
            Bound::Unbounded => true,
        };
        number.is_finite() && is_above && self.to.is_none_or(|most| number <= most)
    }
}

const fn range(from: Bound<f32>, to: Option<f32>, words: &'static str) -> Form {
    Form::Number(Range { from, to, words })
}

const ANY: Form = range(Bound::Unbounded, None, "a finite number");
const FROM_0: Form = range(Bound::Included(0.0), None, "a finite number, 0 or more");
const FROM_1: Form = range(Bound::Included(1.0), None, "a finite number, 1 or more");
const ABOVE_0: Form = range(Bound::Excluded(0.0), None, "a finite number above 0");
const SHARE: Form = range(Bound::Included(0.0), Some(1.0), "from 0 to 1");
const SHARE_ABOVE_0: Form = range(Bound::Excluded(0.0), Some(1.0), "above 0 and at most 1");
const HALF: Form = range(Bound::Included(0.0), Some(0.5), "from 0 to 0.5");
/// The system gamma `1.2 + 0.42 log10(peak / 1000)` is above 0 from 1.4 candelas a square metre on.
const LUMINANCE: Form = range(Bound::Included(2.0), Some(1e6), "from 2 to 1000000");
const TOKENS: Form = Form::Count(Least { n: 0, words: "a whole number" });
const COUNT: Form = Form::Count(Least { n: 1, words: "at least 1" });
const TWO: Form = Form::Count(Least { n: 2, words: "at least 2" });

const fn p(name: &'static str, form: Form) -> Parameter {
    Parameter { name, form }
}

const PENALTY: &[Parameter] = &[p("penalty", ANY), p("context_tokens", TOKENS)];

/// Every sampler with its parameters, in the order of [`Sampler`].
pub(super) const SAMPLERS: [(&str, &[Parameter]); 21] = [
    ("logit_bias", &[p("bias", Form::Bias)]),
    ("repetition", &[p("penalty", FROM_0), p("context_tokens", TOKENS)]),
    ("presence", PENALTY),
    ("frequency", PENALTY),
    (
        "dry",
        &[
            p("multiplier", FROM_0),
            p("base", FROM_1),
            p("allowed_length", COUNT),
            p("context_tokens", TOKENS),
            p("sequence_breakers", Form::Breakers),
        ],
    ),
    ("top_k", &[p("k", TOKENS)]),
    ("top_p", &[p("p", SHARE_ABOVE_0)]),
    ("min_p", &[p("p", SHARE), p("min_keep", COUNT)]),
    ("typical_p", &[p("p", SHARE_ABOVE_0)]),
    ("xtc", &[p("probability", SHARE), p("threshold", HALF)]),
    ("top_n_sigma", &[p("n", FROM_0)]),
    ("temperature", &[p("temperature", FROM_0)]),
    ("dynamic_temperature", &[p("temperature", FROM_0), p("range", FROM_0), p("exponent", FROM_0)]),
    ("mirostat_v1", &[p("tau", FROM_0), p("eta", FROM_0), p("m", TWO)]),
    ("mirostat_v2", &[p("tau", FROM_0), p("eta", FROM_0)]),
    (
        "hlg",
        &[
            p("gain", ABOVE_0),
            p("width", ABOVE_0),
            p("shoulder", ABOVE_0),
            p("toe", ABOVE_0),
            p("pivot", Form::Word(&["top", "entropy", "median"])),
            p("offset", ANY),
        ],
    ),
    ("hlg_oetf", &[]),
    ("hlg_eotf", &[p("peak_luminance", LUMINANCE)]),
    ("hlg_pipeline", &[p("alpha", ABOVE_0), p("peak_luminance", LUMINANCE)]),
    (
        "hlg_shaper",
        &[
            p("window", ABOVE_0),
            p("x_mid", SHARE_ABOVE_0),
            p("y_mid", ABOVE_0),
            // Below x_mid as well, and y_foot below y_mid.
            p("x_foot", ABOVE_0),
            p("y_foot", FROM_0),
            p("power", ABOVE_0),
            p("slope", ABOVE_0),
            p("shoulder", ABOVE_0),
            p("peak_luminance", LUMINANCE),
            p("target_gap", ABOVE_0),
        ],
    ),
    ("curve", &[p("points", Form::Points)]),
];

/// Every flat key of a profile's `[sampling]`, with the sampler and the parameter that it stands for.
pub const FLAT_KEYS: [(&str, &str, &str); 17] = [
    ("temperature", "temperature", "temperature"),
    ("top_k", "top_k", "k"),
    ("top_p", "top_p", "p"),
    ("min_p", "min_p", "p"),
    ("xtc_probability", "xtc", "probability"),
    ("xtc_threshold", "xtc", "threshold"),
    ("repetition_penalty", "repetition", "penalty"),
    ("repetition_context_tokens", "repetition", "context_tokens"),
    ("presence_penalty", "presence", "penalty"),
    ("presence_context_tokens", "presence", "context_tokens"),
    ("frequency_penalty", "frequency", "penalty"),
    ("frequency_context_tokens", "frequency", "context_tokens"),
    ("dry_multiplier", "dry", "multiplier"),
    ("dry_base", "dry", "base"),
    ("dry_allowed_length", "dry", "allowed_length"),
    ("dry_context_tokens", "dry", "context_tokens"),
    ("dry_sequence_breakers", "dry", "sequence_breakers"),
];

impl Sampler {
    /// Every sampler's name, as profiles write it.
    pub const NAMES: [&str; SAMPLERS.len()] = {
        let mut names = [""; SAMPLERS.len()];
        let mut i = 0;
        while i < SAMPLERS.len() {
            names[i] = SAMPLERS[i].0;
            i += 1;
        }
        names
    };

    /// The parameters of the sampler of that name; none where there is no such sampler.
    pub fn parameters(name: &str) -> Option<&'static [Parameter]> {
        SAMPLERS.iter().find(|(known, _)| *known == name).map(|(_, parameters)| *parameters)
    }
}

impl Parameter {
    /// The parameter of that name of a sampler.
    pub fn of(sampler: &str, name: &str) -> Option<&'static Parameter> {
        Sampler::parameters(sampler)?.iter().find(|known| known.name == name)
    }
}
