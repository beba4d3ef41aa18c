//! What a pipeline may ask of its host.

use std::time::Duration;

use host_core::{FinishReason, Report};
use host_sampling::GrammarSpec;
use serde_json::{Map, Value};

/// A session's number within one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionKey(pub u64);

/// A generation's number within one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GenerationKey(pub u64);

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// `system`, `user`, `assistant`, or another that the model's template knows.
    pub role: String,
    /// Its text.
    pub content: String,
}

/// What a generation begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prompt {
    /// A text as it is; special tokens written in it are read as such.
    Text(String),
    /// A conversation, through the model's chat template.
    Chat(Vec<Turn>),
    /// All that a session holds. What is generated is added to it.
    Session(SessionKey),
}

/// What a session is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionForm {
    /// Messages, through the model's chat template.
    Chat,
    /// Tokens of plain text.
    Text,
}

/// How a session begins.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionOptions {
    /// What it is made of.
    pub form: SessionForm,
    /// The policy of its generations, as a profile writes it, in place of the profile's. It goes on from generation to
    /// generation, is forked with the session, and forgets what is trimmed.
    pub policy: Option<Map<String, Value>>,
}

/// What is appended to a session; its kind is that of the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// For [`SessionForm::Chat`].
    Turn(Turn),
    /// For [`SessionForm::Text`].
    Text(String),
}

/// What of a generation differs from the profile and the command line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GenerateOptions {
    /// New tokens at most.
    pub max_tokens: Option<usize>,
    /// Seed of the draws. `None`: the run's own seed and the generation's number give one.
    pub seed: Option<u64>,
    /// Further texts that end the answer.
    pub stop: Vec<String>,
    /// Sampling settings by their names in a profile's `[sampling]`.
    pub sampling: Map<String, Value>,
    /// A whole sampling chain, as a profile writes it, in place of all settings.
    pub chain: Option<Value>,
    /// A sampling policy for this generation alone, as a profile writes it, in place of the session's or the profile's.
    pub policy: Option<Map<String, Value>>,
    /// What the text must be.
    pub constraint: Option<GrammarSpec>,
}

/// What a generation gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generated {
    /// The text, without the stop string that ended it.
    pub text: String,
    /// Why it ended.
    pub finish_reason: FinishReason,
    /// Length of the prompt.
    pub prompt_tokens: usize,
    /// Of these, how many a session held already.
    pub reused_tokens: usize,
    /// Tokens that were generated.
    pub generated_tokens: usize,
}

/// What happened to a generation. After [`Progress::Done`] and [`Progress::Failed`] nothing follows.
#[derive(Clone, Debug, PartialEq)]
pub enum Progress {
    /// More text: whole characters, never a part of a stop string.
    Text(String),
    /// It ended as it may.
    Done(Generated),
    /// It failed; others go on.
    Failed(Report),
}

/// The models, sessions and generations that a pipeline works with.
///
/// Calls return at once, but for [`wait`](PipelineHost::wait). Generations that were started run together in one
/// batch. A generation's report must not depend on when it is waited for.
pub trait PipelineHost: Send {
    /// The names of the models that were opened for this run; at least one, and the first is the one that a script
    /// gets without naming any.
    fn models(&self) -> Vec<String>;

    /// How many tokens a text is, without those that a prompt would be given around it.
    ///
    /// # Errors
    /// A text that the vocabulary cannot spell.
    fn count_tokens(&self, model: &str, text: &str) -> Result<usize, Report>;

    /// The prompt that a conversation becomes.
    ///
    /// # Errors
    /// No chat template, or one that refuses the conversation.
    fn render(&self, model: &str, turns: &[Turn]) -> Result<String, Report>;

    /// Begins an empty session.
    ///
    /// # Errors
    /// A host that cannot serve it, a policy that is not there as named.
    fn open_session(&mut self, model: &str, options: SessionOptions) -> Result<SessionKey, Report>;

    /// Adds to what the session holds.
    ///
    /// # Errors
    /// An item of the other form, a busy or closed session.
    fn append(&mut self, session: SessionKey, item: Item) -> Result<(), Report>;

    /// Forgets the last `n` messages of a chat, or the last `n` tokens of a text.
    ///
    /// # Errors
    /// More than the session holds, a policy that cannot forget, a busy or closed session.
    fn trim(&mut self, session: SessionKey, n: usize) -> Result<(), Report>;

    /// A second session that holds the same and goes its own way; what was computed is shared or copied.
    ///
    /// # Errors
    /// No room for it, a policy that cannot be forked, a busy or closed session.
    fn fork(&mut self, session: SessionKey) -> Result<SessionKey, Report>;

    /// How much a session holds: messages of a chat, tokens of a text.
    ///
    /// # Errors
    /// A closed session.
    fn session_len(&self, session: SessionKey) -> Result<usize, Report>;

    /// Frees a session.
    ///
    /// # Errors
    /// A busy or closed session.
    fn close_session(&mut self, session: SessionKey) -> Result<(), Report>;

    /// Starts a generation.
    ///
    /// # Errors
    /// A prompt or an option that does not fit, a policy that is not there as named, a busy or closed session.
    fn start(
        &mut self,
        model: &str,
        prompt: Prompt,
        options: GenerateOptions,
    ) -> Result<GenerationKey, Report>;

    /// Ends a generation; [`Progress::Done`] still follows. One that has ended is left alone.
    fn cancel(&mut self, generation: GenerationKey);

    /// Waits until something happens to a generation, for at most `timeout`; gives all that has happened.
    fn wait(&mut self, timeout: Duration) -> Vec<(GenerationKey, Progress)>;
}
