//! Why a frozen graph cannot be made, read or used.

use std::path::PathBuf;

use host_core::{Place, Report, Reported};
use host_graph::TextError;

use crate::fingerprint::IdentityFault;
use crate::profile::Sha256Digest;

/// A refused frozen graph.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FrozenFault {
    /// A file that cannot be read.
    #[error("`{}` cannot be read", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        found: String,
    },
    /// A header that is not one.
    #[error("the header of a frozen graph is broken: {message}")]
    Header {
        /// What is wrong.
        message: String,
        /// Where.
        place: Box<Place>,
    },
    /// Another form of the file.
    #[error("`{file}` has the form {found}")]
    Format {
        /// The file.
        file: String,
        /// Its form.
        found: u32,
    },
    /// A configuration without a fingerprint.
    #[error("the configuration has no fingerprint")]
    Config(#[source] IdentityFault),
    /// A composition whose graph is frozen already.
    #[error("the profile names the frozen graph `{name}` and no plugin")]
    Already {
        /// Its name.
        name: String,
    },
    /// A graph whose text gives another one.
    #[error("the graph does not come back from its text")]
    NotKept,
    /// The text is no graph.
    #[error("the text of the frozen graph `{name}` is broken")]
    Text {
        /// Its name.
        name: String,
        /// Why.
        source: Box<TextError>,
    },
    /// The text is another graph.
    #[error("the frozen graph `{name}` is another one than its header tells")]
    Fingerprint {
        /// Its name.
        name: String,
        /// The fingerprint that the header tells.
        expected: Sha256Digest,
        /// The fingerprint of the text.
        found: String,
    },
    /// The checkpoint has other tensors.
    #[error("the frozen graph `{name}` was built over other tensors than the checkpoint has")]
    Tensors {
        /// Its name.
        name: String,
        /// A line a tensor that differs.
        differences: Vec<String>,
    },
}

/// How many differing tensors a report tells of.
const SHOWN_TENSORS: usize = 4;
const AGAIN: &str = "freeze it again with `tenon graph freeze`, and pin the new digest after reviewing it";

impl Reported for FrozenFault {
    fn report(&self) -> Report {
        let text = self.to_string();
        match self {
            FrozenFault::Unreadable { found, .. } => Report::new("graph.frozen-unreadable", text)
                .found(found)
                .mend("check the path and its permissions"),
            FrozenFault::Header { place, .. } => Report::new("graph.frozen-header", text)
                .expected("the header that `tenon graph freeze` writes")
                .mend(AGAIN)
                .at(*place.clone()),
            FrozenFault::Format { found, .. } => Report::new("graph.frozen-format", text)
                .expected("form 1")
                .found(found.to_string())
                .mend(AGAIN),
            FrozenFault::Config(fault) => Report::new("graph.frozen-config", text)
                .expected(fault.expected)
                .found(format!("`{}` is {}", fault.key, fault.found))
                .mend("a graph is frozen for a configuration whose shape is known: add the key"),
            FrozenFault::Already { .. } => Report::new("graph.frozen-already", text)
                .expected("a profile whose graph a plugin builds")
                .mend("name such a profile with --profile"),
            FrozenFault::NotKept => Report::new("graph.frozen-not-kept", text)
                .mend("this is a fault of the program: please report it with the graph"),
            FrozenFault::Text { source, .. } => {
                let cause = source.report();
                Report { message: format!("{text}: {}", cause.message), ..cause }.mend(AGAIN)
            }
            FrozenFault::Fingerprint { expected, found, .. } => Report::new("graph.frozen-fingerprint", text)
                .expected(expected.short())
                .found(found.get(..16).unwrap_or(found))
                .mend(AGAIN),
            FrozenFault::Tensors { differences, .. } => {
                let report = Report::new("graph.frozen-tensors", text)
                    .expected("exactly the tensors that the header lists")
                    .found(match differences.len() {
                        1 => "1 tensor differs".to_owned(),
                        n => format!("{n} tensors differ"),
                    })
                    .mend("use the checkpoint that it was frozen for, or freeze one for this checkpoint");
                differences.iter().take(SHOWN_TENSORS).fold(report, Report::note)
            }
        }
    }
}

impl Reported for IdentityFault {
    fn report(&self) -> Report {
        Report::new("profile.identity", self.to_string())
            .expected(self.expected)
            .found(&self.found)
            .mend("mend the file, or take it away")
    }
}
