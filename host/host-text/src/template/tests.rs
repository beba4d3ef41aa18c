//! What a template may do and how it fails. That texts equal those of `transformers` is tested over fixtures by the
//! `tests` crate.

use std::time::{Duration, SystemTime};

use host_core::{Report, Reported};
use serde_json::{Map, Value, json};

use super::python::float;
use super::{ChatInput, ChatTemplate, Message, without_generation_tags};
use crate::{SpecialTokens, TextError};

fn render(source: &str, messages: &[Message], variables: Value) -> Result<String, TextError> {
    let variables: Map<String, Value> = serde_json::from_value(variables).unwrap();
    let named = json!({"bos_token": "<s>", "eos_token": "</s>"});
    let special = SpecialTokens { named: serde_json::from_value(named).unwrap(), ..SpecialTokens::default() };
    ChatTemplate::new(source)?.render(&ChatInput {
        messages,
        tools: &[],
        add_generation_prompt: true,
        special: &special,
        variables: &variables,
        // Noon of a day in the middle of a year, so that every time zone agrees on the year.
        now: SystemTime::UNIX_EPOCH + Duration::from_secs(1_782_561_600),
    })
}

fn check(source: &str, expected: &str) {
    assert_eq!(render(source, &[Message::new("user", "hi")], json!({})).unwrap(), expected, "{source}");
}

fn failure(source: &str) -> Report {
    render(source, &[Message::new("user", "hi")], json!({})).unwrap_err().report()
}

#[test]
fn a_template_sees_messages_tokens_and_the_time() {
    check(
        "{{ bos_token }}{{ messages[0].role }}: {{ messages[0]['content'] }}{{ eos_token }}",
        "<s>user: hi</s>",
    );
    check("{{ tools is none }} {{ tools is defined }} {{ documents is none }}", "True True True");
    check("{% if add_generation_prompt %}go{% endif %}", "go");
    check("{{ strftime_now('%Y %B') }}", "2026 June");
}

#[test]
fn variables_win_over_what_the_host_gives() {
    let found = render("{{ bos_token }} {{ mode }}", &[], json!({"bos_token": "B", "mode": ["x"]})).unwrap();
    assert_eq!(found, "B ['x']");
}

#[test]
fn a_refusal_is_told_in_the_templates_own_words() {
    let report = failure("a\n{% if true %}\n  {{ raise_exception('roles must alternate') }}\n{% endif %}");
    assert_eq!(report.code, "text.template-refused");
    assert!(report.message.ends_with("roles must alternate"), "{report}");
    let place = report.place.unwrap();
    assert_eq!(
        (place.line, place.excerpt.as_deref()),
        (Some(3), Some("  {{ raise_exception('roles must alternate') }}"))
    );
    let inside = "{% macro m() %}{{ raise_exception('no') }}{% endmacro %}{{ m() }}";
    assert_eq!(failure(inside).code, "text.template-refused");
}

#[test]
fn failures_name_the_line() {
    for (source, code, line) in [
        ("a\n{% if %}", "text.template-syntax", 2),
        ("{{ 'open }}", "text.template-syntax", 1),
        ("{% endfor %}", "text.template-syntax", 1),
        ("a\nb\n{{ messages[7].role }}", "text.template-failed", 3),
        ("{{ nothing.at.all }}", "text.template-failed", 1),
        ("{{ 'a' + [] }}", "text.template-failed", 1),
        ("{{ missing | tojson }}", "text.template-failed", 1),
        ("\n{{ 'a'.index('b') }}", "text.template-failed", 2),
        ("{{ unknown_function() }}", "text.template-failed", 1),
        ("{{ 'x'.format_map() }}", "text.template-failed", 1),
        ("{{ strftime_now('%') }}", "text.template-failed", 1),
    ] {
        let report = failure(source);
        assert_eq!(report.code, code, "{source}: {report}");
        assert_eq!(report.place.as_ref().unwrap().line, Some(line), "{source}: {report}");
        assert!(report.mend.is_some());
    }
}

#[test]
fn endless_work_is_cut_off() {
    let endless = "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}";
    assert_eq!(failure(endless).code, "text.template-failed");
    let deep = "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}";
    assert_eq!(failure(deep).code, "text.template-failed");
}

#[test]
fn generation_tags_change_nothing() {
    for (source, plain) in [
        ("{% generation %}x{% endgeneration %}", "{% if true %}x{% endif %}"),
        ("{%- generation -%}x{%+ endgeneration +%}", "{%- if true -%}x{%+ endif +%}"),
        ("{{ 'generation' }}{% set generation = 1 %}", "{{ 'generation' }}{% set generation = 1 %}"),
        ("add_generation_prompt {% x", "add_generation_prompt {% x"),
    ] {
        assert_eq!(without_generation_tags(source), plain);
    }
}

#[test]
fn line_ends_are_those_of_jinja() {
    check("{% if true %}\r\na\r\n{% endif %}\r\nb\r\n", "a\nb");
}

#[test]
fn floats_are_written_as_python_does() {
    for (number, expected) in [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (0.1, "0.1"),
        (123456.789, "123456.789"),
        (1e15, "1000000000000000.0"),
        (1e16, "1e+16"),
        (1.5e300, "1.5e+300"),
        (0.0001, "0.0001"),
        (0.00001, "1e-05"),
        (1.25e-10, "1.25e-10"),
        (f64::NAN, "nan"),
        (f64::NEG_INFINITY, "-inf"),
    ] {
        assert_eq!(float(number), expected);
    }
}
