"""Making bytes fewer, and finding out whether they are those that were kept."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from hashlib import sha256
from typing import Any, cast

from msgspec import Raw, Struct, field

from holdfast.core import limits
from holdfast.core.codec.documents import encode_struct, load
from holdfast.core.codec.records import Blob
from holdfast.core.errors import ValueDamaged
from holdfast.core.events import Event


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


def decompressed(stored: bytes, most: int) -> bytes:
    """Undo a compression up to so many bytes; ValueError beyond that: a few kilobytes can stand for gigabytes."""
    reader: Any = zstd().ZstdDecompressor()
    try:
        data: bytes = reader.decompress(stored, most + 1)
    except zstd().ZstdError as error:
        raise ValueError(f"cannot be decompressed: {error}") from None
    if len(data) > most:
        raise ValueError(f"holds more than {most:,} bytes, the most there may be")
    if not reader.eof or reader.unused_data:
        raise ValueError("cannot be decompressed: it ends too early, or too late")
    return data


def inflate(stored: bytes) -> bytes:
    """Undo `deflate`; ValueError if it is not what was stored."""
    data = decompressed(stored[9:], limits.MAX_STATE_BYTES) if stored[8:9] == b"z" else stored[9:]
    if sha256(data).digest()[:8] != stored[:8]:
        raise ValueError("it is not what was stored")
    return data


class BlobRef(Struct, frozen=True, gc=False, omit_defaults=True):
    """The envelope of a blob."""

    hash: str = field(name="$blob")
    bytes: int
    shape: str
    salt: str = ""


def shape(raw: Raw) -> str:
    """Return the JSON type of a value without decoding it: null, bool, number, str, list or object."""
    data = bytes(raw) if len(raw) < limits.BLOB_BYTES else memoryview(raw)[:_PREFIX].tobytes()  # no copy of the rest
    if data.startswith(b'{"$blob"'):
        try:
            return load(data, BlobRef).shape
        except ValueError:
            return "object"  # a user's object, which is not an envelope
    if data.startswith(b'{"$append"'):
        return "list"
    return json_shape(data)  # what was edited inside is an object, and so is its envelope


def json_shape(data: bytes) -> str:
    """Return the JSON type by the first byte."""
    return SHAPES.get(data[:1], "number")


SHAPES = {b"n": "null", b"t": "bool", b"f": "bool", b'"': "str", b"[": "list", b"{": "object"}


_PREFIX = 10
"""Bytes that tell the JSON type of a value, and which envelope it is."""


def make_blob(raw: Raw, salt: str = "") -> tuple[Raw, Blob]:
    """A large value's envelope and what is stored for it."""
    ref = _envelope(raw, salt)
    return Raw(encode_struct(ref)), Blob(ref.hash, zstd().compress(_content(raw), 3))


def _envelope(raw: Raw, salt: str) -> BlobRef:
    """Hash a large value without a copy of it. Without the salt, a hash would show what it was."""
    data, hashed = _content(raw), sha256(salt.encode())
    hashed.update(data)
    return BlobRef(hashed.hexdigest(), len(data), shape(raw), salt)


def _content(raw: Raw) -> memoryview:
    data = memoryview(raw)
    return data[9:-1] if data[:8].tobytes() == b'{"$json"' else data


def same_fields(stored: dict[str, Raw], given: dict[str, Raw]) -> bool:
    """Return whether values are those that were stored, where the large ones are blobs."""
    if stored == given or stored.keys() != given.keys():
        return stored == given
    return all(given[name] == raw or _is_stored(given[name], bytes(raw)) for name, raw in stored.items())


def _is_stored(given: Raw, stored: bytes) -> bool:
    return stored.startswith(b'{"$blob"') and encode_struct(_envelope(given, load(stored, BlobRef).salt)) == stored


def open_blob(hashed: str, stored: bytes, salt: str = "") -> bytes:
    """The JSON inside a blob, checked against its hash."""
    try:
        data = decompressed(stored, limits.MAX_VALUE_BYTES)
    except ValueError as error:
        raise ValueDamaged(hashed, str(error)) from None
    found = sha256(salt.encode())
    found.update(data)
    if found.hexdigest() != hashed:
        raise ValueDamaged(hashed, "does not have the content it is named after")
    return data


def blob_refs(event: Event) -> Iterator[BlobRef]:
    """Every blob an event refers to."""
    for name in event.__struct_fields__:
        value = getattr(event, name)
        raws = cast("dict[str, object]", value).values() if type(value) is dict else (value,)
        for raw in raws:
            if isinstance(raw, Raw) and bytes(raw).startswith(b'{"$blob"'):
                yield load(raw, BlobRef)
