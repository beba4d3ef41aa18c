//! The canonical form of a graph, its text and its fingerprint.
//!
//! Canonical order is the depth-first order from the logits, inputs first to last. Nodes that nothing needs
//! fall away, so two plugins that say the same model in another order give the same text.

use std::fmt::{self, Write};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::graph::{Graph, Node, Slot, SlotKind, Value};
use crate::op::{Mask, Op};
use crate::parse::VERSION_LINE;
use crate::rope::{RopeFrequencies, RopeLayout, RopeSpec};

/// SHA-256 of the canonical text.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Fingerprint(String);

impl Fingerprint {
    /// All 64 hexadecimal digits.
    pub fn as_hex(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0[..16])
    }
}

/// Orders nodes and slots canonically and drops what is not needed.
///
/// Slots are numbered by layer, then by the order in which the canonical nodes use them.
pub(crate) fn canonicalise(nodes: Vec<Node>, slots: Vec<Slot>, output: Value, ignored: Vec<String>) -> Graph {
    let order = depth_first(&nodes, output);
    let mut place = vec![u32::MAX; nodes.len()];
    for (new, old) in order.iter().enumerate() {
        place[*old] = new as u32;
    }
    let slot_place = order_slots(&nodes, &order, &slots);
    let mut old_nodes: Vec<Option<Node>> = nodes.into_iter().map(Some).collect();
    let take = |old: &usize| old_nodes[*old].take().expect("depth-first order visits a node once");
    let mut kept: Vec<Node> = order.iter().map(take).collect();
    for node in &mut kept {
        for input in &mut node.inputs {
            input.0 = place[input.0 as usize];
        }
        renumber_slot(&mut node.op, &slot_place);
    }
    let mut new_slots: Vec<(u32, Slot)> = slots
        .into_iter()
        .enumerate()
        .filter(|(old, _)| slot_place[*old] != u32::MAX)
        .map(|(old, slot)| (slot_place[old], slot))
        .collect();
    new_slots.sort_by_key(|(new, _)| *new);
    let mut slots: Vec<Slot> = new_slots.into_iter().map(|(_, slot)| slot).collect();
    for slot in &mut slots {
        if let SlotKind::KvShared { with } = &mut slot.kind {
            with.0 = slot_place[with.0 as usize];
        }
    }
    Graph { nodes: kept, slots, output: Value(place[output.0 as usize]), ignored }
}

fn depth_first(nodes: &[Node], output: Value) -> Vec<usize> {
    let mut order = Vec::with_capacity(nodes.len());
    let mut is_placed = vec![false; nodes.len()];
    // (node, how many of its inputs have been entered)
    let mut stack = vec![(output.0 as usize, 0)];
    while let Some((index, entered)) = stack.pop() {
        if is_placed[index] {
            continue;
        }
        if let Some(input) = nodes[index].inputs.get(entered) {
            stack.push((index, entered + 1));
            stack.push((input.0 as usize, 0));
        } else {
            is_placed[index] = true;
            order.push(index);
        }
    }
    order
}

/// The new number of each slot, `u32::MAX` for one that no needed node uses.
fn order_slots(nodes: &[Node], order: &[usize], slots: &[Slot]) -> Vec<u32> {
    let mut used: Vec<usize> = Vec::new();
    let mut enter = |slot: usize| {
        if !used.contains(&slot) {
            used.push(slot);
        }
    };
    for slot in order.iter().filter_map(|index| nodes[*index].op.slot()) {
        if let SlotKind::KvShared { with } = slots[slot.0 as usize].kind {
            enter(with.0 as usize);
        }
        enter(slot.0 as usize);
    }
    used.sort_by_key(|slot| slots[*slot].layer);
    let mut place = vec![u32::MAX; slots.len()];
    for (new, old) in used.into_iter().enumerate() {
        place[old] = new as u32;
    }
    place
}

fn renumber_slot(op: &mut Op, place: &[u32]) {
    match op {
        Op::Attention { slot, .. }
        | Op::Conv1dCausal { slot, .. }
        | Op::GatedDelta { slot }
        | Op::SsmScan { slot }
        | Op::SparseSelect { slot, .. }
        | Op::Scan { slot, .. } => slot.0 = place[slot.0 as usize],
        _ => {}
    }
}

