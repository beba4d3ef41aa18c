use std::sync::Arc;

use super::table::CACHED_GRAMMARS;
use super::*;

/// Each byte below 128 is a token; then some longer ones, a special one and the end.
fn table() -> Arc<TokenTable> {
    let mut tokens: Vec<Vec<u8>> = (0..128_u8).map(|byte| vec![byte]).collect();
    tokens.extend(["true", "\":", "{\"", "abc", "<tool>", "</s>"].map(|text| text.as_bytes().to_vec()));
    TokenTable::new(140, tokens, &[TOOL], &[END]).expect("a sound vocabulary")
}

const TOOL: u32 = 132;
const END: u32 = 133;

fn compile(spec: &GrammarSpec) -> Result<Grammar, ConstraintError> {
    Grammar::compile(spec, &table(), Budget::default())
}

fn schema(text: &str) -> GrammarSpec {
    GrammarSpec::JsonSchema { schema: text.to_owned(), whitespace: Whitespace::None }
}

fn regex(text: &str) -> Constraint {
    compile(&GrammarSpec::Regex(text.to_owned())).expect("a regular expression").constraint()
}

fn accept(constraint: &mut Constraint, text: &str) -> Result<(), ConstraintError> {
    text.bytes().try_for_each(|byte| constraint.accept(u32::from(byte)))
}

fn allowed(constraint: &mut Constraint) -> Vec<u32> {
    constraint.mask().expect("within the budget").iter().collect()
}

#[test]
fn masks_follow_the_text() {
    let mut constraint = regex("ab(c|d)?");
    assert_eq!(allowed(&mut constraint), [u32::from(b'a'), 131], "`abc` is a token of its own");
    assert!(!constraint.is_complete().expect("a state"));
    accept(&mut constraint, "ab").expect("as the expression says");
    assert_eq!(allowed(&mut constraint), [u32::from(b'c'), u32::from(b'd'), END]);
    assert!(constraint.is_complete().expect("a state") && !constraint.is_finished());
    let fork = constraint.clone();
    accept(&mut constraint, "d").expect("as the expression says");
    assert!(constraint.is_finished());
    assert_eq!(allowed(&mut constraint), [END], "nothing but the end");
    assert_eq!(constraint.forced(), Ok(Some(END)));
    assert!(!fork.is_finished(), "a fork goes on alone");
}

#[test]
fn the_end_token_finishes_where_the_text_may_end() {
    let mut constraint = regex("a+");
    assert_eq!(constraint.accept(END), Err(ConstraintError::NotAllowed { token: END }));
    accept(&mut constraint, "aa").expect("as the expression says");
    constraint.accept(END).expect("the text may end");
    assert!(constraint.is_finished());
}

#[test]
fn what_is_not_allowed_changes_nothing() {
    let mut constraint = regex("ab");
    for token in [u32::from(b'x'), TOOL, 139, 1000] {
        assert_eq!(constraint.accept(token), Err(ConstraintError::NotAllowed { token }));
    }
    accept(&mut constraint, "ab").expect("the constraint stands where it stood");
}

