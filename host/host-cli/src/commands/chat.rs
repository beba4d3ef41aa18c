//! `tenon chat`: a conversation on the terminal.
//!
//! The whole conversation is rendered anew for each turn, as the template wants it; the engine's session then
//! computes only what differs from the tokens that its sequence holds.
//!
//! Each answer is admitted by a service over the folders: what an operator changes is live for the next answer, while
//! the one that is being given ends as it began.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use host_core::FinishReason;
use host_engine::{CancelFlag, Request, SessionId};
use host_registry::RequestFeatures;
use host_service::reload::{ColdStart, Event, LoadedModel, Scope, Served, Service, Watching};
use host_service::{ModelName, OpenError, text_facts};
use host_text::Message;
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;

use super::Printer;
use crate::answer::gather;
use crate::args::{ChatArgs, FolderArgs};
use crate::draw::{Style, drawn};
use crate::error::{CliError, Failure};
use crate::exit::Exit;
use crate::interrupt::Interrupt;
use crate::prompt::{chat_ids, conversation};
use crate::sampling;
use crate::service::{Asked, MODEL, told};

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
    if args.model.name() == ModelName::default() {
        return Err(OpenError::NoModel.into());
    }
    let (scope, cold_start) = (Scope::Served, ColdStart::Folders);
    let asked = Asked { folders, model: &args.model, compose: &args.compose, scope, cold_start };
    let news = News::default();
    let heard = news.clone();
    let service = asked.start(move |event| heard.hear(event))?;
    // Refused now, not after the first message.
    let pin = service.admit();
    let served = pin.model(MODEL)?;
    check(args, served)?;
    served.model().tokenizer().chat_template()?;
    sampling::of_request(&args.sampling, served.composition().sampling(), served.model().tokenizer())?;
    drop(pin);
    let _watching = Watching::start(Arc::clone(&service))?;
    let history = history_file(&service);
    let system = args.system.clone();
    let mut chat = Chat { args, service, news, session: None, interrupt, system, messages: Vec::new() };
    let mut editor = editor(&history)?;
    let outcome = chat.talk(&mut editor);
    keep_history(&mut editor, &history);
    outcome
}

/// Whether what is composed offers what a conversation asks for.
fn check(args: &ChatArgs, served: &Served) -> Result<(), Failure> {
    let asked =
        RequestFeatures { chat: true, seed: args.sampling.seed.is_some(), ..RequestFeatures::default() };
    let model = served.model();
    Ok(served.composition().check_request(&asked, &text_facts(model.tokenizer(), model.n_vocab()))?)
}

/// A conversation and what it needs to go on.
struct Chat<'a> {
    args: &'a ChatArgs,
    service: Arc<Service>,
    news: News,
    session: Option<Session>,
    interrupt: Interrupt,
    /// The user's; none leaves it to the profile.
    system: Option<String>,
    /// Without the system message.
    messages: Vec<Message>,
}

/// What a model in memory has computed of the conversation.
struct Session {
    model: Arc<LoadedModel>,
    id: SessionId,
}

/// What the service told since somebody looked; a line that is being typed is left alone.
#[derive(Clone, Default)]
struct News(Arc<Mutex<String>>);

impl News {
    fn hear(&self, event: &Event) {
        if matches!(event, Event::Started { .. } | Event::Drained { .. }) {
            return;
        }
        let text = told(event, Style::for_stderr());
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push_str(&text);
    }

    fn show(&self) {
        let text = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        eprint!("{text}");
    }
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
                    let system = self.system_of(self.service.admit().model(MODEL)?);
                    eprintln!("{}", system.as_deref().unwrap_or("there is no system message"))
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
        self.news.show();
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
        let pin = self.service.admit();
        let served = pin.model(MODEL)?;
        let (composition, tokenizer) = (served.composition(), served.model().tokenizer());
        check(self.args, served)?;
        let sampling_args = &self.args.sampling;
        let prompt_ids = chat_ids(tokenizer, &self.conversation(served))?;
        let cancel = CancelFlag::new();
        let request = Request {
            stop_token_ids: tokenizer.stop_ids().to_vec(),
            session: Some(self.session_in(served.model())?),
            policy: pin.open_policy(MODEL)?,
            cancel: cancel.clone(),
            ..Request::new(
                prompt_ids,
                sampling::max_tokens(sampling_args, composition),
                sampling::of_request(sampling_args, composition.sampling(), tokenizer)?.chain,
            )
        };
        let stop = sampling::stop_texts(sampling_args, composition);
        let guard = self.interrupt.guard(&cancel);
        let (outcomes, started) = (pin.submit(MODEL, request)?, Instant::now());
        let answer = gather(outcomes, started, &cancel, tokenizer, &stop, &mut |piece| printer.say(piece))?;
        drop(guard);
        if answer.finish_reason == FinishReason::Length {
            eprint!("{}", Style::for_stderr().dim(" [cut: --max-tokens or the context's end]"));
        }
        Ok(answer.text)
    }

    /// The conversation's session in a model; another model begins with nothing computed.
    fn session_in(&mut self, model: &Arc<LoadedModel>) -> Result<SessionId, Failure> {
        if let Some(session) = self.session.as_ref().filter(|session| Arc::ptr_eq(&session.model, model)) {
            return Ok(session.id);
        }
        let id = model.driver().open_session()?;
        if let Some(before) = self.session.replace(Session { model: Arc::clone(model), id }) {
            before.model.driver().close_session(before.id)?;
        }
        Ok(id)
    }

    fn system_of(&self, served: &Served) -> Option<String> {
        self.system.clone().or_else(|| served.composition().serve().system.clone())
    }

    fn conversation(&self, served: &Served) -> Vec<Message> {
        let mut messages = conversation(self.system_of(served).as_deref(), None);
        messages.extend(self.messages.iter().cloned());
        messages
    }

    fn save(&self, file: &Path) -> Result<(), Failure> {
        let pin = self.service.admit();
        let text = format!("{:#}\n", serde_json::json!(self.conversation(pin.model(MODEL)?)));
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

fn history_file(service: &Service) -> PathBuf {
    service.machine().cache().join("chat-history")
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
