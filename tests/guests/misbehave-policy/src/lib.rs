//! A policy that misbehaves in the way that the param `do` names; `misbehave.lua` is its twin.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};

use plugin_sdk::sampling::{self, Needs, Run, Sampler, SamplingPolicy, Step, Traits, Vocabulary};
use plugin_sdk::sampling_bindings::exports::tenon::plugin::policy;
use plugin_sdk::sampling_bindings::tenon::plugin::sampling as raw;
use plugin_sdk::{Config, Error, register_sampling_policy};

/// What `describe` does. It is asked before any param is known, so the suite writes another deed over these bytes.
static DESCRIBE: [u8; 32] = *b"describe: nothing               ";

/// Set by the first request; each has a guest of its own, so no other request ever sees it.
static LEFT_BEHIND: AtomicBool = AtomicBool::new(false);

struct Misbehave {
    deed: String,
    n_vocab: u32,
    n_steps: u32,
}

register_sampling_policy!(Misbehave);

impl SamplingPolicy for Misbehave {
    fn describe() -> Traits {
        let deed = black_box(&DESCRIBE);
        let deed = std::str::from_utf8(deed).expect("the suite writes text").trim_end();
        let needs = match deed {
            "describe: loop" => spin(),
            "describe: panic" => panic!("I am not well"),
            "describe: full logits" => Needs::FullLogits,
            // Only a model's vocabulary has tokens; who merely asks gets another answer than the request.
            "describe: change" if sampling::token_bytes(0).is_some() => Needs::FullLogits,
            _ => Needs::TopK(4),
        };
        Traits { needs, argmax_invariant: false, supports_rollback: true, supports_fork: true }
    }

    fn open(params: &Config, vocabulary: &Vocabulary) -> Result<Self, Error> {
        let deed = params.str("do")?;
        match deed.as_str() {
            "loop in open" => spin(),
            "panic in open" => panic!("I am not well"),
            "handle leak" => loop {
                std::mem::forget(policy::Instance::new(Leak));
            },
            "leave behind" if LEFT_BEHIND.swap(true, Ordering::Relaxed) => panic!("I was here before"),
            "invalid" => Err(params.invalid("do", "something else")),
            "unsupported" => Err(params.unsupported("do", "something else")),
            _ => Ok(Misbehave { deed, n_vocab: vocabulary.n_vocab, n_steps: 0 }),
        }
    }

