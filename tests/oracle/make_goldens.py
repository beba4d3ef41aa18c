"""Makes all golden data of the test suite, one subject a subcommand. See README.md.

    python make_goldens.py SUBJECT --models MODELS --work WORK [--fixtures ../fixtures]
"""

import argparse
import os
import sys
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing here may come from a model hub
sys.dont_write_bytecode = True

SMOLLM2 = "SmolLM2-135M-Instruct.Q4_1.gguf"
GEMMA = "gemma-3-270m-q4_k_m.gguf"


def folders(a):
    import gguf_to_hf

    gguf_to_hf.convert_smollm2(a.models / SMOLLM2, a.work / "smollm2-f32")
    gguf_to_hf.convert_gemma(a.models / GEMMA, a.work / "gemma3-f32")


def smollm2(a):
    import generation

    generation.make_smollm2(a.work / "smollm2-f32", a.models / SMOLLM2, a.fixtures / "smollm2-135m", a.command)


def gemma3(a):
    import generation

    generation.make_gemma(a.work / "gemma3-f32", a.models / GEMMA, a.fixtures / "gemma3-270m", a.command)


def tokenizer(a):
    import tokenizer_corpus

    tokenizer_corpus.make(a.work, a.models, a.fixtures, a.command)


def kl(a):
    import kl_text

    kl_text.make(a.work, a.models / SMOLLM2, a.fixtures, a.command)


def tiny(a):
    import tiny_models

    tiny_models.make(a.fixtures, a.command)


def tiny_mlx(a):
    import tiny_mlx

    tiny_mlx.make(a.work, a.fixtures, a.command)


SUBJECTS = {"folders": folders, "smollm2": smollm2, "gemma3": gemma3, "tokenizer": tokenizer, "kl": kl, "tiny": tiny, "tiny-mlx": tiny_mlx}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("subject", choices=SUBJECTS)
    parser.add_argument("--models", type=Path, default=Path("models"), help="folder with the two GGUF files")
    parser.add_argument("--work", type=Path, default=Path("work"), help="folder for float32 weights, outside the repository")
    parser.add_argument("--fixtures", type=Path, default=Path(__file__).resolve().parent.parent / "fixtures")
    args = parser.parse_args()
    args.command = f"python tests/oracle/make_goldens.py {args.subject} --models MODELS --work WORK"
    SUBJECTS[args.subject](args)


if __name__ == "__main__":
    main()
