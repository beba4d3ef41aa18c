//! The kernels that a profile names: whether each has something to do in a graph and fits its sizes, settled before
//! weights are opened. A kernel serves the steps that it is made for: those for products one row, those of heads one token
//! a sequence. All other steps, prompts among them, run in MLX's operations.

use std::collections::BTreeSet;

use host_device::{CompileOptions, DeviceError};
use host_graph::{Graph, Node, Op, RopeLayout, RopeSpec, SlotKind, Value};
use host_weights::Catalogue;
use kernels::row_linear::{self, Form};
use kernels::{decode_attention, gated_delta, page_attention, rope_page};
use mlx_rs::Dtype;

use crate::kv::Kv;
use crate::plan::{self, Heads, Part};
use crate::state::PAGE;
use crate::weights::{Kind, activation_dtype};
use crate::{Backend, DEVICE_ID, program};

/// What this device launches on a GPU.
pub(crate) const LAUNCHED: [&str; 7] = [
    gated_delta::KERNEL.name,
    decode_attention::KERNEL.name,
    row_linear::NORM_LINEAR.name,
    row_linear::LINEAR_ADD.name,
    row_linear::NORM_SWIGLU.name,
    rope_page::KERNEL.name,
    page_attention::KERNEL.name,
];
/// Those of a replayed step.
const OF_STEP: [&str; 5] = [
    rope_page::KERNEL.name,
    page_attention::KERNEL.name,
    row_linear::NORM_LINEAR.name,
    row_linear::LINEAR_ADD.name,
    row_linear::NORM_SWIGLU.name,
];

/// The kernels that a profile names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Choice(BTreeSet<String>);

impl Choice {
    pub(crate) fn of(options: &CompileOptions) -> Self {
        Choice(options.kernels.iter().cloned().collect())
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.contains(name)
    }

    /// Whether a step of one token a sequence is replayed: on a GPU where both kernels between its products are
    /// named, since MLX's own would attend to the whole capacity there; on its CPU build, which is for tests, always.
    pub(crate) fn replays(&self, backend: Backend) -> bool {
        let both = [rope_page::KERNEL.name, page_attention::KERNEL.name];
        backend == Backend::Cpu || both.iter().all(|name| self.has(name))
    }
}

/// Refuses a kernel that this device does not have, that has nothing to do, or whose sizes it does not support.
///
/// # Errors
/// [`DeviceError::Unsupported`] names the kernel and why.
pub(crate) fn check(
    backend: Backend,
    graph: &Graph,
    catalogue: &Catalogue,
    options: &CompileOptions,
) -> Result<(), DeviceError> {
    let choice = Choice::of(options);
    let of_step: Vec<&str> = OF_STEP.into_iter().filter(|name| choice.has(name)).collect();
    for name in &choice.0 {
        if backend == Backend::Cpu || !LAUNCHED.contains(&name.as_str()) {
            return Err(refusal(name, "the device has no such kernel here"));
        }
    }
    if choice.has(gated_delta::KERNEL.name) {
        check_gated_delta(graph, activation_dtype(graph, catalogue, options.numeric))?;
    }
    if choice.has(decode_attention::KERNEL.name) {
        check_decode_attention(graph, Kv::of(options.kv), activation_dtype(graph, catalogue, options.numeric))?;
    }
    let Some(first) = of_step.first() else { return Ok(()) };
    if !choice.replays(backend) {
        return Err(refusal(first, "it works only together with `rope-page` and `page-attention`"));
    }
    let asked = Asked {
        nodes: graph.nodes(),
        choice: &choice,
        catalogue,
        dtype: activation_dtype(graph, catalogue, options.numeric),
        max_rows: options.max_sequences,
    };
    if Kv::of(options.kv) != Kv::Plain(asked.dtype) {
        return Err(refusal(first, "keys and values must be stored in the dtype of the activations"));
    }
    let order = program::order(graph.nodes(), graph.slots())?;
    let is_head = program::head(graph.nodes(), graph.output());
    let kind_of = |name: &str| catalogue.get(name).map(Kind::of);
    let groups = program::groups(graph.nodes(), &order, &is_head, kind_of);
    let plan = plan::of_graph(graph, &order, &groups).map_err(|why| refusal(first, why))?;
    let mut served = BTreeSet::new();
    for part in &plan.parts {
        asked.part(part, &groups, &mut served)?;
    }
    match of_step.iter().find(|name| !served.contains(**name)) {
        Some(name) => Err(refusal(name, "the graph has nothing for it to do")),
        None => Ok(()),
    }
}

