//! A policy that misbehaves in the way that the param `do` names; `misbehave.lua` is its twin.

use std::hint::black_box;

use plugin_sdk::sampling::{self, Needs, Sampler, SamplingPolicy, Step, Traits, Vocabulary};
use plugin_sdk::{Config, Error, register_sampling_policy};

struct Misbehave {
    deed: String,
    n_vocab: u32,
    n_steps: u32,
}

register_sampling_policy!(Misbehave);

impl SamplingPolicy for Misbehave {
    fn describe() -> Traits {
        Traits {
            needs: Needs::TopK(4),
            argmax_invariant: false,
            supports_rollback: true,
            supports_fork: true,
        }
    }

    fn open(params: &Config, vocabulary: &Vocabulary) -> Result<Self, Error> {
        let deed = params.str("do")?;
        match deed.as_str() {
            "loop in open" => spin(),
            "panic in open" => panic!("I am not well"),
            "invalid" => Err(params.invalid("do", "something else")),
            "unsupported" => Err(params.unsupported("do", "something else")),
            _ => Ok(Misbehave { deed, n_vocab: vocabulary.n_vocab, n_steps: 0 }),
        }
    }

    fn step(&mut self, step: &Step) -> Result<(), Error> {
        self.n_steps += 1;
        match self.deed.as_str() {
            "nothing" => Ok(()),
            "loop" => spin(),
            "loop late" if self.n_steps == 3 => spin(),
            "loop late" => Ok(()),
            "bomb" => bomb(),
            "recurse" => Err(Error::Internal(recurse(1).to_string())),
            "panic" => panic!("I am not well"),
            "log flood" => loop {
                sampling::log("all work and no play");
            },
            "error" => Err(Error::Internal("I changed my mind".to_owned())),
            "unknown token" => step.bias(&[self.n_vocab], &[1.0]),
            "unknown forced" => step.force(&[u32::MAX]),
            "unknown run" => step.allow_runs(&[sampling::Run { start: 0, end: self.n_vocab + 1 }]),
            "oversized list" => step.bias(&vec![0; 1 << 17], &vec![0.0; 1 << 17]),
            "oversized mask" => step.allow_words(&vec![0; 1 << 17]),
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
        Ok(Misbehave { deed: self.deed.clone(), n_vocab: self.n_vocab, n_steps: self.n_steps })
    }
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
