//! SentencePiece BPE with scores, from the vocabulary of a GGUF file (`tokenizer.ggml.model = "llama"`).
//!
//! Text is cut at special tokens, spaces become `▁`, and neighbouring pieces are merged, the best-scored result
//! first, until nothing merges. A character that is no piece is spelled in bytes. The order is that of the
//! published fast tokenizers (`generate_merges` in `transformers`): score, then the longer left piece, the longer
//! right piece, the smaller id, and the place in the text; so ids agree with theirs and with SentencePiece's.

use std::borrow::Cow;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::sync::OnceLock;

use aho_corasick::{AhoCorasick, MatchKind};
use host_core::Vocabulary;

use super::pieces::Pieces;
use super::special::{Kind, SpecialTokens, kinds};
use crate::TextError;
use crate::decoder::byte_of_token;

/// The pieces, what they are, and how text is prepared for them.
#[derive(Debug)]
pub(crate) struct SentencePiece {
    pub(super) pieces: Pieces,
    pub(super) kinds: Vec<Kind>,
    pub(super) scores: Vec<f32>,
    /// The piece of each byte, when all 256 exist.
    bytes: Option<Box<[u32; 256]>>,
    unknown: Option<u32>,
    adds_space_prefix: bool,
    /// Recognise special and user-defined tokens in text, or user-defined ones only; built when first asked for.
    special: OnceLock<Recogniser>,
    user_defined: OnceLock<Recogniser>,
}

/// Builds the model and names its special tokens. The vocabulary must have passed [`super::special::check`].
pub(crate) fn build(vocabulary: &Vocabulary) -> Result<(SentencePiece, SpecialTokens), TextError> {
    let kinds = kinds(vocabulary)?;
    let pieces = pieces(vocabulary, &kinds)?;
    let bytes = byte_pieces(&pieces, &kinds);
    let model = SentencePiece {
        scores: scores(vocabulary, &kinds)?,
        pieces,
        kinds,
        bytes,
        unknown: vocabulary.unknown_token_id,
        adds_space_prefix: vocabulary.add_space_prefix.unwrap_or(true),
        special: OnceLock::new(),
        user_defined: OnceLock::new(),
    };
    Ok((model, SpecialTokens::of_vocabulary(vocabulary, true)))
}

fn pieces(vocabulary: &Vocabulary, kinds: &[Kind]) -> Result<Pieces, TextError> {
    let invalid = |expected: &str, found: String| TextError::InvalidVocabulary {
        what: "its tokens",
        expected: expected.into(),
        found,
    };
    let n_bytes: usize = vocabulary.tokens.iter().map(|text| text.len() + "▁".len()).sum();
    if u32::try_from(n_bytes).is_err() {
        return Err(invalid("less than 4 GiB of text", format!("{n_bytes} bytes")));
    }
    let mut pieces = Pieces::with_capacity(vocabulary.tokens.len());
    for (text, kind) in vocabulary.tokens.iter().zip(kinds) {
        // GGUF files write the spaces of user-defined pieces as such; everywhere else they are `▁`.
        let repeated = match kind {
            Kind::UserDefined if text.contains(' ') => pieces.push(&[&text.replace(' ', "▁")]),
            _ => pieces.push(&[text]),
        };
        if let (Some(first), false) = (repeated, *kind == Kind::Unused) {
            let found = format!("`{}` twice, first at id {first}", text.escape_debug());
            return Err(invalid("a different text for each", found));
        }
    }
    Ok(pieces)
}

/// The score of each piece as a merge's result. User-defined pieces carry none of their own and come first.
fn scores(vocabulary: &Vocabulary, kinds: &[Kind]) -> Result<Vec<f32>, TextError> {
    if vocabulary.scores.is_empty() {
        return Err(TextError::InvalidVocabulary {
            what: "the scores",
            expected: "one for each token".into(),
            found: "none".into(),
        });
    }
    let score = |(score, kind): (&f32, &Kind)| match kind {
        Kind::Normal if !score.is_finite() => Err(TextError::InvalidVocabulary {
            what: "a score",
            expected: "a finite number".into(),
            found: score.to_string(),
        }),
        // Adding zero turns -0 into 0, which files use for the best piece.
        Kind::Normal => Ok(score + 0.0),
        _ => Ok(0.0),
    };
    vocabulary.scores.iter().zip(kinds).map(score).collect()
}

