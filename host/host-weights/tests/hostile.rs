//! Hostile and broken files of both formats: each is refused with its own code, and nothing panics.

mod support;

use std::fs;
use std::path::Path;

use host_core::Reported;
use host_weights::gguf::Model;
use host_weights::safetensors::{Header, SafetensorsFault};
use host_weights::{Checkpoint, read_config};
use support::{
    ARRAY, BOOL, E, Entry, Gguf, TEXT, U32, V, array, code_of, safetensors_file, small_gemma, small_llama,
    text, well_formed,
};

const CONFIG: &str = r#"{"model_type":"llama"}"#;
const QUANTISED: &str = r#"{"model_type":"llama","quantization":{"bits":4,"group_size":32}}"#;

/// Opens a folder with these files and compares the code.
fn check_folder(what: &str, files: &[(&str, &[u8])], expected: &str) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (name, bytes) in files {
        fs::write(folder.path().join(name), bytes).expect("a file in a temporary folder");
    }
    check_path(what, folder.path(), expected);
}

fn check_path(what: &str, path: &Path, expected: &str) {
    let error = Checkpoint::open(path).expect_err(what);
    assert_eq!(code_of(&error), expected, "{what}: {}", error.report());
    let shown = error.report().to_string();
    assert!(shown.contains(&path.display().to_string()), "{what}: no path in {shown}");
}

/// One safetensors file, otherwise a whole folder.
fn check_safetensors(what: &str, bytes: &[u8], expected: &str) {
    check_folder(what, &[("config.json", CONFIG.as_bytes()), ("model.safetensors", bytes)], expected);
}

/// A header with 8 bytes of data.
fn check_header(what: &str, header: &str, expected: &str) {
    check_safetensors(what, &safetensors_file(header, &[0; 8]), expected);
}

#[test]
fn broken_safetensors_files_are_refused_by_name() {
    let whole = well_formed(&[Entry("a", "F32", &[2], vec![0; 8])]);
    let mut too_long = whole.clone();
    too_long[..8].copy_from_slice(&100_000_001_u64.to_le_bytes());
    let mut endless = whole.clone();
    endless[..8].copy_from_slice(&u64::MAX.to_le_bytes());
    for (what, bytes, expected) in [
        ("zero bytes", vec![], "weights.empty-file"),
        ("five bytes", vec![1; 5], "weights.no-header"),
        ("header past the end", whole[..20].to_vec(), "weights.header-truncated"),
        ("header beyond the limit", too_long, "weights.header-too-long"),
        ("endless header", endless, "weights.header-too-long"),
        ("data cut off", whole[..whole.len() - 1].to_vec(), "weights.truncated"),
        ("bytes at the end", [&whole[..], &[0]].concat(), "weights.trailing-bytes"),
        ("a web page", b"<!DOCTYPE html><html>".to_vec(), "weights.header-too-long"),
        ("nothing after the length", 0_u64.to_le_bytes().to_vec(), "weights.header-malformed"),
    ] {
        check_safetensors(what, &bytes, expected);
    }
}

