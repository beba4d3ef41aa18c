//! Recording of a real run: a policy's instance that writes down what it sees and answers.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use host_plugins::{
    Grants, Needs, PluginError, PluginName, PolicyInput, PolicyInstance, PolicyTraits, PolicyVocabulary,
    Right,
};
use host_sampling::{ConstraintError, Edits, TokenTable};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::error::AuthorError;
use crate::fuzz::step_outcome;
use crate::run_record::{FORMAT, Header, Line, MOST_BYTES, Reads, Seen, Step, Tokens, hex_of, hex_of_bytes};

/// Whose run is recorded.
#[derive(Clone, Debug)]
pub struct RecordedPolicy {
    /// The policy's hash of manifest and entry, in hexadecimal digits.
    pub digest: String,
    /// What it is opened with.
    pub params: Map<String, Value>,
    /// The rights that it has.
    pub grants: Grants,
    /// The model's tokens that spell no text.
    pub special_ids: Vec<u32>,
}

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Steps of the policy.
    pub steps: usize,
    /// Whether those are all: a record has a bound, 64 MiB.
    pub is_whole: bool,
}

/// A record that is being written. Without [`Recorder::finish`] it has no end, and `plugin replay` refuses it.
pub struct Recorder {
    path: PathBuf,
    policy: RecordedPolicy,
    vocabulary: Arc<Hearing>,
    pages: Arc<Pages>,
}

/// What all instances of the request write in.
type Pages = Mutex<State>;

/// Lines on their way to the file.
struct State {
    /// None before the policy is there.
    file: Option<BufWriter<File>>,
    /// Lines that came before the first one.
    early: Vec<String>,
    left_bytes: usize,
    n_steps: usize,
    n_instances: usize,
    is_whole: bool,
    /// The first failure; nothing is written after it.
    failed: Option<io::Error>,
}

impl Recorder {
    /// A record for a policy that is opened with [`Recorder::vocabulary`].
    pub fn new(path: &Path, policy: RecordedPolicy, vocabulary: Arc<dyn PolicyVocabulary>) -> Self {
        let state = State {
            file: None,
            early: Vec::new(),
            left_bytes: MOST_BYTES,
            n_steps: 0,
            n_instances: 1,
            is_whole: true,
            failed: None,
        };
        let pages = Arc::new(Mutex::new(state));
        let vocabulary = Arc::new(Hearing { vocabulary, pages: Arc::clone(&pages) });
        Recorder { path: path.to_owned(), policy, vocabulary, pages }
    }

    /// The vocabulary: what is encoded is recorded.
    pub fn vocabulary(&self) -> Arc<dyn PolicyVocabulary> {
        Arc::clone(&self.vocabulary) as Arc<dyn PolicyVocabulary>
    }

    /// Begins the file, which must not be there yet; gives the same policy, which writes down its steps.
    ///
    /// # Errors
    /// [`AuthorError::File`].
    pub fn record(&self, policy: Box<dyn PolicyInstance>) -> Result<Box<dyn PolicyInstance>, AuthorError> {
        let path = &self.path;
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(AuthorError::file("create", folder))?;
        }
        let file = File::create_new(path).map_err(AuthorError::file("create", path))?;
        let mut state = pages(&self.pages);
        state.file = Some(BufWriter::new(file));
        let early = std::mem::take(&mut state.early);
        if let Some(header) = state.fitting(&self.header(&*policy)) {
            state.write(&header);
            early.iter().for_each(|line| state.write(line));
        }
        Ok(Box::new(Recording { policy, on: 0, pages: Arc::clone(&self.pages) }))
    }

    fn header(&self, policy: &dyn PolicyInstance) -> Header {
        let RecordedPolicy { digest, params, grants, special_ids } = &self.policy;
        let of_model = &self.vocabulary.vocabulary;
        let token = |id| of_model.token_bytes(id).map(|bytes| hex_of_bytes(&bytes));
        Header {
            record: FORMAT,
            plugin: policy.name().to_string(),
            digest: digest.clone(),
            params: params.clone(),
            grants: [Right::FullLogits].into_iter().filter(|right| grants.has(*right)).collect(),
            needs: Reads::of(policy.traits().needs),
            vocabulary: Tokens {
                n_vocab: of_model.n_vocab(),
                eos_ids: of_model.eos_ids(),
                special_ids: special_ids.clone(),
                bytes: (0..of_model.n_vocab()).map(token).collect(),
            },
        }
    }

    /// Ends the file.
    ///
    /// # Errors
    /// [`AuthorError::File`] when something of it could not be written.
    pub fn finish(self) -> Result<Recorded, AuthorError> {
        let mut state = pages(&self.pages);
        let recorded = Recorded { steps: state.n_steps, is_whole: state.is_whole };
        // The end has room of its own.
        let end = line_of(&Line::End { steps: recorded.steps, is_whole: recorded.is_whole });
        state.write(&end);
        let flushed = state.file.as_mut().map_or(Ok(()), Write::flush);
        let written = state.failed.take().map_or(flushed, Err);
        written.map_err(AuthorError::file("write", &self.path))?;
        Ok(recorded)
    }
}

