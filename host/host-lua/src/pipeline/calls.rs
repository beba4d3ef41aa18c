//! The host's functions as the prelude calls them. None of them waits.
//!
//! One that may be refused gives `true` and its results, or `false` and a failure that the prelude raises at the
//! script's line. An error of Lua ends the run: a bound was reached.

use host_core::Report;
use host_plugins::pipeline::{GenerationKey, PipelineError, PipelineSource, Prompt, SessionKey, Spent};
use mlua::chunk::ChunkMode;
use mlua::{Function, IntoLuaMulti, Lua, MultiValue, Result, Table, Thread, Value, Variadic};

use super::fault::{Over, calling_place, failure, is_memory};
use super::json;
use super::options::{self, Answer};
use super::shared::Shared;

/// The table `host` of the prelude.
pub(super) fn table(lua: &Lua, shared: &Shared, array: &Table) -> Result<Table> {
    let host = lua.create_table()?;
    let calls = Calls { lua, shared, array, host: &host };
    calls.add_errors()?;
    calls.add_models()?;
    calls.add_sessions()?;
    calls.add_generations()?;
    calls.add_tasks()?;
    calls.add_output()?;
    calls.add_data()?;
    Ok(host)
}

struct Calls<'a> {
    lua: &'a Lua,
    shared: &'a Shared,
    array: &'a Table,
    host: &'a Table,
}

/// The arguments of one call, from first to last, as JSON.
struct Args {
    values: MultiValue,
    array: Table,
}

impl Args {
    fn json(&mut self, name: &str) -> Answer<serde_json::Value> {
        let value = self.values.pop_front().unwrap_or(Value::Nil);
        json::from_lua(&value, &self.array).map_err(|found| {
            Report::new("pipeline.argument", format!("`{name}` has {found}, expected plain data"))
                .found(found)
        })
    }

    fn text(&mut self, name: &str) -> Answer<String> {
        options::text(name, self.json(name)?)
    }

    fn session(&mut self) -> Answer<SessionKey> {
        Ok(SessionKey(options::whole("session", &self.json("session")?)?))
    }
}

/// `true` and the results, or `false` and the failure.
fn answer<R: IntoLuaMulti>(lua: &Lua, answer: Answer<R>) -> Result<MultiValue> {
    match answer {
        Ok(results) => {
            let mut values = results.into_lua_multi(lua)?;
            values.push_front(Value::Boolean(true));
            Ok(values)
        }
        Err(report) => (false, failure(lua, &report)?).into_lua_multi(lua),
    }
}

