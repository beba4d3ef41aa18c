//! The record of a real run: what a policy saw of one request and what it answered, step by step, in a file of JSON
//! lines.
//!
//! The first line tells the request and the model's tokens ([`Header`]); each line after it is one [`Line`], the last
//! one [`Line::End`]. Logits are told bit for bit, 8 hexadecimal digits each.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use host_device::{Logits, argmax, top};
use host_plugins::{Needs, PolicyVocabulary, Right};
use host_sampling::{ConstraintError, TokenTable};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::AuthorError;
use crate::files;
use crate::trace::Outcome;

/// The format that this program writes and reads.
pub(crate) const FORMAT: u32 = 1;
/// Bytes of all lines but the last; a run that gives more is recorded as far as that.
pub(crate) const MOST_BYTES: usize = 64 << 20;
/// Tokens of a vocabulary.
const MOST_TOKENS: u32 = 1 << 22;

/// The first line.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Header {
    /// The format.
    pub(crate) record: u32,
    /// The policy's id and version.
    pub(crate) plugin: String,
    /// The hash of its manifest and entry.
    pub(crate) digest: String,
    /// What it was opened with.
    pub(crate) params: Map<String, Value>,
    pub(crate) grants: Vec<Right>,
    /// What of the logits is recorded, because the policy reads it.
    pub(crate) needs: Reads,
    pub(crate) vocabulary: Tokens,
}

/// [`Needs`] in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Reads {
    MaskOnly,
    TopK(u32),
    FullLogits,
}

impl Reads {
    pub(crate) fn of(needs: Needs) -> Self {
        match needs {
            Needs::MaskOnly => Reads::MaskOnly,
            Needs::TopK(k) => Reads::TopK(k),
            Needs::FullLogits => Reads::FullLogits,
        }
    }

    /// Whether a policy that reads `needs` finds it here.
    pub(crate) fn cover(self, needs: Needs) -> bool {
        match (self, needs) {
            (_, Needs::MaskOnly) | (Reads::FullLogits, _) => true,
            (Reads::TopK(recorded), Needs::TopK(k)) => k <= recorded,
            _ => false,
        }
    }

    /// As the guide tells it.
    pub(crate) fn told(self) -> String {
        match self {
            Reads::MaskOnly => "mask-only".to_owned(),
            Reads::TopK(k) => format!("top-k({k})"),
            Reads::FullLogits => "full-logits".to_owned(),
        }
    }
}

/// The model's tokens.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tokens {
    /// The width of the logits.
    pub(crate) n_vocab: u32,
    pub(crate) eos_ids: Vec<u32>,
    /// Tokens that spell no text.
    pub(crate) special_ids: Vec<u32>,
    /// The bytes of each token, two hexadecimal digits a byte; null for an id without a token. Ids beyond have none.
    pub(crate) bytes: Vec<Option<String>>,
}

/// What happened, in order.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Line {
    /// The policy had a text encoded; null for one that the vocabulary cannot spell.
    Encode {
        text: String,
        ids: Option<Vec<u32>>,
    },
    /// One step of an instance. Instance 0 is the first; each fork adds one.
    Step(Step),
    Rollback {
        on: usize,
        n: u32,
    },
    Fork {
        on: usize,
    },
    /// How many steps are recorded, and whether those are all of the run.
    End {
        steps: usize,
        is_whole: bool,
    },
}

/// One step.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Step {
    pub(crate) on: usize,
    /// Tokens since the policy's last step; at the first, the prompt.
    pub(crate) accepted: Vec<u32>,
    /// How many tokens were generated before this one.
    pub(crate) position: usize,
    pub(crate) seed: u64,
    /// What it could read of the logits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) seen: Option<Seen>,
    pub(crate) outcome: Outcome,
}

/// Recorded logits.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Seen {
    /// The most likely tokens, most likely first.
    Top { ids: Vec<u32>, logits: String },
    /// All of them.
    Row(String),
}

/// Logits as hexadecimal digits, the bits of each as a number of 32 bits.
pub(crate) fn hex_of(logits: impl Iterator<Item = f32>) -> String {
    logits.map(|logit| format!("{:08x}", logit.to_bits())).collect()
}

fn logits_of(hex: &str) -> Option<Vec<f32>> {
    let (digits, rest) = hex.as_bytes().as_chunks::<8>();
    let logit = |digits: &[u8; 8]| {
        let is_plain = digits.iter().all(u8::is_ascii_hexdigit);
        let text = std::str::from_utf8(digits).ok().filter(|_| is_plain)?;
        u32::from_str_radix(text, 16).ok().map(f32::from_bits)
    };
    rest.is_empty().then(|| digits.iter().map(logit).collect()).flatten()
}