impl Graph {
    /// The canonical text: slots, then nodes by section, then the output.
    ///
    /// Its form is versioned by the first line; equal graphs give equal texts.
    pub fn text(&self) -> String {
        let mut text = format!("{VERSION_LINE}\n");
        for (i, slot) in self.slots.iter().enumerate() {
            line(&mut text, format_args!("slot {i} layer={} {}", slot.layer, SlotText(&slot.kind)));
        }
        write_nodes(&mut text, &self.nodes, "", true);
        line(&mut text, format_args!("output {}", self.output));
        for name in &self.ignored {
            line(&mut text, format_args!("ignore {name:?}"));
        }
        text
    }

    /// The hash of [`Graph::text`].
    pub fn fingerprint(&self) -> Fingerprint {
        let digest = Sha256::digest(self.text().as_bytes());
        Fingerprint(digest.iter().fold(String::new(), |mut hex, byte| {
            write!(hex, "{byte:02x}").expect("writing to a string cannot fail");
            hex
        }))
    }
}

fn line(text: &mut String, content: fmt::Arguments<'_>) {
    writeln!(text, "{content}").expect("writing to a string cannot fail");
}

fn write_nodes(text: &mut String, nodes: &[Node], indent: &str, with_sections: bool) {
    let mut section = None;
    for (i, node) in nodes.iter().enumerate() {
        if with_sections && section != Some(node.section) {
            section = Some(node.section);
            line(text, format_args!("section {}", node.section));
        }
        let inputs: Vec<_> = node.inputs.iter().map(ToString::to_string).collect();
        let (name, attributes) = (node.op.name(), Attributes(&node.op));
        let (inputs, value_type, shape) = (inputs.join(", "), node.value_type, &node.shape);
        line(text, format_args!("{indent}%{i} = {name}({inputs}){attributes} : {value_type}{shape}"));
        if let Op::Scan { body, .. } = &node.op {
            write_nodes(text, &body.nodes, "  ", false);
            line(text, format_args!("  state {} output {}", body.state, body.output));
        }
    }
}

/// The attributes of an operation as `key=value`, numbers in their shortest exact form.
struct Attributes<'a>(&'a Op);

impl fmt::Display for Attributes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let optional = |f: &mut fmt::Formatter<'_>, key: &str, name: &Option<String>| match name {
            Some(name) => write!(f, " {key}={name:?}"),
            None => Ok(()),
        };
        if let Some(slot) = self.0.slot() {
            write!(f, " slot={}", slot.0)?;
        }
        match self.0 {
            Op::Constant { value } => write!(f, " value={value:?}"),
            Op::Weight { name } => write!(f, " name={name:?}"),
            Op::BodyInput { index } => write!(f, " index={index}"),
            Op::Embedding { weight } => write!(f, " weight={weight:?}"),
            Op::PerLayerEmbedding { weight, n_layers } => write!(f, " weight={weight:?} n_layers={n_layers}"),
            Op::Linear { weight, bias } | Op::Conv1dCausal { weight, bias, .. } => {
                write!(f, " weight={weight:?}")?;
                optional(f, "bias", bias)
            }
            Op::RmsNorm { weight, eps, offset } => {
                optional(f, "weight", weight)?;
                write!(f, " eps={eps:?} offset={offset:?}")
            }
            Op::LayerNorm { weight, bias, eps } => {
                optional(f, "weight", weight)?;
                optional(f, "bias", bias)?;
                write!(f, " eps={eps:?}")
            }
            Op::Rope(spec) => write!(f, "{}", RopeText(spec)),
            Op::Attention { scale, mask, softcap, sinks, .. } => {
                write!(f, " scale={scale:?} mask={}", MaskText(*mask))?;
                if let Some(cap) = softcap {
                    write!(f, " softcap={cap:?}")?;
                }
                optional(f, "sinks", sinks)
            }
            Op::Scale { factor } => write!(f, " factor={factor:?}"),
            Op::Softcap { cap } => write!(f, " cap={cap:?}"),
            Op::Slice { axis, start, stop } => write!(f, " axis={axis} start={start} stop={stop}"),
            Op::Concat { axis } | Op::Cumsum { axis } | Op::Reduce { axis, .. } => write!(f, " axis={axis}"),
            Op::Transpose { axes } => write!(f, " axes={axes:?}"),
            Op::TopK { k } | Op::SparseSelect { k, .. } => write!(f, " k={k}"),
            Op::Moe { gate, up, down, activation } => {
                write!(f, " gate={gate:?} up={up:?} down={down:?} activation={}", activation.name())
            }
            Op::Inject { feature } => write!(f, " feature={feature:?}"),
            Op::Tokens
            | Op::Positions
            | Op::Unary(_)
            | Op::Binary(_)
            | Op::Reshape { .. }
            | Op::Cast { .. }
            | Op::Softmax
            | Op::Gather
            | Op::Scatter
            | Op::GatedDelta { .. }
            | Op::SsmScan { .. }
            | Op::Matmul
            | Op::Where
            | Op::Scan { .. } => Ok(()),
        }
    }
}

