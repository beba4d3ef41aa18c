//! The types of scripts for editors, written from what the host declares.
//!
//! Methods and tables come from the declarations that the host itself reads by, functions of the preludes from their
//! own lines; what is prose stands in the templates.

use mlua::{IntoLuaMulti, Lua, Result};

use crate::builder::{self, Facts, MASK, SectionWord};
use crate::class::{Arguments, Class, OfContract};
use crate::luau::{Luau, Record, Word};
use crate::{config, quant, step};

mod prelude;

/// The files of `plugin-sdk/lua` that hold types, with their texts. `cargo xtask stubs` writes them.
pub fn stubs() -> [(&'static str, String); 2] {
    [("tenon.d.luau", tenon()), ("pipeline.d.luau", prelude::pipeline())]
}

fn tenon() -> String {
    let prelude = include_str!("../../../plugin-sdk/lua/prelude.luau");
    filled(include_str!("stubs/tenon.txt"), |part| match part {
        "Config" => written(config::declare),
        "Graph" => written(builder::declare),
        "Vocabulary" => written(step::declare_vocabulary),
        "Constraint" => written(step::declare_constraint),
        "Step" => written(step::declare_step),
        "Section" => alias::<SectionWord>(&SectionWord::listed("\"", " | ")),
        "Element" => alias::<host_graph::ValueType>(&host_graph::ValueType::listed("\"", " | ")),
        "Mask" => alias::<host_graph::Mask>(MASK),
        "TensorFacts" => table::<Facts>(),
        "Rope" => table::<host_graph::RopeSpec>(),
        "AttentionOptions" => table::<builder::AttentionOptions>(),
        "Experts" => table::<builder::Experts>(),
        "Tensor" => table::<quant::Tensor>(),
        "rope" => prelude::functions(prelude, "rope"),
        other => unreachable!("the template names {other}"),
    })
}

/// A template in which each line `@part` is replaced by that part.
fn filled(template: &str, part: impl Fn(&str) -> String) -> String {
    let line = |line: &str| line.strip_prefix('@').map_or_else(|| format!("{line}\n"), &part);
    template.lines().map(line).collect()
}

fn alias<T: Luau>(meaning: &str) -> String {
    format!("export type {} = {meaning}\n", T::luau())
}

fn table<T: Record + Luau>() -> String {
    let mut text = String::new();
    for field in T::fields() {
        text += &comment(&field.about);
        text += &format!("    {}: {},\n", field.name, field.luau);
    }
    alias::<T>(&format!("{{\n{text}}}"))
}

/// A comment inside a class or a table, in lines as long as the project's.
fn comment(text: &str) -> String {
    let mut lines = String::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > WIDTH {
            lines += &format!("    -- {line}\n");
            line.clear();
        }
        line += if line.is_empty() { "" } else { " " };
        line += word;
    }
    if line.is_empty() { lines } else { lines + &format!("    -- {line}\n") }
}

/// Characters of a comment's line, without the margin.
const WIDTH: usize = 113;

/// Writes a class as editors read it.
#[derive(Default)]
struct Writer(String);

fn written(declare: impl FnOnce(&mut Writer)) -> String {
    let mut writer = Writer::default();
    declare(&mut writer);
    writer.0
}

impl<T> Class<T> for Writer {
    fn method<A: Arguments, R: IntoLuaMulti + Luau>(
        &mut self,
        name: &'static str,
        names: A::Names,
        _: impl Fn(&Lua, &T, A) -> Result<R> + Send + 'static,
    ) {
        let typed = names.as_ref().iter().zip(A::spelled()).map(|(name, luau)| format!(", {name}: {luau}"));
        self.0 += &format!("    function {name}(self{}): {}\n", typed.collect::<String>(), R::luau());
    }

    fn newer<A: Arguments, R: IntoLuaMulti + Luau>(
        &mut self,
        _: host_plugins::ContractVersion,
        name: &'static str,
        names: A::Names,
        body: impl Fn(&Lua, &T, A) -> Result<R> + Send + 'static,
    ) where
        T: OfContract,
    {
        self.method(name, names, body);
    }

    fn about(&mut self, lines: &str) {
        self.0 += &comment(lines);
    }

    fn section(&mut self, title: &str) {
        self.0 += &format!("\n    -- {title}\n");
    }
}
