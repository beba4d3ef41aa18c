//! The host's graph builder, one method an operation.

use crate::bindings::tenon::plugin::graph as host;
use crate::error::Error;

/// The result of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value(u32);

impl Value {
    pub(crate) fn handle(self) -> u32 {
        self.0
    }
}

/// State that a sequence keeps between steps. Each slot is used by exactly one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot(u32);

pub use host::{Activation, Dim, Element, Experts, Mask, RopeLayout, Section, TensorFacts};

/// How attention weighs keys.
#[derive(Clone, Debug)]
pub struct Attention<'a> {
    /// Where keys and values are kept.
    pub slot: Slot,
    /// Multiplies `q·k`.
    pub scale: f64,
    /// Which keys a query may see.
    pub mask: Mask,
    /// `tanh(s/c)*c` on the scores before the mask.
    pub softcap: Option<f64>,
    /// Checkpoint name of `[H]` sink logits that join each softmax's denominator.
    pub sinks: Option<&'a str>,
    /// int `[B,T,k]` of [`Builder::sparse_select`]: the only keys to look at.
    pub selected: Option<Value>,
}

impl Attention<'_> {
    /// Causal attention.
    pub fn new(slot: Slot, scale: f64) -> Self {
        Attention { slot, scale, mask: Mask::Causal, softcap: None, sinks: None, selected: None }
    }
}

/// A rotation by position.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// How many leading dimensions of a head are rotated; even.
    pub dims: usize,
    /// The base of the frequencies.
    pub theta: f64,
    /// Which elements form a pair.
    pub layout: RopeLayout,
    /// How the frequencies follow from the base.
    pub frequencies: RopeFrequencies,
    /// What cosine and sine are multiplied with; 1 but for YaRN and LongRoPE.
    pub attention_factor: f64,
    /// Multimodal rotation: pairs from the temporal, height and width positions; empty for text.
    pub mrope_section: Vec<usize>,
}

impl Rope {
    /// Plain rotation of `dims` in split halves.
    pub fn new(dims: usize, theta: f64) -> Self {
        Rope {
            dims,
            theta,
            layout: RopeLayout::SplitHalves,
            frequencies: RopeFrequencies::Default,
            attention_factor: 1.0,
            mrope_section: Vec::new(),
        }
    }
}

/// How the rotation frequencies follow from the base.
#[derive(Clone, Debug, PartialEq)]
pub enum RopeFrequencies {
    /// `theta^(-2i/d)`.
    Default,
    /// The default divided by `factor`.
    Linear {
        /// Context extension.
        factor: f64,
    },
    /// Llama 3.1: long wavelengths are divided by `factor`, short ones kept, those between blended.
    Llama3 {
        /// Context extension.
        factor: f64,
        /// Wavelengths above `original / low_freq_factor` are divided.
        low_freq_factor: f64,
        /// Wavelengths below `original / high_freq_factor` are kept.
        high_freq_factor: f64,
        /// Context of the original training.
        original_max_position_embeddings: f64,
    },
    /// YaRN (Peng et al. 2023).
    Yarn {
        /// Context extension.
        factor: f64,
        /// Rotations above which a frequency is kept.
        beta_fast: f64,
        /// Rotations below which a frequency is divided.
        beta_slow: f64,
        /// Context of the original training.
        original_max_position_embeddings: f64,
        /// Whether the bounds of the blend are rounded to whole pairs.
        truncate: bool,
    },
    /// Each frequency divided by its own factor.
    LongRope {
        /// One factor a pair.
        factors: Vec<f64>,
    },
    /// The exponent divides by the full head width although only `dims` are rotated.
    Proportional {
        /// Context extension.
        factor: f64,
        /// The head's full width.
        full_dims: usize,
    },
}

/// Says a graph to the host, call by call.
///
/// Every method is checked at once by the host and fails with [`Error::Build`] when shapes, types, slots or
/// tensor names do not fit; a refused call changes nothing. Shapes are written `[B,T,…]`: B rows of the
/// batch, T new tokens of a row. Axes count from 0 over all dimensions, B and T included.
#[derive(Debug)]
pub struct Builder(());