impl Calls<'_> {
    /// A plain function.
    fn plain<A, R>(
        &self,
        name: &str,
        act: impl Fn(&Lua, &Shared, A) -> Result<R> + Send + 'static,
    ) -> Result<()>
    where
        A: mlua::FromLuaMulti,
        R: IntoLuaMulti,
    {
        let shared = self.shared.clone();
        self.host.raw_set(name, self.lua.create_function(move |lua, args: A| act(lua, &shared, args))?)
    }

    /// A counted call that may be refused.
    fn call<R: IntoLuaMulti>(
        &self,
        name: &str,
        act: impl Fn(&Shared, &mut Args) -> Answer<R> + Send + 'static,
    ) -> Result<()> {
        let array = self.array.clone();
        self.plain(name, move |lua, shared, values: MultiValue| {
            shared.count_call()?;
            answer(lua, act(shared, &mut Args { values, array: array.clone() }))
        })
    }

    fn add_errors(&self) -> Result<()> {
        self.plain("where", |lua, shared, (): ()| Ok(calling_place(lua, &shared.source)))?;
        self.plain("failure", |lua, _, (code, message): (String, String)| {
            let code = if code == "pipeline.no-wait-here" || code == "pipeline.module-cycle" {
                code
            } else {
                "pipeline.argument".to_owned()
            };
            let table = lua.create_table()?;
            table.raw_set("code", code)?;
            table.raw_set("message", message)?;
            Ok(table)
        })?;
        // A script must not go on after it caught the end of its memory or of its run.
        self.plain("caught", |_, shared, value: Value| {
            if shared.is_over() {
                return Err(Over.into_lua());
            }
            if is_memory(&value) { shared.end(shared.spent(Spent::Memory)) } else { Ok(()) }
        })
    }

    fn add_models(&self) -> Result<()> {
        self.call("model", |shared, args| {
            let names = shared.with(|inner| inner.host.models());
            match args.json("name")? {
                serde_json::Value::Null if !names.is_empty() => Ok(names[0].clone()),
                serde_json::Value::String(name) if names.contains(&name) => Ok(name),
                other => {
                    Err(Report::new("pipeline.unknown-model", "there is no model of this name in this run")
                        .expected(names.join(", "))
                        .found(other.to_string())
                        .mend("name the model on the command line with --model or --profile"))
                }
            }
        })?;
        self.call("count_tokens", |shared, args| {
            let (model, text) = (args.text("model")?, args.text("text")?);
            shared.held(|inner| inner.host.count_tokens(&model, &text))
        })?;
        self.call("render", |shared, args| {
            let model = args.text("model")?;
            let turns = options::turns("messages", args.json("messages")?)?;
            shared.held(|inner| inner.host.render(&model, &turns))
        })
    }

    fn add_sessions(&self) -> Result<()> {
        self.call("open_session", |shared, args| {
            let (model, options) = (args.text("model")?, options::session(args.json("options")?)?);
            shared.held(|inner| {
                let session = inner.host.open_session(&model, options)?;
                inner.sessions.insert(session);
                Ok(session.0)
            })
        })?;
        self.call("append", |shared, args| {
            let (session, item) = (args.session()?, options::item(args.json("item")?)?);
            shared.held(|inner| inner.host.append(session, item))
        })?;
        self.call("trim", |shared, args| {
            let session = args.session()?;
            let n = options::whole("n", &args.json("n")?)?;
            shared.held(|inner| inner.host.trim(session, usize::try_from(n).unwrap_or(usize::MAX)))
        })?;
        self.call("fork", |shared, args| {
            let session = args.session()?;
            shared.held(|inner| {
                let fork = inner.host.fork(session)?;
                inner.sessions.insert(fork);
                Ok(fork.0)
            })
        })?;
        self.call("session_len", |shared, args| {
            let session = args.session()?;
            shared.with(|inner| inner.host.session_len(session))
        })?;
        self.call("close", |shared, args| {
            let session = args.session()?;
            shared.held(|inner| {
                inner.host.close_session(session)?;
                inner.sessions.remove(&session);
                Ok(())
            })
        })
    }

    fn add_generations(&self) -> Result<()> {
        self.call("start", |shared, args| {
            let (model, prompt) = (args.text("model")?, options::prompt(args.json("prompt")?)?);
            start(shared, &model, prompt, args)
        })?;
        self.call("start_session", |shared, args| {
            let session = args.session()?;
            start(shared, "", Prompt::Session(session), args)
        })?;
        self.plain("cancel", |_, shared, id: u64| {
            shared.count_call()?;
            shared.with(|inner| inner.host.cancel(GenerationKey(id)));
            Ok(())
        })
    }

    fn add_tasks(&self) -> Result<()> {
        self.plain("spawn", |lua, shared, (thread, function, mut args): (Thread, Function, MultiValue)| {
            shared.count_call()?;
            shared.spend(Spent::Tasks, 1, shared.budget.tasks, |inner| &mut inner.n_spawned)?;
            args.push_front(Value::Function(function));
            let id = shared.with(|inner| inner.n_spawned as u64);
            args.push_front(mlua::IntoLua::into_lua(id, lua)?);
            shared.with(|inner| inner.spawned.push((id, thread, args)));
            Ok(id)
        })?;
        self.plain("main", |lua, shared, (): ()| match lua.globals().get("main")? {
            Value::Function(main) => Ok(main),
            _ => shared.end(PipelineError::MissingMain { script: shared.source.main().name.clone() }),
        })?;
        self.plain("module", |lua, shared, name: Value| {
            let name = match &name {
                Value::String(text) => text.to_string_lossy(),
                other => format!("a {}", other.type_name()),
            };
            answer(lua, module(lua, shared, &name)?)
        })
    }

    fn add_output(&self) -> Result<()> {
        self.plain("emit", |_, shared, text: mlua::LuaString| {
            shared.count_call()?;
            shared.count_output(text.as_bytes().len())?;
            let is_read = shared.with(|inner| (inner.emit)(&text.to_string_lossy()));
            if is_read { Ok(()) } else { shared.end(PipelineError::Cancelled) }
        })?;
        self.plain("log", |_, shared, values: Variadic<Value>| {
            shared.count_call()?;
            let words: Vec<_> = values.iter().map(Value::to_string).collect::<Result<_>>()?;
            let line = words.join("\t");
            shared
                .spend(Spent::Log, line.len() + 1, shared.budget.log_bytes, |inner| &mut inner.log_bytes)?;
            shared.with(|inner| (inner.log)(&line));
            Ok(())
        })
    }

    fn add_data(&self) -> Result<()> {
        self.host.raw_set("null", Value::NULL)?;
        self.host.raw_set("array", self.array)?;
        let array = self.array.clone();
        self.plain("encode", move |lua, _, value: Value| {
            let encoded = json::from_lua(&value, &array).map(|value| value.to_string());
            let refused = |found: String| {
                let message = format!("json.encode: {found} has no form in JSON");
                Report::new("pipeline.argument", message).found(found)
            };
            answer(lua, encoded.map_err(refused))
        })?;
        let array = self.array.clone();
        self.plain("decode", move |lua, _, text: mlua::LuaString| {
            match serde_json::from_slice(&text.as_bytes()) {
                Ok(value) => (json::to_lua(lua, &value, &array)?, Value::Nil).into_lua_multi(lua),
                Err(error) => (Value::Nil, error.to_string()).into_lua_multi(lua),
            }
        })
    }
}

fn start(shared: &Shared, model: &str, prompt: Prompt, args: &mut Args) -> Answer<u64> {
    let options = options::generate(args.json("options")?)?;
    shared.held(|inner| {
        let generation = inner.host.start(model, prompt, options)?;
        inner.started.push(generation);
        Ok(generation.0)
    })
}

/// The compiled module of a name; `Err` is for the script, as everything about the name is its affair.
fn module(lua: &Lua, shared: &Shared, name: &str) -> Result<Answer<Function>> {
    if !PipelineSource::is_module_name(name) {
        return Ok(Err(Report::new("pipeline.module-name", format!("`{name}` is no name of a module"))
            .expected("words of a-z, 0-9 and _ with single slashes between")
            .found(name)));
    }
    let Some(script) = shared.source.module(name) else {
        let known: Vec<_> = shared.source.module_names().collect();
        let message = format!("there is no module `{name}` in the pipeline's folder");
        return Ok(Err(Report::new("pipeline.module-missing", message)
            .expected(known.join(", "))
            .found(name)));
    };
    load(lua, &script.text, &script.name).map(Ok)
}

/// A script as a function; it was compiled before without an error.
pub(super) fn load(lua: &Lua, text: &str, name: &str) -> Result<Function> {
    lua.load(text).set_mode(ChunkMode::Text).set_name(format!("@{name}")).into_function()
}
