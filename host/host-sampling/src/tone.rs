//! Tone curves: log-probabilities mapped as a camera or a display maps light.
//!
//! Each function gives the map from a log-probability `lp` to a logit; the draw then is categorical. Constants are
//! those of hybrid log-gamma (Rec. ITU-R BT.2100).

use host_core::{Pivot, Shaper};

use crate::candidates::Candidates;
use crate::error::SampleError;

const A: f64 = 0.178_832_77;
const B: f64 = 0.284_668_92;
const C: f64 = 0.559_910_73;

/// Logarithms and powers take nothing smaller.
const LEAST: f64 = 1e-9;

/// The parameters of the curve with a straight middle.
#[derive(Clone, Debug)]
pub(crate) struct Hlg {
    pub(crate) gain: f64,
    pub(crate) width: f64,
    pub(crate) shoulder: f64,
    pub(crate) toe: f64,
    pub(crate) pivot: Pivot,
    pub(crate) offset: f64,
}

impl Hlg {
    pub(crate) fn apply(&self, candidates: &mut Candidates<'_>) -> Result<(), SampleError> {
        let base = match self.pivot {
            Pivot::Top => top(candidates)?,
            Pivot::Entropy => mean_logprob(candidates)?,
            Pivot::Median => median_logprob(candidates)?,
        };
        let mu = base - self.offset;
        candidates.map_logprobs(|lp| self.bend(lp - mu))
    }

    /// `z` is the distance to the middle, in nats.
    fn bend(&self, z: f64) -> f64 {
        let Hlg { gain, width, shoulder, toe, .. } = self;
        let log = |x: f64| x.max(LEAST).ln();
        if z >= *width {
            gain * width + gain * shoulder * log(1.0 + (z - width) / shoulder)
        } else if z < -width {
            -gain * width - gain * toe * log(1.0 + (-z - width) / toe)
        } else {
            gain * z
        }
    }
}

/// The log-probability of the most likely token.
fn top(candidates: &mut Candidates<'_>) -> Result<f64, SampleError> {
    let lse = candidates.log_sum_exp()?;
    Ok(f64::from(candidates.largest()?) / f64::from(candidates.temperature()) - lse)
}

/// `sum(p ln p)`: the negative entropy.
fn mean_logprob(candidates: &mut Candidates<'_>) -> Result<f64, SampleError> {
    let (lse, temperature) = (candidates.log_sum_exp()?, f64::from(candidates.temperature()));
    let lps = candidates.entries().iter().map(|(_, logit)| f64::from(*logit) / temperature - lse);
    Ok(lps.map(|lp| lp.exp() * lp).sum())
}

/// Where the mass of the most likely tokens first reaches one half.
fn median_logprob(candidates: &mut Candidates<'_>) -> Result<f64, SampleError> {
    let (lse, temperature) = (candidates.log_sum_exp()?, f64::from(candidates.temperature()));
    let mut mass = 0.0;
    let mut median = 0.0;
    for (_, logit) in candidates.sorted() {
        median = f64::from(*logit) / temperature - lse;
        mass += median.exp();
        if mass >= 0.5 {
            break;
        }
    }
    Ok(median)
}

/// Gamma of the whole system for a display of this peak luminance, in candelas a square metre.
fn system_gamma(peak_luminance: f64) -> f64 {
    1.2 + 0.42 * (peak_luminance / 1000.0).log10()
}

/// The opto-electrical transfer: a square root below a twelfth, a logarithm above.
fn transfer(light: f64) -> f64 {
    if light <= 1.0 / 12.0 { (3.0 * light).sqrt() } else { A * (12.0 * light - B).ln() + C }
}

pub(crate) fn oetf(candidates: &mut Candidates<'_>) -> Result<(), SampleError> {
    let largest = top(candidates)?;
    candidates.map_logprobs(|lp| transfer((lp - largest).exp()).max(LEAST).ln())
}

pub(crate) fn eotf(candidates: &mut Candidates<'_>, peak_luminance: f32) -> Result<(), SampleError> {
    let largest = top(candidates)?;
    let gamma = system_gamma(f64::from(peak_luminance));
    candidates.map_logprobs(|lp| {
        let signal = (lp - largest).exp();
        let log_light = match signal < 0.5 {
            true => 2.0 * (lp - largest) - 3.0_f64.ln(),
            false => ((((signal - C) / A).exp() + B) / 12.0).ln(),
        };
        gamma * log_light
    })
}

pub(crate) fn pipeline(
    candidates: &mut Candidates<'_>,
    alpha: f32,
    peak_luminance: f32,
) -> Result<(), SampleError> {
    let largest = top(candidates)?;
    let gamma = system_gamma(f64::from(peak_luminance));
    candidates.map_logprobs(|lp| f64::from(alpha) * transfer((lp - largest).exp()).powf(gamma))
}

pub(crate) fn shaper(candidates: &mut Candidates<'_>, shaper: &Shaper) -> Result<(), SampleError> {
    let largest = top(candidates)?;
    let shape = Shape::new(shaper);
    candidates.map_logprobs(|lp| shape.scale * shape.response(lp - largest))
}

