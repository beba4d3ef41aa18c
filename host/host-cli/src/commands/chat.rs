//! `tenon chat`: a conversation on the terminal.
//!
//! The whole conversation is rendered anew for each turn, as the template wants it; the engine's session then
//! computes only what differs from the tokens that its sequence holds.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use host_core::FinishReason;
use host_engine::{CancelFlag, Engine, Request, SessionId};
use host_registry::Composition;
use host_service::{Host, Opened, RequestPolicy};
use host_text::{Message, Tokenizer};
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;

use super::Printer;
use crate::answer::answer;
use crate::args::{ChatArgs, FolderArgs};
use crate::draw::{Style, drawn};
use crate::error::{CliError, Failure};
use crate::exit::Exit;
use crate::interrupt::Interrupt;
use crate::open::{load_host, open};
use crate::prompt::{chat_ids, conversation};
use crate::sampling;

/// Lines of the history file that are kept.
const HISTORY_LINES: usize = 1000;

const HELP: &str = "\
/help          this list
/system TEXT   another system message; the conversation begins anew
/system        without a text: show it
/reset         forget the conversation
/save FILE     write the conversation as JSON
/quit          end (also Ctrl-D)
Ctrl-C ends an answer. A line that ends with \\ goes on in the next.";

pub(crate) fn run(folders: &FolderArgs, args: &ChatArgs) -> Result<Exit, Failure> {
    let interrupt = Interrupt::watch()?;
    let host = load_host(folders)?;
    let Opened { composition, tokenizer, mut engine, policy } = open(&host, &args.model, &args.compose)?;
    // Refused now, not after the first message.
    tokenizer.chat_template()?;
    sampling::of_request(&args.sampling, composition.sampling(), &tokenizer)?;
    if let Some(policy) = &policy {
        policy.open()?;
    }
    let system = args.system.clone().or_else(|| composition.serve().system.clone());
    let session = engine.open_session();
    let history = history_file(&host);
    let mut chat = Chat {
        args,
        composition,
        tokenizer,
        engine,
        policy,
        session,
        interrupt,
        system,
        messages: Vec::new(),
    };
    let mut editor = editor(&history)?;
    let outcome = chat.talk(&mut editor);
    keep_history(&mut editor, &history);
    outcome
}

/// A conversation and what it needs to go on.
struct Chat<'a> {
    args: &'a ChatArgs,
    composition: Composition,
    tokenizer: Arc<Tokenizer>,
    engine: Engine,
    policy: Option<RequestPolicy>,
    session: SessionId,
    interrupt: Interrupt,
    system: Option<String>,
    /// Without the system message.
    messages: Vec<Message>,
}

/// A line of the user.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    Say(String),
    Help,
    Reset,
    System(Option<String>),
    Save(PathBuf),
    Quit,
    Nothing,
    /// What is wrong with it.
    Wrong(String),
}

impl Line {
    /// A line that begins with `/` is a command; `//` begins a message with a slash.
    fn parse(line: &str) -> Line {
        let line = line.trim();
        if line.is_empty() {
            return Line::Nothing;
        }
        let Some(command) = line.strip_prefix('/') else { return Line::Say(line.to_owned()) };
        if command.starts_with('/') {
            return Line::Say(command.to_owned());
        }
        let (word, rest) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
        let rest = (!rest.trim().is_empty()).then(|| rest.trim().to_owned());
        match (word, rest) {
            ("help", None) => Line::Help,
            ("reset", None) => Line::Reset,
            ("quit" | "exit", None) => Line::Quit,
            ("system", text) => Line::System(text),
            ("save", Some(file)) => Line::Save(file.into()),
            ("save", None) => Line::Wrong("/save needs the name of a file".to_owned()),
            ("help" | "reset" | "quit" | "exit", Some(_)) => {
                Line::Wrong(format!("/{word} takes nothing after it"))
            }
            _ => Line::Wrong(format!("there is no command /{word}; /help lists them")),
        }
    }
}

