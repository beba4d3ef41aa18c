//! A plain interpreter of graphs in double precision: one sequence, whole, node by node, from the formulas of
//! [`Op`]. It shares no code with the device.

use std::collections::HashMap;

use host_device::KvStorage;
use host_graph::{
    Activation, BinaryOp, Body, Dim, Graph, Mask, Node, Op, ReduceOp, RopeFrequencies, RopeLayout, RopeSpec,
    Shape, SlotId, SlotKind, UnaryOp, Value, ValueType,
};
use host_weights::Checkpoint;

/// One row a token, or a single one for what no token changes.
type Rows = Vec<Vec<f64>>;

pub(super) struct Oracle<'a> {
    graph: &'a Graph,
    checkpoint: &'a Checkpoint,
    kv: KvStorage,
    tokens: Vec<u32>,
    done: HashMap<u32, Rows>,
    /// Keys and values of each slot.
    cache: HashMap<u32, (Rows, Rows)>,
}

impl<'a> Oracle<'a> {
    pub(super) fn new(graph: &'a Graph, checkpoint: &'a Checkpoint, kv: KvStorage) -> Self {
        Oracle { graph, checkpoint, kv, tokens: Vec::new(), done: HashMap::new(), cache: HashMap::new() }
    }

    /// The logits of every token.
    pub(super) fn logits(mut self, tokens: &[u32]) -> Rows {
        self.tokens = tokens.to_vec();
        self.value(self.graph.output())
    }

    fn value(&mut self, value: Value) -> Rows {
        if let Some(rows) = self.done.get(&value.0) {
            return rows.clone();
        }
        let node = self.graph.node(value);
        let inputs: Vec<Rows> = node.inputs.iter().map(|input| self.value(*input)).collect();
        let rows = self.sequence_op(node, &inputs).unwrap_or_else(|| {
            let items: Vec<_> = node.inputs.iter().map(|x| self.graph.node(*x).shape.clone()).collect();
            self.each_row(node, &inputs, &items)
        });
        self.done.insert(value.0, rows.clone());
        rows
    }

    /// Operations that look at the whole sequence.
    fn sequence_op(&mut self, node: &Node, inputs: &[Rows]) -> Option<Rows> {
        let item = node.shape.item();
        Some(match &node.op {
            Op::Tokens => self.tokens.iter().map(|token| vec![f64::from(*token)]).collect(),
            Op::Positions => (0..self.tokens.len()).map(|at| vec![at as f64]).collect(),
            Op::Rope(spec) => {
                let rotated = inputs[0].iter().enumerate();
                rotated.map(|(at, row)| rope(spec, at, row, *item.last().unwrap())).collect()
            }
            Op::Attention { slot, scale, mask, softcap, sinks } => {
                let sinks = sinks.as_ref().map(|name| self.numbers(name));
                let softcap = softcap.map(f64::from);
                self.attention(*slot, inputs, &item, f64::from(*scale), *mask, softcap, sinks)
            }
            Op::Conv1dCausal { slot, weight, bias } => {
                let SlotKind::Conv { channels, kernel } = self.graph.slot(*slot).kind else { panic!("slot") };
                let weight = self.numbers(weight);
                let bias = bias.as_ref().map_or(vec![0.0; channels], |name| self.numbers(name));
                let tap = |t: usize, j: usize, c: usize| {
                    (t + j + 1).checked_sub(kernel).map_or(0.0, |from| inputs[0][from][c])
                };
                let at = |t: usize, c: usize| {
                    bias[c] + (0..kernel).map(|j| weight[c * kernel + j] * tap(t, j, c)).sum::<f64>()
                };
                (0..inputs[0].len()).map(|t| (0..channels).map(|c| at(t, c)).collect()).collect()
            }
            Op::GatedDelta { .. } => {
                let keys = self.graph.node(node.inputs[0]).shape.item();
                gated_delta(inputs, [item[0], keys[0], item[1], keys[1]])
            }
            Op::SsmScan { .. } => {
                let groups = self.graph.node(node.inputs[3]).shape.item();
                ssm_scan(inputs, [item[0], groups[0], item[1], groups[1]])
            }
            Op::SparseSelect { k, .. } => {
                let q = self.graph.node(node.inputs[0]).shape.item();
                (0..inputs[0].len()).map(|t| select(inputs, t, [q[0], q[1]], *k)).collect()
            }
            Op::Scan { slot, body } => {
                let SlotKind::Recurrent { shape } = &self.graph.slot(*slot).kind else { panic!("slot") };
                let mut state = vec![0.0; shape.iter().product()];
                let mut rows = Vec::new();
                for t in 0..inputs[0].len() {
                    let mut values = vec![state];
                    values.extend(inputs.iter().map(|rows| rows[t].clone()));
                    let (new_state, output) = self.body(body, &values);
                    state = new_state;
                    rows.push(output);
                }
                rows
            }
            _ => return None,
        })
    }

