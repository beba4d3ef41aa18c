"""Writes the `PROVENANCE.toml` that stands in every fixture folder: who made it, with what, and each file's sha256."""

import hashlib
import importlib.metadata
import json
import platform
from pathlib import Path

PACKAGES = ["torch", "transformers", "tokenizers", "safetensors", "numpy", "gguf", "mlx", "mlx-lm"]


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write_provenance(folder: Path, *, command: str, dtype: str, licence: str, note: str, seed=None, uses=(), inputs=None):
    """`uses` names the Python packages whose versions matter; `inputs` maps a source file's name to its sha256."""
    quoted = json.dumps  # a JSON string is a valid TOML basic string
    lines = [
        'maker = "tests/oracle (Python, independent of Tenon\'s code)"',
        f"command = {quoted(command)}",
        f"seed = {seed if seed is not None else quoted('none: nothing is drawn at random')}",
        f"dtype = {quoted(dtype)}",
        f"licence = {quoted(licence)}",
        f"note = {quoted(note, ensure_ascii=False)}",
        "",
        "[versions]",
        f"python = {quoted(platform.python_version())}",
    ]
    lines += [f"{name} = {quoted(importlib.metadata.version(name))}" for name in PACKAGES if name in uses]
    if inputs:
        lines += ["", "[inputs]  # not committed"]
        lines += [f"{quoted(name)} = {quoted('sha256:' + digest)}" for name, digest in inputs.items()]
    lines += ["", "[sha256]"]
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.name != "PROVENANCE.toml")
    lines += [f"{quoted(str(p.relative_to(folder)))} = {quoted(sha256(p))}" for p in files]
    (folder / "PROVENANCE.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
