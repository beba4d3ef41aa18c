//! `tenon bench`: speed and memory of a model as it is composed, measured through the engine like any request.

use std::time::{Duration, Instant};

use host_core::SamplingSettings;
use host_device::{MemoryPlan, PlanRuns, process_peak_bytes};
use host_engine::{Engine, Event, Outcome, Request};
use host_service::Opened;
use serde::Serialize;
use serde_json::json;

use super::generate::{milliseconds, rounded};
use super::models::bytes;
use super::{print, print_json};
use crate::args::{BenchArgs, FolderArgs};
use crate::error::{CliError, Failure};
use crate::exit::Exit;
use crate::interrupt::Interrupt;
use crate::open::{load_host, open};

/// The prompt whose first token is timed.
const SHORT_PROMPT: usize = 20;

/// A value that was measured several times.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Measured {
    median: f64,
    min: f64,
    max: f64,
}

/// Everything measured.
#[derive(Debug, Serialize)]
struct Measurements {
    /// Opening: profile, plugin, weights, tokenizer.
    open_ms: f64,
    /// From the start of the process to the first token of a 20-token prompt, opening included.
    start_to_first_token_ms: f64,
    /// The same prompt in an open model.
    first_token_ms: Measured,
    prefill_tokens_per_second: Measured,
    decode: Vec<Decode>,
    memory: MemoryPlan,
    /// Steps by the form of the plan that ran them.
    plan_runs: PlanRuns,
    /// Largest resident size of the process; absent where the system does not tell.
    peak_bytes: Option<u64>,
}

#[derive(Debug, Serialize)]
struct Decode {
    sequences: usize,
    /// Of all sequences together.
    tokens_per_second: Measured,
}

pub(crate) fn run(folders: &FolderArgs, args: &BenchArgs, started: Instant) -> Result<Exit, Failure> {
    Interrupt::watch()?;
    let host = load_host(folders)?;
    let Opened { composition, mut engine, .. } = open(&host, &args.model, &args.compose)?;
    let opened = started.elapsed();
    let options = composition.options();
    check(args, options.max_sequences, options.context_tokens)?;
    let measured = measure(&mut engine, args, started, opened)?;
    let found = json!({
        "profile": composition.profile_id(),
        "composition": composition.hash().to_string(),
        "numeric": options.numeric,
        "kv": options.kv.signature(),
        "threads": options.n_threads,
        "prompt_tokens": args.prompt_tokens,
        "new_tokens": args.new_tokens,
        "context": args.context,
        "repeat": args.repeat,
        "measured": measured,
    });
    if args.json {
        return print_json(&found);
    }
    let title = format!(
        "{} · {} · {} · {} threads\n",
        composition.profile_id(),
        options.numeric,
        options.kv.signature(),
        options.n_threads
    );
    print(&(title + &text(&measured, args)))
}

/// Sequences that would have to wait for each other would be measured wrongly.
fn check(args: &BenchArgs, max_sequences: usize, context_tokens: usize) -> Result<(), CliError> {
    let wrong = |flag, expected, found: String| Err(CliError::Value { flag, expected, found });
    if args.repeat == 0 {
        return wrong("--repeat", "at least 1", args.repeat.to_string());
    }
    if args.new_tokens < 2 {
        return wrong("--new-tokens", "at least 2", args.new_tokens.to_string());
    }
    if args.context == 0 || args.context + args.new_tokens > context_tokens {
        let expected = "at least 1, and with --new-tokens no more than the composition's context_tokens";
        return wrong("--context", expected, args.context.to_string());
    }
    if args.prompt_tokens == 0 || args.prompt_tokens > context_tokens {
        return wrong(
            "--prompt-tokens",
            "from 1 to the composition's context_tokens",
            args.prompt_tokens.to_string(),
        );
    }
    match args.sequences.iter().find(|n| !(1..=max_sequences).contains(*n)) {
        Some(n) => wrong(
            "--sequences",
            "from 1 to the composition's max_sequences (see --max-sequences)",
            n.to_string(),
        ),
        None => Ok(()),
    }
}

fn measure(
    engine: &mut Engine,
    args: &BenchArgs,
    started: Instant,
    opened: Duration,
) -> Result<Measurements, Failure> {
    let mut prompts = Prompts { n_vocab: engine.executable().n_vocab() as u64, n_drawn: 0 };
    first_token(engine, prompts.draw(SHORT_PROMPT))?;
    let start_to_first_token = started.elapsed();
    let mut short = Vec::new();
    let mut prefill = Vec::new();
    let mut decode = vec![Vec::new(); args.sequences.len()];
    // Rounds are interleaved, so that a slow minute of the machine does not fall on one measurement.
    for _ in 0..args.repeat {
        short.push(milliseconds(first_token(engine, prompts.draw(SHORT_PROMPT))?));
        let time = first_token(engine, prompts.draw(args.prompt_tokens))?;
        prefill.push(args.prompt_tokens as f64 / time.as_secs_f64());
        for (n_sequences, rounds) in args.sequences.iter().zip(&mut decode) {
            let drawn = (0..*n_sequences).map(|_| prompts.draw(args.context)).collect();
            rounds.push(decode_speed(engine, drawn, args.new_tokens)?);
        }
    }
    let decode = args.sequences.iter().zip(&decode);
    Ok(Measurements {
        open_ms: milliseconds(opened),
        start_to_first_token_ms: milliseconds(start_to_first_token),
        first_token_ms: Measured::of(&short),
        prefill_tokens_per_second: Measured::of(&prefill),
        decode: decode
            .map(|(n, rounds)| Decode { sequences: *n, tokens_per_second: Measured::of(rounds) })
            .collect(),
        memory: engine.executable().memory(),
        plan_runs: engine.executable().plan_runs(),
        peak_bytes: process_peak_bytes(),
    })
}

