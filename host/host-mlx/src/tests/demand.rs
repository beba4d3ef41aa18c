//! Kernels that a profile names for models without attention.

use host_core::{DType, Reported};
use host_device::CompileOptions;
use host_graph::{Op, Section, Shape, SlotKind};

use super::support::{Folder, as_logits, options};
use crate::{Backend, demand};

/// What the check says of `gated-delta` for a rule with keys this wide.
fn asked(dim_k: usize) -> Result<(), String> {
    let model = Folder::new(5)
        .dense("e", DType::F32, &[8, 12])
        .dense("k", DType::F32, &[2 * dim_k, 12])
        .dense("v", DType::F32, &[16, 12])
        .dense("g", DType::F32, &[4, 12])
        .open();
    let graph = model.graph(|b| {
        let ids = b.add(Op::Tokens, &[])?;
        let x = b.add(Op::Embedding { weight: "e".into() }, &[ids])?;
        let k = b.add(Op::Linear { weight: "k".into(), bias: None }, &[x])?;
        let k = b.add(Op::Reshape { shape: Shape::per_token(&[2, dim_k]) }, &[k])?;
        let v = b.add(Op::Linear { weight: "v".into(), bias: None }, &[x])?;
        let v = b.add(Op::Reshape { shape: Shape::per_token(&[4, 4]) }, &[v])?;
        let g = b.add(Op::Linear { weight: "g".into(), bias: None }, &[x])?;
        let slot = b.slot(0, SlotKind::Recurrent { shape: vec![4, 4, dim_k] })?;
        let y = b.add(Op::GatedDelta { slot }, &[k, k, v, g, g])?;
        b.section(Section::Head);
        as_logits(b, y)
    });
    let options = CompileOptions { kernels: vec!["gated-delta".to_owned()], ..options() };
    demand::check(Backend::Cuda, &graph, model.checkpoint.catalogue(), &options)
        .map_err(|error| error.report().message)
}

#[test]
fn a_gated_delta_rule_must_fit_the_kernel_that_is_named() {
    assert_eq!(asked(32), Ok(()));
    let refused = asked(24).unwrap_err();
    assert!(
        refused.contains("`gated-delta`") && refused.contains("keys must be a multiple of 32 wide"),
        "{refused}"
    );
}