fn byte_pieces(pieces: &Pieces, kinds: &[Kind]) -> Option<Box<[u32; 256]>> {
    let mut ids = Box::new([u32::MAX; 256]);
    for id in (0u32..).zip(kinds).filter_map(|(id, kind)| (*kind == Kind::Byte).then_some(id)) {
        let byte = byte_of_token(pieces.text(id)?)?;
        ids[usize::from(byte)] = id;
    }
    ids.iter().all(|id| *id != u32::MAX).then_some(ids)
}

impl SentencePiece {
    /// Appends the ids of `text`.
    pub(crate) fn encode(
        &self,
        text: &str,
        parse_special: bool,
        ids: &mut Vec<u32>,
    ) -> Result<(), TextError> {
        let recogniser = match parse_special {
            true => self.special.get_or_init(|| Recogniser::new(self, true)),
            false => self.user_defined.get_or_init(|| Recogniser::new(self, false)),
        };
        let mut start = 0;
        for found in recogniser.automaton.find_iter(text) {
            self.encode_fragment(&text[start..found.start()], ids)?;
            ids.push(recogniser.ids[found.pattern()]);
            start = found.end();
        }
        self.encode_fragment(&text[start..], ids)
    }

    /// Appends the ids of text that holds no special token.
    fn encode_fragment(&self, text: &str, ids: &mut Vec<u32>) -> Result<(), TextError> {
        if text.is_empty() {
            return Ok(());
        }
        let prefix = if self.adds_space_prefix { "▁" } else { "" };
        let text = match (prefix, text.contains(' ')) {
            ("", false) => Cow::Borrowed(text),
            (prefix, _) => Cow::Owned([prefix, &text.replace(' ', "▁")].concat()),
        };
        let mut merger = Merger::new(self, &text);
        merger.merge_all();
        self.spell(&text, merger.symbols(), ids)
    }

    /// Appends the ids of the merged symbols; one that is no piece is spelled in bytes, or is unknown.
    fn spell(
        &self,
        text: &str,
        symbols: impl Iterator<Item = Symbol>,
        ids: &mut Vec<u32>,
    ) -> Result<(), TextError> {
        let mut after_unknown = false;
        for symbol in symbols {
            let is_unknown = symbol.id.is_none() && self.bytes.is_none();
            match (symbol.id, &self.bytes, self.unknown) {
                (Some(id), ..) => ids.push(id),
                (None, Some(pieces), _) => {
                    let bytes = text[symbol.start..symbol.end].bytes();
                    ids.extend(bytes.map(|byte| pieces[usize::from(byte)]));
                }
                // Neighbouring unknown characters are one unknown token.
                (None, None, Some(_)) if after_unknown => {}
                (None, None, Some(unknown)) => ids.push(unknown),
                (None, None, None) => {
                    let character = text[symbol.start..].chars().next().unwrap_or_default();
                    return Err(TextError::Unencodable { character });
                }
            }
            after_unknown = is_unknown;
        }
        Ok(())
    }

    /// The id of `text`, if it is a piece that text may be made of.
    fn mergeable(&self, text: &str) -> Option<u32> {
        let is_spelled = |id: &u32| matches!(self.kinds[*id as usize], Kind::Normal | Kind::UserDefined);
        self.pieces.id(text).filter(is_spelled)
    }

    pub(crate) fn text(&self, id: u32) -> Option<&str> {
        self.pieces.text(id)
    }

    pub(crate) fn id(&self, text: &str) -> Option<u32> {
        self.pieces.id(text)
    }

    pub(crate) fn n_vocab(&self) -> usize {
        self.pieces.len()
    }

    pub(crate) fn is_special(&self, id: u32) -> bool {
        matches!(self.kinds.get(id as usize), Some(Kind::Control | Kind::Unknown))
    }

    pub(crate) fn adds_space_prefix(&self) -> bool {
        self.adds_space_prefix
    }

    pub(super) fn has_bytes(&self) -> bool {
        self.bytes.is_some()
    }
}

/// Finds tokens that are written out in a text, the longest at the leftmost place first.
#[derive(Debug)]
struct Recogniser {
    automaton: AhoCorasick,
    /// The id of each pattern.
    ids: Vec<u32>,
}

