"""Encoders and decoders, and JSON documents of our own: snapshots, exports, what people hand in.

Nothing else in the package serializes but the modules of this one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from threading import RLock
from typing import Any, cast

import msgspec
from msgspec import Raw, Struct

from holdfast.core.errors import InvalidValue


class MessagesRef(Struct, frozen=True, gc=False):
    """A sequence of messages by its identity: whose, how many, and their running digest."""

    log: str
    to: int
    digest: str


def plain(value: object) -> object:
    """Turn what msgspec does not know into what it does: models of pydantic, if the user brought it."""
    if isinstance(getattr(value, "ref", None), MessagesRef):
        return list(cast("Any", value))
    pydantic: Any = sys.modules.get("pydantic")
    if pydantic is not None and isinstance(value, pydantic.BaseModel):
        return cast("Any", value).model_dump(mode="json", round_trip=True)
    raise NotImplementedError  # how msgspec learns that the type is unknown


encode = msgspec.json.Encoder(order="deterministic", enc_hook=plain).encode


encode_struct = msgspec.json.Encoder().encode
"""Keeps the order of keys."""


decode_plain = msgspec.json.Decoder().decode


MALFORMED = (ValueError, TypeError, KeyError, IndexError, AttributeError, ArithmeticError, RecursionError)
"""What decoding, and folding, raise if something is not what it must be."""


making = RLock()
"""msgspec works out a type when it is first decoded, and two threads must not come to that at once."""


loaders: dict[Any, Callable[[bytes], Any]] = {}


def dump(value: Any) -> bytes:
    """Encode one of our own structs."""
    return encode_struct(value)


class JsonStruct(Struct, frozen=True):
    """Data of our own that people ask for, and programs send on as JSON."""

    def to_json(self) -> str:
        """Return it as a line of JSON."""
        return dump(self).decode()


def load(data: bytes | Raw, type: Any) -> Any:
    """Decode one of our own structs; ValueError if it is not one."""
    decoder = loaders.get(type)
    if decoder is None:
        with making:
            decoder = loaders[type] = msgspec.json.Decoder(type).decode
    return decoder(bytes(data))


def raw(data: bytes) -> Raw:
    """Encoded JSON as a field of an event."""
    return Raw(data)


def schema(wanted: Any) -> dict[str, Any]:
    """A type as JSON Schema; what msgspec knows nothing of may be anything."""
    try:
        found = msgspec.json.schema(wanted)
    except TypeError:
        return {}
    name = str(found.get("$ref", "")).rpartition("/")[2]
    if name and len(found.get("$defs", {})) == 1:
        return dict(found["$defs"][name])
    return found


def parse(text: str) -> Any:
    """Decode foreign JSON; ValueError if it isn't JSON, or nested too deeply."""
    try:
        return decode_plain(text)
    except RecursionError as error:
        raise ValueError(str(error)) from None


def document(given: Any, what: str) -> dict[str, Any]:
    """A JSON object, given as text or already decoded."""
    try:
        read = decode_plain(given) if isinstance(given, str | bytes) else given
    except ValueError as error:
        raise InvalidValue(f"the {what} is not JSON: {error}", hint="give a JSON object") from None
    if not isinstance(read, dict):
        raise InvalidValue(f"the {what} is not a JSON object", hint='give {"name": value}')
    return cast("dict[str, Any]", read)


def as_json(value: Any) -> Any:
    """A value as plain lists and dicts, for people and for diffs."""
    return decode_plain(encode(value))


def same_json(one: Any, two: Any) -> bool:
    """Return whether two plain values are the same JSON; True is not 1, and 1.0 is.

    >>> same_json([1, {"a": None}], [1.0, {"a": None}]), same_json(True, 1), same_json({}, None)
    (True, False, False)
    """
    if isinstance(one, bool) or isinstance(two, bool):
        return one is two
    if isinstance(one, dict) and isinstance(two, dict):
        first, second = cast("dict[str, Any]", one), cast("dict[str, Any]", two)
        return first.keys() == second.keys() and all(same_json(first[key], second[key]) for key in first)
    if isinstance(one, list) and isinstance(two, list):
        items = list(zip(cast("list[Any]", one), cast("list[Any]", two), strict=False))
        return len(one) == len(two) == len(items) and all(same_json(a, b) for a, b in items)  # pyright: ignore[reportUnknownArgumentType]
    return bool(one == two)


Fetch = Callable[[str], bytes]
"""Gives the stored bytes of a blob by its hash."""


def read_as(document: Any, type: Any) -> Any:
    """Read a document of plain and packed values as one of our own structs."""
    return load(encode(document), type)
