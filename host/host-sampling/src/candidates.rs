//! The tokens that may still be chosen, in the cheapest form that the samplers so far allow.
//!
//! A row is not read until a sampler needs all of it: the most likely tokens are asked of the device. Dividing by a
//! temperature is put off until a sampler needs the quotients, because most only need ratios of probabilities.

use host_device::Logits;

use crate::error::SampleError;
use crate::logprobs::scaled_log_sum_exp;
use crate::mask::TokenMask;
use crate::random::{Draw, GUMBEL_LIMIT, gumbel, gumbel_bound};

/// Tokens that a sum of probabilities looks at first; more are taken when they do not hold enough of the mass.
const FIRST_CANDIDATES: usize = 64;

/// Buffers kept from step to step.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scratch {
    dense: Vec<f32>,
    entries: Vec<(u32, f32)>,
}

/// Where the remaining tokens stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// As the device holds them, less what `mask` excludes; the most likely one is known.
    Untouched { most_likely: u32 },
    /// All of the row in `dense`; excluded tokens are negative infinity.
    Dense,
    /// Those that are left, in `entries`, most likely first where it says so.
    Sparse { is_sorted: bool },
}

/// The tokens that may still be chosen, with their logits.
pub(crate) struct Candidates<'a> {
    logits: &'a dyn Logits,
    row: usize,
    form: Form,
    /// What an untouched row is kept to when it is read. The most likely token is in it.
    mask: Option<&'a TokenMask>,
    scratch: &'a mut Scratch,
    /// Logits are still to be divided by it.
    temperature: f32,
}

impl<'a> Candidates<'a> {
    /// Every token of row `row`.
    ///
    /// # Errors
    /// [`SampleError::NotANumber`] for a NaN.
    pub(crate) fn new(
        logits: &'a dyn Logits,
        row: usize,
        scratch: &'a mut Scratch,
    ) -> Result<Self, SampleError> {
        let most_likely = logits.argmax(row).ok_or(SampleError::NotANumber)?;
        let form = Form::Untouched { most_likely };
        Ok(Candidates { logits, row, form, mask: None, scratch, temperature: 1.0 })
    }

    pub(crate) fn n_vocab(&self) -> usize {
        self.logits.n_vocab()
    }

    /// Logits are still to be divided by it.
    pub(crate) fn temperature(&self) -> f32 {
        self.temperature
    }

    /// Reads the row, unless that was done.
    fn read(&mut self) {
        if let Form::Untouched { .. } = self.form {
            self.logits.read(self.row, &mut self.scratch.dense);
            if let Some(mask) = self.mask.take() {
                mask.exclude_others(&mut self.scratch.dense);
            }
            self.form = Form::Dense;
        }
    }

    /// The whole row, while no token was dropped by rank; read where it was not.
    pub(crate) fn dense(&mut self) -> Option<&[f32]> {
        self.read();
        (self.form == Form::Dense).then_some(&self.scratch.dense[..])
    }

    /// The tokens left in no order, in a list.
    pub(crate) fn entries(&mut self) -> &mut Vec<(u32, f32)> {
        self.read();
        if self.form == Form::Dense {
            let entries = &mut self.scratch.entries;
            entries.clear();
            let all = self.scratch.dense.iter().enumerate().map(|(id, logit)| (id as u32, *logit));
            entries.extend(all.filter(|(_, logit)| *logit > f32::NEG_INFINITY));
            self.form = Form::Sparse { is_sorted: false };
        }
        &mut self.scratch.entries
    }

    /// The tokens left, most likely first, lower id first on ties.
    pub(crate) fn sorted(&mut self) -> &mut Vec<(u32, f32)> {
        self.entries();
        if self.form != (Form::Sparse { is_sorted: true }) {
            self.scratch.entries.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
            self.form = Form::Sparse { is_sorted: true };
        }
        &mut self.scratch.entries
    }

    /// Replaces the logits of the tokens left, as a function of their log-probabilities. Temperatures so far are
    /// part of those.
    pub(crate) fn map_logprobs(&mut self, map: impl Fn(f64) -> f64) -> Result<(), SampleError> {
        let lse = self.log_sum_exp()?;
        let temperature = f64::from(self.temperature);
        for (_, logit) in self.entries() {
            *logit = map(f64::from(*logit) / temperature - lse) as f32;
        }
        self.form = Form::Sparse { is_sorted: false };
        self.temperature = 1.0;
        Ok(())
    }

