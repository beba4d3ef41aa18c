"""Small random checkpoints from the real config classes of `transformers`, each with the logits of a float32 forward.

Values are drawn wide enough that logits differ clearly, and rounded to the checkpoint's dtype before the forward.
"""

import json
import shutil
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, Gemma3ForCausalLM, Gemma3TextConfig, LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from provenance import write_provenance
from tiny_tokenizer import write_tiny_tokenizer

SEED = 7
N_IDS = 24
N_GREEDY = 16

LLAMA = dict(
    vocab_size=256, hidden_size=48, intermediate_size=80, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    max_position_embeddings=128, rms_norm_eps=1e-5, tie_word_embeddings=False, bos_token_id=1, eos_token_id=2, pad_token_id=0,
    rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
)
ROPE_LLAMA3 = {"rope_type": "llama3", "rope_theta": 5000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
ROPE_LINEAR = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
ROPE_YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 32}
ROPE_YARN_FULL = ROPE_YARN | {"beta_fast": 24.0, "beta_slow": 2.0, "attention_factor": 1.25}

GEMMA = dict(
    vocab_size=256, hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=1,
    head_dim=16, query_pre_attn_scalar=24, max_position_embeddings=128, rms_norm_eps=1e-6, sliding_window=8,
    layer_types=["sliding_attention", "sliding_attention", "full_attention"], hidden_activation="gelu_pytorch_tanh",
    rope_parameters={"full_attention": {"rope_type": "default", "rope_theta": 50000.0}, "sliding_attention": {"rope_type": "default", "rope_theta": 1000.0}},
    tie_word_embeddings=True, bos_token_id=1, eos_token_id=2, pad_token_id=0,
)

QWEN3 = dict(
    vocab_size=256, hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
    max_position_embeddings=128, rms_norm_eps=1e-6, tie_word_embeddings=False, bos_token_id=1, eos_token_id=2, pad_token_id=0,
    rope_parameters={"rope_type": "default", "rope_theta": 1e6},
)

F32, BF16, F16 = torch.float32, torch.bfloat16, torch.float16

# name: (what differs from the base, dtype of the weights, style of config.json, shard size)
LLAMA_CASES = {
    "gqa-f32": (dict(), F32, "new", None),
    "gqa-bf16": (dict(), BF16, "old", None),
    "gqa-f16": (dict(), F16, "old", None),
    "sharded": (dict(num_hidden_layers=3), BF16, "old", "40KB"),
    "tied": (dict(tie_word_embeddings=True), BF16, "old", None),
    "mha-bias": (dict(num_key_value_heads=4, attention_bias=True, mlp_bias=True), BF16, "old", None),
    "mqa-attention-bias": (dict(num_key_value_heads=1, attention_bias=True), BF16, "old", None),
    "head-dim": (dict(head_dim=20), BF16, "old", None),
    "rope-llama3": (dict(rope_parameters=ROPE_LLAMA3), BF16, "old", None),
    "rope-llama3-new": (dict(rope_parameters=ROPE_LLAMA3, head_dim=16, tie_word_embeddings=True), BF16, "new", None),
    "rope-linear": (dict(rope_parameters=ROPE_LINEAR), BF16, "old", None),
    "rope-yarn": (dict(rope_parameters=ROPE_YARN), BF16, "old", None),
    "rope-yarn-full": (dict(rope_parameters=ROPE_YARN_FULL, head_dim=16), BF16, "new", None),
}
GEMMA_CASES = {
    "window": (dict(), BF16, "new", None),
    "window-old-config": (dict(num_key_value_heads=2), BF16, "old", None),
    "softcap": (dict(final_logit_softcapping=12.0, attn_logit_softcapping=20.0), BF16, "new", None),
    "rope-linear": (dict(rope_parameters=GEMMA["rope_parameters"] | {"full_attention": {"rope_type": "linear", "rope_theta": 50000.0, "factor": 8.0}}), BF16, "new", None),
}
QWEN3_CASES = {
    "gqa": (dict(), BF16, "new", None),
    "tied-bias": (dict(tie_word_embeddings=True, attention_bias=True), BF16, "old", None),
    "window": (dict(use_sliding_window=True, sliding_window=8, max_window_layers=1), BF16, "new", None),
    "window-old-config": (dict(use_sliding_window=True, sliding_window=8, max_window_layers=2), BF16, "old", None),
    "rope-yarn": (dict(rope_parameters=ROPE_YARN), BF16, "old", None),
}


def draw_weights(model, generator):
    """Norms near their neutral value, biases small, matrices scaled by their width, embeddings of moderate size."""
    is_gemma = "gemma" in model.config.model_type
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=generator)
            if p.dim() == 1 and name.endswith("norm.weight"):
                p.copy_(0.2 * noise + (0.0 if is_gemma else 1.0))
            elif p.dim() == 1:
                p.copy_(0.2 * noise)
            elif "embed_tokens" in name:
                p.copy_((0.15 if is_gemma else 0.5) * noise)  # Gemma multiplies embeddings by sqrt(E)
            else:
                p.copy_(1.5 * noise / p.shape[1] ** 0.5)


