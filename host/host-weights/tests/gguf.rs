//! GGUF files as models: configuration, vocabulary, and weights under their published names.

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use host_core::{Reported, TokenizerFact, TokenizerKey};
use host_weights::gguf::{Model, tokenizer_facts};
use host_weights::{Checkpoint, Encoding, Format, Offset, Tensor, read_config};
use serde_json::{Value, json};
use support::{ARRAY, E, Gguf, TEXT, array, fixtures, small_gemma, small_llama, text};

fn open(gguf: &Gguf) -> Checkpoint {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("model.gguf");
    fs::write(&path, gguf.bytes()).expect("a file");
    // The mapping outlives the name.
    Checkpoint::open(&path).unwrap_or_else(|error| panic!("{}", error.report()))
}

fn numbers(checkpoint: &Checkpoint, name: &str) -> Vec<f32> {
    let tensor = checkpoint.tensor(name).expect("a tensor");
    let mut numbers = vec![0.0; tensor.rows() * tensor.cols()];
    for (row, out) in numbers.chunks_exact_mut(tensor.cols()).enumerate() {
        tensor.dequantise_row(row, out).expect("numbers");
    }
    numbers
}

/// Compares a converted model with the published folder it was made from.
fn check_converted(gguf: &str, published: &str, tolerance: f32) {
    let converted = Checkpoint::open(&fixtures().join("gguf-models").join(gguf)).expect("a GGUF file");
    let published = Checkpoint::open(&fixtures().join(published)).expect("a folder");
    let names = |checkpoint: &Checkpoint| -> Vec<(String, Vec<usize>)> {
        checkpoint.catalogue().iter().map(|info| (info.name.clone(), info.shape.clone())).collect()
    };
    assert_eq!(names(&converted), names(&published));
    for info in published.catalogue() {
        let (found, expected) = (numbers(&converted, &info.name), numbers(&published, &info.name));
        for (found, expected) in found.iter().zip(&expected) {
            let allowed = tolerance * expected.abs().max(tolerance);
            assert!((found - expected).abs() <= allowed, "{}: {found} is not {expected}", info.name);
        }
    }
    let (found, expected) = (&converted.config().json, &published.config().json);
    for (key, found) in found {
        match key.as_str() {
            // The folder writes these the new way, or the converter of the test data adds to them.
            "rope_theta" | "rope_local_base_freq" | "eos_token_id" | "query_pre_attn_scalar" => {}
            _ => assert_eq!(Some(found), expected.get(key), "{gguf}: {key}"),
        }
    }
}

#[test]
fn a_converted_llama_has_the_published_weights_and_configuration() {
    check_converted("llama-f32.gguf", "tiny-llama-gqa-f32", 0.0);
    // F16 keeps 11 bits.
    check_converted("llama-f16.gguf", "tiny-llama-gqa-f32", 1.0 / 1024.0);
}

#[test]
fn a_converted_gemma_has_the_published_weights_and_configuration() {
    // Norm weights went through 1 + w in f32: half a step of 2^-23 at most, against weights of BF16.
    check_converted("gemma3-f32.gguf", "tiny-gemma3-window", 1.0 / 4096.0);
    let config = read_config(&fixtures().join("gguf-models/gemma3-f32.gguf")).expect("a configuration").json;
    assert_eq!(config["rope_theta"], 50_000.0);
    assert_eq!(config["rope_local_base_freq"], 1_000.0);
    assert_eq!(config["eos_token_id"], json!([2, 5]));
    assert_eq!(config["layer_types"], json!(["sliding_attention", "sliding_attention", "full_attention"]));
}

#[test]
fn metadata_gives_the_configuration_under_its_published_names() {
    let config = open(&small_llama()).config().json.clone();
    let expected = json!({
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 16,
        "vocab_size": 4,
        "max_position_embeddings": 64,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": true,
        "hidden_act": "silu",
        "rope_theta": 10000.0,
        "attention_bias": false,
        "mlp_bias": false,
        "bos_token_id": 1,
        "eos_token_id": 2,
    });
    assert_eq!(Value::Object(config), expected);
}

#[test]
fn an_output_matrix_unties_the_embedding() {
    let gguf = small_llama().tensor("output.weight", &[E, 4], 0, &support::f32_bytes(128));
    let checkpoint = open(&gguf);
    assert_eq!(checkpoint.config().json["tie_word_embeddings"], false);
    assert!(checkpoint.catalogue().get("lm_head.weight").is_some());
}

