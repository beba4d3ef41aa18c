//! The step and the vocabulary as a script sees them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use host_core::Sampler;
use host_plugins::{ContractVersion, PolicyConstraint, PolicyStep, StepRefusal};
use host_sampling::{GrammarSpec, Whitespace};
use mlua::{IntoLuaMulti, Lua, Result, UserData, UserDataMethods};
use serde_json::{Map, Value as Json};

use crate::args::{Call, Entry, Named, Packed, Plain, Raw, as_id, as_text, as_whole, each_of, list_of};
use crate::class::{Arguments, Class, OfContract, Registry};
use crate::fault::{Raised, calling_place};
use crate::luau::{Luau, spelled};

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

spelled! {
    Constraint => "Constraint";
    Run => "{ number }";
    Parameters => "{ [string]: number | { number } }";
    Whitespace => "\"none\" | \"free\"";
}

/// Tokens from the first to before the second.
#[derive(Clone)]
pub(crate) struct Run(u32, u32);

impl Plain for Run {
    const PLURAL: &'static str = "pairs {start, end}";

    fn expected() -> String {
        "a pair {start, end}".to_owned()
    }

    /// As [`list_of`] would read it, without a list.
    fn read(_: &Lua, found: &mlua::Value) -> Option<Self> {
        let mut run = [None; 2];
        each_of(found.as_table()?, |key, value| {
            *run.get_mut(key)? = Some(as_id(value)?);
            Some(())
        })?;
        Some(Run(run[0]?, run[1]?))
    }
}

impl Entry<8> for Run {
    fn decode([a, b, c, d, e, f, g, h]: [u8; 8]) -> Self {
        Run(u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]))
    }
}

/// The options of a native sampler, by their names in a profile.
pub(crate) struct Parameters;

/// Declares a method on the locked step.
fn method<A: Arguments, R: IntoLuaMulti + Luau>(
    class: &mut impl Class<Step>,
    name: &'static str,
    names: A::Names,
    body: impl Fn(&Lua, &mut PolicyStep, A) -> Result<R> + Send + 'static,
) {
    class.method(name, names, move |lua, step: &Step, args| body(lua, &mut lock(&step.step), args));
}

impl UserData for Step {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        declare_step(&mut Registry(methods));
    }
}

/// The methods of a step.
pub(crate) fn declare_step(class: &mut impl Class<Step>) {
    views(class);
    edits(class);
    class.about("Writes a line to the host's log.");
    method(
        class,
        "log",
        ["line"],
        |_, step, (line,): (String,)| {
            if step.log(&line) { Ok(()) } else { Err(Raised::Log.into_lua()) }
        },
    );
}

fn views(class: &mut impl Class<Step>) {
    class.about("Tokens accepted since the last step; at the first, the prompt.");
    method(class, "accepted", [], |lua, step, (): ()| refusable(lua, step.accepted().map(<[u32]>::to_vec)));
    class.about("How many tokens were generated before this one.");
    method(class, "position", [], |lua, step, (): ()| refusable(lua, step.position()));
    class.about("The k most likely tokens and their logits, most likely first.");
    method(class, "top", ["k"], |lua, step, (k,): (u32,)| {
        let (ids, logits): (Vec<u32>, Vec<f32>) = refusable(lua, step.top(k))?.into_iter().unzip();
        Ok((ids, logits))
    });
    class.about("The logits of some tokens.");
    method(class, "get", ["ids"], |lua, step, (ids,): (Vec<u32>,)| refusable(lua, step.get(&ids)));
    class.about("The entropy of the softmax, in nats.");
    method(class, "entropy", [], |lua, step, (): ()| refusable(lua, step.entropy()));
    class.about("A random number of the request's seed, the position and the draws before it in this step.");
    method(class, "random_u32", [], |lua, step, (): ()| refusable(lua, step.random_u32()));
}

