//! SPDX licence expressions: whether a set of allowed licences satisfies one.
//!
//! ```text
//! or   = and  { ("OR" | "/") and }
//! and  = term { "AND" term }
//! term = "(" or ")" | LICENCE [ "WITH" EXCEPTION ]
//! ```

/// Whether the expression is satisfied by licences that `allows` accepts; `None` when it cannot be read.
///
/// A licence with an exception is asked for as one text, `Apache-2.0 WITH LLVM-exception`.
pub(super) fn is_allowed(expression: &str, allows: &dyn Fn(&str) -> bool) -> Option<bool> {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut reader = Reader { words: spaced.split_whitespace().collect(), at: 0, allows };
    let allowed = reader.any()?;
    (reader.at == reader.words.len()).then_some(allowed)
}

struct Reader<'a> {
    words: Vec<&'a str>,
    at: usize,
    allows: &'a dyn Fn(&str) -> bool,
}

impl<'a> Reader<'a> {
    fn any(&mut self) -> Option<bool> {
        let mut allowed = self.all()?;
        while self.eat("OR") {
            allowed |= self.all()?;
        }
        Some(allowed)
    }

    fn all(&mut self) -> Option<bool> {
        let mut allowed = self.term()?;
        while self.eat("AND") {
            allowed &= self.term()?;
        }
        Some(allowed)
    }

    fn term(&mut self) -> Option<bool> {
        if self.eat("(") {
            let allowed = self.any()?;
            return self.eat(")").then_some(allowed);
        }
        let licence = self.name()?;
        if self.eat("WITH") {
            let exception = self.name()?;
            return Some((self.allows)(&format!("{licence} WITH {exception}")));
        }
        Some((self.allows)(licence))
    }

    fn name(&mut self) -> Option<&'a str> {
        let word = *self.words.get(self.at)?;
        self.at += 1;
        (!matches!(word, "OR" | "AND" | "WITH" | "(" | ")")).then_some(word)
    }

    fn eat(&mut self, word: &str) -> bool {
        let is_next = self.words.get(self.at) == Some(&word);
        self.at += usize::from(is_next);
        is_next
    }
}
