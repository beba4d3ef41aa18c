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
use host_text::{ChatInput, Tokenizer};
use serde_json::Map;
use tests::golden::{Generation, Prompt, PromptKind};
use tests::judge::generate;
use tests::model::{overrides, told};
use tests::{Host, skip};

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
    let prompts: Vec<&Prompt> = golden.prompts.iter().collect();
    let judge = generate(&golden, &prompts, fixture_name, &mut *model.compile(), TOLERANCE);
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
