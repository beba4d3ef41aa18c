//! Which schemes exist, which tensors can take them, and how a plan is checked.

use super::*;
use crate::dtype::DType;

fn facts(name: &str, shape: &[usize], dtype: DType) -> TensorFacts {
    TensorFacts { name: name.to_owned(), shape: shape.to_vec(), dtype, role: Role::Other, layer: None }
}

fn code(result: Result<impl Sized, QuantError>) -> &'static str {
    result.err().map_or("ok", |error| error.report().code)
}

#[test]
fn the_widths_are_those_of_mlx() {
    for bits in 0..=9 {
        let expected = if [2, 3, 4, 5, 6, 8].contains(&bits) { "ok" } else { "quant.bits" };
        assert_eq!(code(Scheme::affine(bits, 64)), expected, "{bits} bits");
    }
    for (size, expected) in
        [(16, "quant.group-size"), (32, "ok"), (64, "ok"), (128, "ok"), (256, "quant.group-size")]
    {
        assert_eq!(code(Scheme::affine(4, size)), expected, "groups of {size}");
    }
    assert_eq!(code(Scheme::affine(u64::MAX, 64)), "quant.bits");
}

#[test]
fn a_tensor_takes_what_it_can() {
    let affine = Scheme::Affine { bits: 4, group_size: 64 };
    let cases = [
        (affine, facts("a.weight", &[3, 128], DType::F16), "ok"),
        (affine, facts("a.weight", &[2, 3, 128], DType::BF16), "ok"),
        (affine, facts("a.weight", &[3, 96], DType::F32), "quant.indivisible"),
        (Scheme::Mxfp4, facts("a.weight", &[3, 96], DType::F32), "ok"),
        (Scheme::Mxfp8, facts("a.weight", &[3, 48], DType::F32), "quant.indivisible"),
        (Scheme::Nvfp4, facts("a.weight", &[3, 48], DType::F32), "ok"),
        (affine, facts("a.weight", &[128], DType::F32), "quant.not-a-matrix"),
        (affine, facts("a.weight", &[0, 128], DType::F32), "quant.not-a-matrix"),
        (affine, facts("a.bias", &[3, 128], DType::F32), "quant.not-a-matrix"),
        (affine, facts("a.weight", &[3, 128], DType::F64), "quant.not-numbers"),
        (Scheme::Affine { bits: 7, group_size: 64 }, facts("a.weight", &[3, 128], DType::F32), "quant.bits"),
        (Scheme::Keep, facts("a", &[], DType::Bool), "ok"),
    ];
    for (scheme, tensor, expected) in cases {
        assert_eq!(code(scheme.check(&tensor)), expected, "{scheme} for {tensor:?}");
    }
}

/// Answers the same schemes whatever it is asked.
struct Fixed(Vec<Scheme>);

impl QuantProfile for Fixed {
    fn plan(&self, _: &[TensorFacts]) -> Result<Vec<Scheme>, Report> {
        Ok(self.0.clone())
    }
}

#[test]
fn a_plan_is_checked_whole() {
    let tensors = [facts("a.weight", &[3, 128], DType::F16), facts("b.weight", &[3, 48], DType::F16)];
    let good = vec![Scheme::Mxfp4, Scheme::Nvfp4];
    assert_eq!(plan_schemes(&Fixed(good.clone()), &tensors), Ok(good));
    let refusal = |schemes| plan_schemes(&Fixed(schemes), &tensors).expect_err("a refusal");
    assert_eq!(refusal(vec![Scheme::Keep]).code, "quant.count");
    let report = refusal(vec![Scheme::Keep, Scheme::Mxfp4]);
    assert_eq!(report.code, "quant.indivisible");
    assert!(report.message.contains("b.weight"), "{report}");
}

#[test]
fn names_of_roles_are_read_back() {
    for (role, name) in Role::ALL {
        assert_eq!(name.parse(), Ok(role));
        assert_eq!(role.to_string(), name);
    }
    assert_eq!("q".parse::<Role>(), Err(()));
}
