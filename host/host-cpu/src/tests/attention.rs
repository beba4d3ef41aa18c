//! Attention against the plain form: masks, sinks, softcaps, grouped heads, and every storage of the cache.

use host_core::DType;
use host_device::{CompileOptions, KvStorage};
use host_graph::{
    BuildError, Graph, GraphBuilder, Mask, Op, RopeFrequencies, RopeLayout, RopeSpec, Section, Shape,
    SlotKind, Value,
};

use super::support::{Folder, Model, as_logits, check, options};

/// What a small attention looks like.
#[derive(Clone, Debug)]
struct Case {
    heads: usize,
    kv_heads: usize,
    dim_k: usize,
    dim_v: usize,
    mask: Mask,
    softcap: Option<f32>,
    has_sinks: bool,
    rope: Option<RopeSpec>,
}

const PLAIN: Case = Case {
    heads: 2,
    kv_heads: 2,
    dim_k: 8,
    dim_v: 8,
    mask: Mask::Causal,
    softcap: None,
    has_sinks: false,
    rope: None,
};

fn model(case: &Case) -> Model {
    Folder::new(11)
        .dense("e", DType::F32, &[8, 24])
        .dense("q", DType::F32, &[case.heads * case.dim_k, 24])
        .dense("k", DType::F32, &[case.kv_heads * case.dim_k, 24])
        .dense("v", DType::F32, &[case.kv_heads * case.dim_v, 24])
        .dense("sinks", DType::F32, &[case.heads])
        .open()
}

fn heads(b: &mut GraphBuilder, x: Value, weight: &str, shape: [usize; 2]) -> Result<Value, BuildError> {
    let x = b.add(Op::Linear { weight: weight.into(), bias: None }, &[x])?;
    b.add(Op::Reshape { shape: Shape::per_token(&shape) }, &[x])
}

fn graph(model: &Model, case: &Case) -> Graph {
    model.graph(|b| {
        let ids = b.add(Op::Tokens, &[])?;
        let x = b.add(Op::Embedding { weight: "e".into() }, &[ids])?;
        let mut q = heads(b, x, "q", [case.heads, case.dim_k])?;
        let mut k = heads(b, x, "k", [case.kv_heads, case.dim_k])?;
        let v = heads(b, x, "v", [case.kv_heads, case.dim_v])?;
        if let Some(spec) = &case.rope {
            (q, k) = (b.add(Op::Rope(spec.clone()), &[q])?, b.add(Op::Rope(spec.clone()), &[k])?);
        }
        let (heads, dim_k, dim_v) = (case.kv_heads, case.dim_k, case.dim_v);
        let slot = b.slot(0, SlotKind::Kv { heads, dim_k, dim_v, window: None })?;
        let op = Op::Attention {
            slot,
            scale: 2.0 / (case.dim_k as f32).sqrt(),
            mask: case.mask,
            softcap: case.softcap,
            sinks: case.has_sinks.then(|| "sinks".into()),
        };
        let y = b.add(op, &[q, k, v])?;
        b.section(Section::Head);
        as_logits(b, y)
    })
}

/// Scores are sums of up to 64 terms of about 1 and reach 4, exponentials multiply their errors by as much:
/// 64 * 4 * 2^-24.
const BOUND: f64 = 1.6e-5;

