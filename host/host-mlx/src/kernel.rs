//! Launches kernels of our own through MLX: Metal's form on Apple's GPUs, CUDA's behind a prelude.
#![expect(unsafe_code, reason = "calls MLX's C interface with live arrays, and runs bodies that were proven")]

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{CString, c_char, c_int};
use std::time::Instant;

use kernels::{CUDA_PRELUDE, Case, Data, Kernel, Launch, Stage, Template};
use mlx_rs::{Array, Dtype};
use mlx_sys as sys;

use crate::Backend;
use crate::fault::{self, Fault};
use crate::ops;

/// What one kernel's case gave on a device.
#[derive(Clone, Debug, PartialEq)]
pub struct Proof {
    /// The kernel.
    pub kernel: &'static str,
    /// The case.
    pub case: String,
    /// The largest difference, in units of the largest number, or what MLX said.
    pub difference: Result<f64, String>,
    /// The largest that is allowed.
    pub tolerance: f64,
    /// Microseconds of one call among many, the least of some rounds: the host's share is in it. Absent where MLX
    /// refused.
    pub micros: Option<f64>,
}

impl Proof {
    /// Whether the device agrees with the plain form.
    pub fn holds(&self) -> bool {
        self.difference.as_ref().is_ok_and(|difference| *difference <= self.tolerance)
    }
}

/// Runs every case of every kernel on a GPU.
pub(crate) fn prove_all(backend: Backend) -> Vec<Proof> {
    let of_kernel = |kernel: &Kernel| -> Vec<Proof> {
        let prove = |case: &Case| Proof {
            kernel: kernel.name,
            case: case.name.clone(),
            difference: difference(backend, kernel, case).map_err(|fault| fault.0),
            tolerance: case.tolerance,
            micros: micros(backend, kernel, case).ok(),
        };
        (kernel.cases)().iter().map(prove).collect()
    };
    kernels::ALL.iter().flat_map(of_kernel).collect()
}

