//! The tokens of a vocabulary as bytes: what a grammar over bytes needs to judge tokens.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use llguidance::earley::SlicedBiasComputer;
use llguidance::toktrie::{ApproximateTokEnv, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie};
use llguidance::{Matcher, ParserFactory};
use sha2::{Digest, Sha256};

use super::error::ConstraintError;

/// The longest token that the trie can hold.
const LONGEST_TOKEN_BYTES: usize = 255;

/// Grammars kept compiled; the one that was used longest ago goes first.
pub(super) const CACHED_GRAMMARS: usize = 64;

/// Marks the name of a special token, so that no text spells it.
const SPECIAL: u8 = TokTrie::SPECIAL_TOKEN_MARKER;

/// The tokens of a vocabulary as bytes, with the grammars that were compiled for it.
pub struct TokenTable {
    n_vocab: usize,
    digest: [u8; 32],
    factory: ParserFactory,
    /// By the digest of source and budget; of the grammars only what does not hold this table again.
    compiled: Mutex<VecDeque<([u8; 32], Arc<Matcher>)>>,
}

/// The bytes of every id, whose digest tells vocabularies apart.
struct TokenBytes {
    tokens: Vec<Vec<u8>>,
    eos: Vec<u32>,
    digest: [u8; 32],
}

/// Token tables of the vocabularies that were used last, each with the grammars that were compiled for it: whoever has
/// the same vocabulary shares them, whatever became of the model that they were made for.
pub struct TokenTables {
    at_most: usize,
    held: Mutex<VecDeque<Arc<TokenTable>>>,
}

impl TokenTables {
    /// Holds so many tables, at least 1; the one that was asked for longest ago goes first.
    pub fn new(at_most: usize) -> Self {
        TokenTables { at_most: at_most.max(1), held: Mutex::default() }
    }

    /// The table of a vocabulary, as [`TokenTable::new`] makes it. Others wait meanwhile, so that none is made twice.
    ///
    /// # Errors
    /// Those of [`TokenTable::new`].
    pub fn get(
        &self,
        n_vocab: usize,
        tokens: Vec<Vec<u8>>,
        special: &[u32],
        eos: &[u32],
    ) -> Result<Arc<TokenTable>, ConstraintError> {
        let bytes = TokenBytes::new(n_vocab, tokens, special, eos)?;
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let known = held.iter().position(|table| table.digest == bytes.digest);
        let table = match known.and_then(|at| held.remove(at)) {
            Some(table) => table,
            None => TokenTable::of(bytes)?,
        };
        while held.len() >= self.at_most {
            held.pop_front();
        }
        held.push_back(Arc::clone(&table));
        Ok(table)
    }

    /// How many tables are held.
    pub fn len(&self) -> usize {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Whether none is held.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl TokenBytes {
    /// A token for each of `n_vocab` ids; special ones and ends are marked, so that no text spells them.
    fn new(
        n_vocab: usize,
        mut tokens: Vec<Vec<u8>>,
        special: &[u32],
        eos: &[u32],
    ) -> Result<Self, ConstraintError> {
        if tokens.len() > n_vocab {
            return Err(refused(format!("{} tokens for {n_vocab} logits", tokens.len())));
        }
        tokens.resize(n_vocab, Vec::new());
        if eos.is_empty() {
            return Err(refused("no token ends a generation".to_owned()));
        }
        for id in special.iter().chain(eos) {
            let token = tokens.get_mut(*id as usize);
            let token = token.ok_or_else(|| refused(format!("there is no token {id}")))?;
            if token.first() != Some(&SPECIAL) {
                token.insert(0, SPECIAL);
            }
        }
        if let Some(id) = tokens.iter().position(|token| token.len() > LONGEST_TOKEN_BYTES) {
            return Err(refused(format!("token {id} has more than {LONGEST_TOKEN_BYTES} bytes")));
        }
        let digest = digest(&tokens, eos);
        Ok(TokenBytes { tokens, eos: eos.to_vec(), digest })
    }
}

fn refused(detail: String) -> ConstraintError {
    ConstraintError::Vocabulary { detail }
}

impl TokenTable {
    /// The table of a model with `n_vocab` logits.
    ///
    /// `tokens` gives the bytes of each id; ids beyond it, and those without bytes, are never allowed. `special` ids
    /// mark structure: their bytes are their names, and only a grammar that names them allows them. `eos` ids end a
    /// generation and are allowed where the constraint may end.
    ///
    /// # Errors
    /// [`ConstraintError::Vocabulary`]: no end token, an id beyond the vocabulary, or a token of more than 255 bytes.
    pub fn new(
        n_vocab: usize,
        tokens: Vec<Vec<u8>>,
        special: &[u32],
        eos: &[u32],
    ) -> Result<Arc<Self>, ConstraintError> {
        TokenTable::of(TokenBytes::new(n_vocab, tokens, special, eos)?)
    }

    fn of(bytes: TokenBytes) -> Result<Arc<Self>, ConstraintError> {
        let TokenBytes { tokens, eos, digest } = bytes;
        let n_vocab = tokens.len();
        let trie = TokTrie::from(&TokRxInfo::new(n_vocab as u32, eos[0]), &tokens).with_eos_tokens(&eos);
        let env: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let slices = SlicedBiasComputer::json_slices();
        let capabilities = InferenceCapabilities::default();
        let mut factory =
            ParserFactory::new(&env, capabilities, &slices).map_err(|e| refused(e.to_string()))?;
        factory.quiet();
        Ok(Arc::new(TokenTable { n_vocab, digest, factory, compiled: Mutex::default() }))
    }

    /// Logits of the model.
    pub fn n_vocab(&self) -> usize {
        self.n_vocab
    }

    /// The identity of the vocabulary: bytes and end tokens.
    pub fn digest(&self) -> [u8; 32] {
        self.digest
    }

    pub(super) fn factory(&self) -> &ParserFactory {
        &self.factory
    }

    /// A grammar that was compiled before.
    pub(super) fn cached(&self, key: &[u8; 32]) -> Option<Arc<Matcher>> {
        let mut compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        let index = compiled.iter().position(|(other, _)| other == key)?;
        let entry = compiled.remove(index)?;
        let matcher = Arc::clone(&entry.1);
        compiled.push_back(entry);
        Some(matcher)
    }

    pub(super) fn keep(&self, key: [u8; 32], matcher: Arc<Matcher>) {
        let mut compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        while compiled.len() >= CACHED_GRAMMARS {
            compiled.pop_front();
        }
        compiled.push_back((key, matcher));
    }
}

impl fmt::Debug for TokenTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenTable({})", self.n_vocab)
    }
}

impl fmt::Debug for TokenTables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenTables({} of {})", self.len(), self.at_most)
    }
}

/// Over the length and the bytes of each token, then the end tokens.
fn digest(tokens: &[Vec<u8>], eos: &[u32]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for token in tokens {
        hash.update((token.len() as u64).to_le_bytes());
        hash.update(token);
    }
    for id in eos {
        hash.update(id.to_le_bytes());
    }
    hash.finalize().into()
}
