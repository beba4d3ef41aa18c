//! The prompt of one request: where it comes from and how it becomes token ids.

use std::io::{self, IsTerminal, Read};
use std::time::SystemTime;

use host_text::{ChatInput, Message, TextError, Tokenizer};
use serde_json::Map;

use crate::args::GenerateArgs;
use crate::error::CliError;

/// A prompt as it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Prompt {
    /// Text.
    Text(String),
    /// Token ids, taken as they are.
    Ids(Vec<u32>),
}

impl Prompt {
    /// Takes the argument, the ids, or standard input.
    ///
    /// # Errors
    /// [`CliError::NoPrompt`] where a person would have to type it, [`CliError::PromptEncoding`].
    pub(crate) fn of(args: &GenerateArgs) -> Result<Self, CliError> {
        match (&args.prompt, &args.prompt_ids) {
            (_, Some(ids)) => Ok(Prompt::Ids(ids.clone())),
            (Some(text), None) if text != "-" => Ok(Prompt::Text(text.clone())),
            (None, None) if io::stdin().is_terminal() => Err(CliError::NoPrompt),
            _ => from_reader(io::stdin().lock()).map(Prompt::Text),
        }
    }
}

/// Reads a prompt; one newline at its end belongs to the shell, not to the prompt.
fn from_reader(mut reader: impl Read) -> Result<String, CliError> {
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).map_err(|source| CliError::Stream { stream: "input", source })?;
    let mut text = String::from_utf8(bytes).map_err(|_| CliError::PromptEncoding)?;
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    Ok(text)
}

/// The ids of a conversation up to where the assistant speaks.
///
/// # Errors
/// No chat template, or one that refuses the conversation.
pub(crate) fn chat_ids(tokenizer: &Tokenizer, messages: &[Message]) -> Result<Vec<u32>, TextError> {
    tokenizer.encode(&chat_text(tokenizer, messages)?, false, true)
}

/// A conversation through the chat template, up to where the assistant speaks.
///
/// # Errors
/// No chat template, or one that refuses the conversation.
pub(crate) fn chat_text(tokenizer: &Tokenizer, messages: &[Message]) -> Result<String, TextError> {
    tokenizer.chat_template()?.render(&ChatInput {
        messages,
        tools: &[],
        add_generation_prompt: true,
        special: tokenizer.special(),
        variables: &Map::new(),
        now: SystemTime::now(),
    })
}

/// The ids of a text that is the whole prompt; special tokens written in it are read as such.
///
/// # Errors
/// A text that the vocabulary cannot spell.
pub(crate) fn raw_ids(tokenizer: &Tokenizer, text: &str) -> Result<Vec<u32>, TextError> {
    tokenizer.encode(text, true, true)
}

/// A conversation that begins with `system`, if there is one.
pub(crate) fn conversation(system: Option<&str>, user: Option<&str>) -> Vec<Message> {
    let system = system.map(|text| Message::new("system", text));
    let user = user.map(|text| Message::new("user", text));
    system.into_iter().chain(user).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_newline_at_the_end_is_the_shells() {
        let cases =
            [("hi", "hi"), ("hi\n", "hi"), ("hi\r\n", "hi"), ("hi\n\n", "hi\n"), ("\n", ""), ("", "")];
        for (given, expected) in cases {
            assert_eq!(from_reader(given.as_bytes()).expect("UTF-8"), expected, "{given:?}");
        }
        assert!(matches!(from_reader(&b"\xff"[..]), Err(CliError::PromptEncoding)));
    }
}
