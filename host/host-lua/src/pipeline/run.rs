//! The scheduler of one run: which task goes on, and what the others wait for.
//!
//! Tasks are resumed in the order in which what they wait for has come, first started first where several things
//! came at once; so a run whose host answers in the same order does the same again.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use host_core::Report;
use host_plugins::pipeline::{
    Generated, GenerationKey, PipelineError, PipelineSource, Progress, SessionKey, Spent,
};
use mlua::{IntoLuaMulti, Lua, MultiValue, Table, Thread, Value};

use super::clock::{Clock, Stop};
use super::fault::{failure, is_memory, is_memory_error, script_error};
use super::shared::{Inner, Shared};
use super::state::{self, State};
use super::{PipelineOutcome, PipelineRun, calls, json};

/// How long the host is waited for before cancellation is looked at again.
const LOOK: Duration = Duration::from_millis(20);
/// How long cancelled generations may take to end.
const FAREWELL: Duration = Duration::from_secs(10);
/// A year.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// The task that runs `main`.
const MAIN: u64 = 0;

/// One run.
pub(super) struct Run {
    shared: Shared,
    state: State,
    started: Instant,
    in_lua: Duration,
    tasks: BTreeMap<u64, Task>,
    ready: VecDeque<(u64, MultiValue)>,
    generations: BTreeMap<GenerationKey, Generation>,
    /// What `main` returned.
    value: Value,
}

struct Task {
    thread: Thread,
    waits: Option<Wait>,
    has_ended: bool,
    /// What it ended with, until a task has joined it.
    error: Option<PipelineError>,
}

enum Wait {
    Text(GenerationKey),
    Done(GenerationKey),
    Join(Vec<u64>),
}

#[derive(Default)]
struct Generation {
    pieces: VecDeque<String>,
    end: Option<Result<Generated, Report>>,
}

/// A bound on time; one that no run reaches is cut to what the clock can count.
fn millis(ms: u64) -> Duration {
    Duration::from_millis(ms).min(FOREVER)
}

fn runtime(error: impl ToString) -> PipelineError {
    PipelineError::Runtime { message: error.to_string() }
}

impl Run {
    pub(super) fn start(source: Arc<PipelineSource>, run: PipelineRun) -> Result<Self, PipelineError> {
        let PipelineRun { host, args, budget, cancel, emit, log } = run;
        let inner = Inner {
            host,
            emit,
            log,
            fault: None,
            n_calls: 0,
            n_spawned: 0,
            output_bytes: 0,
            log_bytes: 0,
            spawned: Vec::new(),
            started: Vec::new(),
            sessions: Default::default(),
        };
        let (started, stop) = (Instant::now(), Stop::default());
        let wall = started + millis(budget.wall_ms);
        let clock = Clock::start(stop.clone(), wall).map_err(runtime)?;
        let shared = Shared::new(source, budget, (stop, clock), cancel, inner);
        let first_error = |error: mlua::Error| {
            if is_memory_error(&error) { shared.spent(Spent::Memory) } else { runtime(error) }
        };
        let state = state::fresh(&shared).map_err(first_error)?;
        let (thread, values) = first_task(&state, &shared, &args).map_err(first_error)?;
        let mut run = Run {
            shared,
            state,
            started,
            in_lua: Duration::ZERO,
            tasks: BTreeMap::new(),
            ready: VecDeque::new(),
            generations: BTreeMap::new(),
            value: Value::Nil,
        };
        run.add(MAIN, thread, values);
        Ok(run)
    }

    /// Runs every task to its end, and leaves nothing behind at the host.
    pub(super) fn into_outcome(mut self) -> Result<PipelineOutcome, PipelineError> {
        let outcome = self.schedule().and_then(|()| self.outcome());
        self.leave();
        outcome
    }

    fn schedule(&mut self) -> Result<(), PipelineError> {
        loop {
            self.check()?;
            self.take_new();
            if let Some((id, values)) = self.ready.pop_front() {
                self.resume(id, values)?;
                continue;
            }
            if self.tasks.values().all(|task| task.has_ended) {
                return Ok(());
            }
            if self.wake()? {
                continue;
            }
            if self.generations.values().all(|generation| generation.end.is_some()) {
                let n_tasks = self.tasks.values().filter(|task| !task.has_ended).count();
                return Err(PipelineError::Deadlock { n_tasks });
            }
            self.wait();
        }
    }

    /// Whether something ended the run from outside or by its budget.
    fn check(&self) -> Result<(), PipelineError> {
        match self.shared.fault() {
            Some(fault) => Err(fault),
            None if self.wall_left().is_zero() => Err(self.shared.spent(Spent::Wall)),
            None => Ok(()),
        }
    }

