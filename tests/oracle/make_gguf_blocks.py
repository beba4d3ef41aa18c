"""Random GGUF blocks of every affine type with the values that the `gguf` package gives them, and two tiny GGUF models.

    python make_gguf_blocks.py [--fixtures ../fixtures]

Needs only `gguf` and `numpy`. Writes `gguf-blocks/<type>.blocks` (raw blocks), `<type>.f32` (their values, f32
little-endian), and `gguf-models/*.gguf` from the tiny safetensors folders beside them, converted as llama.cpp's
converter does it: query and key rows of llama as rotary pairs, Gemma's norm weights plus one.
"""

import argparse
import json
import shutil
from pathlib import Path

import gguf
import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType as T

from provenance import write_provenance

SEED = 11
TYPES = [T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q8_0, T.Q2_K, T.Q3_K, T.Q4_K, T.Q5_K, T.Q6_K]
# Where each type keeps its f16 numbers; every other byte may hold anything.
F16_AT = {T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0], T.Q2_K: [80, 82], T.Q3_K: [108],
          T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208]}
# Zero, subnormal, smallest normal, one, largest; then random ones of a usual size.
SPECIAL_F16 = [0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x3C00, 0x7BFF, 0xFBFF]


def random_blocks(kind: T, rng: np.random.Generator) -> np.ndarray:
    elements, size = GGML_QUANT_SIZES[kind]
    count = 4096 // elements
    blocks = rng.integers(0, 256, (count, size), dtype=np.uint8)
    for at in F16_AT[kind]:
        numbers = (rng.standard_normal(count) * 0.02).astype("<f2").view("<u2")
        numbers[: min(len(SPECIAL_F16), count // 2)] = rng.permutation(SPECIAL_F16)[: count // 2]
        blocks[:, at : at + 2] = numbers.astype("<u2").view(np.uint8).reshape(count, 2)
    blocks[-1, [i for i in range(size) if not any(i in (at, at + 1) for at in F16_AT[kind])]] = 0xFF
    return blocks


def make_blocks(out: Path):
    rng = np.random.default_rng(SEED)
    for kind in TYPES:
        blocks = random_blocks(kind, rng)
        with np.errstate(all="ignore"):
            values = gguf.quants.dequantize(blocks, kind).astype("<f4")
        assert not np.isnan(values).any()
        (out / f"{kind.name.lower()}.blocks").write_bytes(blocks.tobytes())
        (out / f"{kind.name.lower()}.f32").write_bytes(values.tobytes())


def rotary_pairs(weight: np.ndarray, heads: int) -> np.ndarray:
    rows = weight.shape[0]
    return weight.reshape(heads, 2, rows // heads // 2, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


LLAMA = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate",
         "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
GEMMA3 = LLAMA | {"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "post_attention_layernorm": "post_attention_norm",
                  "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm"}
MODEL = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight", "lm_head.weight": "output.weight"}


def stored_name(name: str, layer_names: dict) -> str:
    if name in MODEL:
        return MODEL[name]
    _, _, layer, rest = name.split(".", 3)
    module, _, kind = rest.rpartition(".")
    return f"blk.{layer}.{layer_names[module]}.{kind}"


def load_tensors(path: Path) -> dict[str, np.ndarray]:
    """All tensors in float32; read by hand, because numpy has no bfloat16."""
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    tensors = {}
    for name, entry in json.loads(data[8:start]).items():
        if name != "__metadata__":
            raw = data[start + entry["data_offsets"][0] : start + entry["data_offsets"][1]]
            wide = np.frombuffer(raw, "<u2").astype("<u4") << 16 if entry["dtype"] == "BF16" else np.frombuffer(raw, "<u4")
            tensors[name] = wide.astype("<u4").view("<f4").reshape(entry["shape"])
    return tensors


def make_model(source: Path, out: Path, arch: str, matrix_type: T, extra: dict):
    config = json.loads((source / "config.json").read_text())
    writer = gguf.GGUFWriter(out, arch)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    rope = config.get("rope_parameters") or config
    writer.add_rope_freq_base(rope.get("full_attention", rope)["rope_theta"])
    for key, value in extra.items():
        getattr(writer, key)(value(config) if callable(value) else value)
    tokens = [f"<{i}>" for i in range(config["vocab_size"])]
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_scores([-float(i) for i in range(len(tokens))])
    writer.add_token_types([3, 3, 3] + [1] * (len(tokens) - 3))
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(2)
    writer.add_eot_token_id(5)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(True)
    writer.add_chat_template("{{ messages }}")
    tensors = load_tensors(source / "model.safetensors")
    for name, weight in sorted(tensors.items()):
        stored = stored_name(name, LLAMA if arch == "llama" else GEMMA3)
        weight = weight.astype(np.float32)
        if arch == "llama" and ".q_proj." in name:
            weight = rotary_pairs(weight, config["num_attention_heads"])
        if arch == "llama" and ".k_proj." in name:
            weight = rotary_pairs(weight, config["num_key_value_heads"])
        if arch == "gemma3" and name.endswith("norm.weight"):
            weight = weight + np.float32(1)
        writer.add_tensor(stored, weight.astype(np.float16) if weight.ndim == 2 and matrix_type == T.F16 else weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


GEMMA_EXTRA = {"add_key_length": lambda c: c["head_dim"], "add_value_length": lambda c: c["head_dim"],
               "add_sliding_window": lambda c: c["sliding_window"],
               "add_sliding_window_pattern": lambda c: [kind == "sliding_attention" for kind in c["layer_types"]],
               "add_rope_freq_base_swa": lambda c: c["rope_parameters"]["sliding_attention"]["rope_theta"]}
MODELS = {
    "llama-f32.gguf": ("tiny-llama-gqa-f32", "llama", T.F32, {}),
    "llama-f16.gguf": ("tiny-llama-gqa-f32", "llama", T.F16, {}),
    "gemma3-f32.gguf": ("tiny-gemma3-window", "gemma3", T.F32, GEMMA_EXTRA),
}


def fresh(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fixtures", type=Path, default=Path(__file__).resolve().parent.parent / "fixtures")
    fixtures = parser.parse_args().fixtures
    common = dict(command="python tests/oracle/make_gguf_blocks.py", seed=SEED, uses=["gguf", "numpy"])
    blocks = fresh(fixtures / "gguf-blocks")
    make_blocks(blocks)
    write_provenance(blocks, dtype="ggml blocks, values float32", licence="Apache-2.0 OR MIT; random numbers",
                     note="Values are gguf.quants.dequantize of the blocks: scale times code rounded to f32, then plus bias rounded to f32.", **common)
    models = fresh(fixtures / "gguf-models")
    for name, (source, arch, matrix_type, extra) in MODELS.items():
        make_model(fixtures / source, models / name, arch, matrix_type, extra)
    write_provenance(models, dtype="as named", licence="Apache-2.0 OR MIT; random weights made for this project",
                     note="The tiny safetensors folders " + ", ".join(sorted({s for s, *_ in MODELS.values()}))
                     + " as GGUF, written by the gguf package, with a vocabulary of 256 made-up tokens.", **common)


if __name__ == "__main__":
    main()
