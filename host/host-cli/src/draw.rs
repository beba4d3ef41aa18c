//! Draws reports: for people on standard error, for programs as one JSON object on standard output.
//!
//! Colour only where standard error is a terminal and `NO_COLOR` is not set; everything reads without it.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write as _};

use host_core::{Place, Report};
use miette::{
    Diagnostic, GraphicalReportHandler, GraphicalTheme, LabeledSpan, MietteError, MietteSpanContents,
    SourceCode, SourceSpan, SpanContents,
};
use serde_json::json;

use crate::error::Failure;
use crate::exit::Exit;

/// Shows a failure and gives the exit code that belongs to it.
pub(crate) fn fail(failure: &Failure, as_json: bool) -> Exit {
    // Nobody is left to be told when these streams are closed.
    if as_json {
        let _ = writeln!(io::stdout(), "{}", as_object(failure));
    } else {
        let style = Style::for_stderr();
        for report in failure.reports() {
            let _ = write!(io::stderr(), "{}", drawn(report, style));
        }
    }
    Exit::of(failure)
}

/// `{"error": REPORT}`; further reports stand under `also`.
fn as_object(failure: &Failure) -> serde_json::Value {
    let mut reports = failure.reports().iter();
    let mut object = json!({ "error": reports.next() });
    let also: Vec<&Report> = reports.collect();
    if !also.is_empty() {
        object["also"] = json!(also);
    }
    object
}

/// Whether to use colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// ANSI colours.
    Colour,
    /// Text alone.
    Plain,
}

impl Style {
    pub(crate) fn for_stderr() -> Self {
        Style::of(io::stderr().is_terminal())
    }

    pub(crate) fn for_stdout() -> Self {
        Style::of(io::stdout().is_terminal())
    }

    /// <https://no-color.org>: the variable counts when it is not empty.
    fn of(is_terminal: bool) -> Self {
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        if is_terminal && !no_color { Style::Colour } else { Style::Plain }
    }

    fn paint(self, text: &str, ansi: &str) -> String {
        match self {
            Style::Colour => format!("\x1b[{ansi}m{text}\x1b[0m"),
            Style::Plain => text.to_owned(),
        }
    }

    pub(crate) fn bold(self, text: &str) -> String {
        self.paint(text, "1")
    }

    pub(crate) fn dim(self, text: &str) -> String {
        self.paint(text, "2")
    }

    pub(crate) fn red(self, text: &str) -> String {
        self.paint(text, "1;31")
    }
}

/// A report as a person reads it.
pub(crate) fn drawn(report: &Report, style: Style) -> String {
    let mut text =
        format!("{}: {}\n", style.red(&format!("error[{}]", report.code)), style.bold(&report.message));
    if let Some(place) = &report.place {
        text.push_str(&underlined(place, style));
    }
    let parts = [("expected", &report.expected), ("found", &report.found), ("mend", &report.mend)];
    let notes = report.notes.iter().map(|note| ("note", note));
    for (label, part) in
        parts.into_iter().filter_map(|(label, part)| Some((label, part.as_ref()?))).chain(notes)
    {
        let label = style.dim(&format!("{label:<9}"));
        // A part of several lines keeps its shape.
        let part = part.replace('\n', "\n            ");
        writeln!(text, "  {label} {part}").expect("writing to a string cannot fail");
    }
    text
}

/// The line of the file with the part at fault underlined; the file's name alone where the line is not known.
fn underlined(place: &Place, style: Style) -> String {
    let (Some(line), Some(excerpt)) = (place.line, &place.excerpt) else {
        return format!("  in {}\n", place.file);
    };
    let snippet = Snippet::new(place, line, excerpt);
    let theme = match style {
        Style::Colour => GraphicalTheme::unicode(),
        Style::Plain => GraphicalTheme::unicode_nocolor(),
    };
    let handler = GraphicalReportHandler::new_themed(theme).with_context_lines(0).with_width(120);
    let mut whole = String::new();
    match handler.render_report(&mut whole, &snippet) {
        // The handler's own headline is empty: ours stands above.
        Ok(()) => whole
            .lines()
            .filter(|line| is_of_snippet(line))
            .fold(String::new(), |text, line| text + line + "\n"),
        Err(_) => format!("  in {}:{line}\n  {excerpt}\n", place.file),
    }
}