    /// Changes the logits of single tokens. `changes` is sorted by id; ids that are not left are passed over.
    pub(crate) fn change<T: Copy>(&mut self, changes: &[(u32, T)], change: impl Fn(T, f32) -> f32) {
        if changes.is_empty() {
            return;
        }
        self.read();
        self.divide();
        if self.form == Form::Dense {
            for (id, how) in changes {
                if let Some(logit) = self.scratch.dense.get_mut(*id as usize) {
                    *logit = change(*how, *logit);
                }
            }
            return;
        }
        for (id, logit) in &mut self.scratch.entries {
            if let Ok(i) = changes.binary_search_by_key(id, |(id, _)| *id) {
                *logit = change(changes[i].1, *logit);
            }
        }
        self.form = Form::Sparse { is_sorted: false };
    }

    /// Divides by the temperature that was put off.
    fn divide(&mut self) {
        let temperature = std::mem::replace(&mut self.temperature, 1.0);
        if temperature == 1.0 {
            return;
        }
        match self.form {
            Form::Sparse { .. } => {
                self.scratch.entries.iter_mut().for_each(|(_, logit)| *logit /= temperature)
            }
            _ => self.scratch.dense.iter_mut().for_each(|logit| *logit /= temperature),
        }
    }

    /// Divides all logits; 0 keeps the most likely token alone.
    pub(crate) fn scale(&mut self, temperature: f32) -> Result<(), SampleError> {
        if temperature == 0.0 {
            return self.keep_most_likely();
        }
        self.temperature *= temperature;
        // Beyond the smallest normal number quotients are no longer numbers.
        if self.temperature < f32::MIN_POSITIVE { self.keep_most_likely() } else { Ok(()) }
    }

    fn keep_most_likely(&mut self) -> Result<(), SampleError> {
        let best = self.most_likely()?;
        self.scratch.entries.clear();
        self.scratch.entries.push(best);
        self.form = Form::Sparse { is_sorted: true };
        self.temperature = 1.0;
        Ok(())
    }

    /// The most likely token, the lowest id on ties, with its logit. Of an untouched row it is not read: 0 stands
    /// for its logit.
    pub(crate) fn most_likely(&self) -> Result<(u32, f32), SampleError> {
        let best = match self.form {
            Form::Untouched { most_likely } => return Ok((most_likely, 0.0)),
            Form::Dense => {
                let id = host_device::argmax(&self.scratch.dense).ok_or(SampleError::NotANumber)?;
                (id, self.scratch.dense[id as usize])
            }
            Form::Sparse { .. } => largest(&self.scratch.entries)?,
        };
        check_largest(best.1).map(|()| best)
    }

    /// The largest logit left, still to be divided by the temperature.
    pub(crate) fn largest(&mut self) -> Result<f32, SampleError> {
        if let Form::Untouched { most_likely } = self.form {
            self.read();
            let largest = self.scratch.dense[most_likely as usize];
            return check_largest(largest).map(|()| largest);
        }
        self.most_likely().map(|(_, logit)| logit)
    }

    /// The logarithm of the sum of all exponentials, under the temperature.
    pub(crate) fn log_sum_exp(&mut self) -> Result<f64, SampleError> {
        self.largest()?;
        Ok(match self.form {
            Form::Sparse { .. } => {
                let logits = self.scratch.entries.iter().map(|(_, logit)| *logit);
                scaled_log_sum_exp(logits, self.temperature)
            }
            _ => scaled_log_sum_exp(self.scratch.dense.iter().copied(), self.temperature),
        })
    }

    /// Keeps what the mask allows. Where that is the most likely token of all, the row need not be read for it: most
    /// steps of a greedy request with a grammar end so.
    pub(crate) fn allow(&mut self, mask: &'a TokenMask) {
        if let (Form::Untouched { most_likely }, None) = (self.form, self.mask)
            && mask.contains(most_likely)
        {
            self.mask = Some(mask);
            return;
        }
        self.read();
        if self.form == Form::Dense {
            mask.exclude_others(&mut self.scratch.dense);
        } else {
            self.scratch.entries.retain(|(id, _)| mask.contains(*id));
        }
    }

    /// Keeps the `k` most likely tokens.
    pub(crate) fn keep_top(&mut self, k: usize) {
        if let Form::Sparse { .. } = self.form {
            return self.sorted().truncate(k);
        }
        self.scratch.entries = self.largest_entries(k);
        self.scratch.entries.retain(|(_, logit)| *logit > f32::NEG_INFINITY);
        self.form = Form::Sparse { is_sorted: true };
    }

    /// The `n` largest of a row that no rank has cut yet.
    fn largest_entries(&mut self, n: usize) -> Vec<(u32, f32)> {
        if self.mask.is_some() {
            self.read();
        }
        match self.form {
            Form::Untouched { .. } => self.logits.top(self.row, n),
            _ => host_device::top(&self.scratch.dense, n),
        }
    }

