//! Judges the parameters of samplers by the list of them, and by what no list can say.

use std::fmt::Display;

use super::SamplingError;
use super::parameters::{Form, Parameter};
use super::sampler::Shaper;

/// Checks the parameters of the sampler with this name.
pub(super) struct Ranges(pub(super) &'static str);

impl Ranges {
    pub(super) fn holds(
        &self,
        name: &'static str,
        holds: bool,
        expected: &'static str,
        found: impl Display,
    ) -> Result<(), SamplingError> {
        match holds {
            true => Ok(()),
            false => Err(SamplingError { name, sampler: Some(self.0), expected, found: found.to_string() }),
        }
    }

    /// A parameter that the list has as a number.
    pub(super) fn number(&self, name: &'static str, found: f32) -> Result<(), SamplingError> {
        let Some(Parameter { form: Form::Number(range), .. }) = Parameter::of(self.0, name) else {
            unreachable!("`{name}` of `{}` stands in the list as a number, as a test tells", self.0)
        };
        self.holds(name, range.holds(found), range.words, found)
    }

    /// A parameter that the list has as a whole number.
    pub(super) fn count(&self, name: &'static str, found: u32) -> Result<(), SamplingError> {
        let Some(Parameter { form: Form::Count(least), .. }) = Parameter::of(self.0, name) else {
            unreachable!("`{name}` of `{}` stands in the list as a whole number, as a test tells", self.0)
        };
        self.holds(name, found >= least.n, least.words, found)
    }

    pub(super) fn shaper(&self, shaper: &Shaper) -> Result<(), SamplingError> {
        let Shaper { window, x_mid, y_mid, x_foot, y_foot, power, slope, shoulder, .. } = shaper;
        self.number("window", *window)?;
        self.number("x_mid", *x_mid)?;
        self.holds("x_foot", *x_foot > 0.0 && x_foot < x_mid, "above 0 and below x_mid", x_foot)?;
        self.number("y_mid", *y_mid)?;
        self.holds("y_foot", *y_foot >= 0.0 && y_foot < y_mid, "from 0 on and below y_mid", y_foot)?;
        self.number("power", *power)?;
        self.number("slope", *slope)?;
        self.number("shoulder", *shoulder)?;
        self.number("target_gap", shaper.target_gap)?;
        self.number("peak_luminance", shaper.peak_luminance)
    }

    /// At least two points of different x, rising: a curve that turned likely tokens into unlikely ones is refused.
    pub(super) fn points(&self, points: &[(f32, f32)]) -> Result<(), SamplingError> {
        self.holds("points", points.len() >= 2, "at least two points", points.len())?;
        let is_share = |(x, y): &(f32, f32)| (0.0..=100.0).contains(x) && (0.0..=100.0).contains(y);
        for point in points {
            let shown = format!("({}, {})", point.0, point.1);
            self.holds("points", is_share(point), "per cents from 0 to 100", shown)?;
        }
        let mut sorted: Vec<(f64, f64)> = points.iter().map(|(x, y)| (nats(*x), nats(*y))).collect();
        sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
        for pair in sorted.windows(2) {
            let (dx, dy) = (pair[1].0 - pair[0].0, pair[1].1 - pair[0].1);
            self.holds("points", dx > 0.0, "points of different x", "two of the same x")?;
            self.holds("points", dy / dx >= -1e-12, "points that rise with x", "points that fall")?;
        }
        Ok(())
    }
}

/// A per cent of probability as a log-probability.
fn nats(per_cent: f32) -> f64 {
    (f64::from(per_cent).max(1e-9) / 100.0).ln()
}
