//! A policy on a stage without a model: its instances, and what each has lived through.
//!
//! An instance that forked, or that took tokens back, must act as one that only ever saw the tokens that remain. So
//! each keeps its [`Life`], and [`Stage::relive`] has a fresh instance live through it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use host_plugins::{Grants, PluginError, PolicyInput, PolicyInstance, PolicyVocabulary, SamplingPolicy};
use host_sampling::{Edits, RowView};

use crate::row::Row;

/// Everything that is the same for all instances of one request.
pub(crate) struct Stage<'a> {
    pub(crate) policy: &'a dyn SamplingPolicy,
    pub(crate) vocabulary: Arc<dyn PolicyVocabulary>,
    pub(crate) params: String,
    pub(crate) grants: Grants,
    pub(crate) seed: u64,
}

/// What an instance was told and shown, as if nothing had been taken back.
#[derive(Clone, Debug, Default)]
pub(crate) struct Life {
    steps: Vec<Lived>,
    n_prompt: usize,
}

/// One step of it.
#[derive(Clone, Debug)]
struct Lived {
    accepted: Vec<u32>,
    row: Arc<Row>,
}

/// An instance with its life.
pub(crate) struct Actor {
    instance: Box<dyn PolicyInstance>,
    life: Life,
    seed: u64,
}

impl Stage<'_> {
    /// A fresh instance; the first step brings the prompt.
    pub(crate) fn open(&self, n_prompt: usize) -> Result<Actor, PluginError> {
        let instance = self.policy.open(&self.params, Arc::clone(&self.vocabulary), &self.grants)?;
        Ok(Actor { instance, life: Life { steps: Vec::new(), n_prompt }, seed: self.seed })
    }

    /// The last edits of a fresh instance that lives through all of this.
    pub(crate) fn relive(&self, life: &Life) -> Result<Edits, PluginError> {
        let mut actor = self.open(life.n_prompt)?;
        let mut edits = Edits::none();
        for step in &life.steps {
            edits = actor.step(&step.accepted, &step.row)?;
        }
        Ok(edits)
    }
}

impl Life {
    /// How many tokens were generated.
    pub(crate) fn position(&self) -> usize {
        self.steps.iter().map(|step| step.accepted.len()).sum::<usize>() - self.n_prompt_so_far()
    }

    /// The prompt comes with the first step.
    fn n_prompt_so_far(&self) -> usize {
        if self.steps.is_empty() { 0 } else { self.n_prompt }
    }

    /// Every token, the prompt's first.
    pub(crate) fn tokens(&self) -> Vec<u32> {
        self.steps.iter().flat_map(|step| step.accepted.iter().copied()).collect()
    }

    /// A step without new tokens comes after some were taken back: it is the last step once more.
    fn enter(&mut self, accepted: &[u32], row: &Arc<Row>) {
        match self.steps.last_mut() {
            Some(last) if accepted.is_empty() => last.row = Arc::clone(row),
            _ => self.steps.push(Lived { accepted: accepted.to_vec(), row: Arc::clone(row) }),
        }
    }

    /// Forgets the last `n` generated tokens, and the steps that brought nothing else.
    fn rollback(&mut self, n: usize) {
        let mut left = n.min(self.position());
        while let Some(last) = self.steps.last_mut().filter(|_| left > 0) {
            let taken = left.min(last.accepted.len());
            last.accepted.truncate(last.accepted.len() - taken);
            left -= taken;
            if last.accepted.is_empty() && self.steps.len() > 1 {
                self.steps.pop();
            }
        }
    }
}

impl Actor {
    /// What it lived through.
    pub(crate) fn life(&self) -> &Life {
        &self.life
    }

    /// One step; `accepted` is what came since the last one, at the first the prompt.
    pub(crate) fn step(&mut self, accepted: &[u32], row: &Arc<Row>) -> Result<Edits, PluginError> {
        self.timed_step(accepted, row).0
    }

    /// The same, and how long the policy took.
    pub(crate) fn timed_step(
        &mut self,
        accepted: &[u32],
        row: &Arc<Row>,
    ) -> (Result<Edits, PluginError>, Duration) {
        self.life.enter(accepted, row);
        let view = RowView::new(&**row, 0);
        let tokens = self.life.tokens();
        let generated = &tokens[tokens.len() - self.life.position()..];
        let input = PolicyInput { row: Some(&view), accepted, generated, seed: self.seed };
        let began = Instant::now();
        let edits = self.instance.step(&input);
        (edits, began.elapsed())
    }

    /// Takes the last `n` generated tokens back.
    pub(crate) fn rollback(&mut self, n: usize) -> Result<(), PluginError> {
        self.instance.rollback(n as u32)?;
        self.life.rollback(n);
        Ok(())
    }

    /// A second one that goes on from here on its own.
    pub(crate) fn fork(&mut self) -> Result<Actor, PluginError> {
        Ok(Actor { instance: self.instance.fork()?, life: self.life.clone(), seed: self.seed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_life_is_what_remains() {
        let row = Arc::new(Row::of_formula(0, 0, 4));
        let mut life = Life { steps: Vec::new(), n_prompt: 2 };
        assert_eq!(life.position(), 0);
        life.enter(&[1, 2], &row);
        assert_eq!(life.position(), 0);
        life.enter(&[3], &row);
        life.enter(&[4, 5, 6], &row);
        assert_eq!((life.position(), life.steps.len()), (4, 3));
        life.rollback(2);
        assert_eq!((life.position(), life.tokens()), (2, vec![1, 2, 3, 4]));
        life.enter(&[], &row);
        assert_eq!(life.steps.len(), 3, "the last step once more");
        life.rollback(9);
        assert_eq!((life.position(), life.tokens(), life.steps.len()), (0, vec![1, 2], 1), "not the prompt");
    }
}