type Made = Result<Value, Error>;

impl Builder {
    pub(crate) fn new() -> Self {
        Builder(())
    }

    /// Sets the section of what follows: embed (at first), a layer, or the head.
    pub fn begin_section(&mut self, section: Section) {
        host::begin_section(section);
    }

    /// A checkpoint tensor's facts, or `None` when there is no such tensor.
    pub fn tensor(&self, name: &str) -> Option<TensorFacts> {
        host::tensor(name)
    }

    /// Declares that a checkpoint tensor is not needed; without it, an unused tensor is an error at the end.
    /// A name that does not exist is accepted.
    pub fn ignore(&mut self, name: &str) {
        host::ignore(name);
    }

    /// The shape of a value.
    ///
    /// # Errors
    /// An unknown value.
    pub fn shape(&self, x: Value) -> Result<Vec<Dim>, Error> {
        Ok(host::shape(x.0)?)
    }

    /// Writes a line to the host's log.
    pub fn log(&self, line: &str) {
        host::log(line);
    }

    /// Keys `[heads,dim_k]` and values `[heads,dim_v]` a token; with a window only so many last tokens.
    ///
    /// # Errors
    /// A size of 0.
    pub fn kv_slot(
        &mut self,
        layer: usize,
        heads: usize,
        dim_k: usize,
        dim_v: usize,
        window: Option<usize>,
    ) -> Result<Slot, Error> {
        let window = window.map(size);
        Ok(Slot(host::kv_slot(size(layer), size(heads), size(dim_k), size(dim_v), window)?))
    }

    /// Reads the keys and values of another slot, which is used before.
    ///
    /// # Errors
    /// A slot that is not a `kv_slot`.
    pub fn kv_shared_slot(&mut self, layer: usize, donor: Slot) -> Result<Slot, Error> {
        Ok(Slot(host::kv_shared_slot(size(layer), donor.0)?))
    }

    /// The last `kernel - 1` inputs of a causal convolution.
    ///
    /// # Errors
    /// A size of 0.
    pub fn conv_slot(&mut self, layer: usize, channels: usize, kernel: usize) -> Result<Slot, Error> {
        Ok(Slot(host::conv_slot(size(layer), size(channels), size(kernel))?))
    }

    /// A float32 state of this shape.
    ///
    /// # Errors
    /// A size of 0.
    pub fn recurrent_slot(&mut self, layer: usize, shape: &[usize]) -> Result<Slot, Error> {
        Ok(Slot(host::recurrent_slot(size(layer), &sizes(shape))?))
    }

    /// Index keys `[dim]` a token, for [`Builder::sparse_select`].
    ///
    /// # Errors
    /// A size of 0.
    pub fn index_keys_slot(&mut self, layer: usize, dim: usize) -> Result<Slot, Error> {
        Ok(Slot(host::index_keys_slot(size(layer), size(dim))?))
    }

    /// The new tokens' ids: int `[B,T]`.
    ///
    /// # Errors
    /// Within a scan.
    pub fn tokens(&mut self) -> Made {
        made(host::tokens())
    }

    /// The new tokens' absolute positions: int `[B,T]`.
    ///
    /// # Errors
    /// Within a scan.
    pub fn positions(&mut self) -> Made {
        made(host::positions())
    }

    /// A number: float `[]`.
    ///
    /// # Errors
    /// A number that float32 cannot hold.
    pub fn constant(&mut self, value: f64) -> Made {
        made(host::constant(value))
    }

    /// A dense checkpoint tensor as a value, with its own shape.
    ///
    /// # Errors
    /// A missing or a quantised tensor.
    pub fn weight(&mut self, name: &str) -> Made {
        made(host::weight(name))
    }

