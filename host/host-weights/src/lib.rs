//! Checkpoints by name: safetensors folders (single or sharded, MLX-quantised or not) and GGUF files.
//!
//! Opening a [`Checkpoint`] reads and checks headers only; the bytes of a tensor are mapped when it is first
//! taken, so that a composition is resolved before any weight is touched. Names, shapes and configuration keys
//! are those of the published safetensors checkpoint, whichever format the file has.
//!
//! Nothing here computes with weights or knows a model: a quantised tensor is handed out as the codes, scales
//! and offsets that the file stores, exactly, and a device packs them as it likes.

mod catalogue;
mod checkpoint;
mod config;
mod encode;
mod error;
pub mod export;
pub mod gguf;
mod json;
mod mapping;
mod quantization;
pub mod safetensors;
mod stored;
pub mod tensor;

pub use catalogue::{Catalogue, Encoding, FloatMode, Format, Offset, TensorInfo};
pub use checkpoint::Checkpoint;
pub use config::{ConfigOrigin, ModelConfig, read_config};
pub use error::WeightsError;
pub use export::write_model_folder;
pub use json::JsonFault;
pub use quantization::{QuantMode, QuantSpec, Quantization, QuantizationFault};
pub use tensor::{AffineTensor, DenseTensor, FloatGroupsTensor, Tensor};
