//! A policy's constraint: what a text must be, and where the request's text stands in it.
//!
//! The policy holds a handle; the host compiles, keeps the constraint in step with what is generated, and computes the
//! mask. A rollback needs no word of the policy: the constraint goes back to what the text and its own have in common.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use host_sampling::{Constraint, ConstraintError, Grammar, TokenMask};

/// A constraint of one request's policy. It may be asked about texts that branch: each question names the whole text.
pub struct PolicyConstraint {
    standing: Mutex<Standing>,
    eos_ids: Arc<[u32]>,
    /// One of the request's constraints while this lives.
    place: Arc<()>,
}

#[derive(Clone)]
struct Standing {
    constraint: Constraint,
    /// How many tokens were generated when it was first used: the next one is the first of its text.
    start: Option<usize>,
    /// The tokens that the constraint has taken.
    taken: Vec<u32>,
}

impl PolicyConstraint {
    /// At the beginning of its text, which the first use fixes. `place` is cloned for as long as this lives.
    pub(crate) fn new(grammar: &Grammar, eos_ids: Arc<[u32]>, place: &Arc<()>) -> Self {
        let standing = Standing { constraint: grammar.constraint(), start: None, taken: Vec::new() };
        PolicyConstraint { standing: Mutex::new(standing), eos_ids, place: Arc::clone(place) }
    }

    /// Another one that stands at the same place and goes on alone.
    pub(crate) fn fork(&self) -> Self {
        let (standing, eos_ids) = (Mutex::new(self.standing().clone()), Arc::clone(&self.eos_ids));
        PolicyConstraint { standing, eos_ids, place: Arc::clone(&self.place) }
    }

    /// The tokens that may follow what was generated so far, `n_generated` tokens. A constraint that was made since the
    /// step began has none of them, and `generated` may then be empty.
    ///
    /// # Errors
    /// [`ConstraintError::NotAllowed`] for a text that went its own way, [`ConstraintError::TooComplex`].
    pub(crate) fn mask(&self, n_generated: usize, generated: &[u32]) -> Result<TokenMask, ConstraintError> {
        let mut standing = self.standing();
        let start = standing.begin(n_generated);
        standing.follow(generated.get(start..).unwrap_or_default(), &self.eos_ids)?;
        standing.constraint.mask()
    }

    /// A standing is as good after a panic elsewhere as before.
    fn standing(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Standing {
    /// Where the constraint's text begins; a text that was taken back beyond that begins anew.
    fn begin(&mut self, n_generated: usize) -> usize {
        let start = self.start.filter(|start| *start <= n_generated).unwrap_or(n_generated);
        self.start = Some(start);
        start
    }

    /// Goes to the end of `text`: back to what is common, then on. End tokens after the end change nothing.
    fn follow(&mut self, text: &[u32], eos_ids: &[u32]) -> Result<(), ConstraintError> {
        let common = self.taken.iter().zip(text).take_while(|(taken, token)| taken == token).count();
        self.constraint.rollback(self.taken.len() - common)?;
        self.taken.truncate(common);
        for token in &text[common..] {
            if self.constraint.is_finished() && eos_ids.contains(token) {
                break;
            }
            self.constraint.accept(*token)?;
            self.taken.push(*token);
        }
        Ok(())
    }
}

impl fmt::Debug for PolicyConstraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PolicyConstraint")
    }
}