    /// Keeps the smallest set of most likely tokens whose probabilities sum to at least `p`.
    pub(crate) fn keep_mass(&mut self, p: f32) -> Result<(), SampleError> {
        let lse = self.log_sum_exp()?;
        let temperature = self.temperature;
        if let Form::Sparse { .. } = self.form {
            let entries = self.sorted();
            if let Some(n) = mass_count(entries, p, lse, temperature) {
                entries.truncate(n);
            }
            return Ok(());
        }
        let mut n = FIRST_CANDIDATES;
        loop {
            let mut kept = self.largest_entries(n);
            let is_all = kept.len() >= self.n_vocab();
            let count = mass_count(&kept, p, lse, temperature);
            if count.is_some() || is_all {
                kept.truncate(count.unwrap_or(kept.len()));
                kept.retain(|(_, logit)| *logit > f32::NEG_INFINITY);
                self.scratch.entries = kept;
                self.form = Form::Sparse { is_sorted: true };
                return Ok(());
            }
            n *= 8;
        }
    }

    /// Keeps the tokens whose logit (not divided by the temperature) is at least `lowest`.
    pub(crate) fn keep_from(&mut self, lowest: f32) {
        self.read();
        if self.form == Form::Dense {
            let entries = &mut self.scratch.entries;
            entries.clear();
            let all = self.scratch.dense.iter().enumerate().map(|(id, logit)| (id as u32, *logit));
            entries.extend(all.filter(|(_, logit)| *logit >= lowest && *logit > f32::NEG_INFINITY));
            self.form = Form::Sparse { is_sorted: false };
        } else {
            self.scratch.entries.retain(|(_, logit)| *logit >= lowest);
        }
    }

    /// Draws one token: `argmax(logit / temperature + g)`, one Gumbel number `g` for each.
    pub(crate) fn draw(&mut self, draw: &Draw) -> Result<u32, SampleError> {
        if let Form::Sparse { .. } = self.form {
            let (first, largest) = largest(&self.scratch.entries)?;
            check_largest(largest)?;
            let entries = self.scratch.entries.iter().copied();
            return Ok(draw_from(entries, first, largest, self.temperature, draw));
        }
        let first = match self.form {
            Form::Untouched { most_likely } => most_likely,
            _ => self.most_likely()?.0,
        };
        self.read();
        let largest = self.scratch.dense[first as usize];
        check_largest(largest)?;
        let all = self.scratch.dense.iter().enumerate().map(|(id, logit)| (id as u32, *logit));
        Ok(draw_from(all, first, largest, self.temperature, draw))
    }
}

fn check_largest(largest: f32) -> Result<(), SampleError> {
    match largest {
        f32::NEG_INFINITY => Err(SampleError::NothingLeft),
        largest if largest.is_finite() => Ok(()),
        _ => Err(SampleError::NotANumber),
    }
}

/// The largest entry, the lowest id on ties.
fn largest(entries: &[(u32, f32)]) -> Result<(u32, f32), SampleError> {
    if entries.iter().any(|(_, logit)| logit.is_nan()) {
        return Err(SampleError::NotANumber);
    }
    let best =
        entries.iter().copied().reduce(|a, b| if b.1 > a.1 || (b.1 == a.1 && b.0 < a.0) { b } else { a });
    best.ok_or(SampleError::NothingLeft)
}

/// How many of the most likely tokens hold at least `p` of the mass; `None` when all of them do not.
fn mass_count(sorted: &[(u32, f32)], p: f32, lse: f64, temperature: f32) -> Option<usize> {
    let mut mass = 0.0_f64;
    for (i, (_, logit)) in sorted.iter().enumerate() {
        mass += (f64::from(*logit) / f64::from(temperature) - lse).exp();
        if mass >= f64::from(p) {
            return Some(i + 1);
        }
    }
    None
}

/// The most likely token goes first, so that most of the others are ruled out without a logarithm.
fn draw_from(
    entries: impl Iterator<Item = (u32, f32)>,
    most_likely: u32,
    largest: f32,
    temperature: f32,
    draw: &Draw,
) -> u32 {
    let mut best = (most_likely, gumbel(draw.word(most_likely)));
    for (id, logit) in entries {
        let score = (logit - largest) / temperature;
        if score + GUMBEL_LIMIT < best.1 || logit == f32::NEG_INFINITY {
            continue;
        }
        let word = draw.word(id);
        if score + gumbel_bound(word) >= best.1 {
            let score = score + gumbel(word);
            if score > best.1 || (score == best.1 && id < best.0) {
                best = (id, score);
            }
        }
    }
    best.0
}
