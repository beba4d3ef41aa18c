//! Policies run without a model: logits that are a function of the tokens so far, a vocabulary of numbers, and the
//! loop that an engine has.

use std::sync::Arc;

use host_core::{FinishReason, SamplingChain};
use host_device::{Logits, top};
use host_plugins::{PluginError, PolicyInput, PolicyInstance, PolicyVocabulary};
use host_sampling::{Chain, Edits, RowView, StepInput};

/// Token `i` is spelled as the number `i` and a space.
#[derive(Clone, Copy, Debug)]
pub struct Numbers(pub u32);

impl PolicyVocabulary for Numbers {
    fn n_vocab(&self) -> u32 {
        self.0
    }

    fn eos_ids(&self) -> Vec<u32> {
        vec![0]
    }

    fn token_bytes(&self, id: u32) -> Option<Vec<u8>> {
        (id < self.0).then(|| format!("{id} ").into_bytes())
    }

    fn encode(&self, text: &str) -> Option<Vec<u32>> {
        text.split_whitespace().map(|word| word.parse().ok().filter(|id| *id < self.0)).collect()
    }
}

/// Token `i` is spelled as the byte `i`; 0 ends a generation. What constraints need: every text has its tokens.
#[derive(Clone, Copy, Debug)]
pub struct Bytes;

impl PolicyVocabulary for Bytes {
    fn n_vocab(&self) -> u32 {
        128
    }

    fn eos_ids(&self) -> Vec<u32> {
        vec![0]
    }

    fn token_bytes(&self, id: u32) -> Option<Vec<u8>> {
        u8::try_from(id).ok().filter(u8::is_ascii).map(|byte| vec![byte])
    }

    fn encode(&self, text: &str) -> Option<Vec<u32>> {
        text.is_ascii().then(|| text.bytes().map(u32::from).collect())
    }
}

/// One row of logits.
pub struct Row(pub Vec<f32>);

impl Logits for Row {
    fn n_rows(&self) -> usize {
        1
    }

    fn n_vocab(&self) -> usize {
        self.0.len()
    }

    fn read(&self, _: usize, out: &mut Vec<f32>) {
        out.clone_from(&self.0);
    }

    fn argmax(&self, _: usize) -> Option<u32> {
        host_device::argmax(&self.0)
    }

    fn top(&self, _: usize, n: usize) -> Vec<(u32, f32)> {
        top(&self.0, n)
    }
}

/// Logits between -4 and 4 that are a function of the last three tokens, so that greedy decoding soon repeats itself.
pub fn logits(n_vocab: u32, tokens: &[u32]) -> Row {
    let mut state: u64 = 0x9E37_79B9_7F4A_7C15;
    for token in tokens.iter().rev().take(3) {
        state = (state ^ u64::from(*token)).wrapping_mul(0xD134_2543_DE82_EF95).rotate_left(29);
    }
    let logit = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 21) as f32 - 4.0
    };
    Row((0..n_vocab).map(logit).collect())
}

/// A request that runs without an engine.
pub struct Loop {
    /// The prompt and what was generated.
    pub tokens: Vec<u32>,
    n_prompt: usize,
    n_told: usize,
    n_vocab: u32,
    chain: Chain,
}

impl Loop {
    /// Before the first step.
    pub fn new(n_vocab: u32, prompt: &[u32], chain: &SamplingChain) -> Self {
        let chain = Chain::new(chain).expect("the chain is good");
        Loop { tokens: prompt.to_vec(), n_prompt: prompt.len(), n_told: 0, n_vocab, chain }
    }

    /// What the policy does to the next step.
    ///
    /// # Errors
    /// The policy's.
    pub fn edits(&mut self, policy: &mut dyn PolicyInstance) -> Result<Edits, PluginError> {
        let row = logits(self.n_vocab, &self.tokens);
        let input = PolicyInput {
            row: Some(&RowView::new(&row, 0)),
            accepted: &self.tokens[self.n_told..],
            generated: self.generated(),
            seed: self.chain.seed(),
        };
        let edits = policy.step(&input)?;
        self.n_told = self.tokens.len();
        Ok(edits)
    }

    /// One step; the reason when the policy ends the request.
    ///
    /// # Errors
    /// The policy's.
    pub fn step(&mut self, policy: &mut dyn PolicyInstance) -> Result<Option<FinishReason>, PluginError> {
        let mut edits = self.edits(policy)?;
        if let Some(reason) = edits.finish.take() {
            return Ok(Some(reason));
        }
        let row = logits(self.n_vocab, &self.tokens);
        let step = (self.tokens.len() - self.n_prompt) as u64;
        let input = StepInput { logits: &row, row: 0, history: &self.tokens, step, logprobs: None };
        let choice = self.chain.choose(&input, &edits).expect("a token can be chosen");
        self.tokens.push(choice.token_id);
        Ok(None)
    }

    /// What was generated.
    pub fn generated(&self) -> &[u32] {
        &self.tokens[self.n_prompt..]
    }
}

/// The vocabulary of a suite.
pub fn numbers(n_vocab: u32) -> Arc<dyn PolicyVocabulary> {
    Arc::new(Numbers(n_vocab))
}