fn refusal(kernel: &str, why: &str) -> DeviceError {
    DeviceError::Unsupported {
        device: DEVICE_ID,
        what: format!("kernel `{kernel}` for this model: {why}"),
        has: "MLX's own operations, where the profile does not name the kernel".to_owned(),
    }
}

/// Refuses a model without a gated delta rule, or whose rule the kernel does not fit.
fn check_gated_delta(graph: &Graph, dtype: Dtype) -> Result<(), DeviceError> {
    let name = gated_delta::KERNEL.name;
    let mut n_served = 0;
    for node in graph.nodes() {
        let (Op::GatedDelta { .. }, [_, k, v, ..]) = (&node.op, &node.inputs[..]) else { continue };
        let sizes = |value: &Value| graph.nodes()[value.0 as usize].shape.item().to_vec();
        let (k, v) = (sizes(k), sizes(v));
        let ([key_heads, dim_k], [heads, dim_v]) = (&k[..], &v[..]) else { continue };
        if let Some(why) = delta_shape([*key_heads, *heads], [*dim_k, *dim_v], [1, 1], dtype).refusal() {
            return Err(refusal(name, why));
        }
        n_served += 1;
    }
    if n_served == 0 { Err(refusal(name, "the graph has no gated delta rule")) } else { Ok(()) }
}

/// The sizes of a gated delta rule: heads of keys and of values, their widths; rows and steps.
pub(crate) fn delta_shape(
    [key_heads, heads]: [usize; 2],
    [dim_k, dim_v]: [usize; 2],
    [rows, steps]: [usize; 2],
    dtype: Dtype,
) -> gated_delta::Shape {
    gated_delta::Shape { rows, steps, key_heads, heads, dim_k, dim_v, dtype: kernel_dtype(dtype) }
}

/// Refuses a model whose attention the kernel over codes does not fit. It serves steps of one sequence with one token;
/// others go through MLX's products over codes.
fn check_decode_attention(graph: &Graph, kv: Kv, dtype: Dtype) -> Result<(), DeviceError> {
    let name = decode_attention::KERNEL.name;
    if matches!(kv, Kv::Plain(_)) {
        return Err(refusal(name, "keys and values are not stored as codes"));
    }
    let mut n_served = 0;
    for node in graph.nodes() {
        let Op::Attention { slot, softcap, sinks, .. } = &node.op else { continue };
        let kind = match graph.slot(*slot).kind {
            SlotKind::KvShared { with } => &graph.slot(with).kind,
            ref kind => kind,
        };
        let SlotKind::Kv { heads: kv_heads, dim_k, dim_v, .. } = *kind else { continue };
        if softcap.is_some() || sinks.is_some() || dim_k != dim_v {
            return Err(refusal(name, "attention has a cap, sinks, or keys and values of different widths"));
        }
        let heads = node.shape.item().first().copied().unwrap_or(0);
        let shape = decode_shape(kv, [heads, kv_heads, dim_k], [1, 1], dtype);
        if let Some(why) = shape.and_then(|shape| shape.refusal()) {
            return Err(refusal(name, why));
        }
        n_served += 1;
    }
    if n_served == 0 { Err(refusal(name, "the graph has no attention")) } else { Ok(()) }
}

/// The sizes of an attention over codes: heads of queries, of keys, their width; positions and capacity. `None` where
/// keys and values are plain.
pub(crate) fn decode_shape(
    kv: Kv,
    [heads, kv_heads, dim]: [usize; 3],
    [positions, capacity]: [usize; 2],
    dtype: Dtype,
) -> Option<decode_attention::Shape> {
    let Kv::Codes { bits, group_size: group } = kv else { return None };
    let dtype = kernel_dtype(dtype);
    Some(decode_attention::Shape { heads, kv_heads, dim, positions, capacity, bits, group, dtype })
}

/// What a profile asks of a graph's steps.
struct Asked<'a> {
    nodes: &'a [Node],
    choice: &'a Choice,
    catalogue: &'a Catalogue,
    dtype: Dtype,
    max_rows: usize,
}

