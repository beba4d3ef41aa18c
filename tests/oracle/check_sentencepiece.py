"""Checks the Gemma ids of the corpus with SentencePiece itself, on a model rebuilt from the GGUF vocabulary.

    python check_sentencepiece.py MODELS/gemma-3-270m-q4_k_m.gguf

Lines with control-token text are left out: SentencePiece never reads those from text, `transformers` does.
"""

import json
import sys
from pathlib import Path

import gguf
import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from gguf_to_hf import CONTROL, NORMAL, UNKNOWN, USER_DEFINED, fields_of

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"


def rebuilt_model(meta: dict):
    model = sentencepiece_model_pb2.ModelProto()
    columns = (meta[f"tokenizer.ggml.{name}"] for name in ("tokens", "scores", "token_type"))
    for text, score, kind in zip(*columns):
        piece = model.pieces.add()
        piece.piece = text.replace(" ", "▁") if kind == USER_DEFINED else text
        piece.score = score if kind == NORMAL else 0.0
        piece.type = UNKNOWN if text == "<unk>" else kind
    trainer, normalizer = model.trainer_spec, model.normalizer_spec
    trainer.model_type, trainer.byte_fallback, trainer.vocab_size = 2, True, len(model.pieces)
    trainer.pad_id, trainer.eos_id, trainer.bos_id, trainer.unk_id = 0, 1, 2, 3
    normalizer.name, normalizer.escape_whitespaces = "identity", True
    normalizer.add_dummy_prefix = normalizer.remove_extra_whitespaces = False
    return sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())


def main():
    meta = fields_of(gguf.GGUFReader(sys.argv[1]))
    processor = rebuilt_model(meta)
    control = [t for t, kind in zip(meta["tokenizer.ggml.tokens"], meta["tokenizer.ggml.token_type"]) if kind == CONTROL]
    texts = [json.loads(line) for line in open(FIXTURES / "tokenizer-lines" / "lines.jsonl")]
    expected = [json.loads(line) for line in open(FIXTURES / "tokenizer-gemma3" / "ids.jsonl")]
    compared = [(text, ids) for text, ids in zip(texts, expected) if not any(c in text for c in control)]
    different = [text for text, ids in compared if processor.encode(text) != ids]
    print(f"{len(compared)} lines compared, {len(different)} differ")
    for text in different[:20]:
        print(ascii(text)[:120])
    sys.exit(bool(different))


if __name__ == "__main__":
    main()
