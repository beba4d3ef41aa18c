//! The options of builder calls, the words that they know, and what inspection gives.

use host_graph::{Activation, Dim, Mask, SlotId, Value, ValueType};
use mlua::{Lua, Result};

use crate::args::{Plain, as_text, as_whole, words};
use crate::luau::{given, spelled};
use crate::options::options;

options! {
    KvSlot { heads: usize, dim_k: usize, dim_v: usize, window: Option<usize>, }
    ConvSlot { channels: usize, kernel: usize, }
    IndexKeysSlot { dim: usize, }
    Bias { bias: Option<String>, }
    Offset { offset: Option<f32>, }
    AttentionOptions as "AttentionOptions" {
        slot: SlotId,
        scale: f32,
        mask: Option<Mask>,
        softcap: Option<f32>,
        sinks: Option<String>,
        selected: Option<Value>,
    }
    Experts as "Experts" { gate: String, up: String, down: String, activation: Option<Activation>, }
    Conv1dCausal { slot: SlotId, weight: String, bias: Option<String>, }
    OfSlot { slot: SlotId, }
    SparseSelect { slot: SlotId, k: usize, }
}

/// The name of a section; a layer's index comes beside it.
#[derive(Clone, Copy)]
pub(crate) enum SectionWord {
    Embed,
    Layer,
    Head,
}

words! {
    Activation: Activation::ALL.map(|(activation, name)| (name, activation));
}

crate::luau::named_words! {
    SectionWord as "Section": [
        ("embed", SectionWord::Embed),
        ("layer", SectionWord::Layer),
        ("head", SectionWord::Head),
    ];
    ValueType as "Element": [
        ("float", ValueType::Float),
        ("int", ValueType::Int),
        ("bool", ValueType::Bool),
    ];
}

/// What `mask` may be, as [`Mask::read`] reads it.
pub(crate) const MASK: &str =
    r#""causal" | "bidirectional_prefix" | { window: number } | { chunked: number }"#;

spelled! { Mask => "Mask"; }

impl Plain for Mask {
    fn expected() -> String {
        "`causal`, `bidirectional_prefix`, { window = n } or { chunked = n }".to_owned()
    }

    fn read(_: &Lua, found: &mlua::Value) -> Option<Self> {
        let mlua::Value::Table(table) = found else {
            return match as_text(found)?.as_str() {
                "causal" => Some(Mask::Causal),
                "bidirectional_prefix" => Some(Mask::BidirectionalPrefix),
                _ => None,
            };
        };
        let pairs: Vec<(mlua::Value, mlua::Value)> = table.pairs().collect::<Result<_>>().ok()?;
        let [(key, n)] = pairs.as_slice() else { return None };
        match (as_text(key)?.as_str(), as_whole(n)?) {
            ("window", n) => Some(Mask::Window(n)),
            ("chunked", n) => Some(Mask::Chunked(n)),
            _ => None,
        }
    }
}

given! {
    /// A checkpoint tensor.
    Facts as "TensorFacts" { shape: Vec<usize>, is_dense: bool, }
}

/// A dimension: `"B"`, `"T"` or a number.
pub(crate) struct Extent(pub(crate) Dim);

spelled! { Extent => "string | number"; }

impl mlua::IntoLua for Extent {
    fn into_lua(self, lua: &Lua) -> Result<mlua::Value> {
        match self.0 {
            Dim::B => "B".into_lua(lua),
            Dim::T => "T".into_lua(lua),
            Dim::Fixed(n) => Ok(mlua::Value::Number(n as f64)),
        }
    }
}
