"""What `mx.quantize` makes of small matrices: every width, group size, mode and dtype, with rows that are hard to get right."""

import sys
from pathlib import Path

import mlx.core as mx
import numpy as np

from provenance import write_provenance

SEED = 11


def rows(rng) -> np.ndarray:
    """16 rows of 256: drawn at several widths, one-sided, constant, zero, tiny, with halves between codes, with outliers."""
    x = rng.standard_normal((16, 256)).astype(np.float32)
    x[1] *= 0.02
    x[2] = np.abs(x[2]) * 0.1
    x[3] = -np.abs(x[3])
    x[4] = 0.0
    x[5] = 0.37
    x[6] = -1.5
    x[7] *= 1e-6
    x[8] = np.arange(256) / 2 - 31.75
    x[9] = np.linspace(-1, 1, 256)
    x[10, ::16] *= 40
    x[11] = np.where(np.arange(256) % 2 == 0, 1.0, -1.0)
    x[12, :128] = 0.0
    x[13] = np.sign(x[13]) * 2.0 ** rng.integers(-4, 4, 256)
    x[14] *= 300
    x[15] = np.round(x[15] * 4) / 4
    return x


def make(out: Path, command: str):
    mx.set_default_device(mx.cpu)
    out.mkdir(parents=True, exist_ok=True)
    arrays = {}
    base = rows(np.random.default_rng(SEED))
    for name, dtype in (("f32", mx.float32), ("f16", mx.float16), ("bf16", mx.bfloat16)):
        w = mx.array(base).astype(dtype)
        arrays[f"{name}.input"] = w
        for bits in (2, 3, 4, 5, 6, 8):
            for group in (32, 64, 128):
                parts = mx.quantize(w, group_size=group, bits=bits, mode="affine")
                for part, array in zip(("codes", "scales", "biases"), parts):
                    arrays[f"{name}.affine.{bits}.{group}.{part}"] = array
        for mode in ("mxfp4", "mxfp8", "nvfp4"):
            for part, array in zip(("codes", "scales"), mx.quantize(w, mode=mode)):
                arrays[f"{name}.{mode}.{part}"] = array
    mx.save_safetensors(str(out / "cases.safetensors"), arrays)
    write_provenance(
        out, command=command, dtype="float32, float16, bfloat16", seed=SEED, licence="Apache-2.0 OR MIT; random numbers made for this project",
        note="mx.quantize on the CPU, every affine width and group size and the three float modes, of one matrix in three dtypes.",
        uses=["numpy", "mlx"],
    )


if __name__ == "__main__":
    make(Path(sys.argv[1]), "python tests/oracle/mlx_quantize.py tests/fixtures/mlx-quantize")
