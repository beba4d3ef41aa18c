//! How much a grammar may cost.

use llguidance::api::ParserLimits;

/// The most that compiling a grammar and computing one mask may take.
///
/// The counts are the engine's own, so that the same grammar is refused on every machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Budget {
    /// Bytes of the schema, regular expression or grammar.
    pub source_bytes: usize,
    /// Symbols of the compiled grammar.
    pub grammar_symbols: usize,
    /// Steps of building the lexer; about 50 a microsecond.
    pub compile_fuel: u64,
    /// Steps of the lexer for one mask; about 14 a microsecond.
    pub mask_fuel: u64,
    /// Items of the parser for one mask; about 20 a microsecond.
    pub mask_items: usize,
    /// Items of one position of the parser: how ambiguous a grammar may be.
    pub row_items: usize,
    /// States of the lexer; one to two kilobytes each.
    pub lexer_states: usize,
}

impl Default for Budget {
    /// What a published schema of a few thousand lines needs; a mask ends within some 15 ms at worst.
    fn default() -> Self {
        Budget {
            source_bytes: 1 << 20,
            grammar_symbols: 500_000,
            compile_fuel: 1_000_000,
            mask_fuel: 200_000,
            mask_items: 50_000,
            row_items: 2_000,
            lexer_states: 50_000,
        }
    }
}

impl Budget {
    pub(super) fn limits(&self) -> ParserLimits {
        ParserLimits {
            max_items_in_row: self.row_items,
            initial_lexer_fuel: self.compile_fuel,
            step_lexer_fuel: self.mask_fuel,
            step_max_items: self.mask_items,
            max_lexer_states: self.lexer_states,
            max_grammar_size: self.grammar_symbols,
            precompute_large_lexemes: true,
            verbose_errors: false,
        }
    }
}