/// Bytes as hexadecimal digits.
pub(crate) fn hex_of_bytes(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes_of(hex: &str) -> Option<Vec<u8>> {
    let (digits, rest) = hex.as_bytes().as_chunks::<2>();
    let digit = |digit: u8| (digit as char).to_digit(16);
    let byte = |[high, low]: &[u8; 2]| Some((digit(*high)? * 16 + digit(*low)?) as u8);
    rest.is_empty().then(|| digits.iter().map(byte).collect()).flatten()
}

/// A record that was read and checked.
pub(crate) struct RunRecord {
    pub(crate) header: Header,
    pub(crate) vocabulary: Arc<RecordedVocabulary>,
    /// All but encoded texts.
    pub(crate) acts: Vec<RecordedAct>,
    /// Whether it holds the whole run.
    pub(crate) is_whole: bool,
}

/// What an instance is asked for again.
pub(crate) enum RecordedAct {
    /// With the step's logits, where the policy read some.
    Step(Box<Step>, Option<RecordedRow>),
    Rollback {
        on: usize,
        n: u32,
    },
    Fork {
        on: usize,
    },
}

impl RunRecord {
    /// Whether a file is meant to be a record: its first line says so.
    pub(crate) fn is_one(text: &str) -> bool {
        #[derive(Deserialize)]
        struct Mark {
            #[serde(rename = "record")]
            _record: serde::de::IgnoredAny,
        }
        text.lines().next().is_some_and(|line| serde_json::from_str::<Mark>(line).is_ok())
    }

    /// Reads one.
    ///
    /// # Errors
    /// [`AuthorError::Trace`] with the line that cannot be.
    pub(crate) fn parse(text: &str, path: &Path) -> Result<Self, AuthorError> {
        let wrong = |line: usize, message: String| AuthorError::Trace {
            path: path.to_owned(),
            message: format!("line {line}: {message}"),
        };
        let mut lines = text.lines().enumerate().map(|(at, line)| (at + 1, line));
        let first = lines.next().map_or("", |(_, line)| line);
        let header: Header = serde_json::from_str(first).map_err(|error| wrong(1, unplaced(&error)))?;
        if header.record != FORMAT {
            return Err(wrong(1, format!("format {}, and this program reads {FORMAT}", header.record)));
        }
        let vocabulary = RecordedVocabulary::of(&header.vocabulary).map_err(|message| wrong(1, message))?;
        let mut reader =
            Reader { n_vocab: header.vocabulary.n_vocab, n_steps: 0, n_instances: 1, acts: Vec::new() };
        let mut texts = HashMap::new();
        let mut end = None;
        let mut n_lines = 1;
        for (at, line) in lines {
            n_lines = at;
            if end.is_some() {
                return Err(wrong(at, "something stands behind the end".to_owned()));
            }
            match serde_json::from_str(line).map_err(|error| wrong(at, unplaced(&error)))? {
                Line::Encode { text, ids } => {
                    texts.insert(text, ids);
                }
                Line::End { steps, is_whole } => {
                    if steps != reader.n_steps {
                        let message = format!("the end of {steps} steps, behind {}", reader.n_steps);
                        return Err(wrong(at, message));
                    }
                    end = Some(is_whole);
                }
                act => reader.take(act).map_err(|message| wrong(at, message))?,
            }
        }
        let Some(is_whole) = end else {
            return Err(wrong(n_lines, "no end stands behind it: the run was cut off".to_owned()));
        };
        let vocabulary = Arc::new(RecordedVocabulary { texts, ..vocabulary });
        Ok(RunRecord { header, vocabulary, acts: reader.acts, is_whole })
    }
}

/// Reads a file that may be a record, within its bound.
///
/// # Errors
/// [`AuthorError::File`], [`AuthorError::Trace`] for one that is larger than any record.
pub(crate) fn read(path: &Path) -> Result<String, AuthorError> {
    // The last line comes on top.
    let most = MOST_BYTES + 1_024;
    let bytes = fs::metadata(path).map_err(AuthorError::file("read", path))?.len();
    if bytes > most as u64 {
        let message = format!("{bytes} bytes, and a record or a trace has at most {most}");
        return Err(AuthorError::Trace { path: path.to_owned(), message });
    }
    files::read(path)
}

/// The message without its place: that is the line's, and always 1.
fn unplaced(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.split(" at line ").next().unwrap_or(&text).to_owned()
}

/// Checks one act after another.
struct Reader {
    n_vocab: u32,
    n_steps: usize,
    n_instances: usize,
    acts: Vec<RecordedAct>,
}

impl Reader {
    fn take(&mut self, line: Line) -> Result<(), String> {
        let act = match line {
            Line::Step(step) => {
                self.check_instance(step.on)?;
                self.n_steps += 1;
                let row = step.seen.as_ref().map(|seen| self.row(seen)).transpose()?;
                RecordedAct::Step(Box::new(step), row)
            }
            Line::Rollback { on, n } => {
                self.check_instance(on)?;
                RecordedAct::Rollback { on, n }
            }
            Line::Fork { on } => {
                self.check_instance(on)?;
                self.n_instances += 1;
                RecordedAct::Fork { on }
            }
            Line::Encode { .. } | Line::End { .. } => return Ok(()),
        };
        self.acts.push(act);
        Ok(())
    }

    fn check_instance(&self, on: usize) -> Result<(), String> {
        if on < self.n_instances { Ok(()) } else { Err(format!("there is no instance {on}")) }
    }

    fn row(&self, seen: &Seen) -> Result<RecordedRow, String> {
        let n_vocab = self.n_vocab as usize;
        let read =
            |hex: &str| logits_of(hex).ok_or("logits that are not 8 hexadecimal digits each".to_owned());
        match seen {
            Seen::Row(hex) => {
                let logits = read(hex)?;
                if logits.len() != n_vocab {
                    return Err(format!("{} logits for {n_vocab} tokens", logits.len()));
                }
                Ok(RecordedRow::All(logits))
            }
            Seen::Top { ids, logits } => {
                let logits = read(logits)?;
                if logits.len() != ids.len() {
                    return Err(format!("{} logits for {} tokens", logits.len(), ids.len()));
                }
                if let Some(id) = ids.iter().find(|id| **id >= self.n_vocab) {
                    return Err(format!("token {id} is beyond the vocabulary of {n_vocab}"));
                }
                Ok(RecordedRow::Top(ids.iter().copied().zip(logits).collect(), n_vocab))
            }
        }
    }
}

/// Recorded logits of one step, as a policy reads them.
pub(crate) enum RecordedRow {
    /// All.
    All(Vec<f32>),
    /// The most likely ones, of so many tokens. A policy that reads these never asks for others.
    Top(Vec<(u32, f32)>, usize),
}

impl Logits for RecordedRow {
    fn n_rows(&self) -> usize {
        1
    }

    fn n_vocab(&self) -> usize {
        match self {
            RecordedRow::All(logits) => logits.len(),
            RecordedRow::Top(_, n_vocab) => *n_vocab,
        }
    }

    fn read(&self, _: usize, out: &mut Vec<f32>) {
        match self {
            RecordedRow::All(logits) => out.clone_from(logits),
            RecordedRow::Top(some, n_vocab) => {
                out.clear();
                out.resize(*n_vocab, f32::NEG_INFINITY);
                some.iter().for_each(|(id, logit)| out[*id as usize] = *logit);
            }
        }
    }

    fn argmax(&self, _: usize) -> Option<u32> {
        match self {
            RecordedRow::All(logits) => argmax(logits),
            RecordedRow::Top(some, _) => some.first().map(|(id, _)| *id),
        }
    }

    fn top(&self, _: usize, n: usize) -> Vec<(u32, f32)> {
        match self {
            RecordedRow::All(logits) => top(logits, n),
            RecordedRow::Top(some, _) => some[..n.min(some.len())].to_vec(),
        }
    }
}

/// The model's vocabulary, as far as it was recorded.
pub(crate) struct RecordedVocabulary {
    n_vocab: u32,
    eos_ids: Vec<u32>,
    special_ids: Vec<u32>,
    tokens: Vec<Option<Vec<u8>>>,
    texts: HashMap<String, Option<Vec<u32>>>,
    /// The first text that was asked for and is not recorded.
    missed: Mutex<Option<String>>,
}

impl RecordedVocabulary {
    fn of(tokens: &Tokens) -> Result<Self, String> {
        let Tokens { n_vocab, eos_ids, special_ids, bytes } = tokens;
        if *n_vocab > MOST_TOKENS || bytes.len() > *n_vocab as usize {
            return Err(format!("a vocabulary of {n_vocab} ids with {} tokens", bytes.len()));
        }
        if let Some(id) = eos_ids.iter().chain(special_ids).find(|id| **id >= *n_vocab) {
            return Err(format!("token {id} is beyond the vocabulary of {n_vocab}"));
        }
        let token = |hex: &Option<String>| hex.as_deref().map(|hex| bytes_of(hex).ok_or(())).transpose();
        let tokens: Result<Vec<_>, ()> = bytes.iter().map(token).collect();
        Ok(RecordedVocabulary {
            n_vocab: *n_vocab,
            eos_ids: eos_ids.clone(),
            special_ids: special_ids.clone(),
            tokens: tokens.map_err(|()| "a token that is not two hexadecimal digits a byte".to_owned())?,
            texts: HashMap::new(),
            missed: Mutex::new(None),
        })
    }

    /// The first text that a plugin had encoded and that the record does not hold.
    pub(crate) fn missed(&self) -> Option<String> {
        self.missed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl PolicyVocabulary for RecordedVocabulary {
    fn n_vocab(&self) -> u32 {
        self.n_vocab
    }

    fn eos_ids(&self) -> Vec<u32> {
        self.eos_ids.clone()
    }

    fn token_bytes(&self, id: u32) -> Option<Vec<u8>> {
        self.tokens.get(id as usize)?.clone()
    }

    fn encode(&self, text: &str) -> Option<Vec<u32>> {
        let found = self.texts.get(text);
        if found.is_none() {
            let mut missed = self.missed.lock().unwrap_or_else(PoisonError::into_inner);
            missed.get_or_insert_with(|| text.to_owned());
        }
        found?.clone()
    }

    fn token_table(&self) -> Result<Arc<TokenTable>, ConstraintError> {
        let tokens = self.tokens.iter().map(|token| token.clone().unwrap_or_default()).collect();
        TokenTable::new(self.n_vocab as usize, tokens, &self.special_ids, &self.eos_ids)
    }
}
