//! `tenon plugin doctor`.

use std::path::Path;

use host_author::{Findings, doctor};
use host_plugins::PluginFolder;
use serde_json::json;

use super::tools;
use crate::args::{FolderArgs, PluginDoctorArgs};
use crate::commands::{print, print_json};
use crate::draw::{Style, drawn};
use crate::error::Failure;
use crate::exit::Exit;
use crate::folders;

pub(crate) fn run(folders: &FolderArgs, args: &PluginDoctorArgs) -> Result<Exit, Failure> {
    let plugins = PluginFolder::scan(&folders::plugins(folders)?)?;
    let findings = doctor(&tools()?, &plugins, Path::new("."));
    if args.json {
        print_json(&json!(findings))?
    } else {
        print(&told(&findings))?
    };
    Ok(if findings.is_sound() { Exit::Done } else { Exit::Failed })
}

fn told(findings: &Findings) -> String {
    let style = Style::for_stdout();
    let mut text = String::new();
    for smoke in &findings.smoke {
        let verdict = if smoke.failures.is_empty() { "ok    ".to_owned() } else { style.red("FAILED") };
        text += &format!("{verdict} {} ({})\n", smoke.id, smoke.kind);
        text.extend(smoke.failures.iter().map(|report| drawn(report, style)));
    }
    for need in &findings.rust {
        match &need.found {
            Some(found) => text += &format!("ok     {}: {found}\n", need.name),
            None => text += &format!("lacks  {}, for plugins in Rust\n", need.name),
        }
        text.extend(need.mend.iter().map(|mend| format!("  mend      {mend}\n")));
    }
    text
}