    fn body(&self, body: &Body, values: &[Vec<f64>]) -> (Vec<f64>, Vec<f64>) {
        let mut results: Vec<Rows> = Vec::new();
        for node in &body.nodes {
            let result = if let Op::BodyInput { index } = node.op {
                vec![values[index].clone()]
            } else {
                let inputs: Vec<_> = node.inputs.iter().map(|x| results[x.0 as usize].clone()).collect();
                let shapes: Vec<_> =
                    node.inputs.iter().map(|x| body.nodes[x.0 as usize].shape.clone()).collect();
                self.each_row(node, &inputs, &shapes)
            };
            results.push(result);
        }
        let take = |value: Value| results[value.0 as usize][0].clone();
        (take(body.state), take(body.output))
    }

    /// Operations that see one row at a time.
    fn each_row(&self, node: &Node, inputs: &[Rows], shapes: &[Shape]) -> Rows {
        let is_once = node.shape.lead().is_empty();
        // Inside a body there is one row of everything.
        let longest = inputs.iter().map(Vec::len).max().unwrap_or(1);
        let n_rows = if is_once { 1 } else { longest };
        (0..n_rows)
            .map(|row| {
                let args: Vec<_> = inputs
                    .iter()
                    .zip(shapes)
                    .map(|(rows, shape)| Arg { data: &rows[row.min(rows.len() - 1)], item: shape.item() })
                    .collect();
                self.row(&node.op, node.shape.lead(), &args, &node.shape.item())
            })
            .collect()
    }

