//! Every form of weights that MLX multiplies with, and the refusal of those it does not.

use host_core::{DType, Numeric, Reported};
use host_device::{CompileOptions, Device};
use host_graph::{Graph, Op, Section};
use host_weights::FloatMode;

use super::support::{Folder, Model, as_logits, check, options};
use crate::MlxDevice;
use crate::weights::{BITS, GROUPS};

/// A product of a table's rows, and the table's own rows beside it.
fn graph(model: &Model, table: &str, weight: &str) -> Graph {
    model.graph(|b| {
        let ids = b.add(Op::Tokens, &[])?;
        let x = b.add(Op::Embedding { weight: table.into() }, &[ids])?;
        let y = b.add(Op::Linear { weight: weight.into(), bias: None }, &[x])?;
        let both = b.add(Op::Concat { axis: 2 }, &[x, y])?;
        b.section(Section::Head);
        as_logits(b, both)
    })
}

/// Sums of 128 terms of about 0.1, one after the other: 128 * 2^-24 of a row of about 1.
const BOUND: f64 = 8e-6;

#[test]
fn affine_weights_of_every_width_and_group() {
    for bits in BITS {
        for (group, scale) in GROUPS.into_iter().zip([DType::F16, DType::BF16, DType::F32]) {
            let model = Folder::new(31)
                .affine("e", &[8, 128], bits, group, scale)
                .affine("w", &[48, 128], bits, group, scale)
                .open();
            let graph = graph(&model, "e.weight", "w.weight");
            check(&format!("{bits} bits in groups of {group}"), &model, &graph, &options(), BOUND);
        }
    }
}

#[test]
fn floating_point_codes_of_every_format() {
    for mode in [FloatMode::Mxfp4, FloatMode::Mxfp8, FloatMode::Nvfp4] {
        let model =
            Folder::new(32).float_groups("e", &[8, 128], mode).float_groups("w", &[48, 128], mode).open();
        let graph = graph(&model, "e.weight", "w.weight");
        check(mode.name(), &model, &graph, &options(), BOUND);
    }
}

#[test]
fn numbers_of_every_dtype() {
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        let model = Folder::new(33).dense("e", dtype, &[8, 128]).dense("w", dtype, &[48, 128]).open();
        check(dtype.name(), &model, &graph(&model, "e", "w"), &options(), BOUND);
    }
}

#[test]
fn fast_numbers_are_those_of_the_checkpoint() {
    // Inputs are exact; each of 128 products and the result round to the dtype: a few of its steps.
    for (dtype, step) in [(DType::BF16, 2.0_f64.powi(-8)), (DType::F16, 2.0_f64.powi(-11))] {
        let model = Folder::new(34).dense("e", dtype, &[8, 128]).affine("w", &[48, 128], 4, 64, dtype).open();
        let graph = graph(&model, "e", "w.weight");
        let fast = CompileOptions { numeric: Numeric::Fast, ..options() };
        check(&format!("fast {dtype}"), &model, &graph, &fast, step / 4.0);
    }
}

#[test]
fn groups_that_mlx_lacks_are_refused_before_weights_are_read() {
    let model =
        Folder::new(35).dense("e", DType::F32, &[8, 128]).affine("w", &[48, 128], 6, 16, DType::F16).open();
    let graph = graph(&model, "e", "w.weight");
    let refused = MlxDevice::new().check(&graph, model.checkpoint.catalogue(), &options()).unwrap_err();
    let report = refused.report();
    assert_eq!(report.code, "device.encoding");
    assert_eq!(report.found.as_deref(), Some("affine 6-bit, groups of 16"));
    assert!(report.mend.is_some_and(|mend| mend.contains("`cpu`")));
}

#[test]
fn a_plan_beyond_the_limit_is_refused() {
    let model = Folder::new(36).dense("e", DType::F32, &[8, 128]).dense("w", DType::F32, &[48, 128]).open();
    let graph = graph(&model, "e", "w");
    let options = CompileOptions { memory_bytes: Some(1000), ..options() };
    let refused = MlxDevice::new().check(&graph, model.checkpoint.catalogue(), &options).unwrap_err();
    assert_eq!(refused.report().code, "device.memory");
}
