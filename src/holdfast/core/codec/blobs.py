"""Making bytes fewer, and finding out whether they are those that were kept."""

from __future__ import annotations

import sys
from hashlib import sha256
from typing import Any

from holdfast.core import limits


def zstd() -> Any:
    """The compressor: part of Python from 3.14 on. Imported when a value is first large enough."""
    if sys.version_info >= (3, 14):
        from compression import zstd as found
    else:
        from backports import zstd as found
    return found


def deflate(data: bytes) -> bytes:
    """Compress what is large, behind a checksum and a byte that says whether."""
    small = len(data) < limits.BLOB_BYTES
    return sha256(data).digest()[:8] + (b"=" + data if small else b"z" + zstd().compress(data, 1))


def inflate(stored: bytes) -> bytes:
    """Undo `deflate`; ValueError if it is not what was stored."""
    try:
        data: bytes = zstd().decompress(stored[9:]) if stored[8:9] == b"z" else stored[9:]
    except zstd().ZstdError as error:
        raise ValueError(str(error)) from None
    if sha256(data).digest()[:8] != stored[:8]:
        raise ValueError("it is not what was stored")
    return data