#[test]
fn gemma_3_gets_what_its_file_leaves_out() {
    let config = open(&small_gemma()).config().json.clone();
    for (key, expected) in [
        ("model_type", json!("gemma3_text")),
        ("hidden_activation", json!("gelu_pytorch_tanh")),
        ("query_pre_attn_scalar", json!(16)),
        ("rope_theta", json!(1_000_000.0)),
        ("rope_local_base_freq", json!(10_000.0)),
        ("sliding_window", json!(8)),
        ("layer_types", json!(["sliding_attention"])),
        ("head_dim", json!(16)),
    ] {
        assert_eq!(config[key], expected, "{key}");
    }
    let norms = numbers(&open(&small_gemma()), "model.norm.weight");
    assert_eq!(norms[..3], [-2.0, -1.75, -1.5]);

    let layers = |gguf: Gguf| open(&gguf).config().json["layer_types"].clone();
    let twelve = || small_gemma().without("gemma3.block_count").u32("gemma3.block_count", 12);
    let every_sixth = layers(twelve());
    let full: Vec<_> = (0..12).filter(|layer| every_sixth[layer] == "full_attention").collect();
    assert_eq!(full, [5, 11]);
    let every_fourth = layers(twelve().u32("gemma3.attention.sliding_window_pattern", 4));
    assert_eq!((0..12).filter(|layer| every_fourth[layer] == "full_attention").count(), 3);
    let sixty_two = small_gemma().without("gemma3.block_count").u32("gemma3.block_count", 62);
    let sixty_two = sixty_two.without("gemma3.attention.head_count").u32("gemma3.attention.head_count", 4);
    assert_eq!(open(&sixty_two).config().json["query_pre_attn_scalar"], 8);
}

#[test]
fn rotary_scaling_is_read_or_found_again() {
    let scaling = |gguf: Gguf| open(&gguf).config().json.get("rope_scaling").cloned();
    assert_eq!(scaling(small_llama()), None);
    assert_eq!(scaling(small_llama().text("llama.rope.scaling.type", "none")), None);
    let linear =
        small_llama().text("llama.rope.scaling.type", "linear").f32("llama.rope.scaling.factor", 8.0);
    assert_eq!(scaling(linear), Some(json!({"rope_type": "linear", "factor": 8.0})));
    let yarn = small_llama()
        .text("llama.rope.scaling.type", "yarn")
        .f32("llama.rope.scaling.factor", 4.0)
        .u32("llama.rope.scaling.original_context_length", 4096);
    let expected = json!({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096});
    assert_eq!(scaling(yarn), Some(expected));

    // Llama 3.2 1B: head width 64, base 500000, factor 32; from the published formula in f64.
    let factors: Vec<u8> = (0..32)
        .flat_map(|pair| {
            let wavelength = std::f64::consts::TAU * 500_000_f64.powf(f64::from(pair) / 32.0);
            let smooth = (8192.0 / wavelength - 1.0) / 3.0;
            let factor = 1.0 / ((1.0 - smooth.clamp(0.0, 1.0)) / 32.0 + smooth.clamp(0.0, 1.0));
            (factor as f32).to_le_bytes()
        })
        .collect();
    let gguf = |factors: &[u8]| {
        let mut gguf = Gguf::new();
        for key in [
            "block_count",
            "context_length",
            "embedding_length",
            "feed_forward_length",
            "attention.head_count",
        ] {
            let value = if key == "embedding_length" { 64 } else { 1 };
            gguf = gguf.u32(&format!("llama.{key}"), value);
        }
        gguf.text("general.architecture", "llama")
            .f32("llama.attention.layer_norm_rms_epsilon", 1e-5)
            .f32("llama.rope.freq_base", 500_000.0)
            .text("tokenizer.ggml.model", "gpt2")
            .raw_key("tokenizer.ggml.tokens", ARRAY, &array(TEXT, &["a", "b"].map(text)))
            .tensor("token_embd.weight", &[64, 2], 0, &support::f32_bytes(128))
            .tensor("rope_freqs.weight", &[32], 0, factors)
    };
    let expected = json!({
        "rope_type": "llama3",
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    });
    assert_eq!(scaling(gguf(&factors)), Some(expected));
    assert!(open(&gguf(&factors)).catalogue().get("rope_freqs.weight").is_none());
}

#[test]
fn the_vocabulary_carries_what_a_tokenizer_needs() {
    let checkpoint = Checkpoint::open(&fixtures().join("gguf-models/llama-f32.gguf")).expect("a GGUF file");
    let vocabulary = checkpoint.vocabulary().expect("a vocabulary");
    assert_eq!(checkpoint.format(), Format::Gguf);
    assert_eq!((vocabulary.model.as_str(), vocabulary.pre.as_deref()), ("llama", Some("default")));
    assert_eq!((vocabulary.tokens.len(), vocabulary.tokens[7].as_str()), (256, "<7>"));
    assert_eq!((vocabulary.scores.len(), vocabulary.scores[7]), (256, -7.0));
    assert_eq!(vocabulary.token_types[..4], [3, 3, 3, 1]);
    assert_eq!((vocabulary.bos_token_id, vocabulary.eos_token_id), (Some(1), Some(2)));
    assert_eq!((vocabulary.eot_token_id, vocabulary.unknown_token_id), (Some(5), Some(0)));
    assert_eq!((vocabulary.add_bos_token, vocabulary.add_eos_token), (Some(true), None));
    assert_eq!(vocabulary.chat_template.as_deref(), Some("{{ messages }}"));
    assert!(vocabulary.merges.is_empty());
}

