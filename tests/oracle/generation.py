"""Greedy generation by `transformers` in float32: the ids, and how sure the model was at each step."""

import json
import time
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

import prompts
from provenance import sha256, write_provenance

N_STEPS = 64
N_TOP = 5


def load(folder: Path):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    return model, AutoTokenizer.from_pretrained(folder)


def short(values) -> list[float]:
    """Nine significant digits tell any float32 from its neighbours."""
    return [float(f"{v:.9g}") for v in values]


@torch.no_grad()
def greedy(model, prompt_ids: list[int]):
    """Plain argmax with a key-value cache, going on past end-of-text. Returns the ids and the logits `[64, V]`."""
    ids, past, rows, fed = [], None, [], torch.tensor([prompt_ids])
    for _ in range(N_STEPS):
        out = model(fed, past_key_values=past, use_cache=True, logits_to_keep=1)
        past, row = out.past_key_values, out.logits[0, -1].float()
        rows.append(row)
        ids.append(int(row.argmax()))
        fed = torch.tensor([[ids[-1]]])
    return ids, torch.stack(rows)


@torch.no_grad()
def teacher_forced(model, prompt_ids: list[int], output_ids: list[int]):
    """One forward over prompt and output without a cache: the same 64 rows of logits, by another path."""
    fed = torch.tensor([prompt_ids + output_ids[:-1]])
    return model(fed, use_cache=False, logits_to_keep=N_STEPS).logits[0].float()


def golden(model, tokenizer, name: str, prompt_ids: list[int], eog_ids: list[int], **given) -> tuple[dict, torch.Tensor]:
    output_ids, cached = greedy(model, prompt_ids)
    whole = teacher_forced(model, prompt_ids, output_ids)
    top = whole.topk(N_TOP)
    logprobs = whole.log_softmax(-1).gather(-1, top.indices)
    first_eog = next((i for i, token in enumerate(output_ids) if token in eog_ids), None)
    record = {
        "name": name,
        **given,
        "prompt_ids": prompt_ids,
        "output_ids": output_ids,
        "output_text": tokenizer.decode(output_ids, skip_special_tokens=False),
        "first_eog_index": first_eog,
        "argmax_margin": short((top.values[:, 0] - top.values[:, 1]).tolist()),
        "top_ids": top.indices.tolist(),
        "top_logits": [short(row) for row in top.values.tolist()],
        "top_logprobs": [short(row) for row in logprobs.tolist()],
        "whole_forward_same_argmax": bool((whole.argmax(-1) == torch.tensor(output_ids)).all()),
        "cached_whole_max_abs_diff": float(f"{(cached - whole).abs().max():.3g}"),
    }
    return record, whole[0].clone()


def write_goldens(out: Path, source: str, records: list[dict], header: dict):
    """One JSON file, one prompt a line, so that a changed prompt is a changed line."""
    out.mkdir(parents=True, exist_ok=True)
    head = json.dumps(header, ensure_ascii=True, indent=1)[:-2]
    body = ",\n".join(json.dumps(record, ensure_ascii=True, separators=(",", ":")) for record in records)
    (out / "generation.json").write_text(f'{head},\n "prompts": [\n{body}\n]}}\n', encoding="utf-8")


def make_smollm2(folder: Path, gguf_file: Path, out: Path, command: str):
    model, tokenizer = load(folder)
    cases = [(name, {"kind": "raw", "text": text, "messages": None, "rendered": text}) for name, text in prompts.RAW.items()]
    for name, messages in prompts.CHAT.items():
        rendered = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        cases.append((name, {"kind": "chat", "text": None, "messages": messages, "rendered": rendered}))
    full = {"capital", "lighthouse", "chat_capital", "long"}
    run(model, tokenizer, cases, full, [2], gguf_file, out, command, "Apache-2.0 (model); the prompts were written for this project")


def make_gemma(folder: Path, gguf_file: Path, out: Path, command: str):
    model, tokenizer = load(folder)
    texts = {"empty": ""} | prompts.RAW
    cases = [(name, {"kind": "raw", "text": text, "messages": None, "rendered": text}) for name, text in texts.items()]
    turns = prompts.GEMMA_TURNS
    cases.append(("literal_turns", {"kind": "literal", "text": turns, "messages": None, "rendered": turns}))
    full = {"capital", "long"}
    run(model, tokenizer, cases, full, [1], gguf_file, out, command, "Gemma terms (model; no weights here); the prompts were written for this project")


def run(model, tokenizer, cases, full_names, eog_ids, gguf_file, out, command, licence):
    records, full_rows = [], {}
    for name, given in cases:
        started = time.time()
        add_special = given["kind"] != "chat"
        prompt_ids = tokenizer(given["rendered"], add_special_tokens=add_special)["input_ids"]
        record, first_row = golden(model, tokenizer, name, prompt_ids, eog_ids, **given)
        records.append(record)
        if name in full_names:
            full_rows[name] = first_row
        print(f"{name}: {len(prompt_ids)} tokens, {time.time() - started:.1f} s, "
              f"diff {record['cached_whole_max_abs_diff']}, same {record['whole_forward_same_argmax']}", flush=True)
    header = {
        "model_file": gguf_file.name,
        "model_sha256": sha256(gguf_file),
        "method": "float32 CPU, eager attention, weights dequantised from the file; greedy argmax, 64 steps, not stopped at "
        "end-of-text; position t is the distribution that gives output_ids[t]",
        "eog_ids": eog_ids,
        "n_steps": N_STEPS,
        "vocab_size": model.config.vocab_size,
    }
    write_goldens(out, gguf_file.name, records, header)
    save_file(full_rows, out / "first_position_logits.safetensors")
    (out / "first_position_logits.safetensors").chmod(0o644)
    write_provenance(
        out,
        command=command,
        dtype="float32",
        licence=licence,
        note="generation.json: prompts, ids, greedy output, top 5 of each step. first_position_logits.safetensors: for some "
        "prompts (by name) all raw logits after the prompt's last token, f32 [V].",
        uses=["torch", "transformers", "tokenizers", "safetensors", "numpy", "gguf"],
        inputs={gguf_file.name: header["model_sha256"]},
    )
