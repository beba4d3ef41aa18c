//! `tenon run`: a pipeline in Lua.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use host_engine::{CancelFlag, Driver};
use host_lua::{LuaPipeline, PipelineOutcome, PipelineRun};
use host_plugins::pipeline::{PipelineBudget, PipelineError, PipelineSource};
use host_service::Opened;
use serde_json::{Value, json};

use super::{Printer, print_json};
use crate::args::{BudgetArgs, FolderArgs, RunArgs};
use crate::error::{CliError, Failure};
use crate::exit::Exit;
use crate::folders;
use crate::interrupt::Interrupt;
use crate::open::{load_host, open};
use crate::pipeline_host::{EngineHost, EngineModel};

pub(crate) fn run(folders: &FolderArgs, args: &RunArgs) -> Result<Exit, Failure> {
    let interrupt = Interrupt::watch()?;
    let script_args = script_args(&args.args)?;
    let pipeline = LuaPipeline::open(PipelineSource::read(&args.script)?)?;
    let budget = budget(folders, &args.budget)?;
    let host = Arc::new(load_host(folders)?);
    let Opened { composition, tokenizer, engine, policy } = open(&host, &args.model, &args.compose)?;
    let (profile, hash) = (composition.profile_id().to_owned(), composition.hash().to_string());
    let n_vocab = engine.executable().n_vocab();
    let driver = Arc::new(Driver::start(engine).map_err(|source| CliError::Engine { source })?);
    let names = args.model.profile.iter().chain(&args.model.model).cloned().collect();
    let model = EngineModel { host, names, driver, tokenizer, composition, n_vocab, policy };
    let engine_host = EngineHost::new(model, args.sampling.clone());
    let output = Arc::new(Mutex::new(Output { wants_text: args.json, ..Output::default() }));
    let of_run = Arc::clone(&output);
    let cancel = Arc::new(AtomicBool::new(false));
    let guard = interrupt.guard(&CancelFlag::from(Arc::clone(&cancel)));
    let ended = pipeline.run(PipelineRun {
        host: Box::new(engine_host),
        args: script_args,
        budget,
        cancel,
        emit: Box::new(move |text| of_run.lock().unwrap_or_else(PoisonError::into_inner).emit(text)),
        log: Box::new(|line| eprintln!("pipeline: {line}")),
    });
    drop(guard);
    let output = std::mem::take(&mut *output.lock().unwrap_or_else(PoisonError::into_inner));
    if output.printer.is_gone() {
        output.printer.finish()?;
        return Ok(Exit::Done);
    }
    match ended {
        Ok(outcome) if args.json => print_json(&as_object(&outcome, &output.text, &profile, &hash)),
        Ok(outcome) => output.end(&outcome.value),
        Err(PipelineError::Cancelled) if !args.json => {
            output.end(&Value::Null)?;
            Ok(Exit::Interrupted)
        }
        Err(error) => {
            output.end(&Value::Null)?;
            Err(error.into())
        }
    }
}

/// Where emitted text goes: out at once, or into the object.
#[derive(Default)]
struct Output {
    wants_text: bool,
    text: String,
    has_printed: bool,
    printer: Printer,
}

impl Output {
    /// Whether anybody still reads.
    fn emit(&mut self, text: &str) -> bool {
        if self.wants_text {
            self.text.push_str(text);
            return true;
        }
        self.has_printed |= !text.is_empty();
        self.printer.say(text).is_continue()
    }

    /// Prints what `main` returned, on a line of its own.
    fn end(mut self, value: &Value) -> Result<Exit, Failure> {
        let text = match value {
            Value::Null => None,
            Value::String(text) => Some(text.clone()),
            other => Some(format!("{other:#}")),
        };
        if self.wants_text || (text.is_none() && !self.has_printed) {
            return Ok(Exit::Done);
        }
        if let Some(text) = text {
            self.printer.end_line();
            let _ = self.printer.say(&text);
        }
        self.printer.finish()?;
        Ok(Exit::Done)
    }
}

fn as_object(outcome: &PipelineOutcome, output: &str, profile: &str, composition: &str) -> Value {
    json!({
        "result": outcome.value,
        "output": output,
        "profile": profile,
        "composition": composition,
        "spent": { "lua_ms": outcome.lua_ms, "host_calls": outcome.host_calls, "tasks": outcome.tasks },
    })
}

/// `name=value`, each name once.
fn script_args(given: &[String]) -> Result<BTreeMap<String, String>, CliError> {
    let mut args = BTreeMap::new();
    for text in given {
        let refused = |expected| CliError::Value { flag: "--arg", expected, found: text.clone() };
        let (name, value) = text.split_once('=').ok_or_else(|| refused("NAME=VALUE"))?;
        if name.is_empty() {
            return Err(refused("NAME=VALUE with a name"));
        }
        if args.insert(name.to_owned(), value.to_owned()).is_some() {
            return Err(refused("each name once"));
        }
    }
    Ok(args)
}

/// The budget file's numbers, where no flag says otherwise.
fn budget(folders: &FolderArgs, flags: &BudgetArgs) -> Result<PipelineBudget, Failure> {
    let path = match &flags.budget {
        Some(path) => path.clone(),
        None => beside_profiles(folders)?,
    };
    let text = std::fs::read_to_string(&path).map_err(CliError::file("read", &path))?;
    let of_file = PipelineBudget::parse(&text, &path.display().to_string())?;
    Ok(PipelineBudget {
        burst_ms: flags.burst_ms.unwrap_or(of_file.burst_ms),
        lua_ms: flags.lua_ms.unwrap_or(of_file.lua_ms),
        wall_ms: flags.wall_ms.unwrap_or(of_file.wall_ms),
        lua_memory_bytes: flags.lua_memory_bytes.unwrap_or(of_file.lua_memory_bytes),
        host_calls: flags.host_calls.unwrap_or(of_file.host_calls),
        tasks: flags.tasks.unwrap_or(of_file.tasks),
        output_bytes: flags.output_bytes.unwrap_or(of_file.output_bytes),
        log_bytes: flags.log_bytes.unwrap_or(of_file.log_bytes),
    })
}

/// `pipelines/budget.toml` in the first folder of profiles that has it.
fn beside_profiles(folders: &FolderArgs) -> Result<PathBuf, CliError> {
    let folders = folders::profiles(folders)?;
    let found =
        folders.iter().map(|folder| folder.join("pipelines").join("budget.toml")).find(|path| path.is_file());
    found.ok_or(CliError::NoBudget { folders })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_names_with_values() {
        let given = ["a=1", "text=x=y", "empty="].map(str::to_owned);
        let args = script_args(&given).expect("good arguments");
        let pairs: Vec<_> = args.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(pairs, [("a", "1"), ("empty", ""), ("text", "x=y")]);
        for bad in [vec!["a"], vec!["=1"], vec!["a=1", "a=2"]] {
            let bad: Vec<_> = bad.into_iter().map(str::to_owned).collect();
            assert!(matches!(script_args(&bad), Err(CliError::Value { .. })), "{bad:?}");
        }
    }
}
