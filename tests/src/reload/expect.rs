//! What a generation's answers must be, read from its own files and from nothing that serves.

use host_service::reload::{Area, FileName, Snapshot};

/// What the files of a generation say of its answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The token that every step gives.
    pub token: u32,
    /// Whether its policy fails requests.
    pub is_offender: bool,
}

/// Reads the served profile and the forcing plugin.
///
/// # Panics
/// For files that no test writes.
pub fn expected(snapshot: &Snapshot) -> Expected {
    let text = |area, path: &str| {
        let name = FileName { area, folder: 0, path: path.to_owned() };
        let file =
            snapshot.file(&name).unwrap_or_else(|| panic!("{name} is part of a generation that serves"));
        String::from_utf8(file.bytes().to_vec()).expect("tests write text")
    };
    let (profile, plugin) = (text(Area::Profiles, "served.toml"), text(Area::Plugins, "forced/forced.lua"));
    let number = |text: &str, after: &str| -> u32 {
        let rest = text.split_once(after).unwrap_or_else(|| panic!("`{after}` in {text}")).1;
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().expect("a number")
    };
    Expected {
        token: number(&profile, "token = ") + number(&plugin, "OFFSET = "),
        is_offender: !plugin.starts_with("-- deed: sound\n"),
    }
}
