"""The digest of a GGUF file's tokenizer, from the file's bytes alone: SHA-256 of every metadata entry under
`tokenizer.ggml.` (length of the key, key, type, value, as they are stored), in the order of the keys.

    python tests/oracle/gguf_tokenizer_digest.py FILE...
"""

import hashlib
import struct
import sys

WIDTHS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
TEXT, ARRAY = 8, 9


def after(data: bytes, kind: int, at: int) -> int:
    """Where a value ends."""
    if kind in WIDTHS:
        return at + WIDTHS[kind]
    if kind == TEXT:
        return at + 8 + struct.unpack_from("<Q", data, at)[0]
    assert kind == ARRAY, kind
    element, count = struct.unpack_from("<IQ", data, at)
    at += 12
    if element in WIDTHS:
        return at + count * WIDTHS[element]
    for _ in range(count):
        at = after(data, element, at)
    return at


def digest(path: str) -> str:
    data = open(path, "rb").read()
    assert data[:4] == b"GGUF", path
    (count,) = struct.unpack_from("<Q", data, 16)
    entries, at = {}, 24
    for _ in range(count):
        start = at
        (length,) = struct.unpack_from("<Q", data, at)
        key = data[at + 8 : at + 8 + length]
        (kind,) = struct.unpack_from("<I", data, at + 8 + length)
        at = after(data, kind, at + 12 + length)
        entries[key] = data[start:at]
    mine = sorted(key for key in entries if key.startswith(b"tokenizer.ggml."))
    return hashlib.sha256(b"".join(entries[key] for key in mine)).hexdigest()


for path in sys.argv[1:]:
    print(digest(path), path)
