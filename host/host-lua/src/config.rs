//! `config.json` as a script sees it: typed access whose errors name key, expected and found.
//!
//! The Rust SDK's `Config` has the same functions with the same meaning. A key with the value `null` counts
//! as absent.

use std::collections::HashSet;

use host_plugins::{ContractVersion, FieldProblem, StepRefusal, harmless_config_keys};
use mlua::{IntoLua, Lua, Result, UserData, UserDataMethods};
use serde_json::{Map, Value as Json};

use crate::args::Raw;
use crate::class::{Class, OfContract, Registry};
use crate::fault::{Raised, calling_place};
use crate::luau::{Luau, Never, spelled};
use crate::script::Script;

/// An object of `config.json`.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    object: Map<String, Json>,
    /// Keys from the top with a final dot; empty for the top.
    path: String,
    contract: ContractVersion,
}

impl Config {
    /// One without any key.
    pub(crate) fn empty(script: &Script) -> Self {
        Config { object: Map::new(), path: String::new(), contract: script.contract }
    }

    /// Reads the text of `config.json`.
    pub(crate) fn parse(text: &str, script: &Script) -> std::result::Result<Self, Vec<FieldProblem>> {
        Self::parse_as("config.json", "", text, script)
    }

    /// Reads the text of a profile's `params`, whose keys are told as `params.…`.
    pub(crate) fn parse_params(text: &str, script: &Script) -> std::result::Result<Self, Vec<FieldProblem>> {
        Self::parse_as("params", "params.", text, script)
    }

    fn parse_as(
        name: &str,
        path: &str,
        text: &str,
        script: &Script,
    ) -> std::result::Result<Self, Vec<FieldProblem>> {
        let refuse =
            |expected: String, found: String| vec![FieldProblem { path: name.to_owned(), expected, found }];
        let limit = script.budget.config_bytes;
        if text.len() > limit {
            return Err(refuse(format!("at most {limit} bytes"), text.len().to_string()));
        }
        match serde_json::from_str(text) {
            Ok(Json::Object(object)) => {
                Ok(Config { object, path: path.to_owned(), contract: script.contract })
            }
            Ok(other) => Err(refuse("a JSON object".to_owned(), shown(Some(&other)))),
            Err(error) => Err(refuse("JSON".to_owned(), error.to_string())),
        }
    }

    fn get(&self, key: &str) -> Option<&Json> {
        self.object.get(key).filter(|value| !value.is_null())
    }

    fn problem(&self, key: &str, expected: &str) -> FieldProblem {
        FieldProblem {
            path: format!("{}{key}", self.path),
            expected: expected.to_owned(),
            found: shown(self.get(key)),
        }
    }

    fn read<T>(
        &self,
        lua: &Lua,
        key: &str,
        expected: &str,
        read: impl Fn(&Json) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        read(value).map(Some).ok_or_else(|| self.invalid(lua, key, expected))
    }

    fn invalid(&self, lua: &Lua, key: &str, expected: &str) -> mlua::Error {
        Raised::InvalidConfig(vec![self.problem(key, expected)], calling_place(lua)).into_lua()
    }

    fn unsupported(&self, lua: &Lua, key: &str, expected: &str) -> mlua::Error {
        Raised::Unsupported(vec![self.problem(key, expected)], calling_place(lua)).into_lua()
    }

    /// Refuses keys that neither the plugin nor every plugin knows.
    fn refuse_unknown(&self, lua: &Lua, known: &[String]) -> Result<()> {
        let harmless: HashSet<_> =
            if self.path.is_empty() { harmless_config_keys().collect() } else { HashSet::new() };
        let is_unknown = |key: &&String| {
            self.get(key).is_some() && !known.contains(key) && !harmless.contains(key.as_str())
        };
        let fields: Vec<_> = self
            .object
            .keys()
            .filter(is_unknown)
            .map(|key| self.problem(key, "a key that this plugin knows"))
            .collect();
        if fields.is_empty() {
            return Ok(());
        }
        Err(Raised::Unsupported(fields, calling_place(lua)).into_lua())
    }
}

impl OfContract for Config {
    fn need_contract(&self, lua: &Lua, call: &'static str, since: ContractVersion) -> Result<()> {
        if self.contract >= since {
            return Ok(());
        }
        let refusal = StepRefusal::NotInContract { call, since, found: self.contract };
        Err(Raised::Step(refusal, calling_place(lua)).into_lua())
    }
}

const WHOLE: &str = "a whole number of at least 0";
const NUMBER: &str = "a number";
const TRUTH: &str = "true or false";
const TEXT: &str = "a string";
const OBJECT: &str = "an object";
const ANY: &str = "a value";

