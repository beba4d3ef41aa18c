//! The device: what MLX finds on this machine, and how a graph becomes an executable.
#![expect(unsafe_code, reason = "asks MLX's C interface what it has")]

use std::ffi::{CStr, c_char};

use host_core::Numeric;
use host_device::{Capability, CompileOptions, Device, DeviceError, Executable, KvStorage, MemoryPlan};
use host_graph::{Graph, SlotKind};
use host_weights::{Catalogue, Checkpoint};

use crate::demand::{self, Choice};
use crate::executable::{Facts, MlxExecutable};
use crate::fault;
use crate::kernel::{self, Proof};
use crate::kv::Kv;
use crate::model::Model;
use crate::program::{self, Program, Tables};
use crate::weights::{self, activation_dtype, size_bytes};
use crate::{Backend, DEVICE_ID, ops};

/// MLX's default device on this machine.
#[derive(Clone, Copy, Debug)]
pub struct MlxDevice {
    backend: Backend,
}

impl MlxDevice {
    /// The device that MLX itself prefers here: a GPU where its build has one and the machine too.
    pub fn new() -> Self {
        fault::catch();
        let backend = if asks(mlx_sys::mlx_metal_is_available) {
            Backend::Metal
        } else if asks(mlx_sys::mlx_cuda_is_available) && has_gpu() {
            Backend::Cuda
        } else {
            ops::trace_only();
            Backend::Cpu
        };
        MlxDevice { backend }
    }

    /// Runs every case of our kernels on this GPU; nothing on MLX's CPU build, which runs none.
    pub fn prove_kernels(&self) -> Vec<Proof> {
        if self.backend == Backend::Cpu { Vec::new() } else { kernel::prove_all(self.backend) }
    }

    /// Why no GPU runs the arrays.
    fn no_gpu(&self) -> Option<&'static str> {
        if self.backend != Backend::Cpu {
            return None;
        }
        Some(if asks(mlx_sys::mlx_cuda_is_available) {
            "MLX's CUDA build finds no NVIDIA GPU; `nvidia-smi` lists those that the driver has, CUDA_VISIBLE_DEVICES hides some"
        } else {
            "this is MLX's CPU build; `cargo xtask mlx --cuda` makes the one for NVIDIA's GPUs"
        })
    }

    /// What runs the arrays.
    pub fn backend(&self) -> Backend {
        self.backend
    }
}

/// Whether MLX says so.
fn asks(f: unsafe extern "C" fn(*mut bool) -> i32) -> bool {
    let mut found = false;
    // SAFETY: fills one bool.
    (unsafe { f(&mut found) } == 0) && found
}

impl Default for MlxDevice {
    fn default() -> Self {
        MlxDevice::new()
    }
}

impl Device for MlxDevice {
    fn id(&self) -> &'static str {
        DEVICE_ID
    }

    fn capabilities(&self) -> Vec<Capability> {
        let bits: Vec<_> = weights::BITS.iter().map(ToString::to_string).collect();
        let groups: Vec<_> = weights::GROUPS.iter().map(ToString::to_string).collect();
        let backend = match self.backend {
            Backend::Cpu => "cpu (right, and slow: for tests)".to_owned(),
            other => other.to_string(),
        };
        let mut found = vec![Capability { name: "backend", value: backend }];
        found.extend(device_name().map(|value| Capability { name: "name", value }));
        found.extend(self.no_gpu().map(|why| Capability { name: "gpu", value: format!("none: {why}") }));
        found.extend([
            Capability { name: "numeric", value: format!("{}, {}", Numeric::Exact, Numeric::Fast) },
            Capability { name: "affine", value: format!("{} bits in groups of {}", bits.join(", "), groups.join(", ")) },
            Capability { name: "float", value: "mxfp4, mxfp8, nvfp4".to_owned() },
            Capability { name: "kv", value: "plain, or 4 and 8 bits in groups of 32, 64, 128".to_owned() },
        ]);
        if self.backend != Backend::Cpu {
            let kernels = demand::LAUNCHED.iter().map(|name| (*name).to_owned());
            found.extend(kernels.map(|value| Capability { name: "kernel", value }));
        }
        found
    }

    fn check(
        &self,
        graph: &Graph,
        catalogue: &Catalogue,
        options: &CompileOptions,
    ) -> Result<MemoryPlan, DeviceError> {
        program::check(graph)?;
        for name in graph.tensors() {
            catalogue.get(name).map_or(Ok(()), weights::check)?;
        }
        check_kv(graph, options.kv)?;
        demand::check(self.backend, graph, catalogue, options)?;
        let memory = plan(graph, catalogue, options);
        match options.memory_bytes {
            Some(limit) if memory.total_bytes() > limit => Err(DeviceError::Memory {
                needed: memory.total_bytes(),
                limit,
                detail: format!(
                    "weights {}, state {}, activations {}",
                    memory.weights_bytes, memory.state_bytes, memory.activation_bytes
                ),
            }),
            _ => Ok(memory),
        }
    }

    fn compile(
        &self,
        graph: &Graph,
        checkpoint: &Checkpoint,
        options: &CompileOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Box<dyn Executable>, DeviceError> {
        let memory = self.check(graph, checkpoint.catalogue(), options)?;
        if let Some(limit) = options.memory_bytes {
            // What MLX keeps for reuse counts as well.
            let limit = usize::try_from(limit).unwrap_or(usize::MAX);
            let set = mlx_rs::memory::set_memory_limit(limit).and_then(|_| {
                mlx_rs::memory::set_cache_limit(limit.saturating_sub(memory.weights_bytes as usize))
            });
            set.map_err(|_| fault::last())?;
        }
        let dtype = activation_dtype(graph, checkpoint.catalogue(), options.numeric);
        let mut tables = Tables::new(self.backend, weights::load(graph, checkpoint, dtype, progress)?);
        let program = Program::new(graph, &mut tables, dtype)?;
        let kv = Kv::of(options.kv);
        let facts = Facts {
            n_vocab: graph.n_vocab(),
            signatures: graph.slots().iter().map(|slot| signature(&slot.kind, options.kv)).collect(),
            memory,
            context_tokens: options.context_tokens,
            max_step_tokens: options.max_step_tokens,
            max_sequences: options.max_sequences,
        };
        let model = Model::new(program, tables, Choice::of(options), kv, options.context_tokens);
        Ok(Box::new(MlxExecutable::new(model, facts)?))
    }
}