    /// Rows of a table by id: int `[…]` to float `[…,E]`; the table is `[V,E]`.
    ///
    /// # Errors
    /// A missing tensor, or ids that are not int.
    pub fn embedding(&mut self, ids: Value, weight: &str) -> Made {
        made(host::embedding(ids.0, weight))
    }

    /// One row of a table a layer: int `[B,T]` to float `[B,T,n_layers,width]`; the table is
    /// `[V,n_layers*width]`.
    ///
    /// # Errors
    /// A missing tensor, or a width that does not divide.
    pub fn per_layer_embedding(&mut self, ids: Value, weight: &str, n_layers: usize) -> Made {
        made(host::per_layer_embedding(ids.0, weight, size(n_layers)))
    }

    /// Replaces the rows of x `[B,T,E]` at the request's marked positions by its features of that name.
    ///
    /// # Errors
    /// An empty name.
    pub fn inject(&mut self, x: Value, feature: &str) -> Made {
        made(host::inject(x.0, feature))
    }

    /// `x W^T + b`: `[…,in]` to `[…,out]`; the weight is `[out,in]`, the bias `[out]`.
    ///
    /// # Errors
    /// Missing tensors or shapes that do not fit.
    pub fn linear(&mut self, x: Value, weight: &str, bias: Option<&str>) -> Made {
        made(host::linear(x.0, weight, bias))
    }

    /// `x / sqrt(mean(x²) + eps) * (weight + offset)` over the last dimension; without weight it is 1.
    ///
    /// # Errors
    /// A missing tensor or one of another length.
    pub fn rms_norm(&mut self, x: Value, weight: Option<&str>, eps: f64, offset: f64) -> Made {
        made(host::rms_norm(x.0, weight, eps, offset))
    }

    /// `(x - mean) / sqrt(var + eps) * weight + bias` over the last dimension.
    ///
    /// # Errors
    /// Missing tensors or ones of another length.
    pub fn layer_norm(&mut self, x: Value, weight: Option<&str>, bias: Option<&str>, eps: f64) -> Made {
        made(host::layer_norm(x.0, weight, bias, eps))
    }

    /// Rotates the first `dims` of each head by the token's position: `[B,T,H,D]` to the same.
    ///
    /// # Errors
    /// A rotation that does not fit the head.
    pub fn rope(&mut self, x: Value, rope: &Rope) -> Made {
        let spec = host::RopeSpec {
            dims: size(rope.dims),
            theta: rope.theta,
            layout: rope.layout,
            frequencies: frequencies(&rope.frequencies),
            attention_factor: rope.attention_factor,
            mrope_section: sizes(&rope.mrope_section),
        };
        made(host::rope(x.0, &spec))
    }

    /// Attention over a slot: q `[B,T,H,D]`, k `[B,T,K,D]`, v `[B,T,K,Dv]` to `[B,T,H,Dv]`.
    ///
    /// # Errors
    /// Shapes that do not fit the slot, or a slot that is used already.
    pub fn attention(&mut self, q: Value, k: Value, v: Value, spec: &Attention<'_>) -> Made {
        self.attend(q, Some((k, v)), spec)
    }

    /// The same over a shared slot, which has keys and values already.
    ///
    /// # Errors
    /// As [`Builder::attention`].
    pub fn shared_attention(&mut self, q: Value, spec: &Attention<'_>) -> Made {
        self.attend(q, None, spec)
    }

    fn attend(&mut self, q: Value, kv: Option<(Value, Value)>, spec: &Attention<'_>) -> Made {
        let (k, v) = kv.unzip();
        let [k, v, selected] = [k, v, spec.selected].map(|value| value.map(|value| value.0));
        let inputs = host::AttentionInputs { q: q.0, k, v, selected };
        let spec = host::AttentionSpec {
            slot: spec.slot.0,
            scale: spec.scale,
            mask: spec.mask,
            softcap: spec.softcap,
            sinks: spec.sinks.map(str::to_owned),
        };
        made(host::attention(inputs, &spec))
    }