impl Chat<'_> {
    fn talk(&mut self, editor: &mut DefaultEditor) -> Result<Exit, Failure> {
        loop {
            let line = match read(editor) {
                Ok(line) => line,
                Err(ReadlineError::Interrupted) => continue,
                Err(ReadlineError::Eof) => return Ok(Exit::Done),
                Err(source) => return Err(CliError::Terminal { source }.into()),
            };
            match Line::parse(&line) {
                Line::Nothing => {}
                Line::Quit => return Ok(Exit::Done),
                Line::Help => eprintln!("{HELP}"),
                Line::Reset => self.messages.clear(),
                Line::System(None) => {
                    eprintln!("{}", self.system.as_deref().unwrap_or("there is no system message"))
                }
                Line::System(text) => {
                    self.system = text;
                    self.messages.clear();
                }
                Line::Save(file) => match self.save(&file) {
                    Ok(()) => eprintln!("{} messages in {}", self.messages.len(), file.display()),
                    Err(failure) => show(&failure),
                },
                Line::Wrong(why) => eprintln!("{why}"),
                Line::Say(text) => {
                    if !self.reply(text)? {
                        return Ok(Exit::Done);
                    }
                }
            }
        }
    }

    /// Answers one message; whether anybody still reads. What is wrong with the message ends the turn only.
    fn reply(&mut self, text: String) -> Result<bool, Failure> {
        self.messages.push(Message::new("user", text));
        let mut printer = Printer::default();
        match self.answer(&mut printer) {
            Ok(text) => {
                let goes_on = !printer.is_gone();
                printer.finish()?;
                self.messages.push(Message::new("assistant", text));
                Ok(goes_on)
            }
            Err(failure) => {
                self.messages.pop();
                show(&failure);
                Ok(true)
            }
        }
    }

    fn answer(&mut self, printer: &mut Printer) -> Result<String, Failure> {
        let sampling_args = &self.args.sampling;
        let prompt_ids = chat_ids(&self.tokenizer, &self.conversation())?;
        let cancel = CancelFlag::new();
        let request = Request {
            stop_token_ids: self.tokenizer.stop_ids().to_vec(),
            session: Some(self.session),
            policy: self.policy.as_ref().map(RequestPolicy::open).transpose()?,
            cancel: cancel.clone(),
            ..Request::new(
                prompt_ids,
                sampling::max_tokens(sampling_args, &self.composition),
                sampling::of_request(sampling_args, self.composition.sampling(), &self.tokenizer)?.chain,
            )
        };
        let stop = sampling::stop_texts(sampling_args, &self.composition);
        let guard = self.interrupt.guard(&cancel);
        let answer =
            answer(&mut self.engine, &self.tokenizer, request, &stop, &mut |piece| printer.say(piece))?;
        drop(guard);
        if answer.finish_reason == FinishReason::Length {
            eprint!("{}", Style::for_stderr().dim(" [cut: --max-tokens or the context's end]"));
        }
        Ok(answer.text)
    }

    fn conversation(&self) -> Vec<Message> {
        let mut messages = conversation(self.system.as_deref(), None);
        messages.extend(self.messages.iter().cloned());
        messages
    }

    fn save(&self, file: &Path) -> Result<(), Failure> {
        let text = format!("{:#}\n", serde_json::json!(self.conversation()));
        Ok(std::fs::write(file, text).map_err(CliError::file("written", file))?)
    }
}

fn show(failure: &Failure) {
    for report in failure.reports() {
        eprint!("{}", drawn(report, Style::for_stderr()));
    }
}

/// Reads a message; a backslash at a line's end joins the next line.
fn read(editor: &mut DefaultEditor) -> Result<String, ReadlineError> {
    let mut whole = editor.readline("> ")?;
    while whole.ends_with('\\') {
        whole.pop();
        whole.push('\n');
        whole += &editor.readline(". ")?;
    }
    if !whole.trim().is_empty() {
        // Fails only for a history without room, which is none.
        let _ = editor.add_history_entry(whole.as_str());
    }
    Ok(whole)
}

fn editor(history: &Path) -> Result<DefaultEditor, CliError> {
    let config = rustyline::Config::builder()
        .max_history_size(HISTORY_LINES)
        .map_err(|source| CliError::Terminal { source })?
        .history_ignore_space(true)
        .build();
    let mut editor = DefaultEditor::with_config(config).map_err(|source| CliError::Terminal { source })?;
    if history.exists() {
        // An unreadable history is no reason not to talk.
        let _ = editor.load_history(history);
    }
    Ok(editor)
}

fn history_file(host: &Host) -> PathBuf {
    host.machine().cache().join("chat-history")
}

fn keep_history(editor: &mut DefaultEditor, history: &Path) {
    let made = history.parent().is_some_and(|folder| std::fs::create_dir_all(folder).is_ok());
    if made && let Err(error) = editor.save_history(history) {
        eprintln!("the history is not kept: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_messages_or_commands() {
        let cases = [
            ("", Line::Nothing),
            ("   ", Line::Nothing),
            ("hello there ", Line::Say("hello there".to_owned())),
            ("//etc is a path", Line::Say("/etc is a path".to_owned())),
            ("/help", Line::Help),
            ("/reset", Line::Reset),
            ("/quit", Line::Quit),
            ("/system", Line::System(None)),
            ("/system  Be brief. ", Line::System(Some("Be brief.".to_owned()))),
            ("/save talk.json", Line::Save("talk.json".into())),
        ];
        for (line, expected) in cases {
            assert_eq!(Line::parse(line), expected, "{line:?}");
        }
        for line in ["/save", "/rest", "/quit now", "/"] {
            assert!(matches!(Line::parse(line), Line::Wrong(_)), "{line:?}");
        }
    }
}