def old_style(config: dict) -> dict:
    """`rope_theta` and `rope_scaling` at the top, as checkpoints on the hub have them, instead of `rope_parameters`."""
    config = dict(config)
    rope = config.pop("rope_parameters")
    config["torch_dtype"] = config.pop("dtype")
    if "full_attention" in rope:  # Gemma 3
        config.pop("layer_types")
        config.pop("_sliding_window_pattern", None)
        config |= {
            "rope_theta": rope["full_attention"]["rope_theta"],
            "rope_local_base_freq": rope["sliding_attention"]["rope_theta"],
            "rope_scaling": None,
            "sliding_window_pattern": 3,
        }
        return config
    if config["model_type"] == "qwen3":
        config.pop("layer_types")
    scaling = {key: value for key, value in rope.items() if key != "rope_theta"}
    config["rope_theta"] = rope["rope_theta"]
    config["rope_scaling"] = None if scaling == {"rope_type": "default"} else scaling
    if scaling.get("rope_type") == "linear":
        config["rope_scaling"]["type"] = config["rope_scaling"].pop("rope_type")  # the oldest spelling
    if config.get("head_dim") == config["hidden_size"] // config["num_attention_heads"]:
        del config["head_dim"]
    return config


@torch.no_grad()
def golden_of(model) -> dict:
    """Logits of all positions, and a greedy continuation computed without a cache."""
    generator = torch.Generator().manual_seed(SEED + 1)
    ids = [1, *torch.randint(3, 256, (N_IDS - 1,), generator=generator).tolist()]
    logits = model(torch.tensor([ids]), use_cache=False).logits[0].float()
    fed, margins = list(ids), []
    for _ in range(N_GREEDY):
        top = model(torch.tensor([fed]), use_cache=False).logits[0, -1].float().topk(2)
        margins.append(float(f"{top.values[0] - top.values[1]:.6g}"))
        fed.append(int(top.indices[0]))
    return {
        "method": "transformers, float32 CPU, eager attention, weights widened from the stored dtype",
        "input_ids": ids,
        "logits": [[float(f"{v:.9g}") for v in row] for row in logits.tolist()],
        "greedy_output_ids": fed[N_IDS:],
        "greedy_margin": margins,
    }


def dump_golden(out: Path, golden: dict):
    """One row of logits a line."""
    rows = ",\n".join(json.dumps(row, separators=(",", ":")) for row in golden.pop("logits"))
    head = json.dumps(golden, indent=None, separators=(",", ":"))[:-1]
    (out / "golden.json").write_text(f'{head},\n"logits":[\n{rows}\n]}}\n')


def load_f32(folder: Path):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


def make_one(out: Path, model, dtype, style: str, shard_size: str | None, command: str, note: str):
    shutil.rmtree(out, ignore_errors=True)
    draw_weights(model, torch.Generator().manual_seed(SEED))
    model = model.to(dtype)
    model.save_pretrained(out, **({"max_shard_size": shard_size} if shard_size else {}))
    (out / "generation_config.json").unlink(missing_ok=True)
    write_tiny_tokenizer(out)
    new_golden = golden_of(load_f32(out))
    if style == "old":
        path = out / "config.json"
        path.write_text(json.dumps(old_style(json.loads(path.read_text())), indent=2) + "\n")
        # the rewritten config must mean the same model
        assert golden_of(load_f32(out))["logits"] == new_golden["logits"], out.name
    new_golden["config_style"] = style
    for file in out.iterdir():
        file.chmod(0o644)
    dump_golden(out, new_golden)
    size = sum(f.stat().st_size for f in out.iterdir())
    print(f"{out.name}: {size // 1024} KiB, smallest greedy margin {min(new_golden['greedy_margin']):.3g}", flush=True)
    write_provenance(out, command=command, dtype=f"weights {str(dtype).removeprefix('torch.')}, golden float32", seed=SEED,
                     licence="Apache-2.0 OR MIT; random weights made for this project", note=note,
                     uses=["torch", "transformers", "tokenizers", "safetensors"])


def make(fixtures: Path, command: str):
    for name, (changes, dtype, style, shards) in LLAMA_CASES.items():
        model = LlamaForCausalLM(LlamaConfig(**LLAMA | changes))
        make_one(fixtures / f"tiny-llama-{name}", model, dtype, style, shards, command, f"LlamaForCausalLM with random weights; differs from the base by {changes}")
    for name, (changes, dtype, style, shards) in GEMMA_CASES.items():
        model = Gemma3ForCausalLM(Gemma3TextConfig(**GEMMA | changes))
        make_one(fixtures / f"tiny-gemma3-{name}", model, dtype, style, shards, command, f"Gemma3ForCausalLM, window 8 under 24 tokens, both layer kinds; differs from the base by {changes}")
    for name, (changes, dtype, style, shards) in QWEN3_CASES.items():
        model = Qwen3ForCausalLM(Qwen3Config(**QWEN3 | changes))
        make_one(fixtures / f"tiny-qwen3-{name}", model, dtype, style, shards, command, f"Qwen3ForCausalLM with random weights; differs from the base by {changes}")
