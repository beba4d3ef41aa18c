//! A policy that forces one token at each step, which its params and its own bytes choose together, and that misbehaves
//! as its bytes say. The suite writes over them, so that one build gives as many components as it needs.

use std::hint::black_box;

use plugin_sdk::sampling::{SamplingPolicy, Step, Vocabulary};
use plugin_sdk::{Config, Error, register_sampling_policy};

/// What it does and what it adds to the token.
static WRITTEN: [u8; 32] = *b"deed: sound       offset: 000   ";

struct Forced {
    token: u32,
    n_steps: u32,
}

register_sampling_policy!(Forced);

/// The deed, and what is added to the token.
fn written() -> (&'static str, u32) {
    let text = std::str::from_utf8(black_box(&WRITTEN)).expect("the suite writes text");
    let (deed, offset) = text.split_once("offset: ").expect("the suite keeps the form");
    let deed = deed.strip_prefix("deed: ").expect("the suite keeps the form");
    (deed.trim(), offset.trim().parse().expect("the suite writes a number"))
}

impl SamplingPolicy for Forced {
    fn open(params: &Config, _: &Vocabulary) -> Result<Self, Error> {
        params.refuse_unknown(&["token"])?;
        let token = u32::try_from(params.usize("token")?).map_err(|_| params.invalid("token", "a token"))?;
        Ok(Forced { token, n_steps: 0 })
    }

    fn step(&mut self, step: &Step) -> Result<(), Error> {
        let (deed, offset) = written();
        self.n_steps += 1;
        match deed {
            "slow" => loop {
                black_box(());
            },
            "traps" => panic!("I am not well"),
            "traps late" if self.n_steps > 3 => panic!("I am not well"),
            _ => step.force(&[self.token + offset]),
        }
    }
}