    fn step(&mut self, step: &Step) -> Result<(), Error> {
        self.n_steps += 1;
        match self.deed.as_str() {
            "nothing" | "leave behind" => Ok(()),
            "loop in rollback" | "loop in fork" | "loop in drop" | "claimed fork" => Ok(()),
            "loop" => spin(),
            "loop late" if self.n_steps == 3 => spin(),
            "loop late" => Ok(()),
            "exponential" => Err(Error::Internal(fibonacci(90).to_string())),
            "long native call" => loop {
                black_box(vec![black_box(1_u8); 1 << 20]).copy_within(1.., 0);
            },
            "bad order" => {
                black_box((0..100_000).collect::<Vec<u32>>())
                    .sort_by(|_, _| black_box(std::cmp::Ordering::Less));
                Ok(())
            }
            "refused for ever" => loop {
                let _ = step.get(&[0]);
            },
            "bomb" => bomb(),
            "one large block" => Err(Error::Internal(black_box(vec![1_u8; 1 << 30]).len().to_string())),
            "doubling" => {
                let mut text = "x".to_owned();
                loop {
                    text = black_box(text.clone() + &text);
                }
            }
            "recurse" => Err(Error::Internal(recurse(1).to_string())),
            "panic" => panic!("I am not well"),
            "log flood" => loop {
                sampling::log("all work and no play");
            },
            "error" => Err(Error::Internal("I changed my mind".to_owned())),
            "unknown token" => step.bias(&[self.n_vocab], &[1.0]),
            "unknown forced" => step.force(&[u32::MAX]),
            "unknown run" => step.allow_runs(&[Run { start: 0, end: self.n_vocab + 1 }]),
            "inverted run" => step.allow_runs(&[Run { start: 7, end: 3 }]),
            "odd runs" => {
                let runs = [(9, 12), (3, 3), (2, 10), (0, 1)].map(|(start, end)| Run { start, end });
                step.allow_runs(&runs)
            }
            "infinite" => step.bias(&[0], &[f32::INFINITY]),
            "long force" => step.force(&vec![0; 1 << 14]),
            "finish twice" => {
                step.finish("once")?;
                step.finish("twice")
            }
            "finish and force" => {
                step.finish("enough")?;
                step.force(&[1, 2, 3])
            }
            "forged step" => Err(Error::Internal(forged_step().position().to_string())),
            "oversized list" => step.bias(&vec![0; 1 << 14], &vec![0.0; 1 << 14]),
            "oversized mask" => step.allow_words(&vec![0; 1 << 14]),
            "unequal lists" => step.bias(&[0, 1], &[0.0]),
            "not a number" => step.bias(&[0], &[f32::NAN]),
            "not granted" => step.get(&[0]).map(drop),
            "more than said" => step.top(5).map(drop),
            "out of range" => step.apply(Sampler::TopP(-1.0)),
            "many calls" => loop {
                black_box(step.random_u32());
            },
            "long reason" => step.finish(&"x".repeat(1 << 16)),
            "long text" => sampling::encode(&"x".repeat(1 << 16)).map(drop),
            "nothing left" => step.allow_runs(&[]),
            "swallow" => {
                let _ = step.get(&[0]);
                Ok(())
            }
            _ => Err(Error::Internal(format!("there is no deed `{}`", self.deed))),
        }
    }

    fn rollback(&mut self, _: u32) -> Result<(), Error> {
        if self.deed == "loop in rollback" { spin() } else { Ok(()) }
    }

    fn fork(&self) -> Result<Self, Error> {
        match self.deed.as_str() {
            "loop in fork" => spin(),
            "claimed fork" => return Err(Error::Internal("I cannot fork after all".to_owned())),
            _ => {}
        }
        Ok(Misbehave { deed: self.deed.clone(), n_vocab: self.n_vocab, n_steps: self.n_steps })
    }
}

impl Drop for Misbehave {
    fn drop(&mut self) {
        if self.deed == "loop in drop" {
            spin();
        }
    }
}

/// An instance that is made and never given to anyone.
struct Leak;

impl policy::GuestInstance for Leak {
    fn open(_: String, _: Vocabulary) -> Result<policy::Instance, policy::PluginError> {
        Ok(policy::Instance::new(Leak))
    }

    fn step(&self, _: &raw::Step) -> Result<(), policy::PluginError> {
        Ok(())
    }

    fn rollback(&self, _: u32) -> Result<(), policy::PluginError> {
        Ok(())
    }

    fn fork(&self) -> Result<policy::Instance, policy::PluginError> {
        Ok(policy::Instance::new(Leak))
    }
}

/// A handle that nobody gave.
#[expect(unsafe_code, reason = "only a guest that breaks the rules makes a handle of a number")]
fn forged_step() -> raw::Step {
    // SAFETY: there is none; the host has to refuse it.
    unsafe { raw::Step::from_handle(77) }
}

/// Two calls a call.
fn fibonacci(n: u64) -> u64 {
    if black_box(n) < 2 { n } else { fibonacci(n - 1) + fibonacci(n - 2) }
}

fn spin() -> ! {
    loop {
        black_box(());
    }
}

fn bomb() -> ! {
    let mut hoard: Vec<Vec<u8>> = Vec::new();
    loop {
        hoard.push(black_box(vec![1; 1 << 20]));
    }
}

/// Small frames: the engine's stack ends before the guest's own.
fn recurse(depth: u64) -> u64 {
    // Never 0, which only the compiler does not know: the stack ends first.
    if black_box(depth) == 0 { 0 } else { recurse(black_box(depth) + 1) + black_box(depth) }
}