fn edits(class: &mut impl Class<Step>) {
    class.about(
        "Only tokens of these runs {start, end}, end not included, may follow. In a buffer, which costs a fifth, a run \
         is two numbers of 32 bits: buffer.writeu32(runs, 8 * i, start), buffer.writeu32(runs, 8 * i + 4, stop).",
    );
    method(class, "allow_runs", ["runs"], |lua, step, (Packed(runs),): (Packed<Run, 8>,)| {
        refusable(lua, step.allow_runs(runs.into_iter().map(|Run(start, end)| (start, end)).collect()))
    });
    class.about(
        "The same as one bit a token, lowest id in the lowest bit, 32 to a word; in a buffer, four bytes a word.",
    );
    method(class, "allow_words", ["words"], |lua, step, (Packed(words),): (Packed<u32, 4>,)| {
        refusable(lua, step.allow_words(words))
    });
    class.about(
        "Only tokens that the constraint allows after what was generated may follow, besides other masks.",
    );
    class.newer(
        ContractVersion::V0_2,
        "constrain",
        ["constraint"],
        |lua, step, (found,): (Raw<Constraint>,)| {
            let constraint = found.0.as_userdata().and_then(|data| data.borrow::<Constraint>().ok());
            let Some(constraint) = constraint else {
                let call = Call { lua, function: "constrain" };
                return Err(call.wrong("`constraint` is none that `vocabulary` gave"));
            };
            let constrained = lock(&step.step).constrain(&constraint.of_policy);
            refusable(lua, constrained)
        },
    );
    class.about("Adds numbers to logits; -math.huge excludes a token.");
    method(class, "bias", ["ids", "values"], |lua, step, (ids, values): (Vec<u32>, Vec<f32>)| {
        refusable(lua, step.bias(&ids, &values))
    });
    class.about("These tokens follow, whatever the logits say.");
    method(class, "force", ["ids"], |lua, step, (ids,): (Vec<u32>,)| refusable(lua, step.force(&ids)));
    class.about("Ends the request without a further token.");
    method(class, "finish", ["reason"], |lua, step, (reason,): (String,)| {
        refusable(lua, step.finish(&reason))
    });
    class.about("Adds a native sampler, named with its parameters as in a profile's chain.");
    type Native = (String, Raw<Option<Parameters>>);
    method(class, "apply", ["sampler", "options"], |lua, step, (name, options): Native| {
        refusable(lua, step.apply(native(lua, name, &options.0)?))
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

impl UserData for Constraint {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        declare_constraint(&mut Registry(methods));
    }
}

/// The methods of a constraint.
pub(crate) fn declare_constraint(class: &mut impl Class<Constraint>) {
    class.about("Another one that stands where this one does and goes on alone.");
    class.method("fork", [], |lua, constraint, (): ()| {
        let forked = lock(&constraint.step).fork_constraint(&constraint.of_policy);
        let of_policy = refusable(lua, forked)?;
        Ok(Constraint { of_policy, step: Arc::clone(&constraint.step) })
    });
}

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

impl OfContract for Step {
    fn need_contract(&self, lua: &Lua, call: &'static str, since: ContractVersion) -> Result<()> {
        need(lua, &self.step, call, since, self.contract)
    }
}

impl OfContract for Vocabulary {
    fn need_contract(&self, lua: &Lua, call: &'static str, since: ContractVersion) -> Result<()> {
        need(lua, &self.step, call, since, self.contract)
    }
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
            let call = Call { lua, function: "json_schema" };
            Err(call.wrong(&format!("`whitespace` is \"{other}\", expected \"none\" or \"free\"")))
        }
    }
}

impl UserData for Vocabulary {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        declare_vocabulary(&mut Registry(methods));
    }
}

/// The methods of a vocabulary.
pub(crate) fn declare_vocabulary(class: &mut impl Class<Vocabulary>) {
    class.about("Ids are below this.");
    class.method("n_vocab", [], |_, vocabulary, (): ()| Ok(lock(&vocabulary.step).n_vocab()));
    class.about("The tokens that end a generation.");
    class.method("eos_ids", [], |_, vocabulary, (): ()| Ok(lock(&vocabulary.step).eos_ids().to_vec()));
    class.about("The bytes that a token adds to a text; nil for an id without a token.");
    class.method("token_bytes", ["id"], |lua, vocabulary, (id,): (u32,)| {
        lock(&vocabulary.step).token_bytes(id).map(|bytes| lua.create_string(bytes)).transpose()
    });
    class.about("The ids of a text in the middle of a text.");
    class.method("encode", ["text"], |lua, vocabulary, (text,): (String,)| {
        refusable(lua, lock(&vocabulary.step).encode(&text))
    });
    class.about(
        "A constraint, compiled for this vocabulary: a JSON value of a schema, itself JSON; whitespace is \"none\" or \
         \"free\".",
    );
    type Schema = (String, Named<Whitespace>);
    let names = ["schema", "whitespace"];
    class.newer(ContractVersion::V0_2, "json_schema", names, |lua, vocabulary, (schema, between): Schema| {
        let whitespace = whitespace(lua, &between.0)?;
        vocabulary.compile(lua, "json_schema", &GrammarSpec::JsonSchema { schema, whitespace })
    });
    class.about("A text that this regular expression, in the form of Rust's, matches as a whole.");
    compiled(class, "regex", "expression", GrammarSpec::Regex);
    class.about("A text of this grammar in Lark's form.");
    compiled(class, "grammar", "grammar", GrammarSpec::Lark);
}

/// A constraint that is told by one text.
fn compiled(
    class: &mut impl Class<Vocabulary>,
    name: &'static str,
    argument: &'static str,
    spec: fn(String) -> GrammarSpec,
) {
    class.newer(ContractVersion::V0_2, name, [argument], move |lua, vocabulary, (text,): (String,)| {
        vocabulary.compile(lua, name, &spec(text))
    });
}