    /// Experts: x `[B,T,E]`, indices int `[B,T,k]`, weights `[B,T,k]` to `[B,T,E]`.
    ///
    /// # Errors
    /// Missing tensors or shapes that do not fit.
    pub fn moe(&mut self, x: Value, indices: Value, weights: Value, experts: &Experts) -> Made {
        made(host::moe(x.0, indices.0, weights.0, experts))
    }

    /// `a b` over the last two dimensions, leading ones broadcast.
    ///
    /// # Errors
    /// Shapes that do not fit.
    pub fn matmul(&mut self, a: Value, b: Value) -> Made {
        made(host::matmul(a.0, b.0))
    }

    /// Softmax over the last dimension.
    ///
    /// # Errors
    /// A value that is not float.
    pub fn softmax(&mut self, x: Value) -> Made {
        made(host::softmax(x.0))
    }

    /// Depthwise causal convolution over T: `[B,T,C]` to the same.
    ///
    /// # Errors
    /// Shapes that do not fit the slot.
    pub fn conv1d_causal(&mut self, x: Value, slot: Slot, weight: &str, bias: Option<&str>) -> Made {
        made(host::conv1d_causal(x.0, slot.0, weight, bias))
    }

    /// Gated delta rule: q, k `[B,T,Hk,Dk]`, v `[B,T,Hv,Dv]`, g, beta `[B,T,Hv]` to `[B,T,Hv,Dv]`.
    ///
    /// # Errors
    /// Shapes that do not fit each other or the slot.
    pub fn gated_delta(&mut self, [q, k, v, g, beta]: [Value; 5], slot: Slot) -> Made {
        made(host::gated_delta(q.0, k.0, v.0, g.0, beta.0, slot.0))
    }

    /// Selective state space: x `[B,T,H,P]`, dt `[B,T,H]`, a `[H]`, b, c `[B,T,G,N]` to `[B,T,H,P]`.
    ///
    /// # Errors
    /// Shapes that do not fit each other or the slot.
    pub fn ssm_scan(&mut self, [x, dt, a, b, c]: [Value; 5], slot: Slot) -> Made {
        made(host::ssm_scan(x.0, dt.0, a.0, b.0, c.0, slot.0))
    }

    /// The `count` positions a query attends to: q `[B,T,Hi,Di]`, k `[B,T,Di]`, weights `[B,T,Hi]` to int
    /// `[B,T,count]`.
    ///
    /// # Errors
    /// Shapes that do not fit each other or the slot.
    pub fn sparse_select(&mut self, q: Value, k: Value, weights: Value, slot: Slot, count: usize) -> Made {
        made(host::sparse_select(q.0, k.0, weights.0, slot.0, size(count)))
    }

    /// A loop over T: `body` maps (state `[B,…]`, inputs at this step `[B,…]`) to (new state, output
    /// `[B,…]`); gives the outputs `[B,T,…]`.
    ///
    /// # Errors
    /// A slot that is not recurrent, and whatever `body` gives.
    pub fn scan(
        &mut self,
        slot: Slot,
        inputs: &[Value],
        body: impl FnOnce(&mut Builder, Value, &[Value]) -> Result<(Value, Value), Error>,
    ) -> Made {
        let handles: Vec<_> = inputs.iter().map(|value| value.0).collect();
        let begun: Vec<_> = host::begin_scan(slot.0, &handles)?.into_iter().map(Value).collect();
        let (state, items) = begun.split_first().ok_or_else(|| broken("begin-scan gave no state"))?;
        let (state, output) = body(self, *state, items)?;
        made(host::end_scan(state.0, output.0))
    }

    /// Elements `start..stop` of one axis.
    ///
    /// # Errors
    /// A range outside the axis.
    pub fn slice(&mut self, x: Value, axis: usize, start: usize, stop: usize) -> Made {
        made(host::slice(x.0, size(axis), size(start), size(stop)))
    }