    fn wall_left(&self) -> Duration {
        millis(self.shared.budget.wall_ms).saturating_sub(self.started.elapsed())
    }

    fn lua_left(&self) -> Duration {
        millis(self.shared.budget.lua_ms).saturating_sub(self.in_lua)
    }

    fn add(&mut self, id: u64, thread: Thread, values: MultiValue) {
        self.tasks.insert(id, Task { thread, waits: None, has_ended: false, error: None });
        self.ready.push_back((id, values));
    }

    fn take_new(&mut self) {
        let (spawned, started) = self
            .shared
            .with(|inner| (std::mem::take(&mut inner.spawned), std::mem::take(&mut inner.started)));
        for (id, thread, values) in spawned {
            self.add(id, thread, values);
        }
        for generation in started {
            self.generations.entry(generation).or_default();
        }
    }

    /// The bound on time that is reached first.
    fn deadline(&self) -> (Duration, Spent) {
        let burst = millis(self.shared.budget.burst_ms);
        let bounds = [(burst, Spent::Burst), (self.lua_left(), Spent::Lua), (self.wall_left(), Spent::Wall)];
        bounds.into_iter().min_by_key(|(left, _)| *left).expect("there are three")
    }

    /// Lets a task run until it waits or ends.
    fn resume(&mut self, id: u64, values: MultiValue) -> Result<(), PipelineError> {
        let thread = self.tasks[&id].thread.clone();
        let (left, spent) = self.deadline();
        let entered = Instant::now();
        self.shared.clock.arm(entered + left, spent);
        let given = thread.resume::<MultiValue>(values);
        let held = self.shared.clock.disarm();
        self.in_lua += entered.elapsed().saturating_sub(held);
        self.check()?;
        if self.lua_left().is_zero() {
            return Err(self.shared.spent(Spent::Lua));
        }
        match given {
            Ok(given) if thread.is_resumable() => self.suspend(id, given),
            Ok(given) => self.end(id, given),
            Err(error) => Err(self.error_of(&Value::Error(Box::new(error)), None)),
        }
    }

    fn suspend(&mut self, id: u64, mut given: MultiValue) -> Result<(), PipelineError> {
        given.pop_front();
        let read = || -> mlua::Result<Wait> {
            let (what, of): (String, Value) = mlua::FromLuaMulti::from_lua_multi(given, &self.state.lua)?;
            let key = |of: Value| mlua::FromLua::from_lua(of, &self.state.lua).map(GenerationKey);
            Ok(match what.as_str() {
                "text" => Wait::Text(key(of)?),
                "done" => Wait::Done(key(of)?),
                _ => Wait::Join(mlua::FromLua::from_lua(of, &self.state.lua)?),
            })
        };
        let wait = read().map_err(runtime)?;
        self.task(id).waits = Some(wait);
        Ok(())
    }

    fn end(&mut self, id: u64, given: MultiValue) -> Result<(), PipelineError> {
        let (is_well, value, place): (bool, Value, Option<String>) =
            mlua::FromLuaMulti::from_lua_multi(given, &self.state.lua).map_err(runtime)?;
        self.task(id).has_ended = true;
        if is_well {
            if id == MAIN {
                self.value = value;
            }
            return Ok(());
        }
        let error = self.error_of(&value, place.as_deref());
        if id == MAIN {
            return Err(error);
        }
        self.task(id).error = Some(error);
        Ok(())
    }

    fn task(&mut self, id: u64) -> &mut Task {
        self.tasks.get_mut(&id).expect("tasks are never removed")
    }

    fn error_of(&self, value: &Value, place: Option<&str>) -> PipelineError {
        if is_memory(value) {
            return self.shared.spent(Spent::Memory);
        }
        script_error(value, place, &self.shared.source)
    }

    /// Makes tasks ready whose wait is over; whether there was one.
    fn wake(&mut self) -> Result<bool, PipelineError> {
        let waiting: Vec<u64> =
            self.tasks.iter().filter(|(_, task)| task.waits.is_some()).map(|(id, _)| *id).collect();
        for id in waiting {
            if let Some(values) =
                self.answer(id).map_err(|error| self.error_of(&Value::Error(Box::new(error)), None))?
            {
                self.task(id).waits = None;
                self.ready.push_back((id, values));
            }
        }
        Ok(!self.ready.is_empty())
    }

