//! Pipelines over a host whose answers are known: it repeats what it is asked to, a word a step.

mod budgets;
mod errors;
mod flow;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use host_core::{FinishReason, Report, Reported};
use host_plugins::pipeline::{
    GenerateOptions, Generated, GenerationKey, Item, PipelineBudget, PipelineError, PipelineHost,
    PipelineSource, Progress, Prompt, Script, SessionForm, SessionKey, SessionOptions, Turn,
};

use super::{LuaPipeline, PipelineOutcome, PipelineRun};

/// What a test looks at afterwards.
#[derive(Clone, Debug, Default)]
struct Seen {
    /// The generations that each step advanced together.
    steps: Vec<Vec<u64>>,
    options: Vec<GenerateOptions>,
    session_options: Vec<SessionOptions>,
    cancelled: BTreeSet<u64>,
    open_sessions: BTreeSet<u64>,
    emitted: String,
    log: Vec<String>,
}

type Record = Arc<Mutex<Seen>>;

/// Answers `echo a b c` with `a b c`, a word a step; `… fail` with a failure;
/// `forever` never ends, and `slow` takes its time.
struct EchoHost {
    record: Record,
    n_made: u64,
    running: BTreeMap<u64, (Vec<String>, Prompt)>,
    sessions: BTreeMap<SessionKey, Vec<String>>,
    cancel_after_step: Option<(usize, Arc<AtomicBool>)>,
}

impl EchoHost {
    fn words(&self, prompt: &Prompt) -> Vec<String> {
        let text = match prompt {
            Prompt::Text(text) => text.clone(),
            Prompt::Chat(turns) => turns.last().map(|turn| turn.content.clone()).unwrap_or_default(),
            Prompt::Session(key) => self.sessions[key].join(" "),
        };
        text.split_inclusive(' ').rev().map(str::to_owned).collect()
    }

    fn seen<T>(&self, act: impl FnOnce(&mut Seen) -> T) -> T {
        act(&mut self.record.lock().expect("no test panics with it"))
    }

    fn closed() -> Report {
        Report::new("pipeline.closed-session", "the session is closed")
    }
}

impl PipelineHost for EchoHost {
    fn models(&self) -> Vec<String> {
        vec!["echo".to_owned(), "echo.gguf".to_owned()]
    }

    /// Takes its time for `slow`.
    fn count_tokens(&self, _: &str, text: &str) -> Result<usize, Report> {
        if text == "slow" {
            thread::sleep(Duration::from_millis(150));
        }
        Ok(text.split_whitespace().count())
    }

    fn render(&self, _: &str, turns: &[Turn]) -> Result<String, Report> {
        Ok(turns.iter().map(|turn| format!("<{}>{}", turn.role, turn.content)).collect())
    }

    fn open_session(&mut self, _: &str, options: SessionOptions) -> Result<SessionKey, Report> {
        self.n_made += 1;
        self.seen(|seen| seen.session_options.push(options));
        let key = SessionKey(self.n_made);
        self.sessions.insert(key, Vec::new());
        self.seen(|seen| seen.open_sessions.insert(key.0));
        Ok(key)
    }

    fn append(&mut self, session: SessionKey, item: Item) -> Result<(), Report> {
        let text = match item {
            Item::Text(text) => text,
            Item::Turn(turn) => turn.content,
        };
        self.sessions.get_mut(&session).ok_or_else(Self::closed)?.push(text);
        Ok(())
    }

    fn trim(&mut self, session: SessionKey, n: usize) -> Result<(), Report> {
        let held = self.sessions.get_mut(&session).ok_or_else(Self::closed)?;
        held.truncate(held.len().saturating_sub(n));
        Ok(())
    }

    fn fork(&mut self, session: SessionKey) -> Result<SessionKey, Report> {
        let held = self.sessions.get(&session).cloned().ok_or_else(Self::closed)?;
        let fork = self.open_session("", SessionOptions { form: SessionForm::Chat, policy: None })?;
        self.sessions.insert(fork, held);
        Ok(fork)
    }

    fn session_len(&self, session: SessionKey) -> Result<usize, Report> {
        self.sessions.get(&session).map(Vec::len).ok_or_else(Self::closed)
    }

    fn close_session(&mut self, session: SessionKey) -> Result<(), Report> {
        self.sessions.remove(&session).ok_or_else(Self::closed)?;
        self.seen(|seen| seen.open_sessions.remove(&session.0));
        Ok(())
    }

    fn start(&mut self, _: &str, prompt: Prompt, options: GenerateOptions) -> Result<GenerationKey, Report> {
        if prompt == Prompt::Text("refuse".to_owned()) {
            return Err(Report::new("engine.empty-prompt", "the prompt has no tokens"));
        }
        self.n_made += 1;
        let words = self.words(&prompt);
        self.seen(|seen| seen.options.push(options));
        self.running.insert(self.n_made, (words, prompt));
        Ok(GenerationKey(self.n_made))
    }