/// A record is as good after a panic elsewhere as before.
fn pages(pages: &Pages) -> MutexGuard<'_, State> {
    pages.lock().unwrap_or_else(PoisonError::into_inner)
}

fn line_of(line: &impl Serialize) -> String {
    serde_json::to_string(line).expect("a record is made of plain values") + "\n"
}

impl State {
    /// A line that still fits. After one that does not, none does.
    fn fitting(&mut self, line: &impl Serialize) -> Option<String> {
        let text = self.is_whole.then(|| line_of(line))?;
        match self.left_bytes.checked_sub(text.len()) {
            Some(left) => self.left_bytes = left,
            None => self.is_whole = false,
        }
        self.is_whole.then_some(text)
    }

    fn write(&mut self, line: &str) {
        if let (Some(file), None) = (&mut self.file, &self.failed) {
            self.failed = file.write_all(line.as_bytes()).err();
        }
    }

    /// Writes a line down where it fits; whether it does.
    fn put(&mut self, line: &Line) -> bool {
        let Some(text) = self.fitting(line) else { return false };
        if self.file.is_some() {
            self.write(&text)
        } else {
            self.early.push(text)
        }
        true
    }
}

/// A vocabulary that writes down what is encoded.
struct Hearing {
    vocabulary: Arc<dyn PolicyVocabulary>,
    pages: Arc<Pages>,
}

impl PolicyVocabulary for Hearing {
    fn n_vocab(&self) -> u32 {
        self.vocabulary.n_vocab()
    }

    fn eos_ids(&self) -> Vec<u32> {
        self.vocabulary.eos_ids()
    }

    fn token_bytes(&self, id: u32) -> Option<Vec<u8>> {
        self.vocabulary.token_bytes(id)
    }

    fn encode(&self, text: &str) -> Option<Vec<u32>> {
        let ids = self.vocabulary.encode(text);
        pages(&self.pages).put(&Line::Encode { text: text.to_owned(), ids: ids.clone() });
        ids
    }

    fn token_table(&self) -> Result<Arc<TokenTable>, ConstraintError> {
        self.vocabulary.token_table()
    }
}

/// An instance that writes down its steps.
struct Recording {
    policy: Box<dyn PolicyInstance>,
    on: usize,
    pages: Arc<Pages>,
}

impl Recording {
    fn seen(&self, input: &PolicyInput<'_>) -> Option<Seen> {
        let row = input.row?;
        match self.policy.traits().needs {
            Needs::MaskOnly => None,
            Needs::TopK(k) => {
                let (ids, logits): (Vec<_>, Vec<_>) = row.top(k as usize).into_iter().unzip();
                Some(Seen::Top { ids, logits: hex_of(logits.into_iter()) })
            }
            Needs::FullLogits => Some(Seen::Row(hex_of(row.values().iter().copied()))),
        }
    }
}

impl PolicyInstance for Recording {
    fn name(&self) -> &PluginName {
        self.policy.name()
    }

    fn traits(&self) -> PolicyTraits {
        self.policy.traits()
    }

    fn step(&mut self, input: &PolicyInput<'_>) -> Result<Edits, PluginError> {
        let result = self.policy.step(input);
        let step = Line::Step(Step {
            on: self.on,
            accepted: input.accepted.to_vec(),
            position: input.generated.len(),
            seed: input.seed,
            seen: self.seen(input),
            outcome: step_outcome(&result),
        });
        let mut state = pages(&self.pages);
        state.n_steps += usize::from(state.put(&step));
        result
    }

    fn rollback(&mut self, n: u32) -> Result<(), PluginError> {
        pages(&self.pages).put(&Line::Rollback { on: self.on, n });
        self.policy.rollback(n)
    }

    fn fork(&mut self) -> Result<Box<dyn PolicyInstance>, PluginError> {
        let policy = self.policy.fork()?;
        let mut state = pages(&self.pages);
        state.put(&Line::Fork { on: self.on });
        let on = state.n_instances;
        state.n_instances += 1;
        drop(state);
        Ok(Box::new(Recording { policy, on, pages: Arc::clone(&self.pages) }))
    }
}

#[cfg(test)]
mod tests;
