//! Reads a checkpoint into the forms that a plan wants: matrices repacked, vectors as floats.
#![expect(unsafe_code, reason = "threads fill disjoint panels of one region")]

use std::sync::atomic::{AtomicUsize, Ordering};

use host_device::DeviceError;
use host_weights::{Checkpoint, Tensor};

use crate::matrix::Scratch;
use crate::memory::Region;
use crate::moe::Stack;
use crate::plan::WeightsPlan;
use crate::pool::Pool;

/// Fills the weights' and the constants' regions.
pub(crate) fn load(
    plan: &WeightsPlan,
    checkpoint: &Checkpoint,
    pool: &Pool,
    weights: &mut Region,
    constants: &mut Region,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), DeviceError> {
    for source in &plan.vectors {
        let Tensor::Dense(tensor) = checkpoint.tensor(&source.name)? else {
            unreachable!("the plan refused quantised vectors")
        };
        let mut values = vec![0.0_f32; source.len];
        tensor.read_f32(0..source.len, &mut values)?;
        let to = constants.bytes_mut(source.offset, 4 * source.len);
        for (bytes, value) in to.chunks_exact_mut(4).zip(values) {
            bytes.copy_from_slice(&(value + source.add).to_ne_bytes());
        }
    }
    let all = plan.matrix_bytes as u64;
    let mut done = 0;
    progress(done, all);
    for (name, stack) in &plan.matrices {
        let tensor = checkpoint.tensor(name)?;
        let packed = weights.bytes_mut(stack.matrix.offset, stack.bytes());
        pack(&tensor, stack, pool, packed);
        checkpoint.release(name);
        done += stack.bytes() as u64;
        progress(done, all);
    }
    Ok(())
}

/// Panels that a thread takes at once.
const PANELS_AT_ONCE: usize = 8;

fn pack(tensor: &Tensor<'_>, stack: &Stack, pool: &Pool, out: &mut [u8]) {
    struct Shared(*mut u8);
    // SAFETY: threads write disjoint panels.
    unsafe impl Sync for Shared {}
    let matrix = &stack.matrix;
    let n_panels = stack.count * matrix.n_panels();
    let base = Shared(out.as_mut_ptr());
    let next = AtomicUsize::new(0);
    pool.run(&|_| {
        let base = &base;
        let mut scratch = Scratch::default();
        loop {
            let first = next.fetch_add(PANELS_AT_ONCE, Ordering::Relaxed);
            if first >= n_panels {
                return;
            }
            for panel in first..(first + PANELS_AT_ONCE).min(n_panels) {
                // SAFETY: this thread took the panel; `out` holds all of them.
                let to = unsafe {
                    let start = base.0.add(panel * matrix.panel_bytes());
                    std::slice::from_raw_parts_mut(start, matrix.panel_bytes())
                };
                let (index, panel) = (panel / matrix.n_panels(), panel % matrix.n_panels());
                matrix.pack(tensor, index * matrix.n_out, panel, &mut scratch, to);
            }
        }
    });
}
