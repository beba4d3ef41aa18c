"""Turns the two GGUF files of the test suite into float32 Hugging Face folders that `transformers` can load.

Weights are dequantised with `gguf` to float32 and get their published names back; the tokenizer is rebuilt from the
GGUF vocabulary the way `transformers` builds it. The folders stay outside the repository.
"""

import json
from pathlib import Path

import gguf
import numpy as np
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import Gemma3TextConfig, LlamaConfig
from transformers.tokenization_utils_base import generate_merges

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

LAYER_NAMES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
}
LLAMA_NAMES = LAYER_NAMES | {"ffn_norm": "post_attention_layernorm"}
GEMMA_NAMES = LAYER_NAMES | {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}


def hf_name(name: str, layer_names: dict) -> str:
    top = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
    if name in top:
        return top[name]
    _, layer, part, _ = name.split(".")
    return f"model.layers.{layer}.{layer_names[part]}.weight"


def unpermute(weight: np.ndarray, n_heads: int) -> np.ndarray:
    """Undoes the row order llama.cpp gives Q and K, so that rotary pairs are (i, i + head_dim / 2) again."""
    rows, width = weight.shape
    return weight.reshape(n_heads, rows // n_heads // 2, 2, width).swapaxes(1, 2).reshape(rows, width)


def dequantise(tensor) -> np.ndarray:
    return gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)


def fields_of(reader) -> dict:
    return {name: field.contents() for name, field in reader.fields.items()}


def bpe_of_smollm2(meta: dict) -> Tokenizer:
    tokens, types = meta["tokenizer.ggml.tokens"], meta["tokenizer.ggml.token_type"]
    merges = [tuple(merge.split(" ")) for merge in meta["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    special = [AddedToken(t, normalized=False, special=True) for t, kind in zip(tokens, types) if kind == CONTROL]
    tokenizer.add_special_tokens(special)
    assert tokenizer.get_vocab_size() == len(tokens)
    return tokenizer


def bpe_of_gemma(meta: dict) -> Tokenizer:
    """SentencePiece BPE as `transformers` converts it: merges from scores, byte fallback, ' ' replaced by '▁'.

    llama.cpp writes user-defined pieces with real spaces and with the score -1000; SentencePiece has '▁' and 0 there,
    which is what the merges have to be rebuilt from.
    """
    types = meta["tokenizer.ggml.token_type"]
    tokens = [
        text.replace(" ", "▁") if kind == USER_DEFINED else text
        for text, kind in zip(meta["tokenizer.ggml.tokens"], types)
    ]
    scores = [
        score if kind == NORMAL else 0.0 for score, kind in zip(meta["tokenizer.ggml.scores"], types)
    ]
    vocab = {token: i for i, token in enumerate(tokens)}
    assert len(vocab) == len(tokens)
    merges = generate_merges(vocab, dict(zip(tokens, scores)))
    tokenizer = Tokenizer(
        models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<bos> $A", pair="<bos> $A <bos>:1 $B:1", special_tokens=[("<bos>", vocab["<bos>"])]
    )
    tokenizer.add_tokens(
        [
            AddedToken(token, normalized=False, special=kind == CONTROL)
            for token, kind in zip(tokens, types)
            if kind in (CONTROL, USER_DEFINED)
        ]
    )
    assert tokenizer.get_vocab_size() == len(tokens)
    return tokenizer


def write_tokenizer(out: Path, tokenizer: Tokenizer, config: dict, chat_template: str | None):
    tokenizer.save(str(out / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False} | config
    (out / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")
    if chat_template is not None:
        (out / "chat_template.jinja").write_text(chat_template)


def convert_smollm2(source: Path, out: Path):
    reader = gguf.GGUFReader(source)
    meta = fields_of(reader)
    n_heads, n_kv_heads = meta["llama.attention.head_count"], meta["llama.attention.head_count_kv"]
    weights = {}
    for tensor in reader.tensors:
        weight = dequantise(tensor)
        if ".attn_q." in tensor.name:
            weight = unpermute(weight, n_heads)
        if ".attn_k." in tensor.name:
            weight = unpermute(weight, n_kv_heads)
        weights[hf_name(tensor.name, LLAMA_NAMES)] = np.ascontiguousarray(weight)
    config = LlamaConfig(
        architectures=["LlamaForCausalLM"],
        vocab_size=meta["llama.vocab_size"],
        hidden_size=meta["llama.embedding_length"],
        intermediate_size=meta["llama.feed_forward_length"],
        num_hidden_layers=meta["llama.block_count"],
        num_attention_heads=n_heads,
        num_key_value_heads=n_kv_heads,
        max_position_embeddings=meta["llama.context_length"],
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": meta["llama.rope.freq_base"]},
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
        dtype="float32",
    )
    write_folder(out, weights, config)
    names = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "unk_token": "<|endoftext|>", "pad_token": "<|im_end|>"}
    write_tokenizer(out, bpe_of_smollm2(meta), names, meta["tokenizer.chat_template"])


def convert_gemma(source: Path, out: Path):
    reader = gguf.GGUFReader(source)
    meta = fields_of(reader)
    weights = {}
    for tensor in reader.tensors:
        weight = dequantise(tensor)
        if tensor.name.endswith("norm.weight"):
            weight = weight - np.float32(1.0)  # GGUF holds 1 + w
        weights[hf_name(tensor.name, GEMMA_NAMES)] = np.ascontiguousarray(weight)
    n_layers = meta["gemma3.block_count"]
    config = Gemma3TextConfig(
        architectures=["Gemma3ForCausalLM"],
        vocab_size=len(meta["tokenizer.ggml.tokens"]),
        hidden_size=meta["gemma3.embedding_length"],
        intermediate_size=meta["gemma3.feed_forward_length"],
        num_hidden_layers=n_layers,
        num_attention_heads=meta["gemma3.attention.head_count"],
        num_key_value_heads=meta["gemma3.attention.head_count_kv"],
        head_dim=meta["gemma3.attention.key_length"],
        max_position_embeddings=meta["gemma3.context_length"],
        rms_norm_eps=1e-6,
        sliding_window=meta["gemma3.attention.sliding_window"],
        layer_types=["full_attention" if (i + 1) % 6 == 0 else "sliding_attention" for i in range(n_layers)],
        rope_parameters={
            "full_attention": {"rope_type": "default", "rope_theta": meta["gemma3.rope.freq_base"]},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        },
        query_pre_attn_scalar=256,
        hidden_activation="gelu_pytorch_tanh",
        tie_word_embeddings=True,
        bos_token_id=2,
        eos_token_id=1,
        pad_token_id=0,
        dtype="float32",
    )
    write_folder(out, weights, config)
    names = {"bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>", "pad_token": "<pad>"}
    write_tokenizer(out, bpe_of_gemma(meta), names, None)


def write_folder(out: Path, weights: dict, config):
    out.mkdir(parents=True, exist_ok=True)
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    config.save_pretrained(out)