#[test]
fn a_name_may_stand_once_in_a_header() {
    let entry =
        |begin: usize| format!(r#""a":{{"dtype":"F32","shape":[1],"data_offsets":[{begin},{}]}}"#, begin + 4);
    let file = safetensors_file(&format!("{{{},{}}}", entry(0), entry(4)), &[0; 8]);
    let fault = Header::parse(&file, file.len() as u64).expect_err("a name that stands twice");
    assert_eq!(fault, SafetensorsFault::DuplicateTensor { tensor: "a".to_owned() });
}

#[test]
fn a_report_shows_only_the_beginning_of_a_long_text() {
    let header = format!(r#"{{"a":{{"dtype":"{}","shape":[2],"data_offsets":[0,8]}}}}"#, "F".repeat(1 << 20));
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::write(folder.path().join("config.json"), CONFIG).expect("a file");
    fs::write(folder.path().join("model.safetensors"), safetensors_file(&header, &[0; 8])).expect("a file");
    let report = Checkpoint::open(folder.path()).expect_err("an unknown dtype").report();
    assert_eq!(report.code, "weights.unknown-dtype");
    assert!(report.to_string().len() < 1000);
}

#[test]
fn broken_safetensors_headers_are_refused_by_name() {
    let long_name =
        format!(r#"{{"{}":{{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}}}"#, "n".repeat(1025));
    let deep = format!(r#"{{"a":{}"#, "[".repeat(100_000));
    for (what, header, expected) in [
        ("no JSON", "not json at all", "weights.header-malformed"),
        ("an array", "[1,2,3]", "weights.header-malformed"),
        (
            "a key too many",
            r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1}}"#,
            "weights.header-malformed",
        ),
        ("no dtype", r#"{"a":{"shape":[2],"data_offsets":[0,8]}}"#, "weights.header-malformed"),
        (
            "a negative dimension",
            r#"{"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}}"#,
            "weights.header-malformed",
        ),
        (
            "a dimension beyond 64 bits",
            r#"{"a":{"dtype":"F32","shape":[18446744073709551616],"data_offsets":[0,8]}}"#,
            "weights.header-malformed",
        ),
        (
            "three offsets",
            r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8,8]}}"#,
            "weights.header-malformed",
        ),
        ("deep nesting", deep.as_str(), "weights.header-malformed"),
        (
            "metadata that is no text",
            r#"{"__metadata__":{"a":1},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#,
            "weights.header-malformed",
        ),
        (
            "metadata twice",
            r#"{"__metadata__":{},"__metadata__":{},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#,
            "weights.header-malformed",
        ),
        (
            "a dtype twice",
            r#"{"a":{"dtype":"F32","dtype":"I32","shape":[2],"data_offsets":[0,8]}}"#,
            "weights.header-malformed",
        ),
        (
            "a name twice",
            r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}"#,
            "weights.duplicate-tensor",
        ),
        ("a long name", long_name.as_str(), "weights.name-too-long"),
        (
            "an unknown dtype",
            r#"{"a":{"dtype":"F4","shape":[2],"data_offsets":[0,8]}}"#,
            "weights.unknown-dtype",
        ),
        (
            "reversed offsets",
            r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}}"#,
            "weights.offsets-reversed",
        ),
        (
            "a shape that is too small",
            r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}}"#,
            "weights.wrong-byte-range",
        ),
        (
            "another dtype",
            r#"{"a":{"dtype":"BF16","shape":[2],"data_offsets":[0,8]}}"#,
            "weights.wrong-byte-range",
        ),
        (
            "a shape that overflows",
            r#"{"a":{"dtype":"F32","shape":[9223372036854775808,4],"data_offsets":[0,8]}}"#,
            "weights.shape-too-large",
        ),
        (
            "nine dimensions",
            r#"{"a":{"dtype":"F32","shape":[2,1,1,1,1,1,1,1,1],"data_offsets":[0,8]}}"#,
            "weights.shape-too-large",
        ),
        (
            "offsets at the end of 64 bits",
            r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[18446744073709551607,18446744073709551615]}}"#,
            "weights.shape-too-large",
        ),
        (
            "a zero dimension",
            r#"{"a":{"dtype":"F32","shape":[0,18446744073709551615],"data_offsets":[0,0]}}"#,
            "weights.empty-tensor",
        ),
        (
            "overlapping tensors",
            r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}"#,
            "weights.overlap",
        ),
        ("a gap at the start", r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}"#, "weights.gap"),
        (
            "a gap within",
            r#"{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}}"#,
            "weights.gap",
        ),
        (
            "a tensor past the end",
            r#"{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}"#,
            "weights.truncated",
        ),
        ("no tensors", "{}", "weights.no-tensors"),
    ] {
        check_header(what, header, expected);
    }
    let not_utf8 = [&12_u64.to_le_bytes()[..], b"{\"\xFF\xFE\":{}}   "].concat();
    check_safetensors("a name that is not UTF-8", &not_utf8, "weights.header-malformed");
}

