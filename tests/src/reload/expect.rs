//! What a generation's answers must be, read from its own files and from nothing that serves.

use std::sync::Arc;

use host_service::reload::{Area, FileName, Snapshot};

use super::bed::read_component;

/// What the files of a generation say of its answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The token that every step gives.
    pub token: u32,
    /// Whether its policy fails requests.
    pub is_offender: bool,
}

/// Reads the served profile and the plugin that it names, a script or a component.
///
/// # Panics
/// For files that no test writes.
pub fn expected(snapshot: &Snapshot) -> Expected {
    let bytes = |area, path: &str| {
        let name = FileName { area, folder: 0, path: path.to_owned() };
        let file =
            snapshot.file(&name).unwrap_or_else(|| panic!("{name} is part of a generation that serves"));
        Arc::clone(file.bytes())
    };
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("tests write text");
    let profile = text(&bytes(Area::Profiles, "served.toml"));
    let (deed, offset) = match profile.contains("plugin = \"forced-wasm\"") {
        true => {
            let component = bytes(Area::Plugins, "forced-wasm/plugin.wasm");
            read_component(&component).expect("a component that tests write")
        }
        false => {
            let script = text(&bytes(Area::Plugins, "forced/forced.lua"));
            let deed = script.strip_prefix("-- deed: ").and_then(|rest| rest.lines().next());
            (deed.expect("a script that tests write").to_owned(), number(&script, "OFFSET = "))
        }
    };
    Expected { token: number(&profile, "token = ") + offset, is_offender: deed != "sound" }
}

fn number(text: &str, after: &str) -> u32 {
    let rest = text.split_once(after).unwrap_or_else(|| panic!("`{after}` in {text}")).1;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().expect("a number")
}
