//! Stop strings: cuts streamed text where the first of them is complete.

use std::mem;

/// What a step of the stream gives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StopStep {
    /// Text that is certain to lie before any stop string.
    pub text: String,
    /// The stop string that was completed; nothing after it is ever emitted.
    pub stopped_by: Option<String>,
}

/// Watches a stream of text for stop strings.
///
/// The match that is complete first wins (of those complete at the same character, the longest); the text before
/// it is emitted, the rest discarded. Text that may still turn into a stop string is withheld. The outcome does not
/// depend on how the text is cut, and the cost per byte does not depend on its length.
#[derive(Clone, Debug)]
pub struct StopMatcher {
    stops: Vec<Automaton>,
    withheld: String,
    stopped: bool,
}

impl StopMatcher {
    /// A matcher for `stops`; empty strings are ignored.
    pub fn new<S: AsRef<str>>(stops: impl IntoIterator<Item = S>) -> Self {
        let stops = stops.into_iter().filter(|stop| !stop.as_ref().is_empty());
        StopMatcher {
            stops: stops.map(|stop| Automaton::new(stop.as_ref())).collect(),
            withheld: String::new(),
            stopped: false,
        }
    }

    /// Takes the next piece of text and gives what may be emitted.
    ///
    /// After a stop, every further piece is discarded.
    pub fn push(&mut self, piece: &str) -> StopStep {
        if self.stopped {
            return StopStep::default();
        }
        let seen = self.withheld.len();
        self.withheld.push_str(piece);
        for (offset, byte) in piece.bytes().enumerate() {
            if let Some(stop) = self.advance(byte) {
                return self.stop(stop, seen + offset + 1);
            }
        }
        let tail = self.stops.iter().map(|stop| stop.matched).max().unwrap_or(0);
        let text = self.withheld.drain(..self.withheld.len() - tail).collect();
        StopStep { text, stopped_by: None }
    }

    /// The withheld text, once the stream has ended without a stop.
    pub fn flush(&mut self) -> String {
        for stop in &mut self.stops {
            stop.matched = 0;
        }
        mem::take(&mut self.withheld)
    }

    /// Whether a stop string was completed.
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Feeds one byte to every automaton; gives the longest stop string that it completes.
    fn advance(&mut self, byte: u8) -> Option<String> {
        let complete = self.stops.iter_mut().filter_map(|stop| stop.advance(byte).then_some(&stop.text));
        complete.max_by_key(|text| text.len()).cloned()
    }

    fn stop(&mut self, stop: String, end: usize) -> StopStep {
        self.stopped = true;
        let mut text = mem::take(&mut self.withheld);
        text.truncate(end - stop.len());
        StopStep { text, stopped_by: Some(stop) }
    }
}

/// The Knuth-Morris-Pratt automaton of one stop string.
///
/// Bytes suffice: a stop string and the stream are UTF-8, so a match starts and ends between characters.
#[derive(Clone, Debug)]
struct Automaton {
    text: String,
    /// For each prefix length, the length of its longest proper prefix that is also its suffix.
    borders: Vec<usize>,
    /// Length of the longest prefix of `text` that ends the stream so far.
    matched: usize,
}

impl Automaton {
    fn new(text: &str) -> Self {
        let bytes = text.as_bytes();
        let mut borders = vec![0, 0];
        for i in 1..bytes.len() {
            let mut border = borders[i];
            while border > 0 && bytes[border] != bytes[i] {
                border = borders[border];
            }
            borders.push(border + usize::from(bytes[border] == bytes[i]));
        }
        Automaton { text: text.to_owned(), borders, matched: 0 }
    }

    /// Whether `byte` completes the string.
    fn advance(&mut self, byte: u8) -> bool {
        let bytes = self.text.as_bytes();
        while self.matched > 0 && bytes[self.matched] != byte {
            self.matched = self.borders[self.matched];
        }
        if bytes[self.matched] == byte {
            self.matched += 1;
        }
        self.matched == bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Streams `pieces`; gives all the text emitted and the stop string.
    fn stream(stops: &[&str], pieces: &[&str]) -> (String, Option<String>) {
        let mut matcher = StopMatcher::new(stops);
        let (mut text, mut stopped_by) = (String::new(), None);
        for piece in pieces {
            let step = matcher.push(piece);
            text += &step.text;
            stopped_by = stopped_by.or(step.stopped_by);
        }
        (text + &matcher.flush(), stopped_by)
    }

    #[test]
    fn text_before_the_first_complete_stop_is_emitted() {
        for (stops, pieces, text, stop) in [
            (&[][..], &["all ", "of it"][..], "all of it", None),
            (&["", ""], &["all"], "all", None),
            (&["END"], &["one EN", "D two"], "one ", Some("END")),
            (&["END"], &["one EN", "d two"], "one ENd two", None),
            (&["END"], &["E", "E", "N", "D"], "E", Some("END")),
            (&["abcd", "bc"], &["abcd"], "a", Some("bc")),
            (&["c", "abc"], &["xabc"], "x", Some("abc")),
            (&["🦀!"], &["a🦀", "?🦀", "!b"], "a🦀?", Some("🦀!")),
            (&["aab"], &["aaab"], "a", Some("aab")),
        ] {
            assert_eq!(stream(stops, pieces), (text.into(), stop.map(Into::into)), "{stops:?} {pieces:?}");
        }
    }

    #[test]
    fn a_tail_that_may_become_a_stop_is_withheld() {
        let mut matcher = StopMatcher::new(["</s>"]);
        assert_eq!(matcher.push("hi </").text, "hi ");
        assert_eq!(matcher.push("s").text, "");
        assert_eq!(matcher.push("x").text, "</sx");
        assert_eq!(matcher.push("<").text, "");
        assert_eq!(matcher.flush(), "<");
        assert!(!matcher.is_stopped());
    }

    #[test]
    fn nothing_follows_a_stop() {
        let mut matcher = StopMatcher::new(["."]);
        assert_eq!(matcher.push("a.b"), StopStep { text: "a".into(), stopped_by: Some(".".into()) });
        assert_eq!(matcher.push("c."), StopStep::default());
        assert_eq!(matcher.flush(), "");
        assert!(matcher.is_stopped());
    }

    /// The definition, read naively: try each end from the left, longest stop first.
    fn naive(stops: &[String], text: &str) -> (String, Option<String>) {
        for end in (1..=text.len()).filter(|end| text.is_char_boundary(*end)) {
            let found = stops.iter().filter(|s| !s.is_empty() && text[..end].ends_with(&s[..]));
            if let Some(stop) = found.max_by_key(|stop| stop.len()) {
                return (text[..end - stop.len()].into(), Some(stop.clone()));
            }
        }
        (text.into(), None)
    }

    proptest! {
        #[test]
        fn cuts_do_not_matter(
            stops in prop::collection::vec("[abé]{0,4}", 0..4),
            text in "[abcé]{0,30}",
            cuts in prop::collection::vec(1usize..6, 1..8),
        ) {
            let characters: Vec<char> = text.chars().collect();
            let mut pieces: Vec<String> = Vec::new();
            let mut start = 0;
            for cut in cuts.iter().cycle() {
                if start >= characters.len() { break }
                let end = (start + cut).min(characters.len());
                pieces.push(characters[start..end].iter().collect());
                start = end;
            }
            let stops_ref: Vec<&str> = stops.iter().map(String::as_str).collect();
            let pieces_ref: Vec<&str> = pieces.iter().map(String::as_str).collect();
            prop_assert_eq!(stream(&stops_ref, &pieces_ref), naive(&stops, &text));
        }
    }
}
