//! One engine, all measurements of a round.

use std::process::Command;

use serde_json::Value;

use super::Workload;
use super::peer::Peer;
use super::run::quietly;
use crate::workspace::{self, Failure, Outcome, Workspace};

/// What one engine did in one round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Measures {
    pub(super) prefill_tokens_per_second: f64,
    pub(super) decode_tokens_per_second: f64,
    /// All sequences together.
    pub(super) batch_tokens_per_second: f64,
    /// From the start of the process to its end, with a short prompt and one new token.
    pub(super) first_token_ms: f64,
    /// Of the single-sequence run; 0 where the system does not tell.
    pub(super) peak_memory_mib: f64,
}

pub(super) fn tenon(
    workspace: &Workspace,
    workload: &Workload,
    is_disturbed: &mut bool,
) -> Outcome<Measures> {
    let threads = workload.threads.to_string();
    let command = |subcommand: &str| {
        let mut command = Command::new(workspace.tenon());
        command.arg(subcommand).arg("--model").arg(&workload.model).arg("--json");
        command.args(["--threads", &threads, "--numeric", &workload.numeric]);
        command
    };
    let bench = |prompt: u32, context: u32, new: u32, sequences: u32| {
        let mut command = command("bench");
        let numbers = [("--prompt-tokens", prompt), ("--context", context), ("--new-tokens", new)];
        command.args(numbers.iter().flat_map(|(flag, n)| [flag.to_string(), n.to_string()]));
        command.args(["--sequences", &sequences.to_string(), "--repeat", "1"]);
        command
    };
    let mut single = bench(Workload::PROMPT_TOKENS, 1, Workload::NEW_TOKENS, 1);
    let single = quietly(&mut single, is_disturbed)?;
    let each = Workload::BATCH_TOKENS;
    let batch = quietly(&mut bench(each, each, each, Workload::SEQUENCES), is_disturbed)?;
    let mut first = command("generate");
    let ids: Vec<String> = (0..Workload::SHORT_PROMPT_TOKENS).map(|i| (100 + i).to_string()).collect();
    first.args(["--max-tokens", "1", "--temperature", "0", "--ignore-eos", "--prompt-ids", &ids.join(",")]);
    let first = quietly(&mut first, is_disturbed)?;
    let (alone, together) = (workspace::json(&single.stdout)?, workspace::json(&batch.stdout)?);
    const DECODE: &str = "/measured/decode/0/tokens_per_second/median";
    Ok(Measures {
        prefill_tokens_per_second: number(&alone, "/measured/prefill_tokens_per_second/median")?,
        decode_tokens_per_second: number(&alone, DECODE)?,
        batch_tokens_per_second: number(&together, DECODE)?,
        first_token_ms: first.wall.as_secs_f64() * 1e3,
        peak_memory_mib: mib(single.peak_memory_bytes),
    })
}

pub(super) fn peer(peer: &Peer, workload: &Workload, is_disturbed: &mut bool) -> Outcome<Measures> {
    let threads = workload.threads.to_string();
    let mut single = Command::new(&peer.bench);
    single.arg("-m").arg(&workload.model).args(["-r", "1", "-o", "json", "-t", &threads]);
    single.args(["-p", &Workload::PROMPT_TOKENS.to_string(), "-n", &Workload::NEW_TOKENS.to_string()]);
    let single = quietly(&mut single, is_disturbed)?;
    let batched = |prompt: u32, new: u32, sequences: u32| {
        let mut command = Command::new(&peer.batched_bench);
        command.arg("-m").arg(&workload.model).args(["-c", "8192", "-b", "2048", "-ub", "512"]);
        command.args(["-t", &threads, "-tb", &threads, "--output-format", "jsonl"]);
        command.args(["-npp", &prompt.to_string(), "-ntg", &new.to_string(), "-npl", &sequences.to_string()]);
        command
    };
    let mut batch = batched(Workload::BATCH_TOKENS, Workload::BATCH_TOKENS, Workload::SEQUENCES);
    let batch = quietly(&mut batch, is_disturbed)?;
    let first = quietly(&mut batched(Workload::SHORT_PROMPT_TOKENS, 1, 1), is_disturbed)?;
    let tests = workspace::json(&single.stdout)?;
    Ok(Measures {
        prefill_tokens_per_second: llama_bench_speed(&tests, "n_prompt")?,
        decode_tokens_per_second: llama_bench_speed(&tests, "n_gen")?,
        batch_tokens_per_second: batched_bench_speed(&batch.stdout)?,
        first_token_ms: first.wall.as_secs_f64() * 1e3,
        peak_memory_mib: mib(single.peak_memory_bytes),
    })
}

/// llama-bench lists one object a test; the test of `kind` alone has it above 0.
fn llama_bench_speed(tests: &Value, kind: &str) -> Outcome<f64> {
    let test = tests
        .as_array()
        .into_iter()
        .flatten()
        .find(|test| test[kind].as_u64().is_some_and(|count| count > 0));
    number(test.ok_or_else(|| Failure::new(format!("llama-bench told no test with {kind}")))?, "/avg_ts")
}

/// llama-batched-bench prints one line of JSON a test, among others.
fn batched_bench_speed(stdout: &str) -> Outcome<f64> {
    let line = stdout.lines().rev().find(|line| line.starts_with('{'));
    number(&workspace::json(line.unwrap_or("{}"))?, "/speed_tg")
}

/// The number above 0 at a JSON pointer.
fn number(value: &Value, pointer: &str) -> Outcome<f64> {
    let found =
        value.pointer(pointer).and_then(Value::as_f64).filter(|number| number.is_finite() && *number > 0.0);
    found.ok_or_else(|| Failure::new(format!("a measurement has no number above 0 at `{pointer}`: {value}")))
}

fn mib(bytes: Option<u64>) -> f64 {
    bytes.unwrap_or(0) as f64 / (1 << 20) as f64
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_peers_words_are_understood() {
        let tests = json!([
            { "n_prompt": 512, "n_gen": 0, "avg_ts": 300.5 },
            { "n_prompt": 0, "n_gen": 128, "avg_ts": 118.0 },
        ]);
        assert_eq!(llama_bench_speed(&tests, "n_prompt").unwrap(), 300.5);
        assert_eq!(llama_bench_speed(&tests, "n_gen").unwrap(), 118.0);
        assert!(llama_bench_speed(&json!([]), "n_gen").is_err());
        let lines = "main: warming up\n{\"pl\": 8, \"speed_tg\": 238.5, \"speed\": 1.0}\n";
        assert_eq!(batched_bench_speed(lines).unwrap(), 238.5);
        assert!(batched_bench_speed("nothing").is_err());
        assert!(batched_bench_speed("{\"speed_tg\": 0}").is_err());
    }
}
