//! Chat templates: a conversation becomes the text of a prompt, as the model was trained to see it.
//!
//! Templates are Jinja as `transformers` sets it up: blocks trimmed, loop controls, `raise_exception`,
//! `strftime_now`, Python's JSON and Python's methods on texts, lists and dictionaries. They come with models, from
//! outside, so the work of one rendering is bounded.

mod conversation;
mod filters;
mod methods;
mod python;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::error::Error as _;
use std::time::SystemTime;

use host_core::Place;
use jiff::{Timestamp, Zoned, tz::TimeZone};
use minijinja::{Environment, Error, ErrorKind, Value, context};
use serde_json::{Map, Value as Json};

pub use conversation::{Content, Message};

use crate::{SpecialTokens, TextError};

/// The name under which errors speak of the template.
const NAME: &str = "chat_template";

/// Instructions that one rendering may execute: some seconds of work, and far more than a conversation needs.
const LIMIT_FUEL: u64 = 50_000_000;

/// A parsed chat template.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    source: String,
}

/// What a template is rendered with.
#[derive(Clone, Copy, Debug)]
pub struct ChatInput<'a> {
    /// The conversation.
    pub messages: &'a [Message],
    /// Descriptions of functions the model may call, in JSON; empty means none.
    pub tools: &'a [Json],
    /// Whether the text ends where the assistant's next message begins.
    pub add_generation_prompt: bool,
    /// The special tokens, whose texts templates use (`bos_token`, `eos_token`).
    pub special: &'a SpecialTokens,
    /// Further variables, such as `enable_thinking`; they win over those above.
    pub variables: &'a Map<String, Json>,
    /// The time that `strftime_now` shows, in the machine's time zone.
    pub now: SystemTime,
}

impl ChatTemplate {
    /// Parses a template.
    ///
    /// # Errors
    /// [`TextError::TemplateSyntax`] with the line.
    pub fn new(source: &str) -> Result<Self, TextError> {
        // Jinja reads every line end as a line feed.
        let source = source.replace("\r\n", "\n").replace('\r', "\n");
        let mut environment = Environment::new();
        environment.set_trim_blocks(true);
        environment.set_lstrip_blocks(true);
        environment.set_fuel(Some(LIMIT_FUEL));
        environment.set_formatter(filters::format);
        environment.set_unknown_method_callback(methods::call);
        environment.add_filter("tojson", filters::tojson);
        environment.add_filter("string", python::to_string);
        environment.add_filter("trim", filters::trim);
        environment.add_filter("join", filters::join);
        environment.add_function("raise_exception", raise_exception);
        let parsed = environment.add_template_owned(NAME, without_generation_tags(&source).into_owned());
        if let Err(error) = parsed {
            let place = place(&error, &source);
            return Err(TextError::TemplateSyntax { detail: detail(&error), place });
        }
        Ok(ChatTemplate { environment, source })
    }

    /// The template's text.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The text of the prompt. It is to be encoded with special tokens parsed and none added.
    ///
    /// # Errors
    /// [`TextError::TemplateRefused`] when the template raises an exception, [`TextError::TemplateFailed`] when it
    /// cannot be rendered; both with the line.
    pub fn render(&self, input: &ChatInput<'_>) -> Result<String, TextError> {
        let failed = |error: Error| self.failed(&error);
        let template = self.environment.get_template(NAME).map_err(failed)?;
        template.render(variables(input)).map_err(failed)
    }

    fn failed(&self, error: &Error) -> TextError {
        let place = place(error, &self.source);
        match raised(error) {
            Some(message) => TextError::TemplateRefused { message, place },
            None => TextError::TemplateFailed { detail: detail(error), place },
        }
    }
}

/// Everything a template can see.
fn variables(input: &ChatInput<'_>) -> Value {
    let messages: Vec<Json> = input.messages.iter().map(Message::for_template).collect();
    let tools = (!input.tools.is_empty()).then_some(input.tools);
    let now = input.now;
    let own = context! {
        messages => Value::from_serialize(messages),
        tools => Value::from_serialize(tools),
        documents => (),
        add_generation_prompt => input.add_generation_prompt,
        strftime_now => Value::from_function(move |format: &str| strftime(now, format)),
    };
    let special = Value::from_serialize(&input.special.named);
    let variables = Value::from_serialize(input.variables);
    context! { ..variables, ..own, ..special }
}

/// Opens `{% generation %}` blocks, which mark the assistant's words for training and change nothing here.
///
/// The tags become a block of the same shape, so that the whitespace around them is trimmed as before.
fn without_generation_tags(source: &str) -> Cow<'_, str> {
    if !source.contains("generation") {
        return Cow::Borrowed(source);
    }
    let mut plain = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(open) = rest.find("{%") {
        let (before, tag) = rest.split_at(open + 2);
        plain.push_str(before);
        let length = tag.find("%}").unwrap_or(tag.len());
        let (tag, after) = tag.split_at(length);
        match tag.trim_matches(|character: char| character.is_whitespace() || "-+".contains(character)) {
            "generation" => plain.push_str(&tag.replace("generation", "if true")),
            "endgeneration" => plain.push_str(&tag.replace("endgeneration", "endif")),
            _ => plain.push_str(tag),
        }
        rest = after;
    }
    plain.push_str(rest);
    Cow::Owned(plain)
}

/// What a template said by `raise_exception`.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Raised(String);

fn raise_exception(message: &str) -> Result<String, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, "raise_exception").with_source(Raised(message.to_owned())))
}

/// The message of a `raise_exception` anywhere in the causes of an error.
fn raised(error: &Error) -> Option<String> {
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(Raised(message)) = error.downcast_ref() {
            return Some(message.clone());
        }
        cause = error.source();
    }
    None
}

fn strftime(now: SystemTime, format: &str) -> Result<String, Error> {
    let invalid =
        |error: jiff::Error| Error::new(ErrorKind::InvalidOperation, format!("strftime_now: {error}"));
    let now: Zoned = Timestamp::try_from(now).map_err(invalid)?.to_zoned(TimeZone::system());
    jiff::fmt::strtime::format(format, &now).map_err(invalid)
}

/// What went wrong, with its causes, on one line.
fn detail(error: &Error) -> String {
    let mut text = match error.detail() {
        Some(detail) => format!("{}: {detail}", error.kind()),
        None => error.kind().to_string(),
    };
    let mut cause = error.source();
    while let Some(error) = cause {
        let shown = error.to_string();
        text += &format!(": {}", shown.lines().next().unwrap_or_default());
        cause = error.source();
    }
    text
}

/// The line of the template where an error arose.
fn place(error: &Error, source: &str) -> Option<Box<Place>> {
    let line = error.line()?;
    let excerpt = source.lines().nth(line.checked_sub(1)?)?;
    let line = u32::try_from(line).ok();
    Some(Box::new(Place { file: NAME.into(), line, column: None, excerpt: Some(excerpt.into()), width: 0 }))
}
