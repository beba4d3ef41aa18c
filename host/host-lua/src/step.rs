//! The step and the vocabulary as a script sees them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use host_core::Sampler;
use host_plugins::{ContractVersion, PolicyConstraint, PolicyStep, StepRefusal};
use host_sampling::{GrammarSpec, Whitespace};
use mlua::{Lua, MultiValue, Result, UserData, UserDataMethods};
use serde_json::{Map, Value as Json};

use crate::args::{Args, as_f32, as_id, as_text, as_whole, each_of, list_of};
use crate::fault::{Raised, calling_place};

/// The step of a request's guest.
pub(crate) type SharedStep = Arc<Mutex<PolicyStep>>;

/// `step` in `policy:step(step)`.
#[derive(Clone)]
pub(crate) struct Step {
    pub(crate) step: SharedStep,
    pub(crate) contract: ContractVersion,
}

/// What `vocabulary:json_schema(…)`, `regex` and `grammar` give.
pub(crate) struct Constraint {
    pub(crate) of_policy: PolicyConstraint,
    pub(crate) step: SharedStep,
}

/// `vocabulary` in `open(params, vocabulary)`.
pub(crate) struct Vocabulary {
    pub(crate) step: SharedStep,
    pub(crate) contract: ContractVersion,
}

/// The step is as good after a panic elsewhere as before.
pub(crate) fn lock(step: &SharedStep) -> MutexGuard<'_, PolicyStep> {
    step.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes a log line, or ends the run when the budget for log text is spent.
pub(crate) fn log(step: &SharedStep, line: &str) -> Result<()> {
    if lock(step).log(line) { Ok(()) } else { Err(Raised::Log.into_lua()) }
}

/// Raises a refusal at the calling line.
fn refusable<T>(lua: &Lua, result: std::result::Result<T, StepRefusal>) -> Result<T> {
    result.map_err(|refusal| match refusal {
        StepRefusal::Limit { what: "calls in a step", .. } => Raised::Calls.into_lua(),
        refusal => Raised::Step(refusal, calling_place(lua)).into_lua(),
    })
}

/// Registers a method whose arguments are read through [`Args`].
fn method<M, R>(
    methods: &mut M,
    name: &'static str,
    body: impl Fn(&Lua, &mut PolicyStep, Args<'_>) -> Result<R> + Send + 'static,
) where
    M: UserDataMethods<Step>,
    R: mlua::IntoLuaMulti,
{
    methods.add_method(name, move |lua, step, values: MultiValue| {
        let args = Args::new(lua, name, values);
        body(lua, &mut lock(&step.step), args)
    });
}

impl UserData for Step {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        add_views(methods);
        add_edits(methods);
    }
}

fn add_views<M: UserDataMethods<Step>>(methods: &mut M) {
    method(methods, "log", |_, step, mut args| {
        let line = args.text("line")?;
        args.end()?;
        if step.log(&line) { Ok(()) } else { Err(Raised::Log.into_lua()) }
    });
    method(methods, "accepted", |lua, step, args| {
        args.end()?;
        refusable(lua, step.accepted().map(<[u32]>::to_vec))
    });
    method(methods, "position", |lua, step, args| {
        args.end()?;
        refusable(lua, step.position())
    });
    method(methods, "random_u32", |lua, step, args| {
        args.end()?;
        refusable(lua, step.random_u32())
    });
    method(methods, "top", |lua, step, mut args| {
        let k = args.id("k")?;
        args.end()?;
        let top = refusable(lua, step.top(k))?;
        let (ids, logits): (Vec<u32>, Vec<f32>) = top.into_iter().unzip();
        Ok((ids, logits))
    });
    method(methods, "get", |lua, step, mut args| {
        let ids = args.ids("ids")?;
        args.end()?;
        refusable(lua, step.get(&ids))
    });
    method(methods, "entropy", |lua, step, args| {
        args.end()?;
        refusable(lua, step.entropy())
    });
}