    fn cancel(&mut self, generation: GenerationKey) {
        self.seen(|seen| seen.cancelled.insert(generation.0));
    }

    fn wait(&mut self, timeout: Duration) -> Vec<(GenerationKey, Progress)> {
        let keys: Vec<u64> = self.running.keys().copied().collect();
        let n_steps = self.seen(|seen| {
            seen.steps.push(keys.clone());
            seen.steps.len()
        });
        if let Some((step, flag)) = &self.cancel_after_step
            && *step == n_steps
        {
            flag.store(true, Ordering::Relaxed);
        }
        let mut progress = Vec::new();
        for key in keys {
            let is_cancelled = self.seen(|seen| seen.cancelled.contains(&key));
            let (words, prompt) = self.running.get_mut(&key).expect("it runs");
            let is_forever = words.first().is_some_and(|word| word == "forever");
            let next = if is_cancelled { None } else { words.pop() };
            if is_forever && !is_cancelled {
                words.insert(0, "forever".to_owned());
                thread::sleep(Duration::from_millis(1).min(timeout));
            }
            if next.as_deref() == Some("slow ") {
                thread::sleep(Duration::from_millis(5));
            }
            let given = match next {
                Some(word) if word == "fail" => {
                    Progress::Failed(Report::new("engine.planted", "the row failed"))
                }
                Some(word) => Progress::Text(word),
                None => {
                    let text = match prompt {
                        Prompt::Text(text) => text.clone(),
                        Prompt::Chat(turns) => {
                            turns.last().map(|turn| turn.content.clone()).unwrap_or_default()
                        }
                        Prompt::Session(key) => self.sessions[key].join(" "),
                    };
                    let finish_reason =
                        if is_cancelled { FinishReason::Cancelled } else { FinishReason::Stop };
                    let n = text.split(' ').count();
                    Progress::Done(Generated {
                        text,
                        finish_reason,
                        prompt_tokens: n,
                        reused_tokens: 0,
                        generated_tokens: n,
                    })
                }
            };
            if !matches!(given, Progress::Text(_)) {
                self.running.remove(&key);
            }
            progress.push((GenerationKey(key), given));
        }
        progress
    }
}

/// Room for everything that a test does on purpose.
fn roomy() -> PipelineBudget {
    PipelineBudget {
        burst_ms: 5_000,
        lua_ms: 10_000,
        wall_ms: 20_000,
        lua_memory_bytes: 16 << 20,
        host_calls: 1_000,
        tasks: 32,
        output_bytes: 1_000,
        log_bytes: 1_000,
    }
}

struct Case {
    modules: BTreeMap<String, Script>,
    budget: PipelineBudget,
    cancel_after_step: Option<usize>,
}

impl Default for Case {
    fn default() -> Self {
        Case { modules: BTreeMap::new(), budget: roomy(), cancel_after_step: None }
    }
}

impl Case {
    fn module(mut self, name: &str, text: &str) -> Self {
        let script = Script { name: format!("pipe/{name}.lua"), text: text.to_owned() };
        self.modules.insert(name.to_owned(), script);
        self
    }

    fn run(self, text: &str) -> (Result<PipelineOutcome, PipelineError>, Seen) {
        let main = Script { name: "pipe/main.lua".to_owned(), text: text.to_owned() };
        let pipeline = match LuaPipeline::open(PipelineSource::new(main, self.modules)) {
            Ok(pipeline) => pipeline,
            Err(error) => return (Err(error), Seen::default()),
        };
        let record = Record::default();
        let cancel = Arc::new(AtomicBool::new(false));
        let host = EchoHost {
            record: record.clone(),
            n_made: 0,
            running: BTreeMap::new(),
            sessions: BTreeMap::new(),
            cancel_after_step: self.cancel_after_step.map(|step| (step, Arc::clone(&cancel))),
        };
        let (emitted, logged) = (record.clone(), record.clone());
        let outcome = pipeline.run(PipelineRun {
            host: Box::new(host),
            args: BTreeMap::from([("who".to_owned(), "world".to_owned())]),
            budget: self.budget,
            cancel,
            emit: Box::new(move |text| {
                emitted.lock().expect("no panic").emitted.push_str(text);
                true
            }),
            log: Box::new(move |line| logged.lock().expect("no panic").log.push(line.to_owned())),
        });
        let seen = record.lock().expect("no panic").clone();
        (outcome, seen)
    }
}

/// What `main` returns.
fn value(text: &str) -> serde_json::Value {
    let (outcome, _) = Case::default().run(text);
    outcome.unwrap_or_else(|error| panic!("{}", error.report())).value
}

/// The report of a run that fails.
fn report(text: &str) -> Report {
    let (outcome, _) = Case::default().run(text);
    outcome.expect_err("the script is wrong").report()
}