    /// Parts of these sizes along one axis.
    ///
    /// # Errors
    /// Sizes that do not sum to the axis.
    pub fn split<const N: usize>(
        &mut self,
        x: Value,
        parts: [usize; N],
        axis: usize,
    ) -> Result<[Value; N], Error> {
        let parts: Vec<_> = host::split(x.0, &sizes(&parts), size(axis))?.into_iter().map(Value).collect();
        parts.try_into().map_err(|_| broken("split gave another number of parts"))
    }

    /// Values joined along one axis.
    ///
    /// # Errors
    /// Shapes that differ in another axis.
    pub fn concat(&mut self, values: &[Value], axis: usize) -> Made {
        let handles: Vec<_> = values.iter().map(|value| value.0).collect();
        made(host::concat(&handles, size(axis)))
    }

    /// The same elements with other fixed dimensions; B and T stay.
    ///
    /// # Errors
    /// Another number of elements.
    pub fn reshape(&mut self, x: Value, dims: &[usize]) -> Made {
        made(host::reshape(x.0, &sizes(dims)))
    }

    /// Another order of axes; `axes[i]` becomes axis i.
    ///
    /// # Errors
    /// No order, or one that moves B or T.
    pub fn transpose(&mut self, x: Value, axes: &[usize]) -> Made {
        made(host::transpose(x.0, &sizes(axes)))
    }

    /// The k largest of the last dimension, largest first: (values, indices).
    ///
    /// # Errors
    /// A k beyond the dimension.
    pub fn topk(&mut self, x: Value, k: usize) -> Result<(Value, Value), Error> {
        let (values, indices) = host::topk(x.0, size(k))?;
        Ok((Value(values), Value(indices)))
    }

    /// x `[…,N]`, indices int `[…,k]` to `[…,k]`.
    ///
    /// # Errors
    /// Shapes that differ before the last dimension.
    pub fn gather(&mut self, x: Value, indices: Value) -> Made {
        made(host::gather(x.0, indices.0))
    }

    /// x `[…,N]`, indices int `[…,k]`, values `[…,k]` to `[…,N]`: x with those elements replaced.
    ///
    /// # Errors
    /// Shapes that do not fit.
    pub fn scatter(&mut self, x: Value, indices: Value, values: Value) -> Made {
        made(host::scatter(x.0, indices.0, values.0))
    }

    /// Another element type.
    ///
    /// # Errors
    /// An unknown value.
    pub fn cast(&mut self, x: Value, to: Element) -> Made {
        made(host::cast(x.0, to))
    }

    /// `x * factor`.
    ///
    /// # Errors
    /// A value that is not float.
    pub fn scale(&mut self, x: Value, factor: f64) -> Made {
        made(host::scale(x.0, factor))
    }

    /// `tanh(x / cap) * cap`.
    ///
    /// # Errors
    /// A value that is not float, or a cap that is not above 0.
    pub fn softcap(&mut self, x: Value, cap: f64) -> Made {
        made(host::softcap(x.0, cap))
    }

    /// a where the condition is true, else b; shapes broadcast. (`where` is a word of Rust.)
    ///
    /// # Errors
    /// Shapes or types that do not fit.
    pub fn where_(&mut self, condition: Value, a: Value, b: Value) -> Made {
        made(host::where_(condition.0, a.0, b.0))
    }
}

/// Methods that differ by name alone.
macro_rules! elementwise {
    ($($name:ident ($($input:ident),+) $doc:literal)+) => {
        impl Builder {
            $(
                #[doc = $doc]
                ///
                /// # Errors
                /// Shapes or types that do not fit.
                pub fn $name(&mut self, $($input: Value),+) -> Made {
                    made(host::$name($($input.0),+))
                }
            )+
        }
    };
}