fn add_edits<M: UserDataMethods<Step>>(methods: &mut M) {
    method(methods, "allow_runs", |lua, step, mut args| {
        let runs =
            args.list_or_buffer("runs", "a list of pairs {start, end}", as_run, |entry: [u8; 8]| {
                let [a, b, c, d, e, f, g, h] = entry;
                (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]))
            })?;
        args.end()?;
        refusable(lua, step.allow_runs(runs.into_iter()))
    });
    method(methods, "allow_words", |lua, step, mut args| {
        let expected = "a list of whole numbers of 32 bits";
        let words = args.list_or_buffer("words", expected, as_id, u32::from_le_bytes)?;
        args.end()?;
        refusable(lua, step.allow_words(words))
    });
    methods.add_method("constrain", |lua, step, values: MultiValue| {
        need(lua, &step.step, "constrain", ContractVersion::V0_2, step.contract)?;
        let mut args = Args::new(lua, "constrain", values);
        let constraint = args.any();
        args.end()?;
        let constraint = constraint.as_userdata().and_then(|data| data.borrow::<Constraint>().ok());
        let Some(constraint) = constraint else {
            let message = "constrain: `constraint` is none that `vocabulary` gave".to_owned();
            return Err(Raised::Argument(message, calling_place(lua)).into_lua());
        };
        let constrained = lock(&step.step).constrain(&constraint.of_policy);
        refusable(lua, constrained)
    });
    method(methods, "bias", |lua, step, mut args| {
        let ids = args.ids("ids")?;
        let values = args.list("values", "a list of numbers", as_f32)?;
        args.end()?;
        refusable(lua, step.bias(&ids, &values))
    });
    method(methods, "force", |lua, step, mut args| {
        let ids = args.ids("ids")?;
        args.end()?;
        refusable(lua, step.force(&ids))
    });
    method(methods, "finish", |lua, step, mut args| {
        let reason = args.text("reason")?;
        args.end()?;
        refusable(lua, step.finish(&reason))
    });
    method(methods, "apply", |lua, step, mut args| {
        let name = args.text("sampler")?;
        let options = args.any();
        args.end()?;
        refusable(lua, step.apply(native(lua, name, &options)?))
    });
}

/// The native sampler of that name, with its parameters as profiles name them.
fn native(lua: &Lua, name: String, options: &mlua::Value) -> Result<Sampler> {
    let wrong =
        |message: String| Raised::Argument(format!("apply: {message}"), calling_place(lua)).into_lua();
    let mut object = match options {
        mlua::Value::Nil => Map::new(),
        mlua::Value::Table(table) => parameters(lua, table).map_err(wrong)?,
        other => return Err(wrong(format!("`options` is a {}, expected a table", other.type_name()))),
    };
    object.insert("sampler".to_owned(), Json::String(name));
    serde_json::from_value(Json::Object(object)).map_err(|error| wrong(error.to_string()))
}

fn parameters(lua: &Lua, table: &mlua::Table) -> std::result::Result<Map<String, Json>, String> {
    let mut object = Map::new();
    for pair in table.pairs::<mlua::Value, mlua::Value>() {
        let (key, value) = pair.map_err(|error| error.to_string())?;
        let key = as_text(&key).ok_or("a parameter has no name")?;
        let value = parameter(lua, &value)
            .ok_or_else(|| format!("`{key}` is neither a number nor a list of numbers"))?;
        object.insert(key, value);
    }
    Ok(object)
}

/// A number or a list of numbers; whole ones stay whole, for counts.
fn parameter(lua: &Lua, value: &mlua::Value) -> Option<Json> {
    match value {
        mlua::Value::Table(_) => Some(Json::Array(list_of(lua, value, |item| parameter(lua, item))?)),
        number => match as_whole(number) {
            Some(whole) => Some(Json::from(whole)),
            None => crate::args::as_number(number).map(Json::from),
        },
    }
}

/// As [`list_of`] would read it, without a list.
fn as_run(value: &mlua::Value) -> Option<(u32, u32)> {
    let mut run = [None; 2];
    each_of(value.as_table()?, |key, value| {
        *run.get_mut(key)? = Some(as_id(value)?);
        Some(())
    })?;
    Some((run[0]?, run[1]?))
}

