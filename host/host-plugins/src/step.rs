//! One step of a policy as both runtimes show it: what it may see, what it did, what it was refused.
//!
//! The step owns what the policy may read, so that a guest can hold it; only what the policy's needs name is copied.

use std::sync::Arc;

use host_core::{Breaker, FinishReason, Report, Reported, Sampler};
use host_sampling::{
    Budget as GrammarBudget, ConstraintError, Edits, Grammar, GrammarSpec, RowCopy, TokenMask, TokenTable,
    random_u32,
};

use crate::budget::{Budget, StepBudget};
use crate::constraint::PolicyConstraint;
use crate::hook::LogSink;
use crate::manifest::ContractVersion;
use crate::package::PluginName;
use crate::policy::{Needs, PolicyInput, PolicyVocabulary};

/// Samplers that one step may add.
const MAX_SAMPLERS: usize = 64;

/// Why a call on a step was refused. A refused call changes nothing.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "each field is told by its name and by the variant's message")]
pub enum StepRefusal {
    /// The policy's needs do not cover the call.
    #[error("{call}: the policy's needs do not cover it")]
    NotGranted { call: &'static str, expected: String, found: String },
    /// A token id beyond the vocabulary.
    #[error("{call}: token {token} is beyond the vocabulary of {n_vocab}")]
    UnknownToken { call: &'static str, token: u32, n_vocab: u32 },
    /// An argument out of its range.
    #[error("{call}: `{name}` is {found}")]
    Parameter { call: &'static str, name: &'static str, expected: String, found: String },
    /// More than a step may have.
    #[error("{call}: more than {limit} {what}")]
    Limit { call: &'static str, what: &'static str, limit: usize },
    /// A call where there is no step.
    #[error("{call}: the step has ended")]
    NoStep { call: &'static str },
    /// A constraint that cannot be compiled, or cannot go on.
    #[error("{call}: {error}")]
    Constraint { call: &'static str, error: Box<ConstraintError> },
    /// A call of a newer contract than the plugin's.
    #[error("{call}: contract {found} has no such call")]
    NotInContract { call: &'static str, since: ContractVersion, found: ContractVersion },
}

impl Reported for StepRefusal {
    fn report(&self) -> Report {
        let text = self.to_string();
        match self {
            StepRefusal::NotGranted { expected, found, .. } => Report::new("policy.not-granted", text)
                .expected(expected)
                .found(found)
                .mend("say in `describe` what the policy reads"),
            StepRefusal::UnknownToken { token, n_vocab, .. } => Report::new("policy.unknown-token", text)
                .expected(format!("ids below {n_vocab}"))
                .found(token.to_string())
                .mend("use ids of the model's vocabulary"),
            StepRefusal::Parameter { expected, found, .. } => {
                Report::new("policy.parameter", text).expected(expected).found(found)
            }
            StepRefusal::Limit { what, limit, .. } => {
                Report::new("policy.limit", text).expected(format!("at most {limit} {what}"))
            }
            StepRefusal::NoStep { .. } => Report::new("policy.no-step", text)
                .expected("calls while `step` runs")
                .found("a step that has ended")
                .mend("keep nothing of a step beyond its call"),
            StepRefusal::Constraint { error, .. } => Report { message: text, ..error.report() },
            StepRefusal::NotInContract { since, found, .. } => Report::new("policy.not-in-contract", text)
                .expected(format!("sdk = \"{since}\" or newer"))
                .found(format!("sdk = \"{found}\""))
                .mend("name the newer contract in plugin.toml"),
        }
    }
}

/// What the policy may read of the logits.
#[derive(Debug, Default)]
enum Seen {
    #[default]
    Nothing,
    Top(Vec<(u32, f32)>),
    All(RowCopy),
}

/// The host's side of the step handle, kept from step to step.
pub struct PolicyStep {
    plugin: PluginName,
    log: LogSink,
    log_left: usize,
    budget: StepBudget,
    vocabulary: Arc<dyn PolicyVocabulary>,
    n_vocab: u32,
    needs: Needs,
    is_running: bool,
    calls_left: usize,
    n_biases: usize,
    accepted: Vec<u32>,
    position: u64,
    seed: u64,
    n_draws: u32,
    seen: Seen,
    edits: Edits,
    refusal: Option<StepRefusal>,
    max_constraints: usize,
    grammar: GrammarBudget,
    table: Option<Arc<TokenTable>>,
    eos_ids: Arc<[u32]>,
    /// Each constraint holds a clone.
    constraints: Arc<()>,
    /// What was generated before this step; empty where no constraint was there to ask for it.
    generated: Vec<u32>,
}

impl PolicyStep {
    /// No step yet. What the policy needs is told with [`PolicyStep::set_needs`].
    pub fn new(
        plugin: PluginName,
        vocabulary: Arc<dyn PolicyVocabulary>,
        budget: &Budget,
        log: LogSink,
    ) -> Self {
        PolicyStep {
            plugin,
            log,
            log_left: budget.log_bytes,
            budget: budget.step,
            n_vocab: vocabulary.n_vocab(),
            eos_ids: vocabulary.eos_ids().into(),
            vocabulary,
            needs: Needs::MaskOnly,
            is_running: false,
            calls_left: budget.step.calls,
            n_biases: 0,
            accepted: Vec::new(),
            position: 0,
            seed: 0,
            n_draws: 0,
            seen: Seen::Nothing,
            edits: Edits::none(),
            refusal: None,
            max_constraints: budget.constraints,
            grammar: budget.grammar,
            table: None,
            constraints: Arc::new(()),
            generated: Vec::new(),
        }
    }

    /// Gives a step that was made ahead of its request the request's vocabulary and log.
    pub fn serve(&mut self, vocabulary: Arc<dyn PolicyVocabulary>, log: LogSink) {
        self.n_vocab = vocabulary.n_vocab();
        self.eos_ids = vocabulary.eos_ids().into();
        (self.vocabulary, self.log) = (vocabulary, log);
    }

    /// What the policy said that it reads.
    pub fn set_needs(&mut self, needs: Needs) {
        self.needs = needs;
    }

    /// Begins a step: takes what the policy may read.
    pub fn begin(&mut self, input: &PolicyInput<'_>) {
        self.is_running = true;
        self.calls_left = self.budget.calls;
        (self.n_biases, self.n_draws, self.refusal) = (0, 0, None);
        self.accepted.clear();
        self.accepted.extend_from_slice(input.accepted);
        (self.position, self.seed) = (input.position(), input.seed);
        self.generated.clear();
        if Arc::strong_count(&self.constraints) > 1 {
            self.generated.extend_from_slice(input.generated);
        }
        self.edits = Edits::none();
        self.seen = match (self.needs, std::mem::take(&mut self.seen), input.row) {
            (Needs::TopK(k), _, Some(row)) => Seen::Top(row.top(k as usize)),
            (Needs::FullLogits, seen, Some(row)) => {
                let mut copy = if let Seen::All(copy) = seen { copy } else { RowCopy::default() };
                row.copy_into(&mut copy);
                Seen::All(copy)
            }
            _ => Seen::Nothing,
        };
    }

    /// Ends the step: what was done to it.
    pub fn end(&mut self) -> Edits {
        self.is_running = false;
        std::mem::take(&mut self.edits)
    }

    /// The last refusal of this step.
    pub fn last_refusal(&self) -> Option<&StepRefusal> {
        self.refusal.as_ref()
    }

    /// Hands on a log line. `false` when the budget for log text is spent: the guest must end.
    pub fn log(&mut self, line: &str) -> bool {
        let Some(left) = self.log_left.checked_sub(line.len() + 1) else { return false };
        self.log_left = left;
        self.log.write(&self.plugin, line);
        true
    }

    /// Ids are below this.
    pub fn n_vocab(&self) -> u32 {
        self.n_vocab
    }

    /// The tokens that end a generation.
    pub fn eos_ids(&self) -> &[u32] {
        &self.eos_ids
    }

    /// The bytes that a token adds to a text.
    pub fn token_bytes(&self, id: u32) -> Option<Vec<u8>> {
        self.vocabulary.token_bytes(id)
    }

    /// The ids of a text.
    ///
    /// # Errors
    /// [`StepRefusal::Limit`] for a long text, [`StepRefusal::Parameter`] for one that cannot be spelled.
    pub fn encode(&mut self, text: &str) -> Result<Vec<u32>, StepRefusal> {
        let result = self.try_encode(text);
        self.remember(result)
    }

    fn try_encode(&self, text: &str) -> Result<Vec<u32>, StepRefusal> {
        within("encode", "bytes of a text", text.len(), self.budget.text_bytes)?;
        self.vocabulary.encode(text).ok_or_else(|| StepRefusal::Parameter {
            call: "encode",
            name: "text",
            expected: "a text that the vocabulary can spell".to_owned(),
            found: format!("{:?}", text.chars().take(40).collect::<String>()),
        })
    }

    /// Tokens accepted since the last step.
    ///
    /// # Errors
    /// [`StepRefusal`], which is remembered; so everywhere below.
    pub fn accepted(&mut self) -> Result<&[u32], StepRefusal> {
        self.enter("accepted")?;
        Ok(&self.accepted)
    }

    /// How many tokens were generated before this one.
    ///
    /// # Errors
    /// As [`PolicyStep::accepted`].
    pub fn position(&mut self) -> Result<u64, StepRefusal> {
        self.enter("position")?;
        Ok(self.position)
    }

    /// A random number of (seed, position, draws before it in this step).
    ///
    /// # Errors
    /// As [`PolicyStep::accepted`].
    pub fn random_u32(&mut self) -> Result<u32, StepRefusal> {
        self.enter("random_u32")?;
        let word = random_u32(self.seed, self.position, self.n_draws);
        self.n_draws += 1;
        Ok(word)
    }

    /// The `k` most likely tokens with their logits.
    ///
    /// # Errors
    /// As [`PolicyStep::accepted`].
    pub fn top(&mut self, k: u32) -> Result<Vec<(u32, f32)>, StepRefusal> {
        self.enter("top")?;
        let found = match (&self.seen, self.needs) {
            (Seen::Top(top), Needs::TopK(limit)) if k <= limit => {
                Ok(top[..(k as usize).min(top.len())].to_vec())
            }
            (Seen::All(row), _) => {
                within("top", "tokens", k as usize, self.budget.list_entries).map(|()| row.top(k as usize))
            }
            _ => Err(self.not_granted("top", format!("needs = top-k({k}) or full-logits"))),
        };
        self.remember(found)
    }

    /// The logits of some tokens.
    ///
    /// # Errors
    /// As [`PolicyStep::accepted`].
    pub fn get(&mut self, ids: &[u32]) -> Result<Vec<f32>, StepRefusal> {
        self.enter("get")?;
        let found = self.try_get(ids);
        self.remember(found)
    }

    fn try_get(&self, ids: &[u32]) -> Result<Vec<f32>, StepRefusal> {
        let Seen::All(row) = &self.seen else {
            return Err(self.not_granted("get", "needs = full-logits".to_owned()));
        };
        within("get", "tokens", ids.len(), self.budget.list_entries)?;
        ids.iter().map(|id| row.get(*id).ok_or_else(|| self.unknown("get", *id))).collect()
    }

    /// The entropy of the softmax, in nats.
    ///
    /// # Errors
    /// As [`PolicyStep::accepted`].
    pub fn entropy(&mut self) -> Result<f64, StepRefusal> {
        self.enter("entropy")?;
        let found = match &self.seen {
            Seen::All(row) => Ok(row.entropy()),
            _ => Err(self.not_granted("entropy", "needs = full-logits".to_owned())),
        };
        self.remember(found)
    }

    /// Only tokens of these runs `start..end` may follow.
    ///
    /// # Errors
    /// As [`PolicyStep::accepted`].
    pub fn allow_runs(&mut self, runs: Vec<(u32, u32)>) -> Result<(), StepRefusal> {
        self.enter("allow_runs")?;
        let checked = self.check_runs(&runs);
        self.remember(checked)?;
        self.edits.allow(TokenMask::from_runs(self.n_vocab as usize, runs));
        Ok(())
    }

    fn check_runs(&self, runs: &[(u32, u32)]) -> Result<(), StepRefusal> {
        let call = "allow_runs";
        within(call, "runs", runs.len(), self.budget.list_entries)?;
        let Some((start, end)) = runs.iter().find(|(start, end)| start > end || *end > self.n_vocab) else {
            return Ok(());
        };
        if start <= end {
            return Err(self.unknown(call, end - 1));
        }
        Err(StepRefusal::Parameter {
            call,
            name: "runs",
            expected: "runs that end where they start or later".to_owned(),
            found: format!("{start}..{end}"),
        })
    }

    /// Only tokens whose bits are set may follow.
    ///
    /// # Errors
    /// As [`PolicyStep::accepted`].
    pub fn allow_words(&mut self, words: Vec<u32>) -> Result<(), StepRefusal> {
        self.enter("allow_words")?;
        let limit = (self.n_vocab as usize).div_ceil(32);
        let checked = within("allow_words", "words for this vocabulary", words.len(), limit);
        self.remember(checked)?;
        self.edits.allow(TokenMask::from_words(self.n_vocab as usize, words));
        Ok(())
    }

    /// Adds numbers to the logits of some tokens.
    ///
    /// # Errors
    /// As [`PolicyStep::accepted`].
    pub fn bias(&mut self, ids: &[u32], values: &[f32]) -> Result<(), StepRefusal> {
        self.enter("bias")?;
        let checked = self.check_bias(ids, values);
        self.remember(checked)?;
        self.n_biases += ids.len();
        self.edits.bias.extend(ids.iter().copied().zip(values.iter().copied()));
        Ok(())
    }

    fn check_bias(&self, ids: &[u32], values: &[f32]) -> Result<(), StepRefusal> {
        let refuse = |expected: &str, found: String| StepRefusal::Parameter {
            call: "bias",
            name: "values",
            expected: expected.to_owned(),
            found,
        };
        if ids.len() != values.len() {
            let found = format!("{} values for {} ids", values.len(), ids.len());
            return Err(refuse("one value an id", found));
        }
        within("bias", "biases in a step", self.n_biases + ids.len(), self.budget.list_entries)?;
        if let Some(value) = values.iter().find(|value| value.is_nan() || **value == f32::INFINITY) {
            return Err(refuse("finite numbers or negative infinity", value.to_string()));
        }
        self.known("bias", ids)
    }

    /// These tokens follow.
    ///
    /// # Errors
    /// As [`PolicyStep::accepted`].
    pub fn force(&mut self, ids: &[u32]) -> Result<(), StepRefusal> {
        self.enter("force")?;
        let checked = self.check_forced(ids);
        self.remember(checked)?;
        self.edits.forced.extend_from_slice(ids);
        Ok(())
    }

    fn check_forced(&self, ids: &[u32]) -> Result<(), StepRefusal> {
        let n_forced = self.edits.forced.len() + ids.len();
        within("force", "forced tokens in a step", n_forced, self.budget.list_entries)?;
        self.known("force", ids)
    }

    /// Ends the request without a further token.
    ///
    /// # Errors
    /// As [`PolicyStep::accepted`].
    pub fn finish(&mut self, reason: &str) -> Result<(), StepRefusal> {
        self.enter("finish")?;
        let checked = within("finish", "bytes of a reason", reason.len(), self.budget.text_bytes);
        self.remember(checked)?;
        self.edits.finish = Some(FinishReason::Policy(reason.to_owned()));
        Ok(())
    }

    /// Adds a native sampler before the request's chain.
    ///
    /// # Errors
    /// As [`PolicyStep::accepted`].
    pub fn apply(&mut self, sampler: Sampler) -> Result<(), StepRefusal> {
        self.enter("apply")?;
        let checked = self.check_sampler(&sampler);
        self.remember(checked)?;
        self.edits.samplers.push(sampler);
        Ok(())
    }

    fn check_sampler(&self, sampler: &Sampler) -> Result<(), StepRefusal> {
        let call = "apply";
        within(call, "samplers in a step", self.edits.samplers.len() + 1, MAX_SAMPLERS)?;
        if sampler.is_stateful() || matches!(sampler, Sampler::LogitBias { .. }) {
            return Err(StepRefusal::Parameter {
                call,
                name: "sampler",
                expected: "one that a step can judge alone; `bias` adds to logits".to_owned(),
                found: sampler.name().to_owned(),
            });
        }
        if let Sampler::Dry { sequence_breakers, .. } = sampler {
            within(call, "sequence breakers", sequence_breakers.len(), self.budget.list_entries)?;
            for breaker in sequence_breakers {
                match breaker {
                    Breaker::Id(id) => self.known(call, &[*id])?,
                    Breaker::Text(text) => {
                        return Err(StepRefusal::Parameter {
                            call,
                            name: "sequence_breakers",
                            expected: "token ids".to_owned(),
                            found: format!("{text:?}"),
                        });
                    }
                }
            }
        }
        sampler.check().map_err(|error| StepRefusal::Parameter {
            call,
            name: error.name,
            expected: error.expected.to_owned(),
            found: format!("{} in `{}`", error.found, sampler.name()),
        })
    }

    /// Compiles a constraint for the model's vocabulary; a step need not run. `call` names it in refusals.
    ///
    /// # Errors
    /// [`StepRefusal::Constraint`] with what cannot be enforced, read or afforded, [`StepRefusal::Limit`].
    pub fn compile(
        &mut self,
        call: &'static str,
        spec: &GrammarSpec,
    ) -> Result<PolicyConstraint, StepRefusal> {
        let compiled = self.try_compile(call, spec);
        self.remember(compiled)
    }

    fn try_compile(
        &mut self,
        call: &'static str,
        spec: &GrammarSpec,
    ) -> Result<PolicyConstraint, StepRefusal> {
        let refuse = |error| StepRefusal::Constraint { call, error: Box::new(error) };
        self.check_constraints(call)?;
        let table = match &self.table {
            Some(table) => Arc::clone(table),
            None => self.table.insert(self.vocabulary.token_table().map_err(refuse)?).clone(),
        };
        let grammar = Grammar::compile(spec, &table, self.grammar).map_err(refuse)?;
        Ok(PolicyConstraint::new(&grammar, Arc::clone(&self.eos_ids), &self.constraints))
    }

    /// Another constraint that stands where this one does and goes on alone; a step need not run.
    ///
    /// # Errors
    /// [`StepRefusal::Limit`].
    pub fn fork_constraint(
        &mut self,
        constraint: &PolicyConstraint,
    ) -> Result<PolicyConstraint, StepRefusal> {
        let checked = self.check_constraints("fork");
        self.remember(checked).map(|()| constraint.fork())
    }

    fn check_constraints(&self, call: &'static str) -> Result<(), StepRefusal> {
        // One clone is the step's own, the new constraint will be one more.
        within(call, "constraints", Arc::strong_count(&self.constraints), self.max_constraints)
    }

    /// Only tokens that the constraint allows after what was generated may follow. Its text begins with the token of
    /// its first step.
    ///
    /// # Errors
    /// [`StepRefusal::Constraint`], or as [`PolicyStep::accepted`].
    pub fn constrain(&mut self, constraint: &PolicyConstraint) -> Result<(), StepRefusal> {
        self.enter("constrain")?;
        let mask = constraint.mask(self.position as usize, &self.generated);
        let mask =
            mask.map_err(|error| StepRefusal::Constraint { call: "constrain", error: Box::new(error) });
        let mask = self.remember(mask)?;
        self.edits.allow(mask);
        Ok(())
    }

    /// Refuses a call that the plugin's contract does not have.
    ///
    /// # Errors
    /// [`StepRefusal::NotInContract`].
    pub fn need_contract(
        &mut self,
        call: &'static str,
        since: ContractVersion,
        found: ContractVersion,
    ) -> Result<(), StepRefusal> {
        let checked =
            if found >= since { Ok(()) } else { Err(StepRefusal::NotInContract { call, since, found }) };
        self.remember(checked)
    }

    fn enter(&mut self, call: &'static str) -> Result<(), StepRefusal> {
        let entered = if !self.is_running {
            Err(StepRefusal::NoStep { call })
        } else if let Some(left) = self.calls_left.checked_sub(1) {
            self.calls_left = left;
            Ok(())
        } else {
            Err(StepRefusal::Limit { call, what: "calls in a step", limit: self.budget.calls })
        };
        self.remember(entered)
    }

    fn known(&self, call: &'static str, ids: &[u32]) -> Result<(), StepRefusal> {
        match ids.iter().find(|id| **id >= self.n_vocab) {
            Some(id) => Err(self.unknown(call, *id)),
            None => Ok(()),
        }
    }

    fn unknown(&self, call: &'static str, token: u32) -> StepRefusal {
        StepRefusal::UnknownToken { call, token, n_vocab: self.n_vocab }
    }

    fn not_granted(&self, call: &'static str, expected: String) -> StepRefusal {
        let found = match self.needs {
            Needs::MaskOnly => "needs = mask-only".to_owned(),
            Needs::TopK(k) => format!("needs = top-k({k})"),
            Needs::FullLogits => "needs = full-logits".to_owned(),
        };
        StepRefusal::NotGranted { call, expected, found }
    }

    fn remember<T>(&mut self, result: Result<T, StepRefusal>) -> Result<T, StepRefusal> {
        if let Err(refusal) = &result {
            self.refusal = Some(refusal.clone());
        }
        result
    }
}

fn within(call: &'static str, what: &'static str, found: usize, limit: usize) -> Result<(), StepRefusal> {
    if found > limit { Err(StepRefusal::Limit { call, what, limit }) } else { Ok(()) }
}