/// Launches all stages of a case over its inputs, lazily; gives what the last one makes.
fn launched(
    backend: Backend,
    kernel: &Kernel,
    case: &Case,
    inputs: &[(&'static str, Array)],
) -> Result<Vec<Array>, Fault> {
    let mut known = inputs.to_vec();
    let mut last = Vec::new();
    for (stage, at) in kernel.stages.iter().zip(&case.launches) {
        let of_name = |name: &&str| known.iter().rev().find(|(known, _)| known == name).map(|(_, array)| array);
        let inputs: Vec<&Array> = stage.inputs.iter().filter_map(of_name).collect();
        last = launch(backend, stage, &inputs, at)?;
        known.extend(stage.outputs.iter().copied().zip(last.iter().cloned()));
    }
    Ok(last)
}

fn arrays(case: &Case) -> Vec<(&'static str, Array)> {
    case.inputs.iter().map(|(name, data)| (*name, array(data))).collect()
}

fn micros(backend: Backend, kernel: &Kernel, case: &Case) -> Result<f64, Fault> {
    const ROUNDS: usize = 5;
    const CALLS: usize = 64;
    let inputs = arrays(case);
    ops::eval(inputs.iter().map(|(_, array)| array))?;
    let mut least = f64::INFINITY;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let made = (0..CALLS).map(|_| launched(backend, kernel, case, &inputs));
        let made = made.collect::<Result<Vec<_>, _>>()?;
        ops::eval(made.iter().flatten())?;
        least = least.min(start.elapsed().as_secs_f64() * 1e6 / CALLS as f64);
    }
    Ok(least)
}

fn difference(backend: Backend, kernel: &Kernel, case: &Case) -> Result<f64, Fault> {
    let last = launched(backend, kernel, case, &arrays(case))?;
    let mut largest = 0.0_f64;
    for (found, expected) in last.iter().zip(&case.expected) {
        let unit = expected.iter().fold(1.0_f64, |top, x| top.max(f64::from(x.abs())));
        for (found, expected) in ops::read_floats(found)?.iter().zip(expected) {
            let off = f64::from((found - expected).abs()) / unit;
            largest = if off > largest || off.is_nan() { off } else { largest };
        }
    }
    Ok(largest)
}

fn array(data: &Data) -> Array {
    let shape: Vec<i32> = data.shape.iter().map(|n| *n as i32).collect();
    ops::from_bytes(&data.bytes, &shape, dtype(data.dtype))
}

fn dtype(dtype: kernels::Dtype) -> Dtype {
    match dtype {
        kernels::Dtype::F32 => Dtype::Float32,
        kernels::Dtype::F16 => Dtype::Float16,
        kernels::Dtype::Bf16 => Dtype::Bfloat16,
        kernels::Dtype::U32 => Dtype::Uint32,
        kernels::Dtype::I32 => Dtype::Int32,
    }
}

/// Names for MLX.
struct Names(sys::mlx_vector_string);

impl Names {
    fn new(names: &[&str]) -> Self {
        // SAFETY: a fresh list; MLX copies each name.
        let list = Names(unsafe { sys::mlx_vector_string_new() });
        for name in names {
            let name = c_string(name);
            // SAFETY: both are alive.
            unsafe { sys::mlx_vector_string_append_value(list.0, name.as_ptr()) };
        }
        list
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        // SAFETY: made by `new`, freed once.
        unsafe { sys::mlx_vector_string_free(self.0) };
    }
}

fn c_string(text: &str) -> CString {
    CString::new(text).expect("kernels hold no zero bytes")
}

/// Both forms have the same calls under different names.
macro_rules! launch_with {
    ($inputs:expr, $at:expr, $kernel:expr, $config_new:ident, $config_free:ident, $output:ident,
     $grid:ident, $group:ident, $dtype:ident, $int:ident, $apply:ident) => {{
        let config = sys::$config_new();
        let mut status: c_int = 0;
        for (shape, kind) in &$at.outputs {
            let shape: Vec<c_int> = shape.iter().map(|n| *n as c_int).collect();
            status |= sys::$output(config, shape.as_ptr(), shape.len(), dtype(*kind).into());
        }
        let [x, y, z] = $at.grid.map(|n| n as c_int);
        status |= sys::$grid(config, x, y, z);
        let [x, y, z] = $at.group.map(|n| n as c_int);
        status |= sys::$group(config, x, y, z);
        for (name, value) in &$at.templates {
            let name = c_string(name);
            let name: *const c_char = name.as_ptr();
            status |= match value {
                Template::Type(kind) => sys::$dtype(config, name, dtype(*kind).into()),
                Template::Int(value) => sys::$int(config, name, *value),
            };
        }
        let given = ops::list($inputs.iter().copied());
        let mut outputs = sys::mlx_vector_array_new();
        if status == 0 {
            status = sys::$apply(&mut outputs, $kernel, given.handle(), config, ops::stream());
        }
        let arrays = if status == 0 { ops::items(outputs) } else { Err(fault::last()) };
        sys::mlx_vector_array_free(outputs);
        sys::$config_free(config);
        arrays
    }};
}

/// A kernel as MLX holds it; made once a thread and kept for its life.
#[derive(Clone, Copy)]
enum Made {
    Metal(sys::mlx_fast_metal_kernel),
    Cuda(sys::mlx_fast_cuda_kernel),
}

thread_local! {
    /// By the name of their stage.
    static MADE: RefCell<HashMap<&'static str, Made>> = RefCell::new(HashMap::new());
}

fn made(backend: Backend, stage: &Stage) -> Result<Made, Fault> {
    if let Some(known) = MADE.with_borrow(|known| known.get(stage.name).copied()) {
        return Ok(known);
    }
    let (given, gives) = (Names::new(stage.inputs), Names::new(stage.outputs));
    let name = c_string(stage.name);
    let (body, prelude) = match backend {
        Backend::Cuda => (c_string(&bare(stage.body)), c_string(&bare(CUDA_PRELUDE))),
        _ => (c_string(stage.body), CString::default()),
    };
    let (name_at, body_at) = (name.as_ptr(), body.as_ptr());
    // SAFETY: all texts and lists are alive; MLX copies them.
    let kernel = unsafe {
        match backend {
            Backend::Metal => Made::Metal(sys::mlx_fast_metal_kernel_new(
                name_at,
                given.0,
                gives.0,
                body_at,
                prelude.as_ptr(),
                true,
                false,
            )),
            Backend::Cuda => Made::Cuda(sys::mlx_fast_cuda_kernel_new(
                name_at,
                given.0,
                gives.0,
                body_at,
                prelude.as_ptr(),
                true,
                0,
            )),
            Backend::Cpu => return Err(Fault("MLX's CPU build runs no kernels of ours".to_owned())),
        }
    };
    MADE.with_borrow_mut(|known| known.insert(stage.name, kernel));
    Ok(kernel)
}

/// A text without comments and indentation: MLX reads a kernel's whole text at every launch on CUDA, to know it again.
fn bare(text: &str) -> String {
    let lines = text.lines().filter_map(|line| line.split("//").next()).map(str::trim);
    lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
}

/// Launches one stage lazily. Its inputs fit the launch: the kernel's predicate has been asked.
pub(crate) fn launch(
    backend: Backend,
    stage: &Stage,
    inputs: &[&Array],
    at: &Launch,
) -> Result<Vec<Array>, Fault> {
    // SAFETY: all handles are alive; the body stays within its buffers for inputs of the launch's sizes, as the
    // emulator proves over the kernel's cases.
    unsafe {
        match made(backend, stage)? {
            Made::Metal(kernel) => launch_with!(
                inputs,
                at,
                kernel,
                mlx_fast_metal_kernel_config_new,
                mlx_fast_metal_kernel_config_free,
                mlx_fast_metal_kernel_config_add_output_arg,
                mlx_fast_metal_kernel_config_set_grid,
                mlx_fast_metal_kernel_config_set_thread_group,
                mlx_fast_metal_kernel_config_add_template_arg_dtype,
                mlx_fast_metal_kernel_config_add_template_arg_int,
                mlx_fast_metal_kernel_apply
            ),
            Made::Cuda(kernel) => launch_with!(
                inputs,
                at,
                kernel,
                mlx_fast_cuda_kernel_config_new,
                mlx_fast_cuda_kernel_config_free,
                mlx_fast_cuda_kernel_config_add_output_arg,
                mlx_fast_cuda_kernel_config_set_grid,
                mlx_fast_cuda_kernel_config_set_thread_group,
                mlx_fast_cuda_kernel_config_add_template_arg_dtype,
                mlx_fast_cuda_kernel_config_add_template_arg_int,
                mlx_fast_cuda_kernel_apply
            ),
        }
    }
}