#[test]
fn version_2_reads_like_version_3() {
    let old = Gguf { version: Some(2), ..small_llama() };
    assert_eq!(
        numbers(&open(&old), "model.norm.weight"),
        numbers(&open(&small_llama()), "model.norm.weight")
    );
}

#[test]
fn quantised_query_rows_come_in_the_published_order() {
    // Row r of the file is all codes r with a scale of one: 34 bytes a row of 32.
    let data: Vec<u8> = (0..32_u8).flat_map(|row| [vec![0x00, 0x3C], vec![row; 32]].concat()).collect();
    let mut gguf = Gguf::new().text("general.architecture", "llama");
    for (key, value) in [
        ("block_count", 1),
        ("context_length", 8),
        ("embedding_length", 32),
        ("feed_forward_length", 8),
        ("attention.head_count", 2),
    ] {
        gguf = gguf.u32(&format!("llama.{key}"), value);
    }
    let gguf = gguf
        .f32("llama.attention.layer_norm_rms_epsilon", 1e-5)
        .text("tokenizer.ggml.model", "gpt2")
        .raw_key("tokenizer.ggml.tokens", ARRAY, &array(TEXT, &["a", "b"].map(text)))
        .tensor("token_embd.weight", &[32, 2], 0, &support::f32_bytes(64))
        .tensor("blk.0.attn_q.weight", &[32, 32], 8, &data);
    let checkpoint = open(&gguf);
    let info = checkpoint.catalogue().get("model.layers.0.self_attn.q_proj.weight").expect("a tensor");
    let Encoding::Affine { bits: 8, group_size: 32, offset: Offset::ZeroPoint(128), .. } = info.encoding
    else {
        panic!("{:?}", info.encoding)
    };
    let rows: Vec<f32> = numbers(&checkpoint, &info.name).chunks(32).map(|row| row[0]).collect();
    let head: Vec<f32> = (0..8).map(|i| 2.0 * i as f32).chain((0..8).map(|i| 2.0 * i as f32 + 1.0)).collect();
    assert_eq!(rows[..16], head);
    assert_eq!(rows[16..], head.iter().map(|row| row + 16.0).collect::<Vec<_>>());
}

#[test]
fn the_seeds_of_the_fuzz_target_are_whole_models() {
    let seeds = fs::read_dir(fixtures().join("../fuzz/seeds/gguf_header")).expect("the seeds");
    let mut opened = 0;
    for seed in seeds {
        let path = seed.expect("an entry").path();
        let file = fs::read(&path).expect("a seed");
        let model = Model::parse(&file, &path).unwrap_or_else(|fault| panic!("{path:?}: {}", fault.report()));
        assert!(model.tensors().count() >= 1);
        opened += 1;
    }
    assert_eq!(opened, 6);
}

#[test]
fn a_checkpoint_is_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Checkpoint>();
    shared::<Tensor<'_>>();
    let checkpoint = open(&small_llama());
    let expected = numbers(&checkpoint, "model.layers.0.self_attn.q_proj.weight");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                assert_eq!(numbers(&checkpoint, "model.layers.0.self_attn.q_proj.weight"), expected)
            });
        }
    });
}

/// Resident bytes of one mapped file, as the system tells.
#[cfg(target_os = "linux")]
fn resident_bytes(path: &Path) -> usize {
    let maps = fs::read_to_string("/proc/self/smaps").expect("the process's mappings");
    let mut lines = maps.lines().skip_while(|line| !line.ends_with(path.to_str().expect("a plain path")));
    let line = lines.find_map(|line| line.strip_prefix("Rss:")).expect("the file is mapped");
    line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") * 1024
}

#[cfg(target_os = "linux")]
#[test]
fn released_rows_stop_being_resident() {
    const ROWS: usize = 1 << 17;
    let bytes = ROWS * E as usize * 4;
    let gguf = small_llama().tensor("output.weight", &[E, ROWS as u64], 0, &vec![0; bytes]);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().canonicalize().expect("it is there").join("model.gguf");
    fs::write(&path, gguf.bytes()).expect("a file");
    let checkpoint = Checkpoint::open(&path).expect("a good file");
    let read = || numbers(&checkpoint, "lm_head.weight").len();
    read();
    let resident = resident_bytes(&path);
    checkpoint.release_rows("lm_head.weight", 0..ROWS / 2);
    let half = resident_bytes(&path);
    checkpoint.release("lm_head.weight");
    let none = resident_bytes(&path);
    let quarter = bytes / 4;
    assert!(resident > 3 * quarter, "{resident} of {bytes}");
    assert!(half < resident - quarter, "{resident} to {half}");
    assert!(none < half - quarter, "{half} to {none}");
}

