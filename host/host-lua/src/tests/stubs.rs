//! The types for editors against what a script really gets: every method of every object, and nothing else.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use std::path::Path;

use host_plugins::{
    Budget, ContractVersion, Kind, LogSink, PluginName, PluginPackage, PolicyStep, PolicyVocabulary,
};
use host_sampling::GrammarSpec;
use mlua::{Lua, Table, UserData};

use crate::builder::{Builder, GraphSlot, GraphValue};
use crate::config::Config;
use crate::script::Script;
use crate::step::{Constraint, Step, Vocabulary};

use super::policies::Abc;

const STUBS: &str = include_str!("../../../../plugin-sdk/lua/tenon.d.luau");

/// The methods that a value has in a script.
fn real<T: UserData + Send + Sync + 'static>(value: T) -> BTreeSet<String> {
    let lua = Lua::new();
    let metatable = lua.create_userdata(value).unwrap().metatable().unwrap();
    // Of a value without methods there is no such table.
    let Ok(methods) = metatable.get::<Table>("__index") else { return BTreeSet::new() };
    methods.pairs::<String, mlua::Value>().map(|pair| pair.unwrap().0).collect()
}

/// The methods of a class in the stubs.
fn stubbed(class: &str) -> BTreeSet<String> {
    let rest = STUBS.split(&format!("declare class {class}\n")).nth(1);
    let body = rest.unwrap_or_else(|| panic!("no class {class}")).split_inclusive('\n');
    let lines = body.take_while(|line| line.trim_end() != "end");
    let names = lines.filter_map(|line| line.trim().strip_prefix("function "));
    names.map(|rest| rest.split('(').next().unwrap().to_owned()).collect()
}

#[test]
fn the_stubs_have_every_method_and_no_other() {
    let name = PluginName { id: "t".to_owned(), version: semver::Version::new(1, 0, 0) };
    let vocabulary: Arc<dyn PolicyVocabulary> = Arc::new(Abc);
    let mut step = PolicyStep::new(name, vocabulary, &Budget::default(), LogSink::discard());
    let of_policy = step.compile("regex", &GrammarSpec::Regex("a*".to_owned())).unwrap();
    let step = Arc::new(Mutex::new(step));
    let contract = ContractVersion::newest();
    let manifest = format!(
        "id = \"t\"\nversion = \"1.0.0\"\nkind = \"sampling-policy\"\nruntime = \"lua\"\n\
         entry = \"t.lua\"\nsdk = \"{contract}\""
    );
    let package = PluginPackage::from_parts(&manifest, Vec::new(), Path::new("t")).unwrap();
    let script = Script::open(&package, Kind::SamplingPolicy, Budget::default(), LogSink::discard()).unwrap();
    let classes = [
        ("Config", real(Config::parse("{}", &script).unwrap())),
        ("Graph", real(Builder(Arc::new(Mutex::new(None))))),
        ("GraphValue", real(GraphValue(host_graph::Value(0)))),
        ("Slot", real(GraphSlot(host_graph::SlotId(0)))),
        ("Vocabulary", real(Vocabulary { step: Arc::clone(&step), contract })),
        ("Constraint", real(Constraint { of_policy, step: Arc::clone(&step) })),
        ("Step", real(Step { step, contract })),
    ];
    for (class, methods) in &classes {
        assert_eq!(stubbed(class), *methods, "{class}");
    }
    let declared: BTreeSet<&str> =
        STUBS.lines().filter_map(|line| line.strip_prefix("declare class ")).collect();
    assert_eq!(declared, classes.iter().map(|(class, _)| *class).collect(), "a class that no script gets");
    assert!(classes.iter().map(|(_, methods)| methods.len()).sum::<usize>() > 100, "methods were found");
}

#[test]
fn the_stubs_have_every_function_of_the_prelude() {
    let prelude = include_str!("../../../../plugin-sdk/lua/prelude.luau");
    let real: BTreeSet<&str> = prelude
        .lines()
        .filter_map(|line| line.strip_prefix("function rope."))
        .map(|rest| rest.split('(').next().unwrap())
        .collect();
    let body = STUBS.split("declare rope: {\n").nth(1).unwrap().split("\n}").next().unwrap();
    let stubbed: BTreeSet<&str> = body
        .lines()
        .filter(|line| !line.trim().starts_with("--"))
        .filter_map(|line| line.trim().split_once(": ("))
        .map(|(name, _)| name)
        .collect();
    assert_eq!(stubbed, real);
}
