//! `tenon generate`: one prompt, one answer.

use std::io::{self, IsTerminal};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use host_core::FinishReason;
use host_engine::{CancelFlag, Request, TokenLogprobs};
use host_registry::{Composition, RequestFeatures};
use host_service::{Opened, text_facts};
use host_text::Tokenizer;
use serde_json::{Value, json};

use super::{Printer, print_json};
use crate::answer::{Answer, answer};
use crate::args::{FolderArgs, GenerateArgs};
use crate::constraint;
use crate::draw::Style;
use crate::error::Failure;
use crate::exit::Exit;
use crate::interrupt::Interrupt;
use crate::open::{load_host, open};
use crate::prompt::{Prompt, chat_ids, conversation, raw_ids};
use crate::recording;
use crate::sampling::{self, RequestSampling};

pub(crate) fn run(folders: &FolderArgs, args: &GenerateArgs, started: Instant) -> Result<Exit, Failure> {
    let interrupt = Interrupt::watch()?;
    let prompt = Prompt::of(args)?;
    let host = load_host(folders)?;
    let opened_model = open(&host, &args.model, &args.compose)?;
    let opened = started.elapsed();
    let Opened { composition, tokenizer, engine, .. } = &opened_model;
    let n_vocab = engine.executable().n_vocab();
    composition.check_request(&features(args, &prompt, composition), &text_facts(tokenizer, n_vocab))?;
    let prompt_ids = prompt_ids(&prompt, args, composition, tokenizer)?;
    let chosen_by = sampling::of_request(&args.sampling, composition.sampling(), tokenizer)?;
    let grammar = constraint::grammar(args, tokenizer, n_vocab, host.machine().token_tables())?;
    // A request that is refused before this leaves no record.
    let (recorder, policy) = match &args.record_policy {
        Some(path) => {
            let (recorder, policy) = recording::record(&opened_model, path)?;
            (Some(recorder), Some(policy))
        }
        None => (None, opened_model.open_policy()?),
    };
    let Opened { composition, tokenizer, mut engine, .. } = opened_model;
    let cancel = CancelFlag::new();
    let request = Request {
        constraint: grammar,
        stop_token_ids: tokenizer.stop_ids().to_vec(),
        ignore_eos: args.ignore_eos,
        logprobs: args.logprobs,
        policy,
        cancel: cancel.clone(),
        ..Request::new(
            prompt_ids.clone(),
            sampling::max_tokens(&args.sampling, &composition),
            chosen_by.chain.clone(),
        )
    };
    let stop = sampling::stop_texts(&args.sampling, &composition);
    let mut printer = Printer::default();
    let mut sink = |piece: &str| if args.json { ControlFlow::Continue(()) } else { printer.say(piece) };
    let guard = interrupt.guard(&cancel);
    let answered = answer(&mut engine, &tokenizer, request, &stop, &mut sink);
    drop(guard);
    // A run that failed is the one to look at.
    recorder.map(recording::finish).transpose()?;
    let answer = answered?;
    let reader_is_gone = printer.is_gone();
    if args.json {
        let mut object = as_object(&answer, &prompt_ids, &composition, &chosen_by, &tokenizer, opened);
        object["plan_runs"] = json!(engine.executable().plan_runs());
        print_json(&object)?;
    } else {
        printer.finish()?;
        show_speed(&answer);
    }
    let is_interrupted = answer.finish_reason == FinishReason::Cancelled && !reader_is_gone;
    Ok(if is_interrupted { Exit::Interrupted } else { Exit::Done })
}

/// What the flags ask for, to be matched against what is composed.
fn features(args: &GenerateArgs, prompt: &Prompt, composition: &Composition) -> RequestFeatures {
    RequestFeatures {
        constraint: args.json_schema.is_some() || args.regex.is_some() || args.grammar.is_some(),
        logprobs: args.logprobs,
        seed: args.sampling.seed.is_some(),
        chat: matches!(prompt, Prompt::Text(_)) && is_chat(args, composition),
        ..RequestFeatures::default()
    }
}

/// Whether a text goes through the chat template. A system message only means something to one.
fn is_chat(args: &GenerateArgs, composition: &Composition) -> bool {
    !args.raw && (composition.serve().chat || args.system.is_some())
}

/// The ids of the prompt: as given, as it is, or through the chat template.
fn prompt_ids(
    prompt: &Prompt,
    args: &GenerateArgs,
    composition: &Composition,
    tokenizer: &Tokenizer,
) -> Result<Vec<u32>, Failure> {
    let text = match prompt {
        Prompt::Ids(ids) => return Ok(ids.clone()),
        Prompt::Text(text) => text,
    };
    let serve = composition.serve();
    if !is_chat(args, composition) {
        return Ok(raw_ids(tokenizer, text)?);
    }
    let system = args.system.as_deref().or(serve.system.as_deref());
    Ok(chat_ids(tokenizer, &conversation(system, Some(text)))?)
}

fn as_object(
    answer: &Answer,
    prompt_ids: &[u32],
    composition: &Composition,
    chosen_by: &RequestSampling,
    tokenizer: &Tokenizer,
    opened: Duration,
) -> Value {
    let mut object = json!({
        "prompt_ids": prompt_ids,
        "token_ids": answer.token_ids,
        "text": answer.text,
        "finish_reason": answer.finish_reason,
        "profile": composition.profile_id(),
        "composition": composition.hash().to_string(),
        "sampling": chosen_by.object(),
        "timings_ms": {
            "open": milliseconds(opened),
            "prefill": milliseconds(answer.prefill),
            "decode": milliseconds(answer.decode),
        },
        "tokens_per_second": answer.tokens_per_second().map(|speed| rounded(speed, 2)),
    });
    if !composition.refused().is_empty() {
        object["refused_profiles"] = json!(composition.refused());
    }
    if !answer.logprobs.is_empty() {
        let positions = answer.token_ids.iter().zip(&answer.logprobs);
        object["logprobs"] =
            positions.map(|(token_id, logprobs)| position(*token_id, logprobs, tokenizer)).collect();
    }
    object
}

fn position(token_id: u32, logprobs: &TokenLogprobs, tokenizer: &Tokenizer) -> Value {
    let entry = |id: u32, logprob: f32| json!({ "token_id": id, "text": tokenizer.decode(&[id], false), "logprob": logprob });
    let mut position = entry(token_id, logprobs.logprob);
    position["top"] = logprobs.top.iter().map(|(id, logprob)| entry(*id, *logprob)).collect();
    position
}

pub(crate) fn milliseconds(duration: Duration) -> f64 {
    rounded(duration.as_secs_f64() * 1e3, 3)
}

pub(crate) fn rounded(value: f64, n_digits: i32) -> f64 {
    let scale = 10_f64.powi(n_digits);
    (value * scale).round() / scale
}

/// One dim line for a person; a program uses `--json`.
fn show_speed(answer: &Answer) {
    if !io::stderr().is_terminal() || !io::stdout().is_terminal() {
        return;
    }
    let n_tokens = answer.token_ids.len();
    let speed = answer.tokens_per_second().map_or(String::new(), |speed| format!(", {speed:.0} tokens/s"));
    let first = milliseconds(answer.prefill);
    eprintln!("{}", Style::for_stderr().dim(&format!("{n_tokens} tokens{speed}, first after {first:.0} ms")));
}
