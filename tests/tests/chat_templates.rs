//! Chat templates against Jinja as `transformers` sets it up, over the templates and conversations of
//! `fixtures/chat-templates`.

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use host_text::{ChatInput, ChatTemplate, Message, SpecialTokens, TextError};
use serde::Deserialize;
use serde_json::{Map, Value};

#[derive(Deserialize)]
struct Cases {
    special: Map<String, Value>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    template: String,
    case: String,
    input: Input,
    /// The text, or the words of `raise_exception`, or why rendering failed.
    text: Option<String>,
    raised: Option<String>,
    failed: Option<String>,
}

#[derive(Deserialize)]
struct Input {
    messages: Vec<Message>,
    #[serde(default)]
    tools: Vec<Value>,
    add_generation_prompt: bool,
    #[serde(default)]
    variables: Map<String, Value>,
}

impl Case {
    fn render(&self, source: &str, special: &SpecialTokens) -> Result<String, TextError> {
        ChatTemplate::new(source)?.render(&ChatInput {
            messages: &self.input.messages,
            tools: &self.input.tools,
            add_generation_prompt: self.input.add_generation_prompt,
            special,
            variables: &self.input.variables,
            now: SystemTime::now(),
        })
    }

    fn agrees(&self, found: &Result<String, TextError>) -> bool {
        match found {
            Ok(text) => self.text.as_ref() == Some(text),
            Err(TextError::TemplateRefused { message, .. }) => self.raised.as_ref() == Some(message),
            Err(TextError::TemplateFailed { .. }) => self.failed.is_some(),
            Err(_) => false,
        }
    }
}

#[test]
fn templates_render_as_in_transformers() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/chat-templates");
    let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
    let cases: Cases = serde_json::from_str(&read("cases.json")).unwrap();
    let special = SpecialTokens { named: cases.special, ..SpecialTokens::default() };
    assert!(cases.cases.len() > 60);
    let mut differ = Vec::new();
    for case in &cases.cases {
        let found = case.render(&read(&format!("{}.jinja", case.template)), &special);
        if !case.agrees(&found) {
            let expected = (&case.text, &case.raised, &case.failed);
            differ.push(format!(
                "{} {}\n expected {expected:?}\n found    {found:?}",
                case.template, case.case
            ));
        }
    }
    assert!(differ.is_empty(), "{} of {} differ\n{}", differ.len(), cases.cases.len(), differ.join("\n"));
}
