//! The static plan: a graph as a list of fused instructions over buffers that are laid out once.

mod compile;
mod layout;

use host_graph::{Activation, Mask, Op, RopeSpec};

use crate::matrix::Matrix;
use crate::moe::{Combine, ExpertProduct, Route, Spread};
use crate::stateful::{Conv, GatedDelta, IndexWrite, Scan, SelectedAttention, SparseSelect, SsmScan};

pub(crate) use compile::{WeightsPlan, compile};

/// How many rows a buffer has in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rows {
    /// One a new token.
    Tokens,
    /// One a wanted row of logits.
    Logits,
    /// One in all: computed when the plan is made.
    Once,
}

/// A buffer of rows of floats. Integers below 2^24 and truth values are kept as floats too.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Buffer {
    pub(crate) rows: Rows,
    /// Floats of a row.
    pub(crate) item: usize,
    /// First byte within the arena, or within the constants for [`Rows::Once`].
    pub(crate) offset: usize,
}

/// Names a [`Buffer`] of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BufferId(pub(crate) usize);

/// 8-bit activations of one value: codes, then metas.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CodesBuffer {
    /// Product rows within a row of the buffer: heads, or 1.
    pub(crate) n_rows: usize,
    /// Inputs of a product row.
    pub(crate) n_in: usize,
    /// Codes of a row of the buffer: whole blocks for each product row.
    pub(crate) stride: usize,
    /// First byte of the codes within the arena.
    pub(crate) codes: usize,
    /// First byte of the metas within the arena.
    pub(crate) metas: usize,
}

/// Names a [`CodesBuffer`] of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CodesId(pub(crate) usize);

/// A vector of floats within the constants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Vector {
    /// First byte.
    pub(crate) offset: usize,
}

/// What a product reads.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ProductInput {
    Floats(BufferId),
    Codes(CodesId),
}

/// Keys and values of one slot within a sequence's state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KvPlace {
    pub(crate) heads: usize,
    pub(crate) dim_k: usize,
    pub(crate) dim_v: usize,
    /// First byte of the keys, `[heads][capacity / 16][dim_k][16]`.
    pub(crate) keys: usize,
    /// First byte of the values, `[heads][capacity][dim_v]`.
    pub(crate) values: usize,
}

/// Index keys of one slot within a sequence's state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IndexPlace {
    pub(crate) dim: usize,
    /// First byte of the keys, `[capacity / 16][dim][16]` floats.
    pub(crate) keys: usize,
}

/// Where one slot's state lies within a sequence's.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StatePlace {
    Kv(KvPlace),
    IndexKeys(IndexPlace),
    /// Floats that each token changes: what came before a token is gone after it.
    Moving {
        /// First byte.
        offset: usize,
        /// Floats.
        len: usize,
    },
}

/// A part of a general operation's inputs.
#[derive(Clone, Debug)]
pub(crate) struct Operand {
    pub(crate) buffer: BufferId,
    /// The shape of a row.
    pub(crate) item: Vec<usize>,
}

/// One instruction: work that all threads share, without a meeting inside.
#[derive(Clone, Debug)]
pub(crate) enum Instr {
    /// Cosines and sines of the new positions.
    RopeTable { rope: usize },
    /// Table rows by id, scaled.
    Embed { table: Matrix, ids: BufferId, out: BufferId, scale: f32 },
    /// Norm of rows of `width`, then 8-bit codes if a product wants them.
    Norm {
        x: BufferId,
        out: BufferId,
        width: usize,
        weight: Option<Vector>,
        bias: Option<Vector>,
        eps: f32,
        is_centred: bool,
        codes: Option<CodesId>,
    },
    /// 8-bit codes of a value.
    Quantise { x: BufferId, codes: CodesId },
    /// Product with a matrix, plus bias, plus residual.
    Product {
        input: ProductInput,
        matrix: Matrix,
        bias: Option<Vector>,
        residual: Option<BufferId>,
        out: BufferId,
    },
    /// `activation(gate) * up`, then 8-bit codes if a product wants them.
    Glu { activation: Activation, gate: BufferId, up: BufferId, out: BufferId, codes: Option<CodesId> },
    /// Rotates heads of `width`.
    Rope { x: BufferId, out: BufferId, width: usize, rope: usize },
    /// Appends keys (rotated if asked) and values to a slot.
    KvWrite { k: BufferId, v: BufferId, place: KvPlace, rope: Option<usize> },
    /// Attention over a slot.
    Attention {
        q: BufferId,
        out: BufferId,
        n_heads: usize,
        place: KvPlace,
        scale: f32,
        softcap: f32,
        mask: Mask,
        sinks: Option<Vector>,
        /// Counts the tasks taken in this step.
        counter: usize,
    },
    /// Copies the rows whose logits are wanted.
    TakeRows { x: BufferId, out: BufferId },
    /// Puts tokens in the order of their experts.
    Route(Route),
    /// Copies tokens to their experts' rows.
    Spread(Spread),
    /// Products with the matrices of each row's expert.
    ExpertProduct(ExpertProduct),
    /// Sums the experts' results of each token.
    Combine(Combine),
    /// Causal convolution over the tokens of each run.
    Conv(Conv),
    /// Gated delta rule over the tokens of each run.
    GatedDelta(GatedDelta),
    /// Selective state space over the tokens of each run.
    SsmScan(SsmScan),
    /// Appends index keys to a slot.
    IndexWrite(IndexWrite),
    /// Chooses the positions to attend to.
    SparseSelect(SparseSelect),
    /// Attention over chosen positions of a slot.
    SelectedAttention(SelectedAttention),
    /// A loop over the tokens of each run.
    Scan(Scan),
    /// Any operation without state, row by row.
    General { op: Op, lead: usize, inputs: Vec<Operand>, out: BufferId, out_item: Vec<usize> },
}

/// An instruction and whether all threads meet before it.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) instr: Instr,
    pub(crate) barrier_before: bool,
}

/// A compiled graph.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) steps: Vec<Step>,
    /// Values that no token changes: computed once, in order, when the weights are there.
    pub(crate) once: Vec<Instr>,
    pub(crate) buffers: Vec<Buffer>,
    pub(crate) codes: Vec<CodesBuffer>,
    pub(crate) ropes: Vec<RopeTable>,
    pub(crate) tokens: BufferId,
    pub(crate) positions: BufferId,
    /// Rows of logits, kept outside the arena.
    pub(crate) logits: BufferId,
    pub(crate) n_vocab: usize,
    pub(crate) arena_bytes: usize,
    /// Bytes that each thread needs behind the arena for the bodies of scans.
    pub(crate) scan_bytes: usize,
    /// Bytes of one sequence's state at full length.
    pub(crate) state_bytes: usize,
    /// Whether a sequence can drop tokens: only keys and values are kept.
    pub(crate) can_trim: bool,
    pub(crate) n_counters: usize,
    /// The identity of each slot's storage.
    pub(crate) signatures: Vec<String>,
    /// Where each slot that keeps something of its own lies.
    pub(crate) places: Vec<StatePlace>,
}

/// Cosines and sines of one kind of rotation, made anew in each step.
#[derive(Clone, Debug)]
pub(crate) struct RopeTable {
    pub(crate) spec: RopeSpec,
    pub(crate) inverse_frequencies: Vec<f32>,
    /// Rows of `dims / 2` cosines, then as many sines.
    pub(crate) table: BufferId,
}