    /// What a task waits for, if it has come.
    fn answer(&mut self, id: u64) -> mlua::Result<Option<MultiValue>> {
        let lua = &self.state.lua;
        match self.tasks[&id].waits.as_ref() {
            None => Ok(None),
            Some(Wait::Join(ids)) => {
                let ids = ids.clone();
                if !ids.iter().all(|id| self.tasks.get(id).is_some_and(|task| task.has_ended)) {
                    return Ok(None);
                }
                for id in ids {
                    // Whoever joins hears of it from the task's own value.
                    self.task(id).error = None;
                }
                true.into_lua_multi(&self.state.lua).map(Some)
            }
            Some(Wait::Text(key)) => {
                let Some(generation) = self.generations.get_mut(key) else { return Ok(None) };
                match (generation.pieces.pop_front(), &generation.end) {
                    (Some(piece), _) => (true, piece).into_lua_multi(lua).map(Some),
                    (None, Some(Err(report))) => failed(lua, report).map(Some),
                    (None, Some(Ok(_))) => (true, Value::Nil).into_lua_multi(lua).map(Some),
                    (None, None) => Ok(None),
                }
            }
            Some(Wait::Done(key)) => match self.generations.get(key).and_then(|found| found.end.as_ref()) {
                Some(Ok(generated)) => (true, table(lua, generated)?).into_lua_multi(lua).map(Some),
                Some(Err(report)) => failed(lua, report).map(Some),
                None => Ok(None),
            },
        }
    }

    fn wait(&mut self) {
        let timeout = LOOK.min(self.wall_left());
        for (key, progress) in self.shared.with(|inner| inner.host.wait(timeout)) {
            let generation = self.generations.entry(key).or_default();
            match progress {
                Progress::Text(piece) => generation.pieces.push_back(piece),
                Progress::Done(generated) => generation.end = Some(Ok(generated)),
                Progress::Failed(report) => generation.end = Some(Err(report)),
            }
        }
    }

    fn outcome(&mut self) -> Result<PipelineOutcome, PipelineError> {
        // An error that nobody joined is nobody's but the run's.
        if let Some(error) = self.tasks.values_mut().find_map(|task| task.error.take()) {
            return Err(error);
        }
        let value =
            json::from_lua(&self.value, &self.state.array).map_err(|found| PipelineError::Script {
                message: format!("`main` returned {found}, expected plain data"),
                place: None,
            })?;
        let n_bytes = value.as_str().map_or_else(|| value.to_string().len(), str::len);
        if self.shared.count_output(n_bytes).is_err() {
            return Err(self.shared.spent(Spent::Output));
        }
        let (host_calls, tasks) = self.shared.with(|inner| (inner.n_calls, inner.n_spawned));
        Ok(PipelineOutcome { value, lua_ms: self.in_lua.as_millis() as u64, host_calls, tasks })
    }

    /// Ends what still runs at the host and closes the sessions.
    fn leave(&mut self) {
        self.take_new();
        let is_running = |run: &Run| run.generations.values().any(|generation| generation.end.is_none());
        for (key, _) in self.generations.iter().filter(|(_, generation)| generation.end.is_none()) {
            self.shared.with(|inner| inner.host.cancel(*key));
        }
        let begun = Instant::now();
        while is_running(self) && begun.elapsed() < FAREWELL {
            for (key, progress) in self.shared.with(|inner| inner.host.wait(LOOK)) {
                if let Progress::Done(_) | Progress::Failed(_) = progress {
                    self.generations.remove(&key);
                }
            }
        }
        let sessions: Vec<SessionKey> =
            self.shared.with(|inner| std::mem::take(&mut inner.sessions)).into_iter().collect();
        for session in sessions {
            // One that is still busy goes with the host.
            let _ = self.shared.with(|inner| inner.host.close_session(session));
        }
    }
}

/// The thread that runs the script and its `main`.
fn first_task(
    state: &State,
    shared: &Shared,
    args: &BTreeMap<String, String>,
) -> mlua::Result<(Thread, MultiValue)> {
    let main = shared.source.main();
    let chunk = calls::load(&state.lua, &main.text, &main.name)?;
    let given =
        state.lua.create_table_from(args.iter().map(|(key, value)| (key.as_str(), value.as_str())))?;
    let thread: Thread = state.task_thread.call(())?;
    let values = (MAIN, &state.run_main, chunk, given).into_lua_multi(&state.lua)?;
    Ok((thread, values))
}

fn failed(lua: &Lua, report: &Report) -> mlua::Result<MultiValue> {
    (false, failure(lua, report)?).into_lua_multi(lua)
}

fn table(lua: &Lua, generated: &Generated) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("text", generated.text.as_str())?;
    let reason = serde_json::to_value(&generated.finish_reason).ok();
    table.raw_set("finish_reason", reason.as_ref().and_then(|reason| reason.as_str()))?;
    table.raw_set("prompt_tokens", generated.prompt_tokens)?;
    table.raw_set("reused_tokens", generated.reused_tokens)?;
    table.raw_set("generated_tokens", generated.generated_tokens)?;
    Ok(table)
}