impl Recogniser {
    fn new(model: &SentencePiece, with_special: bool) -> Self {
        let wanted = |kind: Kind| match kind {
            Kind::Control | Kind::Unknown => with_special,
            Kind::UserDefined => true,
            Kind::Normal | Kind::Unused | Kind::Byte => false,
        };
        // A user-defined run of spaces is recognised only when written with `▁`; from spaces it is merged.
        let patterns = (0u32..).zip(&model.kinds).filter(|(_, kind)| wanted(**kind)).filter_map(|(id, _)| {
            let text = model.pieces.text(id)?;
            (!text.is_empty()).then_some((id, text))
        });
        let (ids, texts): (Vec<u32>, Vec<&str>) = patterns.unzip();
        let automaton = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(texts);
        Recogniser { automaton: automaton.expect("a vocabulary below 4 GiB fits the automaton's ids"), ids }
    }
}

/// A stretch of the text that is one piece, or one character that is none.
#[derive(Clone, Copy, Debug)]
struct Symbol {
    start: usize,
    /// Equal to `start` once the symbol has become part of its left neighbour.
    end: usize,
    id: Option<u32>,
    n_characters: u32,
    left: usize,
    right: usize,
}

/// No neighbour.
const NONE: usize = usize::MAX;

/// Two neighbours that would make a piece.
#[derive(Clone, Copy, Debug)]
struct Merge {
    score: f32,
    n_left: u32,
    n_right: u32,
    left: usize,
    right: usize,
    end: usize,
    id: u32,
}

impl Ord for Merge {
    fn cmp(&self, other: &Self) -> Ordering {
        let order = |merge: &Merge| (merge.n_left, merge.n_right, Reverse(merge.id), Reverse(merge.left));
        self.score.total_cmp(&other.score).then_with(|| order(self).cmp(&order(other)))
    }
}

impl PartialOrd for Merge {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Merge {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Merge {}

/// Merges the characters of one text.
struct Merger<'m> {
    model: &'m SentencePiece,
    text: &'m str,
    symbols: Vec<Symbol>,
    queue: BinaryHeap<Merge>,
}

impl<'m> Merger<'m> {
    fn new(model: &'m SentencePiece, text: &'m str) -> Self {
        let mut symbols: Vec<Symbol> = Vec::with_capacity(text.len());
        for (start, character) in text.char_indices() {
            let end = start + character.len_utf8();
            let (left, right) = (symbols.len().checked_sub(1).unwrap_or(NONE), symbols.len() + 1);
            let id = model.mergeable(&text[start..end]);
            symbols.push(Symbol { start, end, id, n_characters: 1, left, right });
        }
        if let Some(last) = symbols.last_mut() {
            last.right = NONE;
        }
        let mut merger = Merger { model, text, symbols, queue: BinaryHeap::new() };
        for right in 1..merger.symbols.len() {
            merger.offer(right - 1, right);
        }
        merger
    }

    /// Queues the merge of two neighbours, if they make a piece.
    fn offer(&mut self, left: usize, right: usize) {
        if left == NONE || right == NONE {
            return;
        }
        let (l, r) = (&self.symbols[left], &self.symbols[right]);
        if l.id.is_none() || r.id.is_none() {
            return;
        }
        let end = r.end;
        let Some(id) = self.model.mergeable(&self.text[l.start..end]) else { return };
        let score = self.model.scores[id as usize];
        let (n_left, n_right) = (l.n_characters, r.n_characters);
        self.queue.push(Merge { score, n_left, n_right, left, right, end, id });
    }

    fn merge_all(&mut self) {
        while let Some(merge) = self.queue.pop() {
            if self.is_current(&merge) {
                self.apply(&merge);
            }
        }
    }

    /// Whether neither side has changed since the merge was queued.
    fn is_current(&self, merge: &Merge) -> bool {
        let (left, right) = (&self.symbols[merge.left], &self.symbols[merge.right]);
        left.right == merge.right
            && right.end == merge.end
            && left.start < left.end
            && right.start < right.end
    }

    fn apply(&mut self, merge: &Merge) {
        let gone = self.symbols[merge.right];
        self.symbols[merge.right].end = gone.start;
        let left = &mut self.symbols[merge.left];
        left.end = merge.end;
        left.id = Some(merge.id);
        left.n_characters += gone.n_characters;
        left.right = gone.right;
        let before = left.left;
        if gone.right != NONE {
            self.symbols[gone.right].left = merge.left;
        }
        self.offer(before, merge.left);
        self.offer(merge.left, gone.right);
    }

    /// What is left, in the order of the text.
    fn symbols(self) -> impl Iterator<Item = Symbol> {
        self.symbols.into_iter().filter(|symbol| symbol.start < symbol.end)
    }
}
