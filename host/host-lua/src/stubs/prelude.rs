//! The functions of the preludes: their own lines, with the comments above them, are the declarations.

use super::filled;

/// The functions of a global table: `function NAME.f(…): T` as `f: (…) -> T,`.
pub(super) fn functions(source: &str, name: &str) -> String {
    let mut text = String::new();
    for (comments, line) in commented(source) {
        let Some((name, rest)) =
            line.strip_prefix(&format!("function {name}.")).and_then(|f| f.split_once('('))
        else {
            continue;
        };
        let (arguments, result) = rest.rsplit_once("): ").unwrap_or((rest, "any"));
        text += &comments.iter().map(|line| format!("    {line}\n")).collect::<String>();
        text += &format!("    {name}: ({arguments}) -> {result},\n");
    }
    text
}

pub(super) fn pipeline() -> String {
    let prelude = include_str!("../../../../plugin-sdk/lua/pipeline_prelude.luau");
    filled(include_str!("pipeline.txt"), |part| match part {
        "functions" => globals(prelude),
        "json" => members(prelude, "json"),
        class => methods(prelude, class),
    })
}

/// The methods of `NAME = class(…, { … })`: those that take `self: NAME`.
fn methods(source: &str, class: &str) -> String {
    let mut text = String::new();
    let receiver = format!(" = function(self: {class}");
    for (comments, line) in commented(source) {
        let Some((name, rest)) = line.trim_start().split_once(&receiver) else { continue };
        text += &comments.iter().map(|line| format!("    {line}\n")).collect::<String>();
        text += &format!("    function {name}(self{rest}\n");
    }
    text
}

/// The functions of `NAME = { f = function(…): T … }` as `f: (…) -> T,`.
fn members(source: &str, name: &str) -> String {
    let table = source.split(&format!("\n{name} = {{\n")).nth(1).and_then(|rest| rest.split("\n}\n").next());
    let mut text = String::new();
    for (comments, line) in commented(table.unwrap_or_default()) {
        let Some((name, rest)) = line.trim_start().split_once(" = function") else { continue };
        text += &comments.iter().map(|line| format!("    {line}\n")).collect::<String>();
        text += &format!("    {name}: {},\n", rest.replacen("): ", ") -> ", 1));
    }
    text
}

/// The global functions that have types.
fn globals(source: &str) -> String {
    let mut text = String::new();
    for (comments, line) in commented(source) {
        let Some(rest) = line.strip_prefix("function ").filter(|_| line.contains("): ")) else { continue };
        text += &comments.iter().map(|line| format!("{line}\n")).collect::<String>();
        text += &format!("declare function {rest}\n");
    }
    text
}

/// Each line of code with the comment lines right above it.
fn commented(source: &str) -> Vec<(Vec<&str>, &str)> {
    let mut comments = Vec::new();
    let mut lines = Vec::new();
    for line in source.lines() {
        if line.trim_start().starts_with("--") {
            comments.push(line.trim_start());
        } else {
            lines.push((std::mem::take(&mut comments), line));
        }
    }
    lines
}
