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

/// Each type file as it lies in the folder of the SDK.
const COMMITTED: [&str; 2] = [
    include_str!("../../../../plugin-sdk/lua/tenon.d.luau"),
    include_str!("../../../../plugin-sdk/lua/pipeline.d.luau"),
];

/// The methods that a value has in a script.
fn real<T: UserData + Send + Sync + 'static>(value: T) -> BTreeSet<String> {
    let lua = Lua::new();
    let metatable = lua.create_userdata(value).unwrap().metatable().unwrap();
    // Of a value without methods there is no such table.
    let Ok(methods) = metatable.get::<Table>("__index") else { return BTreeSet::new() };
    methods.pairs::<String, mlua::Value>().map(|pair| pair.unwrap().0).collect()
}

/// The methods of a class in the types for editors.
pub(super) fn declared(class: &str) -> BTreeSet<String> {
    let rest = COMMITTED[0].split(&format!("declare extern type {class} with\n")).nth(1);
    let body = rest.unwrap_or_else(|| panic!("no class {class}")).split_inclusive('\n');
    let lines = body.take_while(|line| line.trim_end() != "end");
    let names = lines.filter_map(|line| line.trim().strip_prefix("function "));
    names.map(|rest| rest.split('(').next().unwrap().to_owned()).collect()
}

#[test]
fn the_types_for_editors_are_those_that_the_host_declares() {
    for ((name, generated), committed) in crate::stubs().into_iter().zip(COMMITTED) {
        let stale = generated.lines().zip(committed.lines()).find(|(new, old)| new != old);
        assert!(
            generated == committed,
            "plugin-sdk/lua/{name} is not what the host declares: run `cargo xtask stubs`\n\
             the first line that differs, as declared and as it is: {stale:#?}"
        );
    }
}

#[test]
fn a_script_gets_every_declared_method_and_no_other() {
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
        assert_eq!(declared(class), *methods, "{class}");
    }
    let classes_of_types: BTreeSet<&str> = COMMITTED[0]
        .lines()
        .filter_map(|line| line.strip_prefix("declare extern type ")?.strip_suffix(" with"))
        .collect();
    assert_eq!(
        classes_of_types,
        classes.iter().map(|(class, _)| *class).collect(),
        "a class that no script gets"
    );
    assert!(classes.iter().map(|(_, methods)| methods.len()).sum::<usize>() > 100, "methods were found");
}
