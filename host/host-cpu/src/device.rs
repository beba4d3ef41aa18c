//! The device: what it can do here, and how a graph becomes an executable.

use host_core::Numeric;
use host_device::{Capability, CompileOptions, Device, DeviceError, Executable, MemoryPlan};
use host_graph::Graph;
use host_weights::{Catalogue, Checkpoint};

use crate::DEVICE_ID;
use crate::executable::CpuExecutable;
use crate::features::Simd;
use crate::load::load;
use crate::memory::Region;
use crate::plan::compile;
use crate::pool::Pool;

/// The processor of this machine.
#[derive(Clone, Copy, Debug)]
pub struct CpuDevice {
    simd: Simd,
}

impl CpuDevice {
    /// The device with the best form of the kernels that this machine can run.
    pub fn new() -> Self {
        CpuDevice { simd: Simd::available()[0] }
    }

    /// The device with a given form; `None` when this machine cannot run it.
    pub fn with_simd(simd: Simd) -> Option<Self> {
        Simd::available().contains(&simd).then_some(CpuDevice { simd })
    }

    /// The form of the kernels.
    pub fn simd(&self) -> Simd {
        self.simd
    }
}

impl Default for CpuDevice {
    fn default() -> Self {
        CpuDevice::new()
    }
}

impl Device for CpuDevice {
    fn id(&self) -> &'static str {
        DEVICE_ID
    }

    fn capabilities(&self) -> Vec<Capability> {
        let forms: Vec<_> = Simd::available().iter().map(ToString::to_string).collect();
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
        vec![
            Capability { name: "simd", value: self.simd.to_string() },
            Capability { name: "forms", value: forms.join(", ") },
            Capability { name: "threads", value: threads.to_string() },
            Capability { name: "numeric", value: format!("{}, {}", Numeric::Exact, Numeric::Fast) },
        ]
    }

    fn check(
        &self,
        graph: &Graph,
        catalogue: &Catalogue,
        options: &CompileOptions,
    ) -> Result<MemoryPlan, DeviceError> {
        let (plan, weights) = compile(graph, catalogue, options)?;
        let memory = CpuExecutable::memory_plan(&plan, &weights, options);
        check_memory(memory, options)?;
        Ok(memory)
    }

    fn compile(
        &self,
        graph: &Graph,
        checkpoint: &Checkpoint,
        options: &CompileOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Box<dyn Executable>, DeviceError> {
        let (plan, sources) = compile(graph, checkpoint.catalogue(), options)?;
        let memory = CpuExecutable::memory_plan(&plan, &sources, options);
        check_memory(memory, options)?;
        let pool = Pool::new(options.n_threads).map_err(|source| DeviceError::Threads { source })?;
        let mut weights = region(sources.matrix_bytes, true)?;
        let mut constants = region(sources.constant_bytes, false)?;
        load(&sources, checkpoint, &pool, &mut weights, &mut constants, progress)?;
        let executable = CpuExecutable::new(self.simd, plan, pool, weights, constants, memory, options)?;
        Ok(Box::new(executable))
    }
}

fn check_memory(memory: MemoryPlan, options: &CompileOptions) -> Result<(), DeviceError> {
    match options.memory_bytes {
        Some(limit) if memory.total_bytes() > limit => Err(DeviceError::Memory {
            needed: memory.total_bytes(),
            limit,
            detail: format!(
                "weights {}, state {}, activations {}",
                memory.weights_bytes, memory.state_bytes, memory.activation_bytes
            ),
        }),
        _ => Ok(()),
    }
}

/// A zeroed region, or the refusal that the system has no more memory.
pub(crate) fn region(bytes: usize, huge_pages: bool) -> Result<Region, DeviceError> {
    Region::new(bytes, huge_pages).ok_or(DeviceError::OutOfMemory { bytes: bytes as u64 })
}