impl Asked<'_> {
    fn part(
        &self,
        part: &Part,
        groups: &program::Groups,
        served: &mut BTreeSet<&'static str>,
    ) -> Result<(), DeviceError> {
        match part {
            Part::Node(_) | Part::Products { norm: None, .. } => Ok(()),
            Part::Products { x, norm: Some(_), first } => {
                let members = groups.get(first).cloned().unwrap_or_else(|| vec![*first]);
                let columns = members.iter().map(|member| self.width(Value(*member as u32))).sum();
                self.row(Form::NormLinear, *x, *first, columns, served)
            }
            Part::LinearAdd { x, linear, .. } => {
                self.row(Form::LinearAdd, *x, *linear, self.width(Value(*linear as u32)), served)
            }
            Part::NormSwiglu { x, first, .. } => {
                self.row(Form::NormSwiglu, *x, *first, self.width(Value(*first as u32)), served)
            }
            Part::Heads(heads) => self.heads(heads, served),
        }
    }

    fn width(&self, value: Value) -> usize {
        self.nodes[value.0 as usize].shape.last().unwrap_or(1)
    }

    fn row(
        &self,
        form: Form,
        x: Value,
        linear: usize,
        columns: usize,
        served: &mut BTreeSet<&'static str>,
    ) -> Result<(), DeviceError> {
        let Op::Linear { weight, bias } = &self.nodes[linear].op else { return Ok(()) };
        let Some(info) = self.catalogue.get(weight) else { return Ok(()) };
        let kind = Kind::of(info);
        let shape = row_shape(form, self.width(x), columns, kind, self.dtype);
        let name = shape.kernel().name;
        if !self.choice.has(name) {
            return Ok(());
        }
        if bias.is_some() {
            return Err(refusal(name, &format!("`{weight}` has a bias")));
        }
        if let Kind::FloatGroups(mode) = kind {
            return Err(refusal(name, &format!("`{weight}` is stored as {}", mode.to_string_lossy())));
        }
        if let Some(why) = shape.refusal() {
            return Err(refusal(name, &format!("`{weight}`: {why}")));
        }
        served.insert(name);
        Ok(())
    }

    fn heads(&self, heads: &Heads, served: &mut BTreeSet<&'static str>) -> Result<(), DeviceError> {
        let Op::Rope(spec) = &self.nodes[heads.rope].op else { return Ok(()) };
        let refusals = [
            (rope_page::KERNEL.name, rope_shape(heads, spec, self.max_rows, self.dtype).refusal()),
            (page_attention::KERNEL.name, attention_shape(heads, self.max_rows, self.dtype).refusal()),
        ];
        for (name, why) in refusals {
            if let Some(why) = why {
                return Err(refusal(name, why));
            }
            served.insert(name);
        }
        Ok(())
    }
}

/// The sizes of a product of one row.
pub(crate) fn row_shape(
    form: Form,
    width: usize,
    columns: usize,
    kind: Kind,
    dtype: Dtype,
) -> row_linear::Shape {
    let affine = match kind {
        Kind::Affine { bits, group_size } => Some([bits, group_size]),
        Kind::Dense | Kind::FloatGroups(_) => None,
    };
    row_linear::Shape { form, width, columns, affine, dtype: kernel_dtype(dtype) }
}

/// The sizes of what stands between the product for q, k and v and attention.
pub(crate) fn rope_shape(heads: &Heads, spec: &RopeSpec, sequences: usize, dtype: Dtype) -> rope_page::Shape {
    rope_page::Shape {
        sequences,
        heads: heads.heads,
        kv_heads: heads.kv_heads,
        dim: heads.dim,
        rotated: spec.dims,
        page: PAGE,
        is_interleaved: spec.layout == RopeLayout::Interleaved,
        has_norms: heads.norms.is_some(),
        dtype: kernel_dtype(dtype),
    }
}

/// The sizes of an attention.
pub(crate) fn attention_shape(heads: &Heads, sequences: usize, dtype: Dtype) -> page_attention::Shape {
    page_attention::Shape {
        sequences,
        heads: heads.heads,
        kv_heads: heads.kv_heads,
        dim: heads.dim,
        page: PAGE,
        dtype: kernel_dtype(dtype),
    }
}

/// The same activation dtype for a kernel.
fn kernel_dtype(dtype: Dtype) -> kernels::Dtype {
    match dtype {
        Dtype::Float16 => kernels::Dtype::F16,
        Dtype::Bfloat16 => kernels::Dtype::Bf16,
        _ => kernels::Dtype::F32,
    }
}
