//! A whole GGUF file: whatever the bytes say, a model that comes out can be read to its last row.
#![no_main]

use std::path::Path;

use host_weights::gguf::Model;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|file: &[u8]| {
    let Ok(model) = Model::parse(file, Path::new("model.gguf")) else { return };
    assert!(model.config().contains_key("model_type"));
    assert!(!model.vocabulary().tokens.is_empty());
    for (info, tensor) in model.tensors() {
        assert_eq!(tensor.shape(), info.shape);
        let mut row = vec![0.0; tensor.cols()];
        for at in [0, tensor.rows() / 2, tensor.rows() - 1] {
            tensor.dequantise_row(at, &mut row).expect("GGUF tensors are numbers");
        }
    }
});
