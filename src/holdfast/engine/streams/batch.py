"""A batch of chunks as it travels through a store, and what becomes of a stream."""

from __future__ import annotations

from typing import Literal

from msgspec import Raw, Struct

End = Literal["", "cut", "failed"]
"""What a batch says of its stream: nothing, that the rest is left out, or that the attempt failed."""


class Payload(Struct, frozen=True, omit_defaults=True):
    """Chunks in order; `first` is the number of the first one."""

    first: int
    chunks: tuple[Raw, ...] = ()
    end: End = ""
