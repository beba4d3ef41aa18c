//! A conversation's messages, in the form in which templates read them.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// `system`, `user`, `assistant`, `tool`, or another that the template knows.
    pub role: String,
    /// What was said.
    #[serde(default)]
    pub content: Content,
    /// Further fields, as templates name them: `name`, `tool_calls`, `tool_call_id`, `reasoning_content`.
    #[serde(flatten)]
    pub fields: Map<String, Json>,
}

/// The content of a message.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Content {
    /// None, as in a message that only calls tools.
    #[default]
    None,
    /// Text.
    Text(String),
    /// Parts in JSON, each with a `type`.
    Parts(Vec<Json>),
}

impl Message {
    /// A message with text and no further fields.
    pub fn new(role: impl Into<String>, text: impl Into<String>) -> Self {
        Message { role: role.into(), content: Content::Text(text.into()), fields: Map::new() }
    }

    /// The message as templates read it.
    ///
    /// `developer` is another word for `system`; parts that are all text are joined to one text; arguments of tool
    /// calls that are JSON in a text become that JSON.
    pub(crate) fn for_template(&self) -> Json {
        let mut message = Map::new();
        let role = if self.role == "developer" { "system" } else { &self.role };
        message.insert("role".into(), role.into());
        message.insert("content".into(), self.content.for_template());
        for (name, value) in &self.fields {
            let mut value = value.clone();
            if name == "tool_calls" {
                parse_arguments(&mut value);
            }
            message.insert(name.clone(), value);
        }
        Json::Object(message)
    }
}

impl Content {
    fn for_template(&self) -> Json {
        match self {
            Content::None => Json::Null,
            Content::Text(text) => Json::from(text.clone()),
            Content::Parts(parts) => {
                let text = |part: &Json| match part["type"].as_str() {
                    Some("text") => part["text"].as_str().map(str::to_owned),
                    _ => None,
                };
                match parts.iter().map(text).collect::<Option<String>>() {
                    Some(text) => text.into(),
                    None => parts.clone().into(),
                }
            }
        }
    }
}

/// Parses the arguments of each call; those that are not JSON stay the text that the model wrote.
fn parse_arguments(calls: &mut Json) {
    for call in calls.as_array_mut().into_iter().flatten() {
        for pointer in ["/function/arguments", "/arguments"] {
            let Some(arguments) = call.pointer_mut(pointer) else { continue };
            let parsed = arguments.as_str().and_then(|text| serde_json::from_str(text).ok());
            if let Some(parsed @ Json::Object(_)) = parsed {
                *arguments = parsed;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn messages_are_brought_to_the_form_that_templates_read() {
        let call = |arguments: Json| json!([{"type": "function", "function": {"name": "f", "arguments": arguments}}]);
        for (message, expected) in [
            (json!({"role": "user", "content": "hi"}), json!({"role": "user", "content": "hi"})),
            (json!({"role": "developer", "content": "x"}), json!({"role": "system", "content": "x"})),
            (
                json!({"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}),
                json!({"role": "user", "content": "ab"}),
            ),
            (
                json!({"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image"}]}),
                json!({"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image"}]}),
            ),
            (
                json!({"role": "assistant", "tool_calls": call(json!("{\"b\": 1, \"a\": [2]}"))}),
                json!({"role": "assistant", "content": null, "tool_calls": call(json!({"b": 1, "a": [2]}))}),
            ),
            (
                json!({"role": "assistant", "tool_calls": call(json!("not json"))}),
                json!({"role": "assistant", "content": null, "tool_calls": call(json!("not json"))}),
            ),
        ] {
            let message: Message = serde_json::from_value(message).unwrap();
            assert_eq!(message.for_template(), expected);
        }
    }
}