#[test]
fn a_rollback_leads_back_to_the_same_masks() {
    let mut constraint = compile(&schema(r#"{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"],"additionalProperties":false}"#))
        .expect("a schema")
        .constraint();
    let text = r#"{"a":12}"#;
    let mut masks = vec![constraint.mask().expect("a mask")];
    for byte in text.bytes() {
        constraint.accept(u32::from(byte)).expect("a value of the schema");
        masks.push(constraint.mask().expect("a mask"));
    }
    for n in [1, 3, text.len()] {
        constraint.rollback(n).expect("as many were accepted");
        let at = text.len() - n;
        assert_eq!(constraint.mask().expect("a mask"), masks[at], "{n} back");
        accept(&mut constraint, &text[at..]).expect("the same text again");
    }
    assert_eq!(constraint.rollback(99), Err(ConstraintError::Rollback { n: 99, held: text.len() }));
}

#[test]
fn schemas_are_enforced() {
    let cases = [
        (r#"{"enum":["ab",3,null]}"#, &["\"ab\"", "3", "null"][..], &["\"a\"", "4", "[", " "][..]),
        (r#"{"type":"integer","minimum":3,"maximum":12}"#, &["3", "12", "7"], &["2", "13", "1.", "-"]),
        (r#"{"type":"string","pattern":"^a[0-9]{2}$"}"#, &["\"a12\""], &["\"a1\"", "\"b", "\"a123"]),
        (
            r#"{"type":"array","items":{"type":"boolean"},"minItems":1,"maxItems":2}"#,
            &["[true]", "[true,false]"],
            &["[]", "[true,true,"],
        ),
        (
            r##"{"$ref":"#/$defs/n","$defs":{"n":{"type":"object","properties":{"n":{"$ref":"#/$defs/n"}},"additionalProperties":false}}}"##,
            &["{}", r#"{"n":{"n":{}}}"#],
            &[r#"{"m"#],
        ),
        ("true", &["1", "[{}]"], &["x"]),
    ];
    for (text, good, bad) in cases {
        let grammar = compile(&schema(text)).unwrap_or_else(|error| panic!("{text}: {error}"));
        for value in good {
            let mut constraint = grammar.constraint();
            accept(&mut constraint, value).unwrap_or_else(|error| panic!("{text}: {value}: {error}"));
            assert_eq!(constraint.is_complete(), Ok(true), "{text}: {value}");
        }
        for value in bad {
            let mut constraint = grammar.constraint();
            let is_refused = accept(&mut constraint, value).is_err() || constraint.is_complete() == Ok(false);
            assert!(is_refused, "{text}: {value}");
        }
    }
}

#[test]
fn what_cannot_be_enforced_is_named() {
    let cases = [
        (r#"{"not":{"type":"string"}}"#, "not", "/not"),
        (r#"{"type":"array","uniqueItems":true}"#, "uniqueItems", "/uniqueItems"),
        (r#"{"type":"array","contains":{}}"#, "contains", "/contains"),
        (r#"{"properties":{"a":{"if":{}}}}"#, "if", "/properties/a/if"),
        (r#"{"items":[{"propertyNames":{}}]}"#, "propertyNames", "/items/0/propertyNames"),
        (r#"{"$defs":{"a":{"dependentRequired":{}}}}"#, "dependentRequired", "/$defs/a/dependentRequired"),
        (r#"{"x-guidance":{"lenient":true}}"#, "x-guidance", "/x-guidance"),
        (r#"{"$ref":"https://example.com/a"}"#, "$ref", "/$ref"),
        (r#"{"oneOf":[{"type":"integer"},{"type":"number"}]}"#, "oneOf", ""),
        (r#"{"type":"string","format":"moon-phase"}"#, "format", ""),
        (r#"{"type":"string","pattern":"(?=a)b"}"#, "pattern", ""),
    ];
    for (text, construct, at) in cases {
        match compile(&schema(text)).map(drop) {
            Err(ConstraintError::UnsupportedSchema { construct: found, at: place, .. }) => {
                assert_eq!((&found[..], &place[..]), (construct, at), "{text}");
            }
            other => panic!("{text}: {other:?}"),
        }
    }
}

#[test]
fn sources_that_make_no_sense_are_refused() {
    let lark = |text: &str| compile(&GrammarSpec::Lark(text.to_owned())).map(drop);
    let code = |outcome: Result<(), ConstraintError>| {
        host_core::Reported::report(&outcome.expect_err("refused")).code
    };
    assert_eq!(code(compile(&schema("{")).map(drop)), "constraint.not-json");
    assert_eq!(code(compile(&schema("false")).map(drop)), "constraint.unsatisfiable");
    assert_eq!(code(compile(&GrammarSpec::Regex("(a".into())).map(drop)), "constraint.syntax");
    assert_eq!(code(lark("start: missing")), "constraint.syntax");
    assert_eq!(code(lark("")), "constraint.syntax");
    assert!(lark("start: \"a\" start | \"b\"").is_ok());
}

#[test]
fn budgets_end_what_costs_too_much() {
    let small = Budget { source_bytes: 10, ..Budget::default() };
    let long = Grammar::compile(&schema(r#"{"type":"integer"}"#), &table(), small).map(drop);
    assert!(matches!(long, Err(ConstraintError::TooComplex { .. })), "{long:?}");
    let wide = GrammarSpec::Regex("(a|b|abc){1,500}c{3,900}".into());
    for poor in [
        Budget { compile_fuel: 10, ..Budget::default() },
        Budget { mask_fuel: 1, ..Budget::default() },
        Budget { lexer_states: 1, ..Budget::default() },
    ] {
        let outcome = Grammar::compile(&wide, &table(), poor).and_then(|grammar| {
            let mut constraint = grammar.constraint();
            (0..20).try_for_each(|_| {
                constraint.mask()?;
                constraint.accept(u32::from(b'a'))
            })
        });
        assert!(matches!(outcome, Err(ConstraintError::TooComplex { .. })), "{poor:?}: {outcome:?}");
    }
}

#[test]
fn the_same_source_is_compiled_once() {
    let table = table();
    let compile = |spec: &GrammarSpec| Grammar::compile(spec, &table, Budget::default()).expect("sound");
    let (first, again) = (compile(&schema("{}")), compile(&schema("{}")));
    let free = compile(&GrammarSpec::JsonSchema { schema: "{}".into(), whitespace: Whitespace::Free });
    assert!(first.is_same(&again) && !first.is_same(&free));
}

/// Of the grammars of a table the ones used last are kept, and a table with grammars is let go like any other.
#[test]
fn compiled_grammars_are_bounded_and_hold_no_table() {
    let table = table();
    let compile = |n: usize| {
        Grammar::compile(&GrammarSpec::Regex(format!("a{{{n}}}")), &table, Budget::default()).expect("sound")
    };
    let (first, second) = (compile(1), compile(2));
    (3..=CACHED_GRAMMARS).for_each(|n| drop(compile(n)));
    assert!(first.is_same(&compile(1)), "as many as are kept");
    drop(compile(CACHED_GRAMMARS + 1));
    assert!(first.is_same(&compile(1)), "it was used since");
    assert!(!second.is_same(&compile(2)), "the one that was used longest ago went");
    let held = Arc::downgrade(&table);
    drop((first, second, table));
    assert!(held.upgrade().is_none(), "nobody holds the table any more");
}

/// Whoever has the same vocabulary shares its table and its grammars, even when the first who had it is gone.
#[test]
fn equal_vocabularies_share_a_table_within_a_bound() {
    let tables = TokenTables::new(2);
    let of = |texts: &[&str]| {
        let mut tokens: Vec<Vec<u8>> = texts.iter().map(|text| text.as_bytes().to_vec()).collect();
        tokens.push(b"</s>".to_vec());
        tables.get(8, tokens, &[], &[texts.len() as u32]).expect("a sound vocabulary")
    };
    let spec = GrammarSpec::Regex("a+".to_owned());
    let compile = |table: &Arc<TokenTable>| Grammar::compile(&spec, table, Budget::default()).expect("sound");
    let first = compile(&of(&["a", "b"]));
    let again = compile(&of(&["a", "b"]));
    assert!(first.is_same(&again) && Arc::ptr_eq(first.table(), again.table()));
    let other = compile(&of(&["a", "c"]));
    assert!(!first.is_same(&other), "another token");
    drop(compile(&of(&["a", "b"])));
    drop(of(&["b", "a"]));
    assert_eq!(tables.len(), 2);
    assert!(first.is_same(&compile(&of(&["a", "b"]))), "it was asked for since");
    assert!(!other.is_same(&compile(&of(&["a", "c"]))), "the one asked for longest ago went");
    let refused = tables.get(1, vec![b"a".to_vec()], &[], &[]).map(drop);
    assert!(matches!(refused, Err(ConstraintError::Vocabulary { .. })), "{refused:?}");
    assert_eq!(tables.len(), 2, "nothing was made");
}

#[test]
fn vocabularies_without_sense_are_refused() {
    let tokens = || vec![b"a".to_vec(), b"b".to_vec()];
    let long = vec![vec![b'a'; 300], b"b".to_vec()];
    for (name, outcome) in [
        ("no end", TokenTable::new(2, tokens(), &[], &[])),
        ("end beyond", TokenTable::new(2, tokens(), &[], &[2])),
        ("too many tokens", TokenTable::new(1, tokens(), &[], &[0])),
        ("a long token", TokenTable::new(2, long, &[], &[1])),
    ] {
        assert!(matches!(outcome, Err(ConstraintError::Vocabulary { .. })), "{name}");
    }
}