spelled! { Config => "Config"; }

impl UserData for Config {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        declare(&mut Registry(methods));
    }
}

/// The methods of a configuration.
pub(crate) fn declare(class: &mut impl Class<Config>) {
    class.about("Whether the key is there and not null.");
    class.method("has", ["key"], |_, config, (key,): (String,)| Ok(config.get(&key).is_some()));
    class.about("All keys, those with null too.");
    class.method("keys", [], |_, config, (): ()| Ok(config.object.keys().cloned().collect::<Vec<_>>()));
    class.about("A whole number of 32 bits: required, nil when absent, or with a default.");
    typed(class, ["usize", "optional_usize", "usize_or"], WHOLE, whole);
    class.about("A number.");
    typed(class, ["number", "optional_number", "number_or"], NUMBER, Json::as_f64);
    class.about("A truth value.");
    typed(class, ["bool", "optional_bool", "bool_or"], TRUTH, Json::as_bool);
    class.about("A string.");
    typed(class, ["str", "optional_str", "str_or"], TEXT, text);
    class.about("Any value as JSON text: for what the host reads again, such as a schema.");
    class.newer(ContractVersion::V0_2, "json", ["key"], |lua, config, (key,): (String,)| {
        let found = config.read(lua, &key, ANY, |json| Some(json.to_string()))?;
        found.ok_or_else(|| config.invalid(lua, &key, ANY))
    });
    class.about("A nested object or a list; nil when absent.");
    class.method("object", ["key"], |lua, config, (key,): (String,)| {
        let object = config.read(lua, &key, OBJECT, |json| json.as_object().cloned())?;
        let path = format!("{}{key}.", config.path);
        Ok(object.map(|object| Config { object, path, contract: config.contract }))
    });
    list(class, "usizes", "a list of whole numbers", whole);
    list(class, "numbers", "a list of numbers", Json::as_f64);
    list(class, "strs", "a list of strings", text);
    class.about("Refuses every key that is neither in the list nor harmless to every model.");
    class.method("refuse_unknown", ["known"], |lua, config, (known,): (Vec<String>,)| {
        config.refuse_unknown(lua, &known)
    });
    type Problem = (String, String);
    class.about("Raises: the key's value cannot be read.");
    class.method("invalid", ["key", "expected"], |lua, config, (key, expected): Problem| {
        Err::<Never, _>(config.invalid(lua, &key, &expected))
    });
    class.about("Raises: the key asks for what this plugin does not offer. The host refuses the model.");
    class.method("unsupported", ["key", "expected"], |lua, config, (key, expected): Problem| {
        Err::<Never, _>(config.unsupported(lua, &key, &expected))
    });
}

/// The required form, the one that may be absent, and the one with a default.
fn typed<T: IntoLua + Luau + 'static>(
    class: &mut impl Class<Config>,
    [required, optional, or]: [&'static str; 3],
    expected: &'static str,
    read: fn(&Json) -> Option<T>,
) {
    class.method(required, ["key"], move |lua, config, (key,): (String,)| {
        let found = config.read(lua, &key, expected, read)?;
        found.ok_or_else(|| config.invalid(lua, &key, expected))
    });
    class.method(optional, ["key"], move |lua, config, (key,): (String,)| {
        config.read(lua, &key, expected, read)
    });
    class.method(or, ["key", "default"], move |lua, config, (key, default): (String, Raw<T>)| {
        match config.read(lua, &key, expected, read)? {
            Some(value) => value.into_lua(lua).map(Raw::<T>::new),
            None => Ok(default),
        }
    });
}

fn list<T: IntoLua + Luau + 'static>(
    class: &mut impl Class<Config>,
    name: &'static str,
    expected: &'static str,
    read: fn(&Json) -> Option<T>,
) {
    class.method(name, ["key"], move |lua, config, (key,): (String,)| {
        config.read(lua, &key, expected, |json| json.as_array()?.iter().map(read).collect::<Option<Vec<_>>>())
    });
}

fn text(json: &Json) -> Option<String> {
    json.as_str().map(str::to_owned)
}

/// A whole number as the wire carries it: 32 bits.
fn whole(json: &Json) -> Option<u32> {
    u32::try_from(json.as_u64()?).ok()
}

/// A value as an error shows it, short.
fn shown(value: Option<&Json>) -> String {
    let Some(value) = value else { return "nothing".to_owned() };
    let text = value.to_string();
    if text.chars().count() <= 60 {
        return text;
    }
    text.chars().take(60).chain("…".chars()).collect()
}