    fn row(&self, op: &Op, lead: &[Dim], args: &[Arg<'_>], out: &[usize]) -> Vec<f64> {
        match op {
            Op::Constant { value } => vec![f64::from(*value)],
            Op::Weight { name } => self.numbers(name),
            Op::Embedding { weight } | Op::PerLayerEmbedding { weight, .. } => {
                let table = self.matrix(weight);
                args[0].data.iter().flat_map(|id| table[*id as usize].clone()).collect()
            }
            Op::Linear { weight, bias } => {
                let matrix = self.matrix(weight);
                let bias = bias.as_ref().map_or(vec![0.0; matrix.len()], |name| self.numbers(name));
                let rows = args[0].data.chunks(matrix[0].len());
                rows.flat_map(|x| {
                    times(&matrix, x).into_iter().zip(&bias).map(|(y, b)| y + b).collect::<Vec<_>>()
                })
                .collect()
            }
            Op::RmsNorm { weight, eps, offset } => {
                let n = *out.last().unwrap();
                let weight = weight.as_ref().map_or(vec![1.0; n], |name| {
                    self.numbers(name).into_iter().map(|w| w + f64::from(*offset)).collect()
                });
                norm(args[0].data, &weight, &vec![0.0; n], f64::from(*eps), false)
            }
            Op::LayerNorm { weight, bias, eps } => {
                let n = *out.last().unwrap();
                let weight = weight.as_ref().map_or(vec![1.0; n], |name| self.numbers(name));
                let bias = bias.as_ref().map_or(vec![0.0; n], |name| self.numbers(name));
                norm(args[0].data, &weight, &bias, f64::from(*eps), true)
            }
            Op::Moe { gate, up, down, activation } => {
                let [gate, up, down] = [gate, up, down].map(|name| self.matrix(name));
                let (e, x) = (out[0], args[0].data);
                let inner = down[0].len();
                let mut sum = vec![0.0; e];
                for (expert, weight) in args[1].data.iter().zip(args[2].data) {
                    let expert = *expert as usize;
                    let rows = |m: &Rows, n: usize| m[expert * n..(expert + 1) * n].to_vec();
                    let (g, u) = (times(&rows(&gate, inner), x), times(&rows(&up, inner), x));
                    let hidden: Vec<f64> =
                        g.into_iter().zip(u).map(|(g, u)| activate(*activation, g) * u).collect();
                    let y = times(&rows(&down, e), &hidden);
                    sum.iter_mut().zip(y).for_each(|(sum, y)| *sum += weight * y);
                }
                sum
            }
            _ => general(op, lead.len(), args, out),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the operation's own attributes")]
    fn attention(
        &mut self,
        slot: SlotId,
        inputs: &[Rows],
        item: &[usize],
        scale: f64,
        mask: Mask,
        softcap: Option<f64>,
        sinks: Option<Vec<f64>>,
    ) -> Rows {
        let (own, kind) = match &self.graph.slot(slot).kind {
            SlotKind::KvShared { with } => (*with, &self.graph.slot(*with).kind),
            kind => (slot, kind),
        };
        let SlotKind::Kv { heads, dim_k, dim_v, .. } = *kind else { panic!("slot") };
        let n_plain = if own == slot { 3 } else { 1 };
        if own == slot {
            let kept = |rows: &Rows| -> Rows { rows.iter().map(|row| self.stored(row)).collect() };
            self.cache.insert(slot.0, (kept(&inputs[1]), kept(&inputs[2])));
        } else if !self.cache.contains_key(&own.0) {
            let donor = self.graph.nodes().iter().position(|node| node.op.slot() == Some(own)).unwrap();
            self.value(Value(donor as u32));
        }
        let (keys, values) = &self.cache[&own.0];
        let per_group = item[0] / heads;
        let mut rows = Vec::new();
        for (t, q) in inputs[0].iter().enumerate() {
            let mut row = Vec::new();
            for head in 0..item[0] {
                let kv_head = head / per_group;
                let sees = |s: &usize| match mask {
                    Mask::Causal | Mask::BidirectionalPrefix => true,
                    Mask::Window(n) => t - s < n,
                    Mask::Chunked(n) => t / n == s / n,
                };
                let chosen =
                    |s: &usize| inputs.get(n_plain).is_none_or(|rows| rows[t].contains(&(*s as f64)));
                let seen: Vec<usize> = (0..=t).filter(|s| sees(s) && chosen(s)).collect();
                let score = |s: &usize| {
                    let key = &keys[*s][kv_head * dim_k..][..dim_k];
                    let score = scale * dot(&q[head * dim_k..][..dim_k], key);
                    softcap.map_or(score, |cap| (score / cap).tanh() * cap)
                };
                let exps: Vec<f64> = seen.iter().map(|s| score(s).exp()).collect();
                let sink = sinks.as_ref().map_or(0.0, |sinks| sinks[head].exp());
                let total = exps.iter().sum::<f64>() + sink;
                row.extend((0..dim_v).map(|d| {
                    let sum: f64 =
                        seen.iter().zip(&exps).map(|(s, e)| e * values[*s][kv_head * dim_v + d]).sum();
                    if total == 0.0 { 0.0 } else { sum / total }
                }));
            }
            rows.push(row);
        }
        rows
    }

    /// Heads of one token as the cache keeps them. Groups of codes never straddle heads.
    fn stored(&self, row: &[f64]) -> Vec<f64> {
        match self.kv {
            KvStorage::PlainF32 => row.to_vec(),
            KvStorage::PlainF16 => row.iter().map(|x| half::f16::from_f64(*x).to_f64()).collect(),
            KvStorage::PlainBf16 => row.iter().map(|x| half::bf16::from_f64(*x).to_f64()).collect(),
            KvStorage::Quantised(codes) => {
                row.chunks(usize::from(codes.group_size)).flat_map(|group| coded(group, codes.bits)).collect()
            }
        }
    }

    fn matrix(&self, name: &str) -> Rows {
        let tensor = self.checkpoint.tensor(name).unwrap();
        let mut row = vec![0.0; tensor.cols()];
        (0..tensor.rows())
            .map(|i| {
                tensor.dequantise_row(i, &mut row).unwrap();
                row.iter().copied().map(f64::from).collect()
            })
            .collect()
    }

    fn numbers(&self, name: &str) -> Vec<f64> {
        self.matrix(name).concat()
    }
}

/// One input: a row's numbers and its shape.
pub(super) struct Arg<'a> {
    pub(super) data: &'a [f64],
    pub(super) item: Vec<usize>,
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn times(matrix: &[Vec<f64>], x: &[f64]) -> Vec<f64> {
    matrix.iter().map(|row| dot(row, x)).collect()
}

fn norm(x: &[f64], weight: &[f64], bias: &[f64], eps: f64, is_centred: bool) -> Vec<f64> {
    let n = weight.len();
    x.chunks(n)
        .flat_map(|row| {
            let mean = if is_centred { row.iter().sum::<f64>() / n as f64 } else { 0.0 };
            let square = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n as f64;
            let root = (square + eps).sqrt();
            (0..n).map(|i| (row[i] - mean) / root * weight[i] + bias[i]).collect::<Vec<_>>()
        })
        .collect()
}

/// The rotation of every head of a row; the default frequencies from their formula.
fn rope(spec: &RopeSpec, position: usize, row: &[f64], width: usize) -> Vec<f64> {
    let d = spec.dims;
    let frequencies: Vec<f64> = match spec.frequencies {
        RopeFrequencies::Default => {
            (0..d / 2).map(|i| f64::from(spec.theta).powf(-2.0 * i as f64 / d as f64)).collect()
        }
        _ => spec.inverse_frequencies().into_iter().map(f64::from).collect(),
    };
    let mut out = row.to_vec();
    for (x, y) in row.chunks(width).zip(out.chunks_mut(width)) {
        for (i, f) in frequencies.iter().enumerate() {
            let (a, b) = match spec.layout {
                RopeLayout::SplitHalves => (i, i + d / 2),
                RopeLayout::Interleaved => (2 * i, 2 * i + 1),
            };
            let (sine, cosine) = (position as f64 * f).sin_cos();
            let factor = f64::from(spec.attention_factor);
            y[a] = factor * (x[a] * cosine - x[b] * sine);
            y[b] = factor * (x[b] * cosine + x[a] * sine);
        }
    }
    out
}

/// q, k, v, g, beta; sizes are value heads, key heads, value width, key width.
fn gated_delta(inputs: &[Rows], [hv, hk, dv, dk]: [usize; 4]) -> Rows {
    let mut state = vec![vec![vec![0.0; dk]; dv]; hv];
    let [q, k, v, g, beta] = inputs else { panic!("five inputs") };
    (0..q.len())
        .map(|t| {
            let mut row = Vec::new();
            for (head, s) in state.iter_mut().enumerate() {
                let key_head = head / (hv / hk);
                let (q, k) = (&q[t][key_head * dk..][..dk], &k[t][key_head * dk..][..dk]);
                s.iter_mut().flatten().for_each(|x| *x *= g[t][head]);
                for (i, s) in s.iter_mut().enumerate() {
                    let d = (v[t][head * dv + i] - dot(s, k)) * beta[t][head];
                    s.iter_mut().zip(k).for_each(|(s, k)| *s += d * k);
                    row.push(dot(s, q));
                }
            }
            row
        })
        .collect()
}

/// x, dt, a, b, c; sizes are heads, groups, head width, state width.
fn ssm_scan(inputs: &[Rows], [h, g, p, n]: [usize; 4]) -> Rows {
    let mut state = vec![vec![vec![0.0; n]; p]; h];
    let [x, dt, a, b, c] = inputs else { panic!("five inputs") };
    (0..x.len())
        .map(|t| {
            let mut row = Vec::new();
            for (head, s) in state.iter_mut().enumerate() {
                let group = head / (h / g);
                let (b, c) = (&b[t][group * n..][..n], &c[t][group * n..][..n]);
                for (i, s) in s.iter_mut().enumerate() {
                    let input = dt[t][head] * x[t][head * p + i];
                    let decay = (dt[t][head] * a[0][head]).exp();
                    s.iter_mut().zip(b).for_each(|(s, b)| *s = *s * decay + input * b);
                    row.push(dot(s, c));
                }
            }
            row
        })
        .collect()
}

/// q, k, weights; the positions for token `t`.
fn select(inputs: &[Rows], t: usize, [heads, dim]: [usize; 2], k: usize) -> Vec<f64> {
    let score = |s: usize| {
        let head = |h: usize| {
            let product = dot(&inputs[0][t][h * dim..][..dim], &inputs[1][s]) / (dim as f64).sqrt();
            inputs[2][t][h] * product.max(0.0)
        };
        (0..heads).map(head).sum::<f64>() / (heads as f64).sqrt()
    };
    let scores: Vec<f64> = (0..=t).map(score).collect();
    let mut sorted = scores.clone();
    sorted.sort_by(|a, b| b.partial_cmp(a).unwrap());
    let threshold = if scores.len() > k { sorted[k - 1] } else { f64::NEG_INFINITY };
    let above = (0..=t).filter(|s| scores[*s] > threshold);
    let ties = (0..=t).filter(|s| scores[*s] == threshold);
    let mut chosen: Vec<f64> = above.chain(ties).take(k).map(|s| s as f64).collect();
    chosen.resize(k, -1.0);
    chosen
}

fn activate(activation: Activation, x: f64) -> f64 {
    unary(
        match activation {
            Activation::Silu => UnaryOp::Silu,
            Activation::Gelu => UnaryOp::Gelu,
            Activation::GeluTanh => UnaryOp::GeluTanh,
        },
        x,
    )
}

/// The error function by Simpson's rule.
fn erf(x: f64) -> f64 {
    let n = 4000;
    let h = x / f64::from(n);
    let f = |i: i32| {
        let t = h * f64::from(i);
        let weight = if i == 0 || i == n {
            1.0
        } else if i % 2 == 1 {
            4.0
        } else {
            2.0
        };
        weight * (-t * t).exp()
    };
    (0..=n).map(f).sum::<f64>() * h / 3.0 * 2.0 / std::f64::consts::PI.sqrt()
}

pub(super) fn unary(op: UnaryOp, x: f64) -> f64 {
    match op {
        UnaryOp::Silu => x / (1.0 + (-x).exp()),
        UnaryOp::Gelu => x * 0.5 * (1.0 + erf(x / 2.0_f64.sqrt())),
        UnaryOp::GeluTanh => {
            0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh())
        }
        UnaryOp::Relu => x.max(0.0),
        UnaryOp::Relu2 => x.max(0.0).powi(2),
        UnaryOp::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        UnaryOp::Tanh => x.tanh(),
        UnaryOp::Softplus => (1.0 + x.exp()).ln(),
        UnaryOp::Exp => x.exp(),
        UnaryOp::Log => x.ln(),
        UnaryOp::Sqrt => x.sqrt(),
        UnaryOp::Rsqrt => 1.0 / x.sqrt(),
        UnaryOp::Neg => -x,
        UnaryOp::Abs => x.abs(),
        UnaryOp::Sin => x.sin(),
        UnaryOp::Cos => x.cos(),
        UnaryOp::Floor => x.floor(),
        UnaryOp::Not => f64::from(u8::from(x == 0.0)),
    }
}

pub(super) fn binary(op: BinaryOp, a: f64, b: f64) -> f64 {
    let truth = |holds: bool| f64::from(u8::from(holds));
    match op {
        BinaryOp::Add => a + b,
        BinaryOp::Sub => a - b,
        BinaryOp::Mul => a * b,
        BinaryOp::Div => a / b,
        BinaryOp::Max => a.max(b),
        BinaryOp::Min => a.min(b),
        BinaryOp::Pow => a.powf(b),
        BinaryOp::Equal => truth(a == b),
        BinaryOp::Less => truth(a < b),
        BinaryOp::LessEqual => truth(a <= b),
        BinaryOp::And => truth(a != 0.0 && b != 0.0),
        BinaryOp::Or => truth(a != 0.0 || b != 0.0),
    }
}

/// The coordinates of element `i`.
fn coordinates(mut i: usize, item: &[usize]) -> Vec<usize> {
    let mut at = vec![0; item.len()];
    for (at, n) in at.iter_mut().zip(item).rev() {
        *at = i % n;
        i /= n;
    }
    at
}

impl Arg<'_> {
    fn at(&self, coordinates: &[usize]) -> f64 {
        assert_eq!(coordinates.len(), self.item.len(), "as many coordinates as dimensions");
        self.data[coordinates.iter().zip(&self.item).fold(0, |index, (at, n)| index * n + at)]
    }

    /// The element at the coordinates of a shape that this one is broadcast to.
    fn broadcast(&self, coordinates: &[usize]) -> f64 {
        let own = &coordinates[coordinates.len() - self.item.len()..];
        let own: Vec<usize> =
            own.iter().zip(&self.item).map(|(at, n)| if *n == 1 { 0 } else { *at }).collect();
        self.at(&own)
    }

    fn shifted(&self, coordinates: &[usize], axis: usize, at: usize) -> f64 {
        let mut own = coordinates.to_vec();
        own[axis] = at;
        self.at(&own)
    }
}

fn general(op: &Op, lead: usize, args: &[Arg<'_>], out: &[usize]) -> Vec<f64> {
    let n: usize = out.iter().product();
    let each = |f: &dyn Fn(&[usize]) -> f64| (0..n).map(|i| f(&coordinates(i, out))).collect();
    let last = args[0].item.last().copied().unwrap_or(1);
    match op {
        Op::Unary(op) => args[0].data.iter().map(|x| unary(*op, *x)).collect(),
        Op::Binary(op) => each(&|at| binary(*op, args[0].broadcast(at), args[1].broadcast(at))),
        Op::Scale { factor } => args[0].data.iter().map(|x| x * f64::from(*factor)).collect(),
        Op::Softcap { cap } => {
            args[0].data.iter().map(|x| (x / f64::from(*cap)).tanh() * f64::from(*cap)).collect()
        }
        Op::Cast { to } => {
            let cast = |x: &f64| match to {
                ValueType::Float => *x,
                ValueType::Int => x.trunc(),
                ValueType::Bool => f64::from(u8::from(*x != 0.0)),
            };
            args[0].data.iter().map(cast).collect()
        }
        Op::Reshape { .. } | Op::Inject { .. } => args[0].data.to_vec(),
        Op::Slice { axis, start, .. } => {
            let axis = axis - lead;
            each(&|at| args[0].shifted(at, axis, at[axis] + start))
        }
        Op::Concat { axis } => {
            let axis = axis - lead;
            each(&|at| {
                let mut place = at[axis];
                for x in args {
                    if place < x.item[axis] {
                        return x.shifted(at, axis, place);
                    }
                    place -= x.item[axis];
                }
                panic!("beyond the last part")
            })
        }
        Op::Transpose { axes } => each(&|at| {
            let mut own = vec![0; at.len()];
            axes[lead..].iter().zip(at).for_each(|(axis, at)| own[axis - lead] = *at);
            args[0].at(&own)
        }),
        Op::Softmax => {
            let rows = args[0].data.chunks(last);
            rows.flat_map(|x| {
                let total: f64 = x.iter().map(|x| x.exp()).sum();
                x.iter().map(|x| x.exp() / total).collect::<Vec<_>>()
            })
            .collect()
        }
        Op::TopK { k } => {
            let rows = args[0].data.chunks(last);
            rows.flat_map(|x| {
                let mut ids: Vec<usize> = (0..last).collect();
                ids.sort_by(|a, b| x[*b].partial_cmp(&x[*a]).unwrap().then(a.cmp(b)));
                ids.into_iter().take(*k).map(|id| id as f64).collect::<Vec<_>>()
            })
            .collect()
        }
        Op::Gather => each(&|at| args[0].shifted(at, at.len() - 1, args[1].at(at) as usize)),
        Op::Scatter => {
            let (mut out, k) = (args[0].data.to_vec(), args[1].item.last().unwrap());
            for (i, (id, value)) in args[1].data.iter().zip(args[2].data).enumerate() {
                out[i / k * last + *id as usize] = *value;
            }
            out
        }
        Op::Matmul => each(&|at| {
            let (m, rest) = (at[at.len() - 2], &at[..at.len() - 2]);
            let pick = |x: &Arg<'_>, two: [usize; 2]| {
                let lead = x.item.len() - 2;
                let own = rest[rest.len() - lead..].iter().zip(&x.item);
                let own = own.map(|(at, n)| if *n == 1 { 0 } else { *at }).chain(two);
                x.at(&own.collect::<Vec<_>>())
            };
            (0..last).map(|k| pick(&args[0], [m, k]) * pick(&args[1], [k, at[at.len() - 1]])).sum()
        }),
        Op::Where => each(&|at| {
            let chosen = if args[0].broadcast(at) != 0.0 { &args[1] } else { &args[2] };
            chosen.broadcast(at)
        }),
        Op::Reduce { op, axis } => {
            let axis = axis - lead;
            let n = args[0].item[axis];
            each(&|at| {
                let values = (0..n).map(|i| args[0].shifted(at, axis, i));
                match op {
                    ReduceOp::Sum => values.sum(),
                    ReduceOp::Mean => values.sum::<f64>() / n as f64,
                    ReduceOp::Max => values.fold(f64::NEG_INFINITY, f64::max),
                    ReduceOp::Min => values.fold(f64::INFINITY, f64::min),
                }
            })
        }
        Op::Cumsum { axis } => {
            let axis = axis - lead;
            each(&|at| (0..=at[axis]).map(|i| args[0].shifted(at, axis, i)).sum())
        }
        other => panic!("{} has a form of its own", other.name()),
    }
}

/// A group as affine codes keep it: the edge that is farther from zero is met exactly, zero too.
///
/// Source: the rule that the project's notes on caches give, with scale and bias in full precision.
fn coded(group: &[f64], bits: u8) -> Vec<f64> {
    let n = f64::from((1_u32 << bits) - 1);
    let (low, high) = group.iter().fold((f64::MAX, f64::MIN), |(low, high), x| (low.min(*x), high.max(*x)));
    let size = ((high - low) / n).max(1e-7);
    let (scale, edge) = if low.abs() > high.abs() { (size, low) } else { (-size, high) };
    let steps = (edge / scale).round_ties_even();
    let (scale, bias) = if steps == 0.0 { (scale, 0.0) } else { (edge / steps, edge) };
    group.iter().map(|x| ((x - bias) / scale).round_ties_even().clamp(0.0, n) * scale + bias).collect()
}
