//! Bars on standard error while something takes long; plain lines where that is no terminal.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use host_models::{Progress, Step};
use indicatif::{ProgressBar, ProgressStyle};

/// Work shorter than this shows no bar.
const PATIENCE: Duration = Duration::from_millis(400);

/// Follows the fetching of a model.
pub(crate) struct FetchProgress {
    is_terminal: bool,
    bar: Option<ProgressBar>,
}

impl FetchProgress {
    pub(crate) fn new() -> Self {
        FetchProgress { is_terminal: io::stderr().is_terminal(), bar: None }
    }
}

impl Progress for FetchProgress {
    fn begin(&mut self, step: &Step, total_bytes: Option<u64>) {
        let (what, is_transfer) = match step {
            Step::Waiting => ("waiting for another process that fetches this model".to_owned(), false),
            Step::Resolving { what } => (format!("looking for {what}"), false),
            Step::Downloading { name } => (format!("downloading {name}"), true),
            Step::Unpacking { name } => (format!("unpacking {name}"), true),
            Step::Verifying { name } => (format!("verifying {name}"), true),
        };
        if !self.is_terminal {
            eprintln!("{what}");
            return;
        }
        let bar = match (is_transfer, total_bytes) {
            (true, Some(total)) => bytes_bar(total),
            _ => ProgressBar::new_spinner(),
        };
        bar.set_message(what);
        bar.enable_steady_tick(Duration::from_millis(120));
        self.bar = Some(bar);
    }

    fn total(&mut self, total_bytes: u64) {
        if let Some(bar) = &self.bar {
            bar.set_style(bytes_style());
            bar.set_length(total_bytes);
        }
    }

    fn advance(&mut self, done_bytes: u64) {
        if let Some(bar) = &self.bar {
            bar.set_position(done_bytes);
        }
    }

    fn end(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

impl Drop for FetchProgress {
    /// A step that failed is not ended; its bar must not stand in front of the error.
    fn drop(&mut self) {
        self.end();
    }
}

/// Follows work on bytes that is mostly over before anyone could read of it.
pub(crate) struct BytesProgress {
    what: &'static str,
    started: Instant,
    is_terminal: bool,
    bar: Option<ProgressBar>,
}

impl BytesProgress {
    pub(crate) fn new(what: &'static str) -> Self {
        BytesProgress { what, started: Instant::now(), is_terminal: io::stderr().is_terminal(), bar: None }
    }

    /// `done` of `total` bytes.
    pub(crate) fn set(&mut self, done: u64, total: u64) {
        if self.bar.is_none() && self.is_terminal && self.started.elapsed() > PATIENCE {
            let bar = bytes_bar(total);
            bar.set_message(self.what);
            self.bar = Some(bar);
        }
        if let Some(bar) = &self.bar {
            bar.set_position(done);
        }
    }
}

impl Drop for BytesProgress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn bytes_bar(total: u64) -> ProgressBar {
    ProgressBar::new(total).with_style(bytes_style())
}

fn bytes_style() -> ProgressStyle {
    ProgressStyle::with_template(
        "{msg} {wide_bar} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta}",
    )
    .expect("the template is one of ours")
}

/// A bar over steps that each take a while; hidden where there is no terminal.
pub(crate) fn steps_bar(what: &'static str, total: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} {eta}");
    let bar = ProgressBar::new(total).with_style(style.expect("the template is one of ours"));
    bar.set_message(what);
    bar
}

/// Follows work of a known time; hidden where there is no terminal, and while it is short.
pub(crate) struct ShareBar {
    what: &'static str,
    started: Instant,
    bar: Option<ProgressBar>,
}

/// A bar over a share of the whole, from 0 to 1.
pub(crate) fn share_bar(what: &'static str) -> ShareBar {
    ShareBar { what, started: Instant::now(), bar: None }
}

impl ShareBar {
    /// So much is done, and so many things were counted.
    pub(crate) fn set(&mut self, share: f64, count: u64) {
        if self.bar.is_none() && io::stderr().is_terminal() && self.started.elapsed() > PATIENCE {
            let style = ProgressStyle::with_template("{msg} {wide_bar} {eta}");
            self.bar = Some(ProgressBar::new(1_000).with_style(style.expect("the template is one of ours")));
        }
        if let Some(bar) = &self.bar {
            bar.set_message(format!("{}, {count} steps", self.what));
            bar.set_position((share.clamp(0.0, 1.0) * 1_000.0) as u64);
        }
    }
}

impl Drop for ShareBar {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
