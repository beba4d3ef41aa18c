"""Tiny checkpoints in MLX's quantised layout, written by `mlx_lm.convert`, with what MLX itself dequantises them to.

The logits come from a `transformers` float32 forward over the dequantised weights, so no MLX arithmetic but
`dequantize` is in them.
"""

import hashlib
import json
import shutil
from pathlib import Path

import mlx.core as mx
import mlx_lm
import numpy as np
import torch
from mlx.utils import tree_flatten
from transformers import LlamaConfig, LlamaForCausalLM

from provenance import write_provenance
from tiny_models import SEED, draw_weights, dump_golden, golden_of, old_style
from tiny_tokenizer import write_tiny_tokenizer

BASE = dict(
    vocab_size=256, hidden_size=128, intermediate_size=128, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2,
    max_position_embeddings=128, rms_norm_eps=1e-5, tie_word_embeddings=False, bos_token_id=1, eos_token_id=2, pad_token_id=0,
    rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
)
TIED = dict(tie_word_embeddings=True)


def override(path: str, _module):
    """Mixed bits: v_proj 8 bits in groups of 32, down_proj of layer 0 not quantised, o_proj mxfp4, the rest as given."""
    if path.endswith("v_proj"):
        return {"group_size": 32, "bits": 8, "mode": "affine"}
    if path.endswith("o_proj"):
        return {"group_size": 32, "bits": 4, "mode": "mxfp4"}
    return path != "model.layers.0.mlp.down_proj"


# name: (what differs from the base, arguments of mlx_lm.convert)
CASES = {
    "q2-g32": (dict(), dict(q_bits=2, q_group_size=32, dtype="bfloat16")),
    "q3-g64": (TIED, dict(q_bits=3, q_group_size=64, dtype="bfloat16")),
    "q4-g32": (TIED, dict(q_bits=4, q_group_size=32, dtype="float16")),
    "q4-g64": (dict(), dict(q_bits=4, q_group_size=64, dtype="bfloat16")),
    "q4-g128": (TIED, dict(q_bits=4, q_group_size=128, dtype="float32")),
    "q5-g64": (TIED, dict(q_bits=5, q_group_size=64, dtype="float16")),
    "q6-g128": (TIED, dict(q_bits=6, q_group_size=128, dtype="bfloat16")),
    "q8-g64": (TIED, dict(q_bits=8, q_group_size=64, dtype="bfloat16")),
    "mixed": (TIED | dict(num_hidden_layers=2), dict(q_bits=4, q_group_size=64, dtype="bfloat16", quant_predicate=override)),
    "mxfp4": (TIED, dict(q_mode="mxfp4", dtype="bfloat16")),
    "mxfp8": (TIED, dict(q_mode="mxfp8", dtype="bfloat16")),
    "nvfp4": (TIED, dict(q_mode="nvfp4", dtype="bfloat16")),
}


def dequantised(folder: Path) -> tuple[dict, dict]:
    """All tensors in float32 under their published names, and for each quantised one how it was stored.

    Scales and biases are widened to float32 first, so that nothing is rounded on the way.
    """
    config = json.loads((folder / "config.json").read_text())["quantization"]
    stored = {}
    for file in sorted(folder.glob("model*.safetensors")):
        stored |= mx.load(str(file))
    tensors, quantised = {}, {}
    for name, value in stored.items():
        module, _, part = name.rpartition(".")
        if part in ("scales", "biases"):
            continue
        if f"{module}.scales" not in stored:
            tensors[name] = np.array(value.astype(mx.float32))
            continue
        scales, biases = stored[f"{module}.scales"], stored.get(f"{module}.biases")
        params = config.get(module, {key: config[key] for key in ("group_size", "bits", "mode")})
        widened = scales if params["mode"] != "affine" else scales.astype(mx.float32)
        array = mx.dequantize(value, widened, None if biases is None else biases.astype(mx.float32), dtype=mx.float32, **params)
        array = np.array(array)
        tensors[name] = array
        quantised[name] = {
            **params,
            "scales_dtype": str(scales.dtype).removeprefix("mlx.core."),
            "shape": list(array.shape),
            "sum": float(array.sum(dtype=np.float64)),
            "sum_of_squares": float((array.astype(np.float64) ** 2).sum()),
            "f32_le_sha256": hashlib.sha256(array.astype("<f4").tobytes()).hexdigest(),
            "first_row": [float(f"{v:.9g}") for v in array[0].tolist()],
            "last_row": [float(f"{v:.9g}") for v in array[-1].tolist()],
        }
    return tensors, quantised


