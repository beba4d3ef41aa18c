//! Greedy generation in exact numbers against the oracle: the prompt's tokens, 64 generated tokens and their logits.
//!
//! Every prompt is fed with the oracle's tokens, so a step is right where its most likely token is the oracle's: as
//! long as all are, that is greedy decoding. A difference is allowed only between tokens that the oracle itself
//! holds within 0.01 of each other; what follows is still compared.
//!
//! All prompts decode together as one ragged batch, which reads the weights once a step.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::time::SystemTime;

use host_core::Numeric;
use host_device::{Executable, Logits, LogitsFor, SequenceId, TokenRun, argmax};
use host_text::{ChatInput, Tokenizer};
use serde_json::Map;
use tests::golden::{Generation, Prompt, PromptKind, Tensors, log_sum_exp};
use tests::model::{overrides, told};
use tests::places::fixture;
use tests::rows::largest_difference;
use tests::{Host, skip};

/// How near two logits of the oracle must be for their order not to matter.
const NEAR: f32 = 0.01;
/// The largest difference of a logit to the oracle's. The oracle's own two ways to compute a step, with and without
/// its cache, differ by up to 1.2e-4.
const TOLERANCE: f32 = 1e-3;

#[test]
fn smollm2_generates_what_the_oracle_does() {
    check("smollm2-135m", 20);
}

#[test]
fn gemma3_generates_what_the_oracle_does() {
    check("gemma3-270m", 20);
}

fn check(fixture_name: &str, at_least: usize) {
    let golden = Generation::read(fixture_name);
    assert!(golden.prompts.len() >= at_least && golden.n_steps == 64, "the goldens are whole");
    let Some(path) = skip::model_file(&golden.model_file, &golden.model_sha256) else { return };

    let longest = golden.prompts.iter().map(|prompt| prompt.prompt_ids.len()).max().unwrap();
    assert!(longest > 1400, "a long prompt is among them");
    let overrides = overrides(Numeric::Exact, longest + golden.n_steps, golden.prompts.len(), longest);
    let model = Host::lua().open(&path, &overrides).unwrap();
    assert_eq!(model.graph.n_vocab(), golden.vocab_size);
    let tokenizer = model.tokenizer();
    for prompt in &golden.prompts {
        check_text(prompt, &tokenizer);
    }
    let judge = generate(&golden, fixture_name, &mut *model.compile());
    println!(
        "{fixture_name}: {} prompts, largest difference of a logit {:.2e}, of a log-probability {:.2e}; {} steps \
         chose another of two near tokens",
        golden.prompts.len(),
        judge.logits,
        judge.logprobs,
        judge.n_near,
    );
    assert!(judge.faults.is_empty(), "{} faults:\n{}", judge.faults.len(), judge.faults.join("\n"));
    assert!(judge.n_steps == golden.prompts.len() * golden.n_steps, "every step was judged");
}

/// The prompt's tokens come from our own template and tokenizer, and the answer's text from its tokens.
fn check_text(prompt: &Prompt, tokenizer: &Tokenizer) {
    let name = &prompt.name;
    let ids = match prompt.kind {
        PromptKind::Raw | PromptKind::Literal => tokenizer.encode(&prompt.rendered, true, true),
        PromptKind::Chat => {
            let rendered = told(told(tokenizer.chat_template()).render(&ChatInput {
                messages: prompt.messages.as_deref().expect("a chat has messages"),
                tools: &[],
                add_generation_prompt: true,
                special: tokenizer.special(),
                variables: &Map::new(),
                now: SystemTime::now(),
            }));
            assert_eq!(rendered, prompt.rendered, "{name}: the template");
            tokenizer.encode(&rendered, false, true)
        }
    };
    assert_eq!(told(ids), prompt.prompt_ids, "{name}: the prompt's tokens");
    assert_eq!(tokenizer.decode(&prompt.output_ids, false), prompt.output_text, "{name}: the answer's text");
}

