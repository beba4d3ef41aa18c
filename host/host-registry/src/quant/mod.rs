//! Quantisation rules: TOML data that says which scheme each tensor of a checkpoint gets.
//!
//! ```toml
//! schema = 1
//! id = "uniform-4bit"
//! about = "One line for people"
//!
//! [[rule]]                                    # the first rule that matches decides
//! match = "model.layers.*.mlp.*_proj.weight"  # `*` stands for any characters, `?` for one
//! role = ["mlp-gate", "mlp-up"]               # optional: one role or a list
//! layers = "0..4"                             # optional: 0 to 3; `4..` and `..4` too
//! scheme = { bits = 4, group_size = 64 }      # or "keep", "mxfp4", "mxfp8", "nvfp4"
//! ```
//!
//! Nothing is decided where the rules are silent: a tensor that no rule matches is an error, and so is a rule
//! that matches nothing.

mod fault;
mod glob;
mod rules;
mod set;
mod values;

#[cfg(test)]
mod tests;

pub use fault::RulesFault;
pub use rules::{Measured, QuantRule, QuantRules, rules_text};
pub use set::QuantSet;
pub use values::{LayerRange, Roles, SchemeText};