/// Whether a drawn line belongs to the frame around the source.
fn is_of_snippet(line: &str) -> bool {
    ['╭', '│', '·', '╰'].into_iter().any(|mark| line.contains(mark))
}

/// One line of a file with the part at fault, in the form that miette draws.
#[derive(Debug, thiserror::Error)]
#[error("")]
struct Snippet {
    line: Line,
    span: LabeledSpan,
}

impl Snippet {
    fn new(place: &Place, number: u32, text: &str) -> Self {
        let byte_of = |n_chars: usize| text.char_indices().nth(n_chars).map_or(text.len(), |(at, _)| at);
        let column = place.column.map_or(0, |column| column.saturating_sub(1) as usize);
        let (start, end) = (byte_of(column), byte_of(column + place.width as usize));
        let line = Line { file: place.file.clone(), number, text: text.to_owned() };
        Snippet { line, span: LabeledSpan::new(None, start, end - start) }
    }
}

impl Diagnostic for Snippet {
    fn source_code(&self) -> Option<&dyn SourceCode> {
        Some(&self.line)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        Some(Box::new(std::iter::once(self.span.clone())))
    }
}

/// All that is known of a file: one line of it. Whatever part is asked for, the whole line is shown.
#[derive(Debug)]
struct Line {
    file: String,
    number: u32,
    text: String,
}

impl SourceCode for Line {
    fn read_span<'a>(
        &'a self,
        span: &SourceSpan,
        _lines_before: usize,
        _lines_after: usize,
    ) -> Result<Box<dyn SpanContents<'a> + 'a>, MietteError> {
        let before = self.text.get(..span.offset()).ok_or(MietteError::OutOfBounds)?;
        let (line, column) = (self.number.saturating_sub(1) as usize, before.chars().count());
        let whole = SourceSpan::new(0.into(), self.text.len());
        let name = self.file.clone();
        let contents = MietteSpanContents::new_named(name, self.text.as_bytes(), whole, line, column, 1);
        Ok(Box::new(contents))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        Report::new("profile.value", "`limits.context_tokens` cannot be 0")
            .expected("at least 1")
            .found("0")
            .mend("change the value")
            .note("one line\nand another")
            .at(Place {
                file: "profiles/é.toml".to_owned(),
                line: Some(12),
                column: Some(1),
                excerpt: Some("context_tokens = 0".to_owned()),
                width: 14,
            })
    }

    #[test]
    fn a_report_reads_without_colour() {
        let expected = "\
error[profile.value]: `limits.context_tokens` cannot be 0
    ╭─[profiles/é.toml:12:1]
 12 │ context_tokens = 0
    · ──────────────
    ╰────
  expected  at least 1
  found     0
  mend      change the value
  note      one line
            and another
";
        assert_eq!(drawn(&report(), Style::Plain), expected);
    }

    #[test]
    fn colour_changes_no_character() {
        let coloured = drawn(&report(), Style::Colour);
        assert!(coloured.contains("\x1b[1;31merror[profile.value]\x1b[0m"));
        let mut plain = String::new();
        let mut rest = coloured.as_str();
        while let Some((before, after)) = rest.split_once("\x1b[") {
            plain += before;
            rest = after.split_once('m').expect("each sequence ends").1;
        }
        assert_eq!(plain + rest, drawn(&report(), Style::Plain));
    }

    #[test]
    fn odd_places_are_drawn_too() {
        let cases = [(None, None, 0), (Some(1), Some(400), 3), (Some(3), None, 0), (Some(0), Some(0), 900)];
        for (line, column, width) in cases {
            let place = Place {
                file: "a.lua".to_owned(),
                line,
                column,
                excerpt: Some("g:linear(é, w)".to_owned()),
                width,
            };
            assert!(
                drawn(&report().at(place), Style::Plain).contains("a.lua"),
                "{line:?} {column:?} {width}"
            );
        }
    }
}