fn request(prompt: Vec<u32>, max_tokens: usize) -> Request {
    Request::new(prompt, max_tokens, SamplingSettings::GREEDY)
}

/// How long the only token of a request takes.
fn first_token(engine: &mut Engine, prompt: Vec<u32>) -> Result<Duration, Failure> {
    let started = Instant::now();
    engine.submit(request(prompt, 1))?;
    while !engine.is_idle() {
        engine.step().into_iter().try_for_each(refuse_failure)?;
    }
    Ok(started.elapsed())
}

/// Tokens a second of all sequences together, while all of them decode.
fn decode_speed(engine: &mut Engine, prompts: Vec<Vec<u32>>, new_tokens: usize) -> Result<f64, Failure> {
    let n_sequences = prompts.len();
    // Some decode while the last prompt is read; so many more steps are left for all together.
    for prompt in prompts {
        engine.submit(request(prompt, new_tokens))?;
    }
    let mut n_decoding = std::collections::BTreeSet::new();
    let mut since: Option<Instant> = None;
    let mut n_tokens = 0;
    let mut elapsed = Duration::ZERO;
    let mut is_over = false;
    while !engine.is_idle() {
        let events = engine.step();
        let n_new = events.iter().filter(|event| matches!(event.outcome, Outcome::Token { .. })).count();
        if let (Some(since), false) = (since, is_over) {
            n_tokens += n_new;
            elapsed = since.elapsed();
        }
        n_decoding.extend(events.iter().map(|event| event.request));
        is_over |= events.iter().any(|event| matches!(event.outcome, Outcome::Finished { .. }));
        events.into_iter().try_for_each(refuse_failure)?;
        if since.is_none() && n_decoding.len() == n_sequences {
            since = Some(Instant::now());
        }
    }
    Ok(n_tokens as f64 / elapsed.as_secs_f64())
}

fn refuse_failure(event: Event) -> Result<(), Failure> {
    match event.outcome {
        Outcome::Failed(report) => Err(report.into()),
        Outcome::Token { .. } | Outcome::Finished { .. } => Ok(()),
    }
}

/// Prompts of ids that no tokenizer would give, each another: speed does not depend on what they mean.
struct Prompts {
    n_vocab: u64,
    n_drawn: u64,
}

impl Prompts {
    fn draw(&mut self, n_tokens: usize) -> Vec<u32> {
        let mut next = || {
            self.n_drawn += 1;
            (self.n_drawn.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33) % self.n_vocab
        };
        (0..n_tokens).map(|_| next() as u32).collect()
    }
}

impl Measured {
    /// Of at least one value.
    fn of(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let median = match sorted.len() % 2 {
            0 => (sorted[middle - 1] + sorted[middle]) / 2.0,
            _ => sorted[middle],
        };
        Measured {
            median: rounded(median, 2),
            min: rounded(sorted[0], 2),
            max: rounded(sorted[sorted.len() - 1], 2),
        }
    }
}

fn text(found: &Measurements, args: &BenchArgs) -> String {
    let speed = |measured: &Measured| {
        let Measured { median, min, max } = measured;
        format!("{median:8.1} tokens/s  ({min:.1} to {max:.1})")
    };
    let mut lines = vec![
        format!("open                {:8.0} ms", found.open_ms),
        format!(
            "start to first      {:8.0} ms  ({SHORT_PROMPT}-token prompt, opening included)",
            found.start_to_first_token_ms
        ),
        format!("first token         {:8.1} ms  ({SHORT_PROMPT}-token prompt)", found.first_token_ms.median),
        format!("prefill {:<11} {}", args.prompt_tokens, speed(&found.prefill_tokens_per_second)),
    ];
    for decode in &found.decode {
        lines.push(format!("decode  x{:<10} {}", decode.sequences, speed(&decode.tokens_per_second)));
    }
    let plan = &found.memory;
    lines.push(format!(
        "memory plan         {:>11}  (weights {}, state {}, activations {})",
        bytes(plan.total_bytes()),
        bytes(plan.weights_bytes),
        bytes(plan.state_bytes),
        bytes(plan.activation_bytes)
    ));
    let peak = found.peak_bytes.map_or("not told by this system".to_owned(), bytes);
    lines.push(format!("peak resident       {peak:>11}"));
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        let cases = [(&[3.0][..], 3.0), (&[1.0, 9.0, 2.0], 2.0), (&[4.0, 1.0], 2.5)];
        for (values, median) in cases {
            assert_eq!(Measured::of(values).median, median, "{values:?}");
        }
    }

    #[test]
    fn prompts_differ_and_stay_in_the_vocabulary() {
        let mut prompts = Prompts { n_vocab: 50, n_drawn: 0 };
        let (first, second) = (prompts.draw(40), prompts.draw(40));
        assert_ne!(first, second);
        assert!(first.iter().chain(&second).all(|id| *id < 50));
    }
}
