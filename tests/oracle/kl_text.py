"""Float32 log-probabilities on our own text, to measure how far a quantised forward is from the float32 one."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

from generation import load
from provenance import sha256, write_provenance

CONTEXT = 400  # tokens fed at once
FIRST = 200  # positions FIRST..CONTEXT are compared, so each has at least 200 tokens before it
N_TOP = 256  # the coarse KL over the top 256 and the rest is about 7 % below the full one; over the top 64, 15 %


@torch.no_grad()
def make(work: Path, gguf_file: Path, fixtures: Path, command: str):
    model, tokenizer = load(work / "smollm2-f32")
    text = (fixtures / "kl-text" / "text.txt").read_text(encoding="utf-8")
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert len(ids) >= 2 * CONTEXT, len(ids)
    logits = model(torch.tensor([ids[:CONTEXT]]), use_cache=False).logits[0, FIRST:].float()
    save_file({"logits": logits.contiguous()}, work / "kl-smollm2.safetensors")

    logprobs = logits.double().log_softmax(-1)
    top = logprobs.topk(N_TOP)
    rest = 1.0 - top.values.exp().sum(-1)
    out = fixtures / "smollm2-135m"
    save_file(
        {
            "top_ids": top.indices.to(torch.int32).contiguous(),
            "top_logprobs": top.values.float().contiguous(),
            "rest_mass": rest.float().contiguous(),
        },
        out / "kl.safetensors",
    )
    (out / "kl.safetensors").chmod(0o644)
    targets = torch.tensor(ids[FIRST + 1 : CONTEXT + 1])
    nll = -logprobs.gather(-1, targets[:, None]).mean().item()
    record = {
        "text": "../kl-text/text.txt",
        "method": "float32 CPU, eager attention, one forward over token_ids[:context]; row r of kl.safetensors is the "
        "distribution after token_ids[first + r], thus of token first + r + 1",
        "context": CONTEXT,
        "first": FIRST,
        "n_positions": CONTEXT - FIRST,
        "n_top": N_TOP,
        "token_ids": ids,
        "mean_nll": float(f"{nll:.7g}"),
        "mean_rest_mass": float(f"{rest.mean():.4g}"),
        "top1_ids": top.indices[:, 0].tolist(),
    }
    (out / "kl.json").write_text(json.dumps(record, separators=(",", ":")) + "\n")
    print(f"{len(ids)} tokens, mean nll {nll:.4f}, mean mass outside the top {N_TOP}: {rest.mean():.4f}")
    write_provenance(
        fixtures / "kl-text",
        command="written by hand; used by: " + command,
        dtype="text",
        licence="Apache-2.0 OR MIT; original prose written for this project",
        note="English prose for KL measurements; its float32 log-probabilities are smollm2-135m/kl.safetensors.",
    )
    write_smollm2_provenance(out, gguf_file, command)


def write_smollm2_provenance(out: Path, gguf_file: Path, command: str):
    write_provenance(
        out,
        command=command.replace(" kl ", " smollm2 ") + " ; then the same with `kl`",
        dtype="float32",
        licence="Apache-2.0 (model; no weights here); prompts and text were written for this project",
        note="generation.json and first_position_logits.safetensors: see tests/oracle/README.md. kl.json and kl.safetensors: "
        "the 256 largest log-probabilities at 200 positions of ../kl-text/text.txt and the mass outside them.",
        uses=["torch", "transformers", "tokenizers", "safetensors", "numpy", "gguf"],
        inputs={gguf_file.name: sha256(gguf_file)},
    )
