//! A plugin that misbehaves in the way that the config's key `do` names; `misbehave.lua` is its twin.

use std::hint::black_box;

use plugin_sdk::{Attention, Builder, Config, Error, ModelGraph, Value, register_model_graph};

struct Misbehave;

register_model_graph!(Misbehave);

impl ModelGraph for Misbehave {
    fn build(config: &Config, g: &mut Builder) -> Result<Value, Error> {
        match config.str("do")?.as_str() {
            "nothing" => honest(g),
            "loop" => loop {
                black_box(());
            },
            "bomb" => bomb(),
            "recurse" => Err(Error::Internal(recurse(1).to_string())),
            "panic" => panic!("I am not well"),
            "log flood" => loop {
                g.log("all work and no play");
            },
            "log once" => {
                g.log("hello");
                honest(g)
            }
            "missing tensor" => g.weight("nowhere"),
            "swallow" => {
                let _ = g.weight("nowhere");
                honest(g)
            }
            "huge name" => g.weight(&"x".repeat(1 << 20)),
            "many nodes" => {
                let mut h = honest(g)?;
                loop {
                    h = g.neg(h)?;
                }
            }
            "many slots" => loop {
                g.kv_slot(0, 1, 1, 1, None)?;
            },
            "large reshape" => {
                let tokens = g.tokens()?;
                g.reshape(tokens, &[1 << 31, 1 << 31, 4])
            }
            "doubling" => {
                let mut h = honest(g)?;
                loop {
                    h = g.concat(&[h, h], 2)?;
                }
            }
            "reused slot" => {
                let h = honest(g)?;
                let heads = g.reshape(h, &[1, 10])?;
                let slot = g.kv_slot(0, 1, 10, 10, None)?;
                let mixed = g.attention(heads, heads, heads, &Attention::new(slot, 1.0))?;
                g.attention(mixed, mixed, mixed, &Attention::new(slot, 1.0))
            }
            "not a number" => g.constant(f64::NAN),
            "beyond float32" => g.constant(1e300),
            "no logits" => g.tokens(),
            "inside a scan" => {
                let slot = g.recurrent_slot(0, &[10])?;
                let h = honest(g)?;
                g.scan(slot, &[h], |_, state, _| Ok((state, h)))
            }
            "error after success" => {
                honest(g)?;
                Err(Error::Internal("I changed my mind".to_owned()))
            }
            "long words" => Err(Error::Internal("blah ".repeat(100_000))),
            "invalid" => Err(config.invalid("do", "something else")),
            "unsupported" => Err(config.unsupported("do", "something else")),
            _ => Err(config.invalid("do", "a known misdeed")),
        }
    }
}

fn honest(g: &mut Builder) -> Result<Value, Error> {
    let tokens = g.tokens()?;
    let h = g.embedding(tokens, "table")?;
    g.linear(h, "table", None)
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
