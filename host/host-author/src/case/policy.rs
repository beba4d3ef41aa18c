//! Cases of sampling policies: what is accepted, step by step, and all that the policy does.

use host_core::Sampler;
use host_plugins::{Grants, PolicyVocabulary, Right};
use host_sampling::TokenMask;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::Placed;
use crate::error::AuthorError;
use crate::record::EditsRecord;
use crate::vocabulary::{FakeVocabulary, Family};

/// One case, as it is written.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PolicyCase {
    pub(crate) about: String,
    /// Each of them runs the case.
    #[serde(default = "tiny")]
    pub(crate) vocabularies: Vec<Family>,
    #[serde(default)]
    pub(crate) params: Map<String, Value>,
    #[serde(default)]
    pub(crate) grants: Vec<Right>,
    /// The request's seed.
    #[serde(default)]
    pub(crate) seed: u64,
    /// The seed of the formula for logits.
    #[serde(default)]
    pub(crate) logits_seed: u64,
    prompt: Option<String>,
    prompt_ids: Option<Vec<u32>>,
    /// The code of the error with which `open` must end; such a case has no steps.
    pub(crate) refused: Option<String>,
    #[serde(default)]
    pub(crate) step: Vec<StepCase>,
}

fn tiny() -> Vec<Family> {
    vec![Family::Tiny]
}

/// A token by its id or by its text.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Token {
    Id(u32),
    Text(String),
}

/// One step, as it is written.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StepCase {
    /// Tokens taken back before anything else.
    #[serde(default)]
    pub(crate) rollback: u32,
    #[serde(default)]
    accept: Vec<Token>,
    /// Logits in place of the formula; other tokens have -20.
    logits: Option<Vec<(Token, f32)>>,
    allowed: Option<Vec<Token>>,
    excluded: Option<Vec<Token>>,
    #[serde(default)]
    bias: Vec<(Token, f32)>,
    #[serde(default)]
    samplers: Vec<Sampler>,
    #[serde(default)]
    forced: Vec<Token>,
    finish: Option<String>,
    /// The code of the error with which the step must end.
    pub(crate) error: Option<String>,
}

/// One step with every token resolved.
#[derive(Clone, Debug)]
pub(crate) struct ReadyStep {
    pub(crate) rollback: u32,
    pub(crate) accept: Vec<u32>,
    pub(crate) logits: Option<Vec<(u32, f32)>>,
    pub(crate) expected: Result<EditsRecord, String>,
}

impl PolicyCase {
    /// What the profile would grant.
    pub(crate) fn grants(&self) -> Grants {
        Grants::new(self.grants.iter().copied())
    }

    /// The params as the hook gets them.
    pub(crate) fn params_text(&self) -> String {
        Value::Object(self.params.clone()).to_string()
    }
}

impl Placed<PolicyCase> {
    /// The prompt's tokens.
    ///
    /// # Errors
    /// [`AuthorError::CaseValue`] for two prompts, one that cannot be spelled, or none where there are steps.
    pub(crate) fn prompt(&self, vocabulary: &FakeVocabulary) -> Result<Vec<u32>, AuthorError> {
        match (&self.case.prompt, &self.case.prompt_ids) {
            (None, Some(ids)) => {
                ids.iter().map(|id| self.token(vocabulary, &Token::Id(*id))).collect::<Result<_, _>>()
            }
            (Some(text), None) => vocabulary.encode(text).ok_or_else(|| {
                self.wrong(format!("prompt {text:?}"), "a text that the vocabulary can spell")
            }),
            (None, None) if self.case.step.is_empty() => Ok(Vec::new()),
            _ => Err(self.wrong("the prompt".to_owned(), "one of `prompt` and `prompt_ids`")),
        }
    }

    /// The steps with their tokens.
    ///
    /// # Errors
    /// [`AuthorError::CaseValue`] for a token that the vocabulary does not have, or expectations that exclude each
    /// other.
    pub(crate) fn steps(&self, vocabulary: &FakeVocabulary) -> Result<Vec<ReadyStep>, AuthorError> {
        self.case.step.iter().map(|step| self.step(vocabulary, step)).collect()
    }

    fn step(&self, vocabulary: &FakeVocabulary, step: &StepCase) -> Result<ReadyStep, AuthorError> {
        let logits = step.logits.as_ref().map(|logits| self.pairs(vocabulary, logits)).transpose()?;
        let expected = match &step.error {
            Some(code) => Err(code.clone()),
            None => Ok(EditsRecord {
                allowed: self.allowed(vocabulary, step)?,
                bias: self.bias(vocabulary, step)?,
                samplers: step.samplers.clone(),
                forced: self.tokens(vocabulary, &step.forced)?,
                finish: step.finish.clone(),
            }),
        };
        let accept = self.tokens(vocabulary, &step.accept)?;
        Ok(ReadyStep { rollback: step.rollback, accept, logits, expected })
    }

    fn allowed(
        &self,
        vocabulary: &FakeVocabulary,
        step: &StepCase,
    ) -> Result<Option<Vec<(u32, u32)>>, AuthorError> {
        let n_vocab = vocabulary.n_vocab();
        let mask_of = |tokens: &[Token], is_in: bool| {
            let named = self.tokens(vocabulary, tokens)?;
            let ids = (0..n_vocab).filter(|id| named.contains(id) == is_in);
            let mask = TokenMask::from_runs(n_vocab as usize, ids.map(|id| (id, id + 1)));
            Ok(Some(crate::record::runs(&mask)))
        };
        match (&step.allowed, &step.excluded) {
            (None, None) => Ok(None),
            (Some(tokens), None) => mask_of(tokens, true),
            (None, Some(tokens)) => mask_of(tokens, false),
            _ => Err(self.wrong("`allowed` and `excluded` in one step".to_owned(), "one of them")),
        }
    }

    fn bias(
        &self,
        vocabulary: &FakeVocabulary,
        step: &StepCase,
    ) -> Result<Vec<(u32, Option<f32>)>, AuthorError> {
        let mut bias = self.pairs(vocabulary, &step.bias)?;
        bias.sort_by_key(|(id, _)| *id);
        if bias.iter().any(|(_, value)| value.is_nan() || *value == f32::INFINITY) {
            return Err(self.wrong("`bias`".to_owned(), "finite numbers or -inf"));
        }
        Ok(bias.into_iter().map(|(id, value)| (id, value.is_finite().then_some(value))).collect())
    }

    fn pairs(
        &self,
        vocabulary: &FakeVocabulary,
        pairs: &[(Token, f32)],
    ) -> Result<Vec<(u32, f32)>, AuthorError> {
        pairs.iter().map(|(token, value)| Ok((self.token(vocabulary, token)?, *value))).collect()
    }

    fn tokens(&self, vocabulary: &FakeVocabulary, tokens: &[Token]) -> Result<Vec<u32>, AuthorError> {
        tokens.iter().map(|token| self.token(vocabulary, token)).collect()
    }

    fn token(&self, vocabulary: &FakeVocabulary, token: &Token) -> Result<u32, AuthorError> {
        let found = match token {
            Token::Id(id) => Some(*id).filter(|id| *id < vocabulary.n_vocab()),
            Token::Text(text) => vocabulary.token(text),
        };
        found.ok_or_else(|| self.wrong(format!("{token:?}"), "a token of each of the case's vocabularies"))
    }
}
