//! Constrained generation: a text is a JSON value of a schema, matches a regular expression, or belongs to a grammar.
//!
//! A [`Grammar`] is compiled once for a vocabulary; a [`Constraint`] is where one request stands in it. Each step it
//! gives the set of tokens that may follow. Whatever a schema asks for and a mask cannot enforce is refused by name.

mod budget;
mod error;
mod grammar;
mod schema;
mod table;
#[cfg(test)]
mod tests;

use std::fmt;

use llguidance::Matcher;
use llguidance::api::StopReason;

pub use budget::Budget;
pub use error::ConstraintError;
pub use grammar::{Grammar, GrammarSpec, Whitespace};
pub use table::{TokenTable, TokenTables};

use crate::mask::TokenMask;

/// Where one request stands in its grammar. A clone is a fork: both go on alone.
#[derive(Clone)]
pub struct Constraint {
    matcher: Matcher,
    n_vocab: usize,
    n_accepted: usize,
}

impl Constraint {
    fn new(matcher: Matcher, n_vocab: usize) -> Self {
        Constraint { matcher, n_vocab, n_accepted: 0 }
    }

    /// The tokens that may follow; the end tokens are among them where the text may end.
    ///
    /// # Errors
    /// [`ConstraintError::TooComplex`] when this position needs more than the grammar's budget.
    pub fn mask(&mut self) -> Result<TokenMask, ConstraintError> {
        let allowed = self.matcher.compute_mask_or_eos().map_err(|e| self.failed(&e.to_string()))?;
        Ok(TokenMask::from_words(self.n_vocab, allowed.as_slice().to_vec()))
    }

    /// The only token that may follow, if there is but one. Which is not the longest text that must follow: how that
    /// is cut into tokens is the model's to say.
    ///
    /// # Errors
    /// Those of [`Constraint::mask`].
    pub fn forced(&mut self) -> Result<Option<u32>, ConstraintError> {
        let mask = self.mask()?;
        let mut tokens = mask.iter();
        Ok(tokens.next().filter(|_| tokens.next().is_none()))
    }

    /// A token was chosen.
    ///
    /// # Errors
    /// [`ConstraintError::NotAllowed`] for one that may not follow; the constraint then stands where it stood.
    pub fn accept(&mut self, token: u32) -> Result<(), ConstraintError> {
        if token as usize >= self.n_vocab || self.is_finished() {
            return Err(ConstraintError::NotAllowed { token });
        }
        match self.matcher.try_consume_tokens(&[token]) {
            Ok(1) => {
                self.n_accepted += 1;
                Ok(())
            }
            Ok(_) => Err(ConstraintError::NotAllowed { token }),
            Err(e) => Err(self.failed(&e.to_string())),
        }
    }

    /// Takes the last `n` tokens back.
    ///
    /// # Errors
    /// [`ConstraintError::Rollback`] for more than were accepted.
    pub fn rollback(&mut self, n: usize) -> Result<(), ConstraintError> {
        if n > self.n_accepted {
            return Err(ConstraintError::Rollback { n, held: self.n_accepted });
        }
        if n > 0 {
            self.matcher.rollback(n).map_err(|e| self.failed(&e.to_string()))?;
            self.n_accepted -= n;
        }
        Ok(())
    }

    /// Whether the text so far may be the whole of it.
    ///
    /// # Errors
    /// Those of [`Constraint::mask`].
    pub fn is_complete(&mut self) -> Result<bool, ConstraintError> {
        if self.is_finished() {
            return Ok(true);
        }
        self.matcher.is_accepting().map_err(|e| self.failed(&e.to_string()))
    }

    /// Whether nothing may follow any more but the end.
    pub fn is_finished(&self) -> bool {
        self.matcher.is_stopped() && self.matcher.stop_reason().is_ok()
    }

    fn failed(&self, message: &str) -> ConstraintError {
        let detail = grammar::first_line(message);
        match self.matcher.stop_reason() {
            StopReason::LexerTooComplex | StopReason::ParserTooComplex => {
                ConstraintError::TooComplex { detail }
            }
            _ if grammar::is_about_budget(message) => ConstraintError::TooComplex { detail },
            _ => ConstraintError::Syntax { kind: "grammar", detail },
        }
    }
}

impl fmt::Debug for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Constraint({} tokens)", self.n_accepted)
    }
}