#[test]
fn folders_that_do_not_fit_together_are_refused_by_name() {
    let (a, b) =
        (well_formed(&[Entry("a", "U8", &[1], vec![0])]), well_formed(&[Entry("b", "U8", &[1], vec![0])]));
    let config = ("config.json", CONFIG.as_bytes());
    let index = |text: &'static str| ("model.safetensors.index.json", text.as_bytes());
    let (one, two) = (("1.safetensors", &a[..]), ("2.safetensors", &b[..]));
    for (what, files, expected) in [
        ("no weights", vec![config], "weights.no-weights"),
        ("no config", vec![("model.safetensors", &a[..])], "weights.not-a-model"),
        (
            "a missing shard",
            vec![config, one, index(r#"{"weight_map":{"a":"1.safetensors","b":"2.safetensors"}}"#)],
            "weights.missing-shard",
        ),
        (
            "an absent tensor",
            vec![config, one, index(r#"{"weight_map":{"a":"1.safetensors","c":"1.safetensors"}}"#)],
            "weights.absent-tensor",
        ),
        (
            "a tensor in the other shard",
            vec![config, one, two, index(r#"{"weight_map":{"a":"2.safetensors","b":"1.safetensors"}}"#)],
            "weights.absent-tensor",
        ),
        (
            "an unindexed tensor",
            vec![
                config,
                one,
                (
                    "2.safetensors",
                    &well_formed(&[Entry("b", "U8", &[1], vec![0]), Entry("c", "U8", &[1], vec![0])]),
                ),
                index(r#"{"weight_map":{"a":"1.safetensors","b":"2.safetensors"}}"#),
            ],
            "weights.unindexed-tensor",
        ),
        (
            "a tensor in two shards",
            vec![
                config,
                one,
                (
                    "2.safetensors",
                    &well_formed(&[Entry("a", "U8", &[1], vec![0]), Entry("b", "U8", &[1], vec![0])]),
                ),
                index(r#"{"weight_map":{"a":"1.safetensors","b":"2.safetensors"}}"#),
            ],
            "weights.duplicate-tensor",
        ),
        (
            "a shard outside",
            vec![config, index(r#"{"weight_map":{"a":"../1.safetensors"}}"#)],
            "weights.shard-name",
        ),
        (
            "an absolute shard",
            vec![config, index(r#"{"weight_map":{"a":"/etc/passwd"}}"#)],
            "weights.shard-name",
        ),
        ("a shard that is no text", vec![config, index(r#"{"weight_map":{"a":1}}"#)], "weights.shard-name"),
        ("an index that is no JSON", vec![config, index("{")], "weights.json-invalid"),
        (
            "a repeated key",
            vec![config, index(r#"{"weight_map":{"a":"1.safetensors","a":"2.safetensors"}}"#)],
            "weights.json-invalid",
        ),
        ("an index that is no object", vec![config, index("[]")], "weights.json-not-an-object"),
        ("an index without a map", vec![config, index("{}")], "weights.index-malformed"),
        ("an empty map", vec![config, index(r#"{"weight_map":{}}"#)], "weights.index-malformed"),
        (
            "two models",
            vec![config, one, ("model.safetensors", &a), index(r#"{"weight_map":{"a":"1.safetensors"}}"#)],
            "weights.two-models",
        ),
        (
            "a damaged shard",
            vec![
                config,
                one,
                ("2.safetensors", b""),
                index(r#"{"weight_map":{"a":"1.safetensors","b":"2.safetensors"}}"#),
            ],
            "weights.empty-file",
        ),
        ("a config that is no JSON", vec![("config.json", b"{\"a\":")], "weights.json-invalid"),
        ("a config that is no object", vec![("config.json", b"7")], "weights.json-not-an-object"),
        ("a config with a key twice", vec![("config.json", br#"{"a":1,"a":2}"#)], "weights.json-invalid"),
    ] {
        check_folder(what, &files, expected);
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::write(folder.path().join("config.json"), CONFIG).expect("a file");
    fs::create_dir(folder.path().join("model.safetensors")).expect("a folder");
    check_path("weights that are a folder", folder.path(), "weights.not-a-file");
    check_path("nothing", &folder.path().join("nothing"), "weights.not-a-model");
    check_path("another file", &folder.path().join("config.json"), "weights.not-a-model");
}

#[test]
fn broken_quantised_modules_are_refused_by_name() {
    // 2 rows of 64 codes of 4 bits: 8 words and 2 groups of 32 a row.
    let weight = || Entry("m.weight", "U32", &[2, 8], vec![0; 64]);
    let scales = || Entry("m.scales", "F16", &[2, 2], vec![0; 8]);
    let biases = || Entry("m.biases", "F16", &[2, 2], vec![0; 8]);
    let dense = || Entry("m.weight", "F16", &[2, 2], vec![0; 8]);
    let u8_scales = || Entry("m.scales", "U8", &[2, 2], vec![0; 4]);
    let mxfp4 = r#"{"quantization":{"bits":4,"group_size":32,"mode":"mxfp4"}}"#;
    let dense_overridden = r#"{"quantization":{"bits":4,"group_size":32,"m":{"bits":8}}}"#;
    let codes_denied = r#"{"quantization":{"bits":4,"group_size":32,"m":false}}"#;
    let eight = r#"{"quantization":{"bits":8,"group_size":32}}"#;
    let wide = r#"{"quantization":{"bits":4,"group_size":64}}"#;
    for (what, config, entries, expected) in [
        ("no scales", QUANTISED, vec![weight(), biases()], "weights.missing-scales"),
        ("no biases", QUANTISED, vec![weight(), scales()], "weights.missing-scales"),
        ("no block", CONFIG, vec![weight(), scales(), biases()], "weights.no-quantization"),
        (
            "codes where the block says none",
            codes_denied,
            vec![weight(), scales(), biases()],
            "weights.no-quantization",
        ),
        ("scales beside numbers", QUANTISED, vec![dense(), scales()], "weights.not-codes"),
        ("numbers where the block says codes", dense_overridden, vec![dense()], "weights.not-quantized"),
        ("biases in mxfp4", mxfp4, vec![weight(), u8_scales(), biases()], "weights.unexpected-biases"),
        ("float scales in mxfp4", mxfp4, vec![weight(), scales()], "weights.scale-dtype"),
        ("integer scales", QUANTISED, vec![weight(), u8_scales(), biases()], "weights.scale-dtype"),
        (
            "other biases",
            QUANTISED,
            vec![weight(), scales(), Entry("m.biases", "F32", &[2, 2], vec![0; 16])],
            "weights.biases-differ",
        ),
        (
            "fewer biases",
            QUANTISED,
            vec![weight(), scales(), Entry("m.biases", "F16", &[2, 1], vec![0; 4])],
            "weights.biases-differ",
        ),
        ("other bits", eight, vec![weight(), scales(), biases()], "weights.packed-shape"),
        ("other groups", wide, vec![weight(), scales(), biases()], "weights.packed-shape"),
        (
            "other rows",
            QUANTISED,
            vec![weight(), Entry("m.scales", "F16", &[1, 2], vec![0; 4]), biases()],
            "weights.packed-shape",
        ),
        (
            "a vector of codes",
            QUANTISED,
            vec![
                Entry("m.weight", "U32", &[8], vec![0; 32]),
                Entry("m.scales", "F16", &[2], vec![0; 4]),
                Entry("m.biases", "F16", &[2], vec![0; 4]),
            ],
            "weights.packed-shape",
        ),
    ] {
        let files = [("config.json", config.as_bytes()), ("model.safetensors", &well_formed(&entries)[..])];
        check_folder(what, &files, expected);
    }
}

#[test]
fn unknown_quantisation_is_refused_before_weights_are_opened() {
    for (what, block, expected) in [
        ("an unknown key", r#"{"bits":4,"group_size":64,"zero_point":true}"#, "weights.quantization-key"),
        (
            "an unknown key of a module",
            r#"{"bits":4,"group_size":64,"m":{"bits":4,"sym":1}}"#,
            "weights.quantization-key",
        ),
        ("a module that is true", r#"{"bits":4,"group_size":64,"m":true}"#, "weights.quantization-key"),
        ("an unknown mode", r#"{"bits":4,"group_size":64,"mode":"gptq"}"#, "weights.quantization-mode"),
        ("seven bits", r#"{"bits":7,"group_size":64}"#, "weights.quantization-width"),
        ("four thousand bits", r#"{"bits":4096,"group_size":64}"#, "weights.quantization-width"),
        ("groups of 48", r#"{"bits":4,"group_size":48}"#, "weights.quantization-width"),
        (
            "mxfp4 in groups of 64",
            r#"{"bits":4,"group_size":64,"mode":"mxfp4"}"#,
            "weights.quantization-width",
        ),
        ("no bits", r#"{"group_size":64}"#, "weights.quantization-missing"),
        ("no group size", r#"{"bits":4}"#, "weights.quantization-missing"),
        ("bits as text", r#"{"bits":"4","group_size":64}"#, "weights.quantization-type"),
        ("a mode that is no text", r#"{"bits":4,"group_size":64,"mode":4}"#, "weights.quantization-type"),
        (
            "another library",
            r#"{"quant_method":"gptq","bits":4,"group_size":64}"#,
            "weights.quantization-method",
        ),
        ("a block that is a number", "4", "weights.quantization-type"),
    ] {
        let config = format!(r#"{{"quantization":{block}}}"#);
        let folder = tempfile::tempdir().expect("a temporary folder");
        fs::write(folder.path().join("config.json"), config).expect("a file");
        let error = read_config(folder.path()).expect_err(what);
        assert_eq!(error.report().code, expected, "{what}: {}", error.report());
    }
    let two =
        r#"{"quantization":{"bits":4,"group_size":64},"quantization_config":{"bits":8,"group_size":64}}"#;
    check_folder("two blocks", &[("config.json", two.as_bytes())], "weights.quantization-disagrees");
}

#[test]
fn a_configuration_is_read_without_opening_the_weights() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::write(folder.path().join("config.json"), r#"{"model_type":"llama","hidden_size":576}"#)
        .expect("a file");
    fs::write(folder.path().join("model.safetensors"), b"garbage that no header check would pass")
        .expect("a file");
    let config = read_config(folder.path()).expect("a configuration");
    assert_eq!(config.json["hidden_size"], 576);
    check_path("the weights themselves", folder.path(), "weights.header-too-long");
}

fn check_gguf(what: &str, bytes: &[u8], expected: &str) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("model.gguf");
    fs::write(&path, bytes).expect("a file");
    check_path(what, &path, expected);
}

#[test]
fn broken_gguf_files_are_refused_by_name() {
    let whole = small_llama().bytes();
    let patched = |at: usize, bytes: &[u8]| {
        let mut file = whole.clone();
        file[at..at + bytes.len()].copy_from_slice(bytes);
        file
    };
    for (what, bytes, expected) in [
        ("zero bytes", vec![], "weights.empty-file"),
        ("another magic", patched(0, b"GGML"), "weights.not-gguf"),
        ("two bytes", b"GG".to_vec(), "weights.header-truncated"),
        ("version 1", patched(4, &1_u32.to_le_bytes()), "weights.gguf-version"),
        ("version 4", patched(4, &4_u32.to_le_bytes()), "weights.gguf-version"),
        ("big-endian", patched(4, &3_u32.to_be_bytes()), "weights.gguf-big-endian"),
        ("endless tensors", patched(8, &u64::MAX.to_le_bytes()), "weights.header-limit"),
        ("endless keys", patched(16, &u64::MAX.to_le_bytes()), "weights.header-limit"),
        ("an endless key", patched(24, &u64::MAX.to_le_bytes()), "weights.header-limit"),
        ("cut off in the metadata", whole[..100].to_vec(), "weights.header-truncated"),
        ("cut off in the data", whole[..whole.len() - 1].to_vec(), "weights.truncated"),
        ("bytes at the end", small_llama().trailing(65).bytes(), "weights.trailing-bytes"),
    ] {
        check_gguf(what, &bytes, expected);
    }
    for cut in 0..whole.len() {
        let error = Model::parse(&whole[..cut], Path::new("model.gguf")).expect_err("a file that is cut off");
        let expected = ["weights.empty-file", "weights.header-truncated", "weights.truncated"];
        assert!(expected.contains(&error.report().code), "cut at {cut}: {}", error.report());
    }
}

#[test]
fn broken_gguf_metadata_is_refused_by_name() {
    let nested = (0..5).fold(array(U32, &[]), |inner, _| array(ARRAY, &[inner]));
    let endless = [&U32.to_le_bytes()[..], &u64::MAX.to_le_bytes()].concat();
    let long = [&U32.to_le_bytes()[..], &(1_u64 << 24).to_le_bytes()].concat();
    let not_utf8 = [&2_u64.to_le_bytes()[..], &[0xC3, 0x28]].concat();
    let llama = small_llama;
    let with = |name: &str, kind: u32, value: &[u8]| small_llama().raw_key(name, kind, value);
    for (what, gguf, expected) in [
        ("an unknown value type", with("a", 13, &[]), "weights.unknown-value-type"),
        ("a truth value of 2", with("a", BOOL, &[2]), "weights.not-a-bool"),
        ("a text that is not UTF-8", with("a", TEXT, &not_utf8), "weights.not-utf8"),
        (
            "a token that is not UTF-8",
            llama().without("tokenizer.ggml.tokens").raw_key(
                "tokenizer.ggml.tokens",
                ARRAY,
                &array(TEXT, &[text("a"), text("b"), text("c"), not_utf8.clone()]),
            ),
            "weights.not-utf8",
        ),
        ("an endless text", with("a", TEXT, &u64::MAX.to_le_bytes()), "weights.header-limit"),
        ("an endless array", with("a", ARRAY, &endless), "weights.header-limit"),
        ("an array past the end", with("a", ARRAY, &long), "weights.header-truncated"),
        ("deep arrays", with("a", ARRAY, &nested), "weights.header-limit"),
        ("a key twice", llama().u32("llama.block_count", 1), "weights.duplicate-key"),
        ("no alignment", llama().u32("general.alignment", 0), "weights.alignment"),
        ("an odd alignment", llama().u32("general.alignment", 24), "weights.alignment"),
        ("a huge alignment", llama().u32("general.alignment", 1 << 31), "weights.alignment"),
        ("one of three parts", llama().u32("split.count", 3), "weights.gguf-split"),
        ("no architecture", llama().without("general.architecture"), "weights.missing-key"),
        (
            "an unknown architecture",
            llama().without("general.architecture").text("general.architecture", "mamba"),
            "weights.unknown-architecture",
        ),
        ("no layers", llama().without("llama.block_count"), "weights.missing-key"),
        (
            "zero layers",
            llama().without("llama.block_count").u32("llama.block_count", 0),
            "weights.wrong-value",
        ),
        (
            "four thousand million layers",
            small_gemma().without("gemma3.block_count").u32("gemma3.block_count", u32::MAX),
            "weights.wrong-value",
        ),
        (
            "heads beyond 63 bits",
            llama()
                .without("llama.attention.head_count")
                .raw_key("llama.attention.head_count", 10, &u64::MAX.to_le_bytes())
                .u32("llama.attention.key_length", 16),
            "weights.head-rows",
        ),
        (
            "zero heads",
            llama().without("llama.attention.head_count").u32("llama.attention.head_count", 0),
            "weights.wrong-value",
        ),
        (
            "layers as text",
            llama().without("llama.block_count").text("llama.block_count", "1"),
            "weights.wrong-value",
        ),
        (
            "an epsilon that is no number",
            llama()
                .without("llama.attention.layer_norm_rms_epsilon")
                .f32("llama.attention.layer_norm_rms_epsilon", f32::NAN),
            "weights.wrong-value",
        ),
        ("a key that may change the model", llama().f32("llama.attention.scale", 0.5), "weights.unknown-key"),
        ("experts", llama().u32("llama.expert_count", 8), "weights.contradiction"),
        ("another vocabulary size", llama().u32("llama.vocab_size", 5), "weights.contradiction"),
        ("a partial rotation", llama().u32("llama.rope.dimension_count", 8), "weights.contradiction"),
        ("another value width", llama().u32("llama.attention.value_length", 8), "weights.contradiction"),
        (
            "an unknown rotary scaling",
            llama().text("llama.rope.scaling.type", "longrope"),
            "weights.wrong-value",
        ),
        (
            "a linear scaling without factor",
            llama().text("llama.rope.scaling.type", "linear"),
            "weights.missing-key",
        ),
        ("an attention factor", llama().f32("llama.rope.scaling.attn_factor", 0.5), "weights.wrong-value"),
        ("a window in llama", llama().u32("llama.attention.sliding_window", 8), "weights.unknown-key"),
        ("no tokenizer", llama().without("tokenizer.ggml.model"), "weights.missing-key"),
        (
            "no tokens",
            llama()
                .without("tokenizer.ggml.tokens")
                .without("tokenizer.ggml.bos_token_id")
                .without("tokenizer.ggml.eos_token_id"),
            "weights.missing-key",
        ),
        (
            "tokens that are numbers",
            llama().without("tokenizer.ggml.tokens").raw_key(
                "tokenizer.ggml.tokens",
                ARRAY,
                &array(U32, &[vec![0; 4], vec![0; 4], vec![0; 4], vec![0; 4]]),
            ),
            "weights.wrong-value",
        ),
        (
            "a token too few",
            llama().without("tokenizer.ggml.tokens").raw_key(
                "tokenizer.ggml.tokens",
                ARRAY,
                &array(TEXT, &["a", "b", "c"].map(text)),
            ),
            "weights.contradiction",
        ),
        (
            "too few scores",
            llama().raw_key("tokenizer.ggml.scores", ARRAY, &array(6, &[vec![0; 4]])),
            "weights.contradiction",
        ),
        (
            "a token beyond the vocabulary",
            llama().without("tokenizer.ggml.eos_token_id").u32("tokenizer.ggml.eos_token_id", 4),
            "weights.token-id",
        ),
        (
            "no window in Gemma 3",
            small_gemma().without("gemma3.attention.sliding_window"),
            "weights.missing-key",
        ),
        (
            "no head width in Gemma 3",
            small_gemma().without("gemma3.attention.key_length"),
            "weights.missing-key",
        ),
        (
            "an empty pattern",
            small_gemma().u32("gemma3.attention.sliding_window_pattern", 0),
            "weights.wrong-value",
        ),
        (
            "a pattern of another length",
            small_gemma().raw_key(
                "gemma3.attention.sliding_window_pattern",
                ARRAY,
                &array(BOOL, &[vec![1], vec![0]]),
            ),
            "weights.wrong-value",
        ),
    ] {
        check_gguf(what, &gguf.bytes(), expected);
    }
}

#[test]
fn broken_gguf_tensors_are_refused_by_name() {
    let llama = small_llama;
    let bare = || Gguf::new().text("general.architecture", "llama");
    let end = small_llama().data_bytes();
    for (what, gguf, expected) in [
        ("no tensors", bare(), "weights.no-tensors"),
        (
            "fewer tensors than said",
            Gguf { n_tensors: Some(99), alignment: 1, ..bare().raw_tensor("a", &[8], 0, 0) },
            "weights.header-truncated",
        ),
        ("a name twice", llama().tensor("token_embd.weight", &[E], 0, &[0; 128]), "weights.duplicate-tensor"),
        ("a long name", bare().raw_tensor(&"n".repeat(1025), &[E], 0, 0), "weights.header-limit"),
        ("rank 0", bare().raw_tensor("a", &[], 0, 0), "weights.rank"),
        ("rank 5", bare().raw_tensor("a", &[1; 5], 0, 0), "weights.rank"),
        (
            "a shape that overflows",
            bare().raw_tensor("a", &[1 << 40, 1 << 40], 0, 0),
            "weights.shape-too-large",
        ),
        ("bytes that overflow", bare().raw_tensor("a", &[1 << 62, 1], 0, 0), "weights.shape-too-large"),
        ("a zero dimension", bare().raw_tensor("a", &[0, 4], 0, 0), "weights.empty-tensor"),
        ("IQ4_XS", bare().raw_tensor("a", &[256], 23, 0), "weights.unsupported-type"),
        ("type 77", bare().raw_tensor("a", &[256], 77, 0), "weights.unsupported-type"),
        ("half a block", bare().raw_tensor("a", &[48], 2, 0), "weights.partial-block"),
        ("half a super-block", bare().raw_tensor("a", &[384], 12, 0), "weights.partial-block"),
        ("an odd offset", bare().raw_tensor("a", &[8], 0, 4), "weights.misaligned"),
        (
            "an overlap",
            bare().tensor("a", &[16], 0, &[0; 64]).raw_tensor("b", &[8], 0, 32),
            "weights.overlap",
        ),
        ("a gap at the start", bare().trailing(64).raw_tensor("a", &[8], 0, 32), "weights.gap"),
        (
            "a gap within",
            bare().tensor("a", &[8], 0, &[0; 32]).raw_tensor("b", &[8], 0, 64).trailing(96),
            "weights.gap",
        ),
        ("data past the end", llama().raw_tensor("a", &[1 << 40], 0, end), "weights.truncated"),
        ("data past every end", bare().raw_tensor("a", &[(1 << 61) - 1], 0, 0), "weights.truncated"),
        (
            "no embedding",
            bare()
                .u32("llama.block_count", 1)
                .u32("llama.embedding_length", 32)
                .u32("llama.attention.head_count", 2)
                .tensor("output_norm.weight", &[E], 0, &[0; 128]),
            "weights.missing-tensor",
        ),
        ("a narrow embedding", small_embedding(&[16, V]), "weights.embedding-shape"),
        ("an embedding that is a vector", small_embedding(&[16]), "weights.embedding-shape"),
        (
            "an unknown tensor",
            llama().tensor("blk.0.attn_sinks.weight", &[E], 0, &[0; 128]),
            "weights.unknown-tensor",
        ),
        (
            "a layer too many",
            llama().tensor("blk.1.attn_norm.weight", &[E], 0, &[0; 128]),
            "weights.unknown-tensor",
        ),
        (
            "a second spelling of layer 0",
            llama().tensor("blk.00.attn_norm.weight", &[E], 0, &[0; 128]),
            "weights.unknown-tensor",
        ),
        (
            "rows that are no heads",
            llama().tensor("blk.0.attn_q.bias", &[33], 0, &[0; 132]),
            "weights.head-rows",
        ),
        (
            "a norm in F16",
            small_gemma().tensor("blk.0.attn_norm.weight", &[E], 1, &[0; 64]),
            "weights.norm-type",
        ),
        (
            "a short rotary table",
            llama().tensor("rope_freqs.weight", &[4], 0, &[0; 16]),
            "weights.rope-table",
        ),
        (
            "a rotary table of nothing known",
            llama().tensor("rope_freqs.weight", &[8], 0, &[0x40; 32]),
            "weights.rope-table",
        ),
    ] {
        check_gguf(what, &gguf.bytes(), expected);
    }
}

/// The metadata of a small llama with an embedding of another shape.
fn small_embedding(dims: &[u64]) -> Gguf {
    let count = dims.iter().product::<u64>() as usize;
    Gguf::new()
        .text("general.architecture", "llama")
        .u32("llama.block_count", 1)
        .u32("llama.embedding_length", E as u32)
        .u32("llama.attention.head_count", 2)
        .tensor("token_embd.weight", dims, 0, &vec![0; count * 4])
}

#[test]
fn a_file_that_changes_after_it_was_opened_is_noticed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("model.safetensors");
    fs::write(folder.path().join("config.json"), CONFIG).expect("a file");
    fs::write(&path, well_formed(&[Entry("a", "F32", &[2], vec![0; 8])])).expect("a file");
    let checkpoint = Checkpoint::open(folder.path()).expect("a checkpoint");
    fs::write(&path, b"short").expect("a file");
    assert_eq!(code_of(&checkpoint.tensor("a").expect_err("a changed file")), "weights.file-changed");
    assert_eq!(code_of(&checkpoint.tensor("b").expect_err("no such tensor")), "weights.no-such-tensor");
}