/// The shaper's coefficients.
struct Shape {
    window: f64,
    mid: (f64, f64),
    x_foot: f64,
    slope: f64,
    shoulder: f64,
    power: f64,
    /// Bends the part between foot and middle.
    k: f64,
    /// Cubic and square coefficient of the toe.
    toe: (f64, f64),
    gamma: f64,
    scale: f64,
}

impl Shape {
    fn new(shaper: &Shaper) -> Self {
        let [window, x_mid, y_mid, x_foot, y_foot] =
            [shaper.window, shaper.x_mid, shaper.y_mid, shaper.x_foot, shaper.y_foot].map(f64::from);
        let [slope, shoulder, power] = [shaper.slope, shaper.shoulder, shaper.power].map(f64::from);
        let d = x_mid - x_foot;
        let k = (y_mid - slope * d - y_foot) / d.powf(power);
        let slope_foot = slope + k * power * d.powf(power - 1.0);
        let det = -x_foot.powi(4);
        let cubic = (2.0 * y_foot * x_foot - x_foot.powi(2) * slope_foot) / det;
        let square = (x_foot.powi(3) * slope_foot - 3.0 * y_foot * x_foot.powi(2)) / det;
        let gamma = system_gamma(f64::from(shaper.peak_luminance));
        let (mid, toe) = ((x_mid, y_mid), (cubic, square));
        let mut shape = Shape { window, mid, x_foot, slope, shoulder, power, k, toe, gamma, scale: 1.0 };
        shape.scale = f64::from(shaper.target_gap) / (1.0 - shape.response(-4.0)).max(1e-6);
        shape
    }

    /// Of a token so many nats below the most likely one; that one's is 1.
    fn response(&self, below: f64) -> f64 {
        let x = (below / self.window + 1.0).clamp(0.0, 1.0);
        (self.height(x) / self.height(1.0)).max(LEAST).powf(self.gamma)
    }

    fn height(&self, x: f64) -> f64 {
        let (x_mid, y_mid) = self.mid;
        let height = if x >= x_mid {
            y_mid + self.shoulder * (1.0 + self.slope / self.shoulder * (x - x_mid)).max(LEAST).ln()
        } else if x >= self.x_foot {
            y_mid - self.slope * (x_mid - x) - self.k * (x_mid - x).powf(self.power)
        } else {
            self.toe.0 * x.powi(3) + self.toe.1 * x.powi(2)
        };
        height.max(0.0)
    }
}

/// A monotone cubic through points in nats.
///
/// Source: Fritsch and Butland (1984): interior slopes are weighted harmonic means of the secants.
#[derive(Clone, Debug)]
pub(crate) struct Curve {
    /// (x, y, slope), sorted by x, at least two.
    knots: Vec<(f64, f64, f64)>,
}

impl Curve {
    /// The points must have passed [`host_core::Sampler::check`].
    pub(crate) fn new(points: &[(f32, f32)]) -> Self {
        let nats = |per_cent: f32| (f64::from(per_cent).max(LEAST) / 100.0).ln();
        let mut points: Vec<(f64, f64)> = points.iter().map(|(x, y)| (nats(*x), nats(*y))).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let widths: Vec<f64> = points.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
        let secants: Vec<f64> =
            points.windows(2).zip(&widths).map(|(pair, width)| (pair[1].1 - pair[0].1) / width).collect();
        let last = secants.len() - 1;
        let slope = |i: usize| match i {
            0 => secants[0],
            i if i > last => secants[last],
            i if secants[i - 1] * secants[i] <= 0.0 => 0.0,
            i => {
                let (before, after) = (widths[i - 1], widths[i]);
                let (w1, w2) = (2.0 * after + before, after + 2.0 * before);
                (w1 + w2) / (w1 / secants[i - 1] + w2 / secants[i])
            }
        };
        Curve { knots: points.iter().enumerate().map(|(i, (x, y))| (*x, *y, slope(i))).collect() }
    }

    pub(crate) fn apply(&self, candidates: &mut Candidates<'_>) -> Result<(), SampleError> {
        candidates.map_logprobs(|lp| self.at(lp))
    }

    fn at(&self, x: f64) -> f64 {
        let after = self.knots.partition_point(|(knot, _, _)| *knot <= x);
        if after == 0 {
            let (x0, y0, slope) = self.knots[0];
            return y0 + slope.max(1.0) * (x - x0);
        }
        let (x0, y0, m0) = self.knots[after - 1];
        let Some((x1, y1, m1)) = self.knots.get(after).copied() else { return y0 + m0 * (x - x0) };
        let h = x1 - x0;
        let t = (x - x0) / h;
        let (t2, t3) = (t * t, t * t * t);
        (2.0 * t3 - 3.0 * t2 + 1.0) * y0
            + (t3 - 2.0 * t2 + t) * h * m0
            + (3.0 * t2 - 2.0 * t3) * y1
            + (t3 - t2) * h * m1
    }
}
