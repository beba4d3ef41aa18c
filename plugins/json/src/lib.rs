//! The answer is a JSON value of a schema. The host compiles it and says by name what of it cannot be enforced.
//!
//! Params: `schema`, a JSON schema; `whitespace`, what may stand between the parts of the value: `none` or `free`.

use plugin_sdk::sampling::{Constraint, Needs, SamplingPolicy, Step, Traits, Vocabulary, Whitespace};
use plugin_sdk::{Config, Error, register_sampling_policy};

struct Json {
    constraint: Constraint,
}

register_sampling_policy!(Json);

impl SamplingPolicy for Json {
    fn describe() -> Traits {
        Traits {
            needs: Needs::MaskOnly,
            argmax_invariant: false,
            supports_rollback: true,
            supports_fork: true,
        }
    }

    fn open(params: &Config, _: &Vocabulary) -> Result<Self, Error> {
        params.refuse_unknown(&["schema", "whitespace"])?;
        let whitespace = match params.str("whitespace")?.as_str() {
            "none" => Whitespace::None,
            "free" => Whitespace::Free,
            _ => return Err(params.invalid("whitespace", "none or free")),
        };
        Ok(Json { constraint: Constraint::json_schema(&params.json("schema")?, whitespace)? })
    }

    fn step(&mut self, step: &Step) -> Result<(), Error> {
        step.constrain(&self.constraint)
    }

    /// The host takes the constraint back with the text.
    fn rollback(&mut self, _: u32) -> Result<(), Error> {
        Ok(())
    }

    fn fork(&self) -> Result<Self, Error> {
        Ok(Json { constraint: self.constraint.fork()? })
    }
}
