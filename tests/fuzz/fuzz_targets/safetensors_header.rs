//! The header of a safetensors file: whatever the bytes say, each tensor that comes out lies in the file.
#![no_main]

use host_weights::safetensors::Header;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|file: &[u8]| {
    let Ok(header) = Header::parse(file, file.len() as u64) else { return };
    let mut covered = 0;
    for tensor in &header.tensors {
        let elements: usize = tensor.shape.iter().product();
        assert_eq!(elements * tensor.dtype.size_bytes(), tensor.bytes);
        assert_eq!(file[tensor.begin..tensor.begin + tensor.bytes].len(), tensor.bytes);
        covered += tensor.bytes;
    }
    assert!(covered < file.len());
});
