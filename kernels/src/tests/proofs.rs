//! Every kernel over its cases, and the words of its bodies.

use std::collections::HashMap;

use super::emulator::{Emulated, Entry, has_compiler};
use crate::case::{Case, Data, Dtype};
use crate::kernels::{decode_attention, gated_delta, swiglu};
use crate::{ALL, ATTRIBUTES, Kernel};

#[test]
fn kernels_agree_with_their_plain_forms() {
    if !has_compiler() {
        return;
    }
    std::thread::scope(|scope| {
        for kernel in &ALL {
            scope.spawn(|| check(kernel));
        }
    });
}

/// All cases of a kernel, in one program.
fn check(kernel: &Kernel) {
    let cases = (kernel.cases)();
    let entries: Vec<Entry<'_>> = cases.iter().flat_map(|case| entries(kernel, case)).collect();
    let emulated = Emulated::new(&entries);
    for (index, case) in cases.iter().enumerate() {
        check_case(kernel, case, &emulated, index * kernel.stages.len());
    }
}

/// One entry a stage: later stages take what earlier ones give.
fn entries<'a>(kernel: &'a Kernel, case: &'a Case) -> Vec<Entry<'a>> {
    assert_eq!(kernel.stages.len(), case.launches.len(), "{}: launches", kernel.name);
    let known = case.inputs.iter().map(|(name, data)| (*name, (data.shape.iter().product(), data.dtype)));
    let mut known: HashMap<&str, (usize, Dtype)> = known.collect();
    let mut entries = Vec::new();
    for (stage, launch) in kernel.stages.iter().zip(&case.launches) {
        let inputs = stage.inputs.iter().map(|name| {
            let (n, dtype) = known[name];
            (*name, n, dtype)
        });
        let inputs = inputs.collect();
        entries.push(Entry { body: stage.body, inputs, outputs: stage.outputs.to_vec(), launch });
        for (name, (shape, dtype)) in stage.outputs.iter().zip(&launch.outputs) {
            known.insert(name, (shape.iter().product(), *dtype));
        }
    }
    entries
}

fn check_case(kernel: &Kernel, case: &Case, emulated: &Emulated, first: usize) {
    let mut known: HashMap<&str, Data> = case.inputs.iter().cloned().collect();
    let mut last = Vec::new();
    for (index, (stage, launch)) in kernel.stages.iter().zip(&case.launches).enumerate() {
        let inputs: Vec<(&str, &Data)> = stage.inputs.iter().map(|name| (*name, &known[name])).collect();
        let ran = emulated.run(first + index, &inputs, launch);
        last = ran.unwrap_or_else(|fault| panic!("{}, {}: {fault}", stage.name, case.name));
        for ((name, (shape, dtype)), numbers) in stage.outputs.iter().zip(&launch.outputs).zip(&last) {
            known.insert(name, Data::floats(shape, *dtype, numbers));
        }
    }
    assert_eq!(last.len(), case.expected.len());
    for (found, expected) in last.iter().zip(&case.expected) {
        let unit = expected.iter().fold(1.0_f64, |top, x| top.max(f64::from(x.abs())));
        assert_eq!(found.len(), expected.len());
        for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
            let difference = f64::from((found - expected).abs());
            let (name, case_name) = (kernel.name, &case.name);
            let is_near = difference <= case.tolerance * unit;
            assert!(is_near, "{name}, {case_name}, element {i}: {found}, expected {expected}");
        }
    }
}

/// A word that looks like an attribute must be one, or MLX declares nothing for it.
#[test]
fn bodies_use_attributes_that_mlx_declares() {
    for stage in ALL.iter().flat_map(|kernel| kernel.stages) {
        let words = stage.body.split(|c: char| !c.is_alphanumeric() && c != '_');
        let looks_like = |word: &&str| {
            ["_in_threadgroup", "_in_grid", "_in_simdgroup", "_per_threadgroup", "_per_grid"]
                .iter()
                .any(|end| word.ends_with(end))
        };
        let found: Vec<&str> = words.filter(looks_like).collect();
        assert!(!found.is_empty(), "{}", stage.name);
        for word in found {
            assert!(ATTRIBUTES.contains(&word), "{}: `{word}` is no attribute of MLX", stage.name);
        }
    }
}

/// What MLX writes around a body must not be hidden from it, and arrays must stay arrays.
#[test]
fn bodies_keep_to_what_all_three_compilers_take() {
    for stage in ALL.iter().flat_map(|kernel| kernel.stages) {
        for name in stage.inputs.iter().chain(stage.outputs) {
            let ways = [format!("{name}["), format!("({name} + ")];
            let is_used = ways.iter().any(|way| stage.body.contains(way));
            assert!(is_used, "{}: `{name}` is not used", stage.name);
        }
        assert!(!stage.body.contains("#define"), "{}: macros hide names", stage.name);
        assert!(!stage.body.contains('*') || !stage.body.contains("threadgroup float*"), "{}", stage.name);
    }
}

#[test]
fn shapes_beyond_the_predicates_are_refused() {
    let swiglu = swiglu::Shape { rows: 1, width: 64, inner: 8, bits: 4, group: 32, dtype: Dtype::Bf16 };
    assert_eq!(swiglu.refusal(), None);
    let refused = [
        swiglu::Shape { bits: 3, ..swiglu },
        swiglu::Shape { group: 16, ..swiglu },
        swiglu::Shape { width: 48, ..swiglu },
        swiglu::Shape { inner: 6, ..swiglu },
        swiglu::Shape { rows: 0, ..swiglu },
        swiglu::Shape { dtype: Dtype::U32, ..swiglu },
    ];
    assert!(refused.iter().all(|shape| shape.refusal().is_some()));
    let attention = decode_attention::Shape {
        heads: 4,
        kv_heads: 2,
        dim: 256,
        positions: 5,
        capacity: 8,
        bits: 4,
        group: 64,
        dtype: Dtype::Bf16,
    };
    assert_eq!(attention.refusal(), None);
    let refused = [
        decode_attention::Shape { dim: 128, ..attention },
        decode_attention::Shape { dim: 250, ..attention },
        decode_attention::Shape { bits: 6, ..attention },
        decode_attention::Shape { kv_heads: 3, ..attention },
        decode_attention::Shape { positions: 9, ..attention },
    ];
    assert!(refused.iter().all(|shape| shape.refusal().is_some()));
    let delta = gated_delta::Shape {
        rows: 1,
        steps: 3,
        key_heads: 1,
        heads: 1,
        dim_k: 32,
        dim_v: 8,
        dtype: Dtype::F32,
    };
    assert_eq!(delta.refusal(), None);
    let refused = [
        gated_delta::Shape { dim_k: 24, ..delta },
        gated_delta::Shape { dim_v: 6, ..delta },
        gated_delta::Shape { heads: 3, key_heads: 2, ..delta },
    ];
    assert!(refused.iter().all(|shape| shape.refusal().is_some()));
}