/// Feeds each prompt whole, then all answers token by token together.
fn generate<'a>(golden: &'a Generation, fixture_name: &str, executable: &mut dyn Executable) -> Judge<'a> {
    let first = Tensors::read(&fixture(fixture_name).join("first_position_logits.safetensors"));
    let mut judge = Judge::new(golden);
    let mut sequences: Vec<(SequenceId, &Prompt)> = Vec::new();
    for prompt in &golden.prompts {
        let sequence = told(executable.new_sequence());
        let run = TokenRun { sequence, tokens: &prompt.prompt_ids, logits: LogitsFor::Last };
        let logits = told(executable.step(&[run]));
        judge.step(prompt, 0, logits, 0);
        if first.names().any(|name| name == prompt.name) {
            judge.whole_row(prompt, &first.f32s(&prompt.name));
        }
        sequences.push((sequence, prompt));
    }
    assert!(
        judge.n_whole_rows == first.names().count() && judge.n_whole_rows > 0,
        "every whole row was judged"
    );
    for t in 1..golden.n_steps {
        let run = |(sequence, prompt): &(SequenceId, &'a Prompt)| TokenRun {
            sequence: *sequence,
            tokens: &prompt.output_ids[t - 1..t],
            logits: LogitsFor::Last,
        };
        let runs: Vec<TokenRun<'a>> = sequences.iter().map(run).collect();
        let logits = told(executable.step(&runs));
        for (row, (_, prompt)) in sequences.iter().enumerate() {
            judge.step(prompt, t, logits, row);
        }
    }
    judge
}

/// What was compared, and what differs.
struct Judge<'a> {
    golden: &'a Generation,
    row: Vec<f32>,
    logits: f32,
    logprobs: f32,
    n_steps: usize,
    n_whole_rows: usize,
    n_near: usize,
    faults: Vec<String>,
}

impl<'a> Judge<'a> {
    fn new(golden: &'a Generation) -> Self {
        Judge {
            golden,
            row: Vec::new(),
            logits: 0.0,
            logprobs: 0.0,
            n_steps: 0,
            n_whole_rows: 0,
            n_near: 0,
            faults: Vec::new(),
        }
    }

    /// Compares one step of one prompt: the most likely token, the best five logits and their log-probabilities.
    fn step(&mut self, prompt: &Prompt, t: usize, logits: &dyn Logits, row: usize) {
        logits.read(row, &mut self.row);
        assert_eq!(self.row.len(), self.golden.vocab_size);
        self.n_steps += 1;
        self.check_choice(prompt, t, argmax(&self.row));
        let normaliser = log_sum_exp(&self.row);
        let found = prompt.top_ids[t].map(|id| self.row[id as usize]);
        let difference = largest_difference(&found, &prompt.top_logits[t]);
        self.within(&format!("{} step {t}: logits", prompt.name), difference);
        self.logits = self.logits.max(difference);
        let found = found.map(|logit| (f64::from(logit) - normaliser) as f32);
        let difference = largest_difference(&found, &prompt.top_logprobs[t]);
        self.within(&format!("{} step {t}: log-probabilities", prompt.name), difference);
        self.logprobs = self.logprobs.max(difference);
    }

    fn check_choice(&mut self, prompt: &Prompt, t: usize, found: Option<u32>) {
        let expected = prompt.output_ids[t];
        if found == Some(expected) {
            return;
        }
        let [best, ..] = prompt.top_logits[t];
        let mut near =
            prompt.top_ids[t].iter().zip(prompt.top_logits[t]).filter(|(_, logit)| best - logit < NEAR);
        if near.any(|(id, _)| Some(*id) == found) && prompt.argmax_margin[t] < NEAR {
            self.n_near += 1;
            return;
        }
        let margin = prompt.argmax_margin[t];
        self.faults
            .push(format!("{} step {t}: {found:?} in place of {expected}, margin {margin}", prompt.name));
    }

    /// Compares every logit of the row that was read last.
    fn whole_row(&mut self, prompt: &Prompt, expected: &[f32]) {
        let difference = largest_difference(&self.row, expected);
        self.within(&format!("{}: the whole first row", prompt.name), difference);
        self.logits = self.logits.max(difference);
        self.n_whole_rows += 1;
    }

    fn within(&mut self, what: &str, difference: f32) {
        let is_within = difference <= TOLERANCE;
        if !is_within {
            self.faults.push(format!("{what} differ by {difference:e}"));
        }
    }
}
