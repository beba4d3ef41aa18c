"""What the real `mlx-lm` answers, greedily on the CPU, with a folder that `tenon quantize` wrote.

The folder is read by `mlx_lm.load`; scales, biases and norms are then widened to float32, so that what is left is the
difference of summation orders. `published_dtype_same` counts the tokens that are the same without widening.

    tenon quantize SmolLM2-135M-Instruct.Q4_1.gguf --quant uniform-4bit --out WORK/smollm2-4bit
    python tests/oracle/mlx_lm_greedy.py WORK/smollm2-4bit tests/fixtures/mlx-lm-smollm2-4bit
"""

import hashlib
import json
import sys
from pathlib import Path

import mlx.core as mx
import mlx_lm
import numpy as np

from provenance import sha256, write_provenance

N_STEPS = 48
PROMPTS = {
    "capital": "The capital of France is",
    "story": "Once upon a time, in a small village by the sea, there lived a carpenter who",
    "code": "def fibonacci(n):\n    ",
    "list": "Three things to pack for a winter hike:\n1.",
    "chat": "<|im_start|>user\nWhy is the sky blue?<|im_end|>\n<|im_start|>assistant\n",
    "unicode": "Ein Zapfen passt genau in sein Zapfenloch, weil",
}


def greedy(model, ids: list[int]) -> tuple[list[int], list[float]]:
    """Plain argmax, going on past end-of-text, with the margin between the two best logits."""
    cache = mlx_lm.models.cache.make_prompt_cache(model)
    out, margins, feed = [], [], ids
    for _ in range(N_STEPS):
        logits = np.array(model(mx.array([feed]), cache=cache)[0, -1].astype(mx.float32))
        best = np.argsort(-logits, kind="stable")[:2]
        out.append(int(best[0]))
        margins.append(float(f"{logits[best[0]] - logits[best[1]]:.4g}"))
        feed = [out[-1]]
    return out, margins


def main(folder: Path, out: Path):
    mx.set_default_device(mx.cpu)
    model, tokenizer = mlx_lm.load(str(folder))
    ids = {name: tokenizer.encode(text, add_special_tokens=False) for name, text in PROMPTS.items()}
    published = {name: greedy(model, prompt)[0] for name, prompt in ids.items()}
    model.set_dtype(mx.float32)
    prompts = []
    for name, text in PROMPTS.items():
        output, margins = greedy(model, ids[name])
        same = next((i for i, (a, b) in enumerate(zip(output, published[name])) if a != b), N_STEPS)
        prompts.append({"name": name, "text": text, "prompt_ids": ids[name], "output_ids": output, "margins": margins, "published_dtype_same": same})
        print(name, same, min(margins), repr(tokenizer.decode(output))[:100], flush=True)
    config = json.loads((folder / "config.json").read_text())
    weights = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    golden = {"n_steps": N_STEPS, "quantization": config["quantization"], "weights_sha256": weights, "prompts": prompts}
    out.mkdir(parents=True, exist_ok=True)
    (out / "generation.json").write_text(json.dumps(golden, indent=1) + "\n")
    write_provenance(
        out, command="python tests/oracle/mlx_lm_greedy.py WORK/smollm2-4bit tests/fixtures/mlx-lm-smollm2-4bit", dtype="4-bit weights, float32 arithmetic",
        licence="Apache-2.0 (SmolLM2); prompts made for this project",
        note="mlx_lm.load of the folder that `tenon quantize SmolLM2-135M-Instruct.Q4_1.gguf --quant uniform-4bit` wrote; greedy tokens on the CPU.",
        uses=["numpy", "mlx", "mlx-lm", "transformers"], inputs={"model.safetensors": sha256(folder / "model.safetensors")},
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