def mlx_logits(folder: Path, ids: list[int], dtype=None) -> np.ndarray:
    """MLX's own forward over the quantised weights; with `dtype`, scales, biases and norms are cast to it first."""
    model, _ = mlx_lm.load(str(folder))
    if dtype is not None:
        model.set_dtype(dtype)
    return np.array(model(mx.array([ids]))[0].astype(mx.float32))


def make(work: Path, fixtures: Path, command: str):
    mx.set_default_device(mx.cpu)
    for name, (changes, arguments) in CASES.items():
        config = LlamaConfig(**BASE | changes)
        model = LlamaForCausalLM(config).to(torch.float32).eval()
        draw_weights(model, torch.Generator().manual_seed(SEED))
        source, out = work / "tiny-mlx-source" / name, fixtures / f"tiny-mlx-{name}"
        shutil.rmtree(source, ignore_errors=True)
        shutil.rmtree(out, ignore_errors=True)
        model.save_pretrained(source)
        write_tiny_tokenizer(source)
        path = source / "config.json"
        path.write_text(json.dumps(old_style(json.loads(path.read_text())), indent=2) + "\n")
        mlx_lm.convert(str(source), str(out), quantize=True, **arguments)

        tensors, quantised = dequantised(out)
        config._attn_implementation = "eager"
        model = LlamaForCausalLM(config).eval()
        missing, unexpected = model.load_state_dict({k: torch.from_numpy(v.copy()) for k, v in tensors.items()}, strict=False)
        assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
        model.tie_weights()
        golden = golden_of(model)
        golden["method"] = "transformers, float32 CPU, eager attention, over the weights as MLX dequantises them"
        expected = np.array(golden["logits"], dtype=np.float32)
        gap = np.abs(mlx_logits(out, golden["input_ids"]) - expected)
        gap_f32 = np.abs(mlx_logits(out, golden["input_ids"], mx.float32) - expected)
        golden["mlx_own_forward_max_abs_diff"] = float(f"{gap.max():.3g}")
        golden["mlx_own_forward_mean_abs_diff"] = float(f"{gap.mean():.3g}")
        golden["mlx_f32_forward_max_abs_diff"] = float(f"{gap_f32.max():.3g}")
        golden["tensors"] = quantised
        for leftover in (*out.glob("README.md"), *out.glob("generation_config.json")):
            leftover.unlink()
        for file in out.iterdir():
            file.chmod(0o644)
        dump_golden(out, golden)
        shown = {key: getattr(value, "__name__", value) for key, value in arguments.items()}
        size = sum(f.stat().st_size for f in out.iterdir())
        print(f"{out.name}: {size // 1024} KiB, MLX's own forward differs by {gap.max():.3g} (mean {gap.mean():.3g}), in float32 by {gap_f32.max():.3g}", flush=True)
        write_provenance(
            out, command=command, dtype="quantised weights, golden float32", seed=SEED,
            licence="Apache-2.0 OR MIT; random weights made for this project",
            note=f"mlx_lm.convert(quantize=True, {shown}) of a random llama; differs from the base by {changes}. golden.json also holds "
            "MLX's own dequantize of every quantised tensor: first and last row, sums, sha256 of its f32 little-endian bytes.",
            uses=["torch", "transformers", "tokenizers", "safetensors", "mlx", "mlx-lm"],
        )