/// The two published models, where a folder with them is named.
#[test]
fn published_models_open_whole() {
    let Some(folder) = std::env::var_os("TENON_TEST_MODELS") else {
        eprintln!("skipped: set TENON_TEST_MODELS to a folder with the two GGUF files");
        return;
    };
    for (file, n_tensors, n_tokens, bytes) in [
        ("SmolLM2-135M-Instruct.Q4_1.gguf", 272, 49_152, 96_576_768),
        ("gemma-3-270m-q4_k_m.gguf", 236, 262_144, 246_587_904),
    ] {
        let checkpoint = Checkpoint::open(&Path::new(&folder).join(file)).expect(file);
        assert_eq!(
            (checkpoint.catalogue().len(), checkpoint.catalogue().bytes()),
            (n_tensors, bytes),
            "{file}"
        );
        assert_eq!(
            checkpoint.vocabulary().map(|vocabulary| vocabulary.tokens.len()),
            Some(n_tokens),
            "{file}"
        );
        assert_eq!(checkpoint.config().json["tie_word_embeddings"], true, "{file}");
        for info in checkpoint.catalogue() {
            let tensor = checkpoint.tensor(&info.name).expect("a tensor");
            let mut row = vec![0.0; tensor.cols()];
            tensor.dequantise_row(tensor.rows() - 1, &mut row).expect("numbers");
            assert!(row.iter().all(|number| number.is_finite()), "{file} {}", info.name);
            assert!(
                matches!(tensor, Tensor::Dense(_)) == (tensor.shape().len() == 1),
                "{file} {}",
                info.name
            );
        }
    }
}

/// The digest is that of `tests/oracle/gguf_tokenizer_digest.py`.
#[test]
fn a_file_says_what_its_tokenizer_is() {
    let all = BTreeSet::from(TokenizerKey::ALL);
    let (text, absent) = (
        |text: &str| TokenizerFact::Text(text.to_owned()),
        |why: &str| TokenizerFact::Absent(why.to_owned()),
    );
    let facts = tokenizer_facts(&fixtures().join("gguf-models/llama-f32.gguf"), &all);
    let expected = [
        (TokenizerKey::Kind, text("llama")),
        (TokenizerKey::Pre, text("default")),
        (TokenizerKey::Class, absent("a GGUF file names none")),
        (TokenizerKey::NVocab, TokenizerFact::Count(256)),
        (TokenizerKey::Digest, text("f3b7efcb9927b9558a152ebfe248bdc33d1445f33bfde578b85c376accf4d832")),
    ];
    assert_eq!(facts.into_iter().collect::<Vec<_>>(), expected);

    let of = |gguf: Gguf, key: TokenizerKey| {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("model.gguf");
        fs::write(&path, gguf.bytes()).expect("a file");
        tokenizer_facts(&path, &BTreeSet::from([key])).remove(&key).expect("an answer")
    };
    // The order of the keys in the file and what stands outside are no matter; a text of a token is.
    let digest = |gguf: Gguf| of(gguf, TokenizerKey::Digest);
    let mut turned = small_llama();
    turned.keys.reverse();
    assert_eq!(digest(turned), digest(small_llama()));
    assert_eq!(digest(small_llama().text("tokenizer.chat_template", "x")), digest(small_llama()));
    assert_eq!(digest(small_llama().text("tokenizer.huggingface.json", "x")), digest(small_llama()));
    assert_ne!(digest(small_llama().text("tokenizer.ggml.pre", "x")), digest(small_llama()));
    let without = |key: &str| small_llama().without(key);
    assert_eq!(
        of(without("tokenizer.ggml.model"), TokenizerKey::Kind),
        absent("the file has no `tokenizer.ggml.model`")
    );
    assert_eq!(
        of(without("tokenizer.ggml.tokens"), TokenizerKey::NVocab),
        absent("the file has no `tokenizer.ggml.tokens`")
    );
    let wrong = without("tokenizer.ggml.model").u32("tokenizer.ggml.model", 3);
    assert!(matches!(of(wrong, TokenizerKey::Kind), TokenizerFact::Unreadable(_)));
    let broken = tokenizer_facts(&fixtures().join("gguf-models/PROVENANCE.toml"), &all);
    assert!(broken.values().all(|fact| matches!(fact, TokenizerFact::Unreadable(_))), "{broken:?}");
    assert!(tokenizer_facts(&fixtures().join("nothing.gguf"), &BTreeSet::new()).is_empty());
}
