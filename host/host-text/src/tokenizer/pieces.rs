//! The texts of a large vocabulary in one buffer, with an index from text to id.
//!
//! A vocabulary of 262,144 pieces as separate strings costs as many allocations and several times the memory; this
//! form is built in one pass and lies in three buffers.

use std::hash::{BuildHasher, RandomState};

/// Texts by id, and ids by text.
pub(crate) struct Pieces {
    text: String,
    /// The end of each piece in `text`.
    ends: Vec<u32>,
    /// Open addressing: ids, or [`VACANT`]; the length is a power of two and at least twice the pieces.
    slots: Vec<u32>,
    hasher: RandomState,
}

const VACANT: u32 = u32::MAX;

impl Pieces {
    /// An empty table with room for `n_pieces`.
    pub(crate) fn with_capacity(n_pieces: usize) -> Self {
        Pieces {
            text: String::with_capacity(n_pieces * 8),
            ends: Vec::with_capacity(n_pieces),
            slots: vec![VACANT; (n_pieces * 2).next_power_of_two()],
            hasher: RandomState::new(),
        }
    }

    /// Adds the next piece, given in parts; gives the id that already has this text, if one does.
    ///
    /// A repeated text keeps its first id. At most as many pieces as the table has room for may be added, and their
    /// texts together must stay below 4 GiB.
    pub(crate) fn push(&mut self, parts: &[&str]) -> Option<u32> {
        let start = self.text.len();
        for part in parts {
            self.text.push_str(part);
        }
        let id = self.ends.len() as u32;
        self.ends.push(self.text.len() as u32);
        let slot = self.slot_of(&self.text[start..]);
        match self.slots[slot] {
            VACANT => {
                self.slots[slot] = id;
                None
            }
            first => Some(first),
        }
    }

    /// The id of `text`.
    pub(crate) fn id(&self, text: &str) -> Option<u32> {
        Some(self.slots[self.slot_of(text)]).filter(|id| *id != VACANT)
    }

    /// The text of `id`.
    pub(crate) fn text(&self, id: u32) -> Option<&str> {
        let id = id as usize;
        let end = *self.ends.get(id)?;
        let start = if id == 0 { 0 } else { self.ends[id - 1] };
        Some(&self.text[start as usize..end as usize])
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The slot that holds `text`, or the vacant one where it would go.
    fn slot_of(&self, text: &str) -> usize {
        let mask = self.slots.len() - 1;
        let mut slot = self.hasher.hash_one(text) as usize & mask;
        while self.slots[slot] != VACANT && self.text(self.slots[slot]) != Some(text) {
            slot = (slot + 1) & mask;
        }
        slot
    }
}

impl std::fmt::Debug for Pieces {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pieces({})", self.ends.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_ids_are_found_both_ways() {
        let texts = ["a", "", "bc", "▁", "a"];
        let mut pieces = Pieces::with_capacity(texts.len());
        let repeated: Vec<_> = texts.iter().map(|text| pieces.push(&[text])).collect();
        assert_eq!(repeated, [None, None, None, None, Some(0)]);
        for (id, text) in texts.iter().enumerate() {
            assert_eq!(pieces.text(id as u32), Some(*text));
        }
        assert_eq!([pieces.id("a"), pieces.id("bc"), pieces.id("c")], [Some(0), Some(2), None]);
        assert_eq!((pieces.len(), pieces.text(5)), (5, None));
    }
}