struct RopeText<'a>(&'a RopeSpec);

impl fmt::Display for RopeText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spec = self.0;
        let layout = match spec.layout {
            RopeLayout::SplitHalves => "split_halves",
            RopeLayout::Interleaved => "interleaved",
        };
        write!(f, " dims={} theta={:?} layout={layout}", spec.dims, spec.theta)?;
        match &spec.frequencies {
            RopeFrequencies::Default => {}
            RopeFrequencies::Linear { factor } => write!(f, " type=linear factor={factor:?}")?,
            RopeFrequencies::Llama3 {
                factor,
                low_freq_factor,
                high_freq_factor,
                original_max_position_embeddings,
            } => write!(
                f,
                " type=llama3 factor={factor:?} low_freq_factor={low_freq_factor:?} \
                 high_freq_factor={high_freq_factor:?} original={original_max_position_embeddings:?}"
            )?,
            RopeFrequencies::Yarn {
                factor,
                beta_fast,
                beta_slow,
                original_max_position_embeddings,
                truncate,
            } => {
                write!(
                    f,
                    " type=yarn factor={factor:?} beta_fast={beta_fast:?} beta_slow={beta_slow:?} \
                     original={original_max_position_embeddings:?} truncate={truncate}"
                )?;
            }
            RopeFrequencies::LongRope { factors } => write!(f, " type=longrope factors={factors:?}")?,
            RopeFrequencies::Proportional { factor, full_dims } => {
                write!(f, " type=proportional factor={factor:?} full_dims={full_dims}")?;
            }
        }
        if spec.attention_factor != 1.0 {
            write!(f, " attention_factor={:?}", spec.attention_factor)?;
        }
        if !spec.mrope_section.is_empty() {
            write!(f, " mrope_section={:?}", spec.mrope_section)?;
        }
        Ok(())
    }
}

struct MaskText(Mask);

impl fmt::Display for MaskText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Mask::Causal => f.write_str("causal"),
            Mask::Window(n) => write!(f, "window({n})"),
            Mask::Chunked(n) => write!(f, "chunked({n})"),
            Mask::BidirectionalPrefix => f.write_str("bidirectional_prefix"),
        }
    }
}

struct SlotText<'a>(&'a SlotKind);

impl fmt::Display for SlotText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            SlotKind::Kv { heads, dim_k, dim_v, window } => {
                write!(f, "kv heads={heads} dim_k={dim_k} dim_v={dim_v}")?;
                match window {
                    Some(n) => write!(f, " window={n}"),
                    None => Ok(()),
                }
            }
            SlotKind::KvShared { with } => write!(f, "kv_shared with={}", with.0),
            SlotKind::Conv { channels, kernel } => write!(f, "conv channels={channels} kernel={kernel}"),
            SlotKind::Recurrent { shape } => write!(f, "recurrent shape={shape:?}"),
            SlotKind::IndexKeys { dim } => write!(f, "index_keys dim={dim}"),
        }
    }
}
