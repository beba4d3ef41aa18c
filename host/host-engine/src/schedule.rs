//! Which rows share a step, and how many tokens each brings.
//!
//! Rows that decode come first, mostly with one token each, with more where a policy forced several: they are who
//! somebody waits for, and none takes the room of another's first token. What is left of the
//! step's room goes to prompts in the order in which they came, in chunks as large as fit.

use crate::row::Row;

/// The part of one row in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    /// Index of the row.
    pub(crate) row: usize,
    /// Tokens to append.
    pub(crate) n_tokens: usize,
    /// Whether these are all that the row has, so that its next token can be chosen.
    pub(crate) is_last: bool,
}

/// Fills a step of at most `max_step_tokens` tokens. `rows` stand in the order of their requests.
pub(crate) fn plan(rows: &[Row], max_step_tokens: usize) -> Vec<Share> {
    let mut room = max_step_tokens;
    let mut shares = Vec::new();
    let mut take = |row: usize, n_pending: usize, n_after: usize| {
        let n_tokens = n_pending.min(room.saturating_sub(n_after).max(1)).min(room);
        if n_tokens > 0 {
            room -= n_tokens;
            shares.push(Share { row, n_tokens, is_last: n_tokens == n_pending });
        }
    };
    let mut decoding: Vec<usize> = (0..rows.len()).filter(|i| rows[*i].is_decoding()).collect();
    if decoding.len() > max_step_tokens {
        decoding.sort_by_key(|i| rows[*i].served_at);
    }
    let n_decoding = decoding.len();
    for (n_before, i) in decoding.into_iter().enumerate() {
        take(i, rows[i].n_pending(), n_decoding - 1 - n_before);
    }
    for (i, row) in rows.iter().enumerate().filter(|(_, row)| !row.is_decoding()) {
        take(i, row.n_pending(), 0);
    }
    shares
}
