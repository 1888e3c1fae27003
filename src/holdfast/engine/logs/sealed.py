"""A state on its way through a tier that servers share: signed, so that only those who can read the store can make one.

Nothing in it is believed before its signature is checked, and the log must still confirm it.
"""

from __future__ import annotations

import hashlib
import hmac

from msgspec import Struct

from holdfast.core import codec, limits
from holdfast.core.codec import Head
from holdfast.core.state.shapes import FOLD_VERSION, Hot
from holdfast.engine.logs.cache import Ground, Kept, Sizes

_SIGNATURE = 32
_LENGTH = 4


class _Header(Struct, frozen=True):
    """What the body is a state of, and by which fold."""

    log: str
    fold: int
    seq: int
    digest: str
    ground: Ground
    sizes: Sizes


def seal(name: str, kept: Kept, key: bytes) -> bytes | None:
    """A state as bytes; None if they would be too many."""
    header = codec.dump(_Header(name, FOLD_VERSION, kept.head.seq, kept.head.digest.hex(), kept.ground, kept.sizes))
    body = codec.deflate(codec.dump(kept.hot))
    data = len(header).to_bytes(_LENGTH, "big") + header + body
    return None if len(data) > limits.CACHE_SHARED_BYTES else _sign(data, key) + data


def unseal(name: str, sealed: bytes, key: bytes) -> Kept | None:
    """The state that was sealed for this log; None if it was not, or not by us, or for another fold."""
    signature, data = sealed[:_SIGNATURE], sealed[_SIGNATURE:]
    if not hmac.compare_digest(signature, _sign(data, key)):
        return None
    end = _LENGTH + int.from_bytes(data[:_LENGTH], "big")
    try:
        header = codec.load(data[_LENGTH:end], _Header)
        if header.log != name or header.fold != FOLD_VERSION:
            return None
        hot = codec.load(codec.inflate(data[end:]), Hot)
        return Kept(Head(header.seq, bytes.fromhex(header.digest)), hot, header.sizes, header.ground)
    except ValueError:  # the same fold by its number, and yet of another shape
        return None


def place(name: str, key: bytes) -> str:
    """Under which name a log is kept: names may say who somebody is, so they stay here."""
    return hashlib.blake2b(name.encode(), key=key, digest_size=16).hexdigest()


def _sign(data: bytes, key: bytes) -> bytes:
    return hashlib.blake2b(data, key=key, digest_size=_SIGNATURE).digest()
