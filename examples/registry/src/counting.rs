//! An implementation of the example's own: the device's model, and how much was asked of it.

use std::sync::Arc;

use host_core::{Report, Reported};
use host_device::{DeviceError, Executable, LogitsFor, SequenceId, TokenRun};
use host_registry::{Composition, Implementation, ImplementationFacts, Match};
use host_service::{Described, Host};

/// Makes a [`Counted`] of what a graph plugin described.
pub(crate) struct Counting {
    version: String,
    host: Arc<Host>,
}

impl Counting {
    pub(crate) fn new(version: &str, host: &Arc<Host>) -> Self {
        Counting { version: version.to_owned(), host: Arc::clone(host) }
    }
}

impl Implementation<Described, Counted> for Counting {
    /// What a profile can ask of it. Whatever is not listed here is refused before a weight file is opened.
    fn facts(&self) -> ImplementationFacts {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        ImplementationFacts {
            id: "counting".to_owned(),
            version: self.version.parse().expect("a version"),
            // A program that ships builds of its own gives their digest, and profiles can pin it.
            digest: None,
            graph: "llama-lua".to_owned(),
            loaders: names(&["safetensors", "gguf"]),
            loops: names(&["autoregressive"]),
            devices: names(&["cpu"]),
            caches: names(&["plain:f32"]),
            shapes: Match::default(),
        }
    }

    fn create(&self, described: Described, composition: &Composition) -> Result<Counted, Report> {
        let device = self.host.device(composition);
        let Described { checkpoint, graph } = described;
        let made = device.compile(&graph, &checkpoint, composition.options(), &mut |_, _| {});
        let mut executable = made.map_err(|error| error.report())?;
        let sequence = executable.new_sequence().map_err(|error| error.report())?;
        Ok(Counted { executable, sequence, n_steps: 0, n_tokens: 0 })
    }
}

/// A model with one sequence that counts its steps and tokens.
pub(crate) struct Counted {
    executable: Box<dyn Executable>,
    sequence: SequenceId,
    n_steps: usize,
    n_tokens: usize,
}

impl Counted {
    /// The most likely token after these.
    ///
    /// # Errors
    /// Tokens beyond the vocabulary or the context.
    pub(crate) fn next(&mut self, tokens: &[u32]) -> Result<u32, DeviceError> {
        let run = TokenRun { sequence: self.sequence, tokens, logits: LogitsFor::Last };
        let logits = self.executable.step(&[run])?;
        let next = logits.argmax(0).expect("the logits of a model are numbers");
        self.n_steps += 1;
        self.n_tokens += tokens.len();
        Ok(next)
    }

    pub(crate) fn n_steps(&self) -> usize {
        self.n_steps
    }

    pub(crate) fn n_tokens(&self) -> usize {
        self.n_tokens
    }
}
