"""Writes the seeds: a few small well-formed files of each format. Needs nothing but Python."""

import json
import math
import struct
from pathlib import Path

SEEDS = Path(__file__).resolve().parent / "seeds"
U32, I32, F32, BOOL, TEXT, ARRAY = 4, 5, 6, 7, 8, 9
# Number, elements and bytes of a block.
TYPES = {"F32": (0, 1, 4), "F16": (1, 1, 2), "Q4_0": (2, 32, 18), "Q4_1": (3, 32, 20), "Q5_0": (6, 32, 22), "Q5_1": (7, 32, 24),
         "Q8_0": (8, 32, 34), "Q2_K": (10, 256, 84), "Q3_K": (11, 256, 110), "Q4_K": (12, 256, 144), "Q5_K": (13, 256, 176),
         "Q6_K": (14, 256, 210), "BF16": (30, 1, 2)}


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def key(name: str, value) -> bytes:
    kinds = {bool: (BOOL, "<?"), int: (U32, "<I"), float: (F32, "<f")}
    if isinstance(value, str):
        return text(name) + struct.pack("<I", TEXT) + text(value)
    if isinstance(value, list):
        body = {str: (TEXT, text), float: (F32, lambda v: struct.pack("<f", v)), int: (I32, lambda v: struct.pack("<i", v)),
                bool: (BOOL, lambda v: struct.pack("<?", v))}[type(value[0])]
        return text(name) + struct.pack("<IIQ", ARRAY, body[0], len(value)) + b"".join(map(body[1], value))
    kind, form = kinds[type(value)]
    return text(name) + struct.pack("<I", kind) + struct.pack(form, value)


def rope_table(pairs: int) -> bytes:
    """The factors of a llama3 scaling by 32 over base 10000."""
    factors = []
    for pair in range(pairs):
        wavelength = 2 * math.pi * 10000 ** (pair / pairs)
        smooth = min(max((8192 / wavelength - 1) / 3, 0), 1)
        factors.append(1 / ((1 - smooth) / 32 + smooth))
    return struct.pack(f"<{pairs}f", *factors)


def gguf(keys: dict, tensors: list, version=3) -> bytes:
    table, data = b"", b""
    for name, shape, kind in tensors:
        number, elements, size = TYPES[kind]
        count = 1
        for dim in shape:
            count *= dim
        data += b"\0" * (-len(data) % 32)
        table += text(name) + struct.pack("<I", len(shape)) + b"".join(struct.pack("<Q", dim) for dim in reversed(shape))
        table += struct.pack("<IQ", number, len(data))
        data += rope_table(count) if name == "rope_freqs.weight" else bytes(i % 251 for i in range(count // elements * size))
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(keys))
    head += b"".join(key(*item) for item in keys.items()) + table
    return head + b"\0" * (-len(head) % 32) + data


def keys(arch: str, **extra) -> dict:
    own = {"block_count": 1, "context_length": 8, "embedding_length": 32, "feed_forward_length": 32, "attention.head_count": 2,
           "attention.head_count_kv": 1, "attention.layer_norm_rms_epsilon": 1e-5, "rope.freq_base": 10000.0}
    own |= {name.replace("__", "."): value for name, value in extra.items()}
    return {"general.architecture": arch} | {f"{arch}.{name}": value for name, value in own.items()} | {
        "tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": ["a", "b"], "tokenizer.ggml.scores": [0.0, -1.0],
        "tokenizer.ggml.token_type": [3, 1], "tokenizer.ggml.bos_token_id": 0, "tokenizer.ggml.eos_token_id": 1,
        "tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.merges": ["a b"]}


LAYER = [("blk.0.attn_norm.weight", (32,), "F32"), ("blk.0.attn_q.weight", (32, 32), "Q4_1"), ("blk.0.attn_k.weight", (16, 32), "Q8_0"),
         ("blk.0.attn_v.weight", (16, 32), "Q5_0"), ("blk.0.attn_output.weight", (32, 32), "Q4_0"), ("blk.0.ffn_up.weight", (32, 32), "Q5_1")]
K_BLOCKS = [(f"blk.{i}.ffn_down.weight", (1, 256), kind) for i, kind in enumerate(["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"])]
GEMMA = dict(attention__key_length=16, attention__value_length=16, attention__sliding_window=4)

GGUFS = {
    "llama": gguf(keys("llama"), [("token_embd.weight", (2, 32), "F16"), *LAYER]),
    "llama-k": gguf(keys("llama", block_count=5), [("token_embd.weight", (2, 32), "BF16"), *K_BLOCKS]),
    "llama-rope": gguf(keys("llama", rope__scaling__type="yarn", rope__scaling__factor=4.0, rope__scaling__original_context_length=4),
                       [("token_embd.weight", (2, 32), "F32"), ("output.weight", (2, 32), "Q8_0"), ("blk.0.attn_q.bias", (32,), "F32")]),
    "llama-table": gguf(keys("llama"), [("token_embd.weight", (2, 32), "F32"), ("rope_freqs.weight", (8,), "F32")]),
    "gemma3": gguf(keys("gemma3", **GEMMA), [("token_embd.weight", (2, 32), "Q8_0"), ("output_norm.weight", (32,), "F32")], version=2),
    "gemma3-pattern": gguf(keys("gemma3", attention__sliding_window_pattern=[True], rope__freq_base_swa=100.0, **GEMMA),
                           [("token_embd.weight", (2, 32), "F32"), ("blk.0.attn_q_norm.weight", (16,), "F32")]),
}


def safetensors(entries: dict) -> bytes:
    header = json.dumps(entries).encode()
    end = max(entry["data_offsets"][1] for name, entry in entries.items() if name != "__metadata__")
    return struct.pack("<Q", len(header)) + header + b"\0" * end


SAFETENSORS = {
    "one": safetensors({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}),
    "three": safetensors({"__metadata__": {"format": "mlx"}, "m.weight": {"dtype": "U32", "shape": [2, 4], "data_offsets": [0, 32]},
                          "m.scales": {"dtype": "BF16", "shape": [2, 1], "data_offsets": [32, 36]},
                          "m.biases": {"dtype": "BF16", "shape": [2, 1], "data_offsets": [36, 40]}}),
    "scalar": safetensors({"s": {"dtype": "BOOL", "shape": [], "data_offsets": [0, 1]}}),
}

if __name__ == "__main__":
    for target, files in {"gguf_header": GGUFS, "safetensors_header": SAFETENSORS}.items():
        folder = SEEDS / target
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            (folder / name).write_bytes(data)