elementwise! {
    silu(x) "`x * sigmoid(x)`."
    gelu(x) "`x * (1 + erf(x / sqrt 2)) / 2`."
    gelu_tanh(x) "The approximation of gelu by tanh."
    relu(x) "`max(x, 0)`."
    relu2(x) "`max(x, 0)²`."
    sigmoid(x) "`1 / (1 + e^-x)`."
    tanh(x) "Hyperbolic tangent."
    softplus(x) "`ln(1 + e^x)`."
    exp(x) "`e^x`."
    ln(x) "The natural logarithm."
    sqrt(x) "The square root."
    rsqrt(x) "One over the square root."
    neg(x) "`-x`."
    abs(x) "`|x|`."
    sin(x) "Sine."
    cos(x) "Cosine."
    floor(x) "The greatest whole number not above x."
    logical_not(x) "True where x is false."
    add(a, b) "`a + b`, shapes broadcast."
    sub(a, b) "`a - b`, shapes broadcast."
    mul(a, b) "`a * b`, shapes broadcast."
    div(a, b) "`a / b`, shapes broadcast."
    maximum(a, b) "The greater of a and b, shapes broadcast."
    minimum(a, b) "The lesser of a and b, shapes broadcast."
    pow(a, b) "`a^b`, shapes broadcast."
    equal(a, b) "True where a equals b, shapes broadcast."
    less(a, b) "True where a is below b, shapes broadcast."
    less_equal(a, b) "True where a is not above b, shapes broadcast."
    logical_and(a, b) "True where both are, shapes broadcast."
    logical_or(a, b) "True where one is, shapes broadcast."
}

/// Methods along one axis.
macro_rules! along_axis {
    ($($name:ident $doc:literal)+) => {
        impl Builder {
            $(
                #[doc = $doc]
                ///
                /// # Errors
                /// A value that is not float, or an axis that is not a fixed dimension.
                pub fn $name(&mut self, x: Value, axis: usize) -> Made {
                    made(host::$name(x.0, size(axis)))
                }
            )+
        }
    };
}

along_axis! {
    sum "The sum along one axis, which stays with length 1."
    mean "The mean along one axis, which stays with length 1."
    max "The greatest along one axis, which stays with length 1."
    min "The least along one axis, which stays with length 1."
    cumsum "The running sum along one axis."
}

fn made(result: Result<u32, crate::BuildError>) -> Made {
    Ok(Value(result?))
}

fn broken(message: &str) -> Error {
    Error::Internal(format!("the host broke the contract: {message}"))
}

/// The contract carries 32 bits. A size beyond fits no graph, so the greatest one is refused just as well.
fn size(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

fn sizes(list: &[usize]) -> Vec<u32> {
    list.iter().copied().map(size).collect()
}

fn frequencies(frequencies: &RopeFrequencies) -> host::RopeFrequencies {
    match frequencies {
        RopeFrequencies::Default => host::RopeFrequencies::Default,
        RopeFrequencies::Linear { factor } => host::RopeFrequencies::Linear(*factor),
        RopeFrequencies::Llama3 {
            factor,
            low_freq_factor,
            high_freq_factor,
            original_max_position_embeddings,
        } => host::RopeFrequencies::Llama3(host::Llama3Rope {
            factor: *factor,
            low_freq_factor: *low_freq_factor,
            high_freq_factor: *high_freq_factor,
            original_max_position_embeddings: *original_max_position_embeddings,
        }),
        RopeFrequencies::Yarn {
            factor,
            beta_fast,
            beta_slow,
            original_max_position_embeddings,
            truncate,
        } => host::RopeFrequencies::Yarn(host::YarnRope {
            factor: *factor,
            beta_fast: *beta_fast,
            beta_slow: *beta_slow,
            original_max_position_embeddings: *original_max_position_embeddings,
            truncate: *truncate,
        }),
        RopeFrequencies::LongRope { factors } => host::RopeFrequencies::Longrope(factors.clone()),
        RopeFrequencies::Proportional { factor, full_dims } => {
            host::RopeFrequencies::Proportional(host::ProportionalRope {
                factor: *factor,
                full_dims: size(*full_dims),
            })
        }
    }
}
