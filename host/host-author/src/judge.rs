//! What every policy promises, whatever its cases say, judged at one step of one instance.

use std::sync::Arc;

use host_core::{Report, Reported, Sampler, SamplingChain};
use host_device::Logits as _;
use host_plugins::{PluginError, PolicyTraits};
use host_sampling::{Chain, Edits, StepInput};

use crate::life::{Actor, Stage};
use crate::record::EditsRecord;
use crate::row::Row;

/// What comes after a step.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Next {
    /// These tokens: the drawn one, or all forced ones.
    Tokens(Vec<u32>),
    /// The policy ends the request.
    Finished,
}

/// A policy's fault as an author reads it: the host's own report, and where it happened.
pub(crate) fn fault(error: &PluginError, at: &str) -> Report {
    error.report().note(format!("at {at}"))
}

/// Chooses the token that a host would draw, or the most likely one.
///
/// # Errors
/// A [`Report`] when nothing is left to choose, or the edits contradict each other.
pub(crate) fn next(
    edits: &Edits,
    history: &[u32],
    position: usize,
    row: &Row,
    is_greedy: bool,
) -> Result<Next, Report> {
    if edits.finish.is_some() {
        return Ok(Next::Finished);
    }
    let samplers = if is_greedy { vec![Sampler::Temperature { temperature: 0.0 }] } else { Vec::new() };
    let chain = SamplingChain { samplers, special_ids: Vec::new(), seed: 0 };
    let mut chain = Chain::new(&chain).map_err(|error| error.report())?;
    let step = StepInput { logits: row, row: 0, history, step: position as u64, logprobs: None };
    let choice = chain.choose(&step, edits).map_err(|error| {
        let report = error.report();
        Report::new("author.illegal-edits", format!("no token can follow: {}", report.message))
            .expected("edits that leave at least one token, or `finish`")
            .found(EditsRecord::of(edits).told())
    })?;
    Ok(Next::Tokens(if edits.forced.is_empty() { vec![choice.token_id] } else { edits.forced.clone() }))
}

/// Judges a step that gave `edits`: a token can follow, the claim on the most likely token holds, and a fresh instance
/// with the same life does the same. `past` tells what the instance went through: forks, tokens taken back.
///
/// # Errors
/// The first [`Report`] of what does not hold.
pub(crate) fn step(
    stage: &Stage<'_>,
    traits: PolicyTraits,
    actor: &Actor,
    row: &Row,
    edits: &Edits,
    past: Past,
) -> Result<Next, Report> {
    let (history, position) = (actor.life().tokens(), actor.life().position());
    let next = next(edits, &history, position, row, false)?;
    if traits.is_argmax_invariant {
        keeps_the_most_likely(edits, &history, position, row)?;
    }
    let (found, expected) = (EditsRecord::of(edits), stage.relive(actor.life()));
    let expected = expected.map_err(|error| fault(&error, "the same steps in a fresh instance"))?;
    let expected = EditsRecord::of(&expected);
    if found == expected {
        return Ok(next);
    }
    Err(past.report().expected(expected.told()).found(found.told()))
}

/// What an instance went through beside plain steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Past {
    pub(crate) has_forked: bool,
    pub(crate) has_rolled_back: bool,
}

impl Past {
    /// What a difference from a fresh instance means.
    fn report(self) -> Report {
        match (self.has_rolled_back, self.has_forked) {
            (false, false) => {
                Report::new("author.not-deterministic", "two instances do different things in the same steps")
                    .mend("let a step depend on its arguments, params and `random_u32` alone")
            }
            (true, false) => Report::new(
                "author.rollback",
                "after a rollback the policy acts otherwise than if it had never seen those tokens",
            )
            .mend("let `rollback` restore the state as it was before them, or do not offer it"),
            (false, true) => {
                Report::new("author.fork", "a fork acts otherwise than the instance it came from")
                    .mend("let `fork` copy the whole state, shared tables too, or do not offer it")
            }
            (true, true) => Report::new(
                "author.rollback-or-fork",
                "after forks and rollbacks the policy acts otherwise than an instance that saw what remains",
            )
            .mend("let `fork` copy and `rollback` restore the whole state, or do not offer them"),
        }
    }
}

fn keeps_the_most_likely(edits: &Edits, history: &[u32], position: usize, row: &Row) -> Result<(), Report> {
    let before = row.argmax(0);
    let after = next(edits, history, position, row, true)?;
    if before.is_some_and(|token| after == Next::Tokens(vec![token])) {
        return Ok(());
    }
    let shown = match after {
        Next::Finished => "the request's end".to_owned(),
        Next::Tokens(tokens) => format!("{tokens:?}"),
    };
    Err(Report::new("author.argmax", "`describe` says argmax-invariant, but the most likely token changed")
        .expected(before.map_or("numbers".to_owned(), |token| format!("[{token}]")))
        .found(shown)
        .mend("claim it only for what keeps the most likely token, such as a temperature"))
}

/// Whether a step may end so when the host refused a call: with that refusal, or in the author's own words, and never
/// with a trap, an error of the script, or more than its budget.
pub(crate) fn is_clean(error: &PluginError) -> bool {
    match error {
        PluginError::Step { .. }
        | PluginError::Build { .. }
        | PluginError::Guest { .. }
        | PluginError::InvalidConfig { .. }
        | PluginError::Unsupported { .. }
        | PluginError::Output { .. } => true,
        // The host ended the guest at an earlier call of the same request, which was judged then.
        PluginError::Ended { .. } => true,
        _ => false,
    }
}

/// The report of an end that [`is_clean`] denies.
pub(crate) fn unclean(error: &PluginError, refused: &str) -> Report {
    let report = error.report();
    Report::new(
        "author.unclean-refusal",
        format!("the host refused {refused}, and the plugin did not pass it on"),
    )
    .expected("the host's own refusal, passed on")
    .found(format!("{}: {}", report.code, report.message))
    .mend("in Rust pass errors on with `?`; in Lua let them fly, and expect them where you call `pcall`")
}

/// A row for a position.
pub(crate) fn row_at(seed: u64, position: usize, n_vocab: u32) -> Arc<Row> {
    Arc::new(Row::of_formula(seed, position as u64, n_vocab))
}
