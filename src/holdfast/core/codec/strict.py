"""Events that others encoded: whether this package could have written them.

Reading is lazy and trusts what it finds. What is imported, copied or verified is looked through here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from msgspec import Raw, Struct

from holdfast.core import limits
from holdfast.core.codec.blobs import SHAPES, BlobRef, json_shape, open_blob
from holdfast.core.codec.documents import MessagesRef, decode_plain, encode_struct, load
from holdfast.core.codec.records import MAX_AT_US, MIN_AT_US
from holdfast.core.codec.values import nests_deeper
from holdfast.core.events import Event

_HASH = re.compile(r"[0-9a-f]{64}")
_SALT = re.compile(r"(?:[0-9a-f]{16})?")
"""Of one length, so that no salt and value together are another value that has none."""

_SHAPES = {*SHAPES.values(), "number"}


def check_event(event: Event) -> None:
    """Refuse an event with a value, an envelope or a number that is never written; ValueError says which."""
    for name in event.__struct_fields__:
        value = getattr(event, name)
        if type(value) is dict:
            for key, item in cast("dict[str, Any]", value).items():
                _check_part(f"{name}[{key!r}]", item, envelopes=True)
        else:
            _check_part(name, value, envelopes=True)


def _check_part(name: str, value: Any, *, envelopes: bool = False) -> None:
    """Look through a part of an event. Large values and windows of messages stand in its own fields only."""
    if type(value) is Raw:
        if name != "hot":  # a whole state, which is compared with the one it must be
            _check_value(name, bytes(value), envelopes=envelopes)
    elif type(value) is int:
        low, high = (
            (MIN_AT_US, MAX_AT_US) if name.endswith("_us") and name != "wall_us" else (-limits.MAX_SEQ, limits.MAX_SEQ)
        )
        if not low <= value <= high:
            raise ValueError(f"{name} is {value}, which is out of range")
    elif isinstance(value, Mapping):
        for key, item in cast("Mapping[str, Any]", value).items():
            _check_part(f"{name}[{key!r}]", item)
    elif isinstance(value, list | tuple):
        for item in cast("list[Any]", value):
            _check_part(name, item)
    elif isinstance(value, Struct):
        for inner in value.__struct_fields__:
            _check_part(inner, getattr(value, inner))


def _check_value(name: str, data: bytes, *, envelopes: bool) -> None:
    if not data.startswith(b'{"$'):
        _check_json(name, data)
    elif data.startswith(b'{"$json":{"$') and data.endswith(b"}}"):
        _check_json(name, data[9:-1])
    elif not envelopes or not _is_envelope(data):
        raise ValueError(f"{name} looks like an envelope, and is none: {data[:60].decode(errors='replace')}")


def _is_envelope(data: bytes) -> bool:
    """Return whether it stands for a large value, or for messages, and is encoded in the one way there is."""
    try:
        if data.startswith(b'{"$messages"'):
            window: Any = load(data, dict[str, MessagesRef])
            return data == b'{"$messages":' + encode_struct(window["$messages"]) + b"}"
        ref: BlobRef = load(data, BlobRef)
    except (ValueError, RecursionError):
        return False
    known = _HASH.fullmatch(ref.hash) and _SALT.fullmatch(ref.salt) and ref.shape in _SHAPES
    return bool(known) and 0 <= ref.bytes <= limits.MAX_VALUE_BYTES and data == encode_struct(ref)


def _check_json(name: str, data: bytes) -> None:
    """Refuse what no value is encoded as: broken JSON, numbers and text that cannot be read, or too much of it."""
    if len(data) > limits.MAX_VALUE_BYTES:
        raise ValueError(f"{name} is {len(data):,} bytes of JSON; the most is {limits.MAX_VALUE_BYTES:,}")
    try:
        decode_plain(data)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{name} is not JSON: {error}") from None
    if nests_deeper(data, limits.MAX_DEPTH):
        raise ValueError(f"{name} nests deeper than {limits.MAX_DEPTH}")


def check_blob(ref: BlobRef, stored: bytes) -> None:
    """Refuse a large value that is not what its envelope says: ValueDamaged, or ValueError."""
    data = open_blob(ref.hash, stored, ref.salt)
    found = json_shape(data)
    if len(data) != ref.bytes or found != ref.shape:
        raise ValueError(f"a large value is a {found} of {len(data):,} bytes, not a {ref.shape} of {ref.bytes:,}")
    _check_json("a large value", data)