impl UserData for Constraint {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("fork", |lua, constraint, values: MultiValue| {
            Args::new(lua, "fork", values).end()?;
            let forked = lock(&constraint.step).fork_constraint(&constraint.of_policy);
            let of_policy = refusable(lua, forked)?;
            Ok(Constraint { of_policy, step: Arc::clone(&constraint.step) })
        });
    }
}

/// Refuses a call that the script's contract does not have.
fn need(
    lua: &Lua,
    step: &SharedStep,
    call: &'static str,
    since: ContractVersion,
    found: ContractVersion,
) -> Result<()> {
    let needed = lock(step).need_contract(call, since, found);
    refusable(lua, needed)
}

impl Vocabulary {
    fn compile(&self, lua: &Lua, call: &'static str, spec: &GrammarSpec) -> Result<Constraint> {
        let compiled = lock(&self.step).compile(call, spec);
        let of_policy = refusable(lua, compiled)?;
        Ok(Constraint { of_policy, step: Arc::clone(&self.step) })
    }
}

fn whitespace(lua: &Lua, name: &str) -> Result<Whitespace> {
    match name {
        "none" => Ok(Whitespace::None),
        "free" => Ok(Whitespace::Free),
        other => {
            let message = format!("json_schema: `whitespace` is \"{other}\", expected \"none\" or \"free\"");
            Err(Raised::Argument(message, calling_place(lua)).into_lua())
        }
    }
}

/// Constraints, which contract 0.2 brought.
fn add_constraints<M: UserDataMethods<Vocabulary>>(methods: &mut M) {
    methods.add_method("json_schema", |lua, vocabulary, values: MultiValue| {
        need(lua, &vocabulary.step, "json_schema", ContractVersion::V0_2, vocabulary.contract)?;
        let mut args = Args::new(lua, "json_schema", values);
        let (schema, between) = (args.text("schema")?, args.text("whitespace")?);
        args.end()?;
        let whitespace = whitespace(lua, &between)?;
        vocabulary.compile(lua, "json_schema", &GrammarSpec::JsonSchema { schema, whitespace })
    });
    add_compiled(methods, "regex", "expression", GrammarSpec::Regex);
    add_compiled(methods, "grammar", "grammar", GrammarSpec::Lark);
}

/// A constraint that is told by one text.
fn add_compiled<M: UserDataMethods<Vocabulary>>(
    methods: &mut M,
    name: &'static str,
    argument: &'static str,
    spec: fn(String) -> GrammarSpec,
) {
    methods.add_method(name, move |lua, vocabulary, values: MultiValue| {
        need(lua, &vocabulary.step, name, ContractVersion::V0_2, vocabulary.contract)?;
        let mut args = Args::new(lua, name, values);
        let text = args.text(argument)?;
        args.end()?;
        vocabulary.compile(lua, name, &spec(text))
    });
}

impl UserData for Vocabulary {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        add_constraints(methods);
        methods.add_method("n_vocab", |lua, vocabulary, values: MultiValue| {
            Args::new(lua, "n_vocab", values).end()?;
            Ok(lock(&vocabulary.step).n_vocab())
        });
        methods.add_method("eos_ids", |lua, vocabulary, values: MultiValue| {
            Args::new(lua, "eos_ids", values).end()?;
            Ok(lock(&vocabulary.step).eos_ids().to_vec())
        });
        methods.add_method("token_bytes", |lua, vocabulary, values: MultiValue| {
            let mut args = Args::new(lua, "token_bytes", values);
            let id = args.id("id")?;
            args.end()?;
            lock(&vocabulary.step).token_bytes(id).map(|bytes| lua.create_string(bytes)).transpose()
        });
        methods.add_method("encode", |lua, vocabulary, values: MultiValue| {
            let mut args = Args::new(lua, "encode", values);
            let text = args.text("text")?;
            args.end()?;
            refusable(lua, lock(&vocabulary.step).encode(&text))
        });
    }
}