#[test]
fn attention_follows_its_formula() {
    let yarn = RopeSpec {
        dims: 8,
        frequencies: RopeFrequencies::Yarn {
            factor: 4.0,
            beta_fast: 32.0,
            beta_slow: 1.0,
            original_max_position_embeddings: 16.0,
            truncate: true,
        },
        attention_factor: 1.2,
        ..RopeSpec::new(8, 100.0)
    };
    let cases = [
        ("plain", PLAIN),
        ("grouped heads", Case { heads: 6, kv_heads: 2, ..PLAIN }),
        ("one key head for eight", Case { heads: 8, kv_heads: 1, ..PLAIN }),
        ("odd widths", Case { dim_k: 5, dim_v: 19, ..PLAIN }),
        ("wide values", Case { dim_k: 16, dim_v: 83, ..PLAIN }),
        ("a window of 1", Case { mask: Mask::Window(1), ..PLAIN }),
        ("a window of 5", Case { mask: Mask::Window(5), ..PLAIN }),
        ("a window beyond the sequence", Case { mask: Mask::Window(1000), ..PLAIN }),
        ("chunks of 6", Case { mask: Mask::Chunked(6), heads: 4, ..PLAIN }),
        ("chunks of 16", Case { mask: Mask::Chunked(16), ..PLAIN }),
        ("no prefix", Case { mask: Mask::BidirectionalPrefix, ..PLAIN }),
        ("a softcap", Case { softcap: Some(1.5), ..PLAIN }),
        ("sinks", Case { has_sinks: true, heads: 4, ..PLAIN }),
        ("all of it", Case { heads: 4, mask: Mask::Window(3), softcap: Some(2.0), has_sinks: true, ..PLAIN }),
        ("rotation", Case { rope: Some(RopeSpec::new(8, 10_000.0)), ..PLAIN }),
        ("rotation of a part", Case { rope: Some(RopeSpec::new(4, 100.0)), ..PLAIN }),
        (
            "interleaved rotation",
            Case {
                rope: Some(RopeSpec { layout: RopeLayout::Interleaved, ..RopeSpec::new(6, 50.0) }),
                ..PLAIN
            },
        ),
        ("yarn", Case { rope: Some(yarn), ..PLAIN }),
    ];
    for (name, case) in cases {
        let model = model(&case);
        check(name, &model, &graph(&model, &case), &options(), BOUND);
    }
}

#[test]
fn every_storage_of_the_cache_rounds_as_it_says() {
    for case in [PLAIN, Case { heads: 4, dim_k: 5, dim_v: 83, mask: Mask::Window(9), ..PLAIN }] {
        let model = model(&case);
        let graph = graph(&model, &case);
        for (kv, name) in KvStorage::PLAIN {
            let options = CompileOptions { kv, ..options() };
            // A key that lies between two stored numbers may fall on the other side than in double precision:
            // one step of 2^-8 (bfloat16) or 2^-11 (half) in one term of 8, at scores of up to 4.
            let step = match kv {
                KvStorage::PlainF32 => 0.0,
                KvStorage::PlainF16 => 2.0_f64.powi(-11),
                KvStorage::PlainBf16 => 2.0_f64.powi(-8),
                KvStorage::Quantised(_) => unreachable!("plain storages alone"),
            };
            check(name, &model, &graph, &options, BOUND + step);
        }
    }
}

#[test]
fn a_shared_slot_reads_what_its_donor_wrote() {
    let model = Folder::new(12).dense("e", DType::F32, &[8, 16]).dense("k", DType::F32, &[8, 16]).open();
    let build = |reader_first: bool| {
        model.graph(|b| {
            let ids = b.add(Op::Tokens, &[])?;
            let x = b.add(Op::Embedding { weight: "e".into() }, &[ids])?;
            let k = heads(b, x, "k", [1, 8])?;
            let q = b.add(Op::Reshape { shape: Shape::per_token(&[2, 8]) }, &[x])?;
            let donor = b.slot(1, SlotKind::Kv { heads: 1, dim_k: 8, dim_v: 8, window: None })?;
            // In a layer below its donor's, so that its number is the lower one.
            let shared = b.slot(0, SlotKind::KvShared { with: donor })?;
            let attention =
                |slot| Op::Attention { slot, scale: 0.5, mask: Mask::Causal, softcap: None, sinks: None };
            let a = b.add(attention(donor), &[q, k, k])?;
            let c = b.add(attention(shared), &[q])?;
            let parts = if reader_first { [c, a] } else { [a, c] };
            let both = b.add(Op::Concat { axis: 2 }, &parts)?;
            b.section(Section::Head);
            as_logits(b, both)
        })
    };
    check("after its donor", &model, &build(false), &options(), BOUND);
    // The order in which the logits need them says nothing of who writes first.
    check("needed before its donor", &model, &build(true), &options(), BOUND);
}