/// Refuses heads that are no whole groups of codes.
fn check_kv(graph: &Graph, kv: KvStorage) -> Result<(), DeviceError> {
    for slot in graph.slots() {
        let SlotKind::Kv { dim_k, dim_v, .. } = slot.kind else { continue };
        if let Some(what) = [dim_k, dim_v].into_iter().find_map(|width| Kv::of(kv).refusal(width)) {
            let has = "codes in groups that divide the width of a head, and plain keys and values".to_owned();
            return Err(DeviceError::Unsupported { device: DEVICE_ID, what, has });
        }
    }
    Ok(())
}

/// The identity of a slot's storage.
fn signature(kind: &SlotKind, kv: KvStorage) -> String {
    match kind {
        SlotKind::Kv { window: None, .. } => kv.signature().to_owned(),
        SlotKind::Kv { window: Some(window), .. } => {
            format!("{}:{window}", kv.signature().replace("kv:", "kv:rotating-"))
        }
        SlotKind::KvShared { with } => format!("kv:shared:{}", with.0),
        SlotKind::Conv { .. } => "conv".to_owned(),
        SlotKind::Recurrent { .. } => "recurrent:f32".to_owned(),
        SlotKind::IndexKeys { .. } => "index-keys:f32".to_owned(),
    }
}

/// Bytes at full use: every sequence as long as it may get, in the frame of the longest.
///
/// Activations are an estimate: MLX frees a value behind its last use, so that a step holds a few of the
/// widest at once.
fn plan(graph: &Graph, catalogue: &Catalogue, options: &CompileOptions) -> MemoryPlan {
    const WIDEST_AT_ONCE: u64 = 4;
    let dtype = activation_dtype(graph, catalogue, options.numeric);
    let names = graph.tensors();
    let weights_bytes = names.iter().filter_map(|name| catalogue.get(name)).map(|info| weights::bytes(info, dtype));
    let kv = Kv::of(options.kv);
    let columns = |window: &Option<usize>| {
        let whole = options.context_tokens.next_multiple_of(256);
        window.map_or(whole, |window| window.min(whole)) as u64
    };
    let state = |kind: &SlotKind| match kind {
        SlotKind::Kv { heads, dim_k, dim_v, window } => {
            let column = kv.bytes(*dim_k, dtype) + kv.bytes(*dim_v, dtype);
            *heads as u64 * columns(window) * column
        }
        SlotKind::KvShared { .. } => 0,
        SlotKind::Conv { channels, kernel } => (channels * (kernel - 1)) as u64 * size_bytes(dtype),
        SlotKind::Recurrent { shape } => shape.iter().product::<usize>() as u64 * 4,
        SlotKind::IndexKeys { dim } => *dim as u64 * columns(&None) * 4,
    };
    let of_one: u64 = graph.slots().iter().map(|slot| state(&slot.kind)).sum();
    let widest = graph.nodes().iter().filter(|node| node.shape.lead().len() == 2 && node.shape.last() != Some(graph.n_vocab()));
    let widest = widest.map(|node| node.shape.item_len()).max().unwrap_or(0) as u64;
    let n_logits = options.max_sequences.min(options.max_step_tokens) as u64;
    let activation_bytes = WIDEST_AT_ONCE * widest * options.max_step_tokens as u64 * size_bytes(dtype)
        + n_logits * graph.n_vocab() as u64 * size_bytes(dtype);
    MemoryPlan {
        weights_bytes: weights_bytes.sum(),
        state_bytes: of_one * options.max_sequences as u64,
        activation_bytes,
    }
}

fn has_gpu() -> bool {
    let mut count = 0;
    // SAFETY: fills one number.
    let status = unsafe { mlx_sys::mlx_device_count(&mut count, mlx_sys::mlx_device_type__MLX_GPU) };
    status == 0 && count > 0
}

/// What MLX calls its default device.
fn device_name() -> Option<String> {
    // SAFETY: all handles are made and freed here; the text is copied before.
    unsafe {
        let mut device = mlx_sys::mlx_device_new();
        mlx_sys::mlx_get_default_device(&mut device);
        let mut info = mlx_sys::mlx_device_info_new();
        let mut text: *const c_char = std::ptr::null();
        let mut is_there = false;
        let found = mlx_sys::mlx_device_info_get(&mut info, device) == 0
            && mlx_sys::mlx_device_info_has_key(&mut is_there, info, c"device_name".as_ptr()) == 0
            && is_there
            && mlx_sys::mlx_device_info_get_string(&mut text, info, c"device_name".as_ptr()) == 0
            && !text.is_null();
        let name = found.then(|| CStr::from_ptr(text).to_string_lossy().into_owned());
        mlx_sys::mlx_device_info_free(info);
        mlx_sys::mlx_device_free(device);
        name
    }
}
