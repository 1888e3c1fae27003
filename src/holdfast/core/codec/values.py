"""Values ⇄ JSON ⇄ bytes, digests, old events. The only serializer.

A user's value is encoded once, deterministically, and carried as bytes (`Raw`). Where a value may stand, an *envelope*
may stand for it: an object whose encoding begins with `{"$`. A user's own object that begins like that is wrapped, so
data can never pass for an envelope:

    {"$json": …}                                     a user's value that looks like an envelope
    {"$blob": hash, "bytes": n, "shape": "list"}     a large value, kept beside the log
    {"$append": [value, item, …]}                    a list that grew by items (`edits.py`)
    {"$edits": [value, edit, …]}                     an object that was changed inside (`edits.py`)
    {"$messages": {"log", "to", "digest"}}           the first `to` messages of a log
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate, zip_longest
from typing import Any, cast

import msgspec
from msgspec import Raw

from holdfast.core import limits
from holdfast.core.codec.blobs import BlobRef, open_blob
from holdfast.core.codec.documents import (
    MALFORMED,
    Fetch,
    MessagesRef,
    decode_plain,
    encode,
    encode_struct,
    load,
    plain,
)
from holdfast.core.codec.edits import applied, noted_edits, plain_json, wrapped
from holdfast.core.codec.secrets import Secret
from holdfast.core.errors import NotSerializable, ValueDamaged
from holdfast.core.names import a

# Values


def pack(
    value: Any, path: str = "value", *names: object, restore: Restore | None = None, must_fit: bool = False
) -> Raw:
    """Encode a user's value; the path names it in errors. Only there are the names filled into it (`%s`, `%r`).

    What would come back as something else is refused: bytes, which become text, sets, which become lists, and objects
    that their declared type would change. `restore` makes of the JSON what its reader gets: bytes that come back as
    bytes are fine. A value that `restore` refuses is an error for its reader, or one here if it `must_fit`.

    >>> bytes(pack({"b": 1, "a": None}))
    b'{"a":null,"b":1}'
    """
    raw = pack_typed(value, path, *names)
    if must_fit and restore is not None:
        restore(decode_plain(plain_json(raw)))
    if type(value) not in _SCALARS and (found := decode_plain(plain_json(raw))) != value:
        lost = _lost(value, _restored(found, restore), path % names if names else path)
        if lost is not None:
            raise lost
    return raw


def pack_typed(value: Any, path: str = "value", *names: object) -> Raw:
    """Encode a value whose reader knows its type, and makes good what JSON does not tell apart."""
    try:
        data = encode(value)
    except (TypeError, ValueError, NotImplementedError, RecursionError, OverflowError):
        where = path % names if names else path
        raise _complaint(value, where, 0) or NotSerializable(where, f"is {a(type(value).__name__)}, not JSON")
    if len(data) > limits.MAX_VALUE_BYTES:
        raise NotSerializable(
            path % names if names else path,
            f"is {len(data):,} bytes of JSON; the most is {limits.MAX_VALUE_BYTES:,}",
            hint="keep it in a file or an object store and record where it is",
        )
    # msgspec writes NaN and infinities as null, so only a value with a null in it needs a closer look, and one with
    # nothing inside none at all. (`find`, because `in` raises an error inside and drops it, which takes as long again.)
    if type(value) not in _FLAT and (data.find(b"null") >= 0 or may_nest_too_deep(data)):
        where = path % names if names else path
        complaint = _complaint(msgspec.to_builtins(value, enc_hook=plain), where, 0)
        if complaint is not None:
            raise complaint
    return wrapped(data)


Restore = Callable[[Any], Any]
"""Makes of plain JSON the type that a function declares."""

_FLAT = frozenset((str, int, bool, type(None)))
_SCALARS = _FLAT | {float}


def _restored(found: Any, restore: Restore | None) -> Any:
    try:
        return found if restore is None else restore(found)
    except Exception:  # noqa: BLE001 — a value that does not fit its type is an error for its reader
        return found


def _lost(value: Any, back: Any, path: str) -> NotSerializable | None:
    """The first thing in a value that does not come back as what it is: bytes as text, or a set as a list."""
    if isinstance(value, set | frozenset):
        return NotSerializable(path, "is a set, which has no order", hint="give a list: sorted(…)")
    if isinstance(value, bytes | bytearray | memoryview):
        if isinstance(back, bytes | bytearray | memoryview):
            return None
        hint = "give text, base64.b64encode(…).decode(); a function's result may be declared: -> bytes"
        return NotSerializable(path, "is bytes, which would come back as text", hint=hint)
    if isinstance(value, list | tuple):
        items, found = cast("list[Any]", value), cast("list[Any]", back) if isinstance(back, list | tuple) else []
        pairs = enumerate(zip_longest(items, found[: len(items)]))
        return _first(_lost(one, two, f"{path}[{index}]") for index, (one, two) in pairs)
    parts = list(_parts(value))
    if not parts:
        return _changed(value, back, path)
    if not isinstance(value, Mapping) and type(back) is not type(value) and _has_fields(back):
        what = f"is {a(type(value).__name__)}, which would come back as {a(type(back).__name__)}"
        return NotSerializable(path, what, hint="declare its own class; classes of a union need fields that differ")
    return _first(_lost(one, _part(back, name), f"{path}[{name!r}]") for name, one in parts)


def _changed(value: Any, back: Any, path: str) -> NotSerializable | None:
    """Refuse a value that its own class changes on the way: hidden in JSON, left out of it, or computed again."""
    is_nan = value != value
    if type(value) is not type(back) or value == back or is_nan:
        return None
    return NotSerializable(path, "would come back as another value", hint="return a dict of what you need later")


def _has_fields(back: Any) -> bool:
    return not isinstance(back, Mapping) and bool(_parts(back))


def _parts(value: Any) -> Iterable[tuple[str, Any]]:
    """Return the parts of a value that becomes a JSON object, by name."""
    if isinstance(value, Mapping):
        return cast("Mapping[str, Any]", value).items()
    fields = getattr(value, "__dataclass_fields__", None) or getattr(value, "__struct_fields__", None)
    fields = fields or getattr(cast("Any", type(value)), "model_fields", None) or getattr(value, "__attrs_attrs__", ())
    named = (getattr(one, "name", one) for one in fields)
    return [(name, getattr(value, name)) for name in named if hasattr(value, name)]


def _part(back: Any, name: str) -> Any:
    return cast("Mapping[str, Any]", back).get(name) if isinstance(back, Mapping) else getattr(back, name, None)


def unpack(raw: Raw, fetch: Fetch) -> Any:
    """Decode a value, whatever stands for it; ValueDamaged if nothing can."""
    data = bytes(raw)
    try:
        return decode_plain(_resolved(raw, fetch) if data.startswith(b'{"$') else data)
    except MALFORMED as error:
        raise ValueDamaged("", f"cannot be read: {error}") from error


def resolve(raw: Raw, fetch: Fetch) -> bytes:
    """The JSON of a value with every envelope opened (a window of messages stays a reference)."""
    try:
        return _resolved(raw, fetch)
    except MALFORMED as error:
        raise ValueDamaged("", f"cannot be read: {error}") from error


def _resolved(raw: Raw, fetch: Fetch) -> bytes:
    data = bytes(raw)
    if not data.startswith(b'{"$'):
        return data
    if data.startswith(b'{"$json"'):
        return data[9:-1]
    if data.startswith(b'{"$blob"'):
        ref = load(data, BlobRef)
        return open_blob(ref.hash, fetch(ref.hash), ref.salt)
    if data.startswith(b'{"$append"'):
        parts = msgspec.json.decode(data, type=dict[str, list[Raw]])["$append"]
        base, items = _resolved(parts[0], fetch), [_resolved(part, fetch) for part in parts[1:]]
        return b"[" + b",".join([base[1:-1], *items] if len(base) > 2 else items) + b"]"
    if data.startswith(b'{"$edits"'):
        start, edits = noted_edits(data)
        made: bytes | None = _resolved(start, fetch)
        for how, path, part in edits:
            made = applied(made, path, how, _resolved(part, fetch))
        return b"{}" if made is None else made
    return data


def messages_value(ref: MessagesRef) -> Raw:
    """A window of messages as a value: its identity, not its content."""
    return Raw(b'{"$messages":' + encode_struct(ref) + b"}")


def exact_text(value: Any, path: str) -> str:
    """A value as JSON text that reads back as the very same: each type, the order of keys, every digit.

    >>> exact_text({"b": 1.0, "a": [True, None]}, "item")
    '{"b":1.0,"a":[true,null]}'
    """
    pack(value, path)
    text = encode_struct(value).decode()
    if not _same_exactly(value, decode_plain(text)):
        raise NotSerializable(path, "would not come back as it is", hint="give plain dicts, lists, texts and numbers")
    return text


def _same_exactly(one: Any, two: Any) -> bool:
    if type(one) is not type(two):
        return False
    if isinstance(one, dict):
        first, second = cast("dict[str, Any]", one), cast("dict[str, Any]", two)
        return list(first) == list(second) and all(_same_exactly(first[key], second[key]) for key in first)
    if isinstance(one, list):
        items, others = cast("list[Any]", one), cast("list[Any]", two)
        return len(items) == len(others) and all(map(_same_exactly, items, others))
    return bool(one == two)


def text(value: Any) -> str:
    """A value as JSON text."""
    pack(value)
    return encode(value).decode()


# What is wrong with a value


def may_nest_too_deep(data: bytes, most: int = limits.MAX_DEPTH) -> bool:
    """Return whether there are brackets enough; those in texts count, so only a closer look tells for sure."""
    if data.count(b"[") + data.count(b"{") <= most:
        return False
    brackets = data.translate(None, _NOT_BRACKETS)
    return max(accumulate(map(_NESTING.__getitem__, brackets))) > most


def nests_deeper(data: bytes, most: int) -> bool:
    """Return whether JSON nests deeper than that."""
    return may_nest_too_deep(data, most) and _nests_deeper(decode_plain(data), most)


def _nests_deeper(value: Any, most: int) -> bool:
    if most < 0 or not isinstance(value, dict | list):
        return most < 0
    inside = cast("dict[str, Any]", value).values() if isinstance(value, dict) else cast("list[Any]", value)
    return any(_nests_deeper(one, most - 1) for one in inside)


_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_NESTING = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


def _complaint(value: Any, path: str, depth: int) -> NotSerializable | None:
    """The first thing in a value that cannot be JSON, with its path; None if there is none."""
    if depth > limits.MAX_DEPTH:
        return NotSerializable(path, f"nests deeper than {limits.MAX_DEPTH}", hint="flatten it, or store it as text")
    if isinstance(value, float) and not math.isfinite(value):
        return NotSerializable(path, f"is {value}, which JSON cannot hold", hint="use None or a string")
    if isinstance(value, str):
        bad = next((char for char in value if "\ud800" <= char <= "\udfff"), None)
        return (bad and NotSerializable(path, f"holds the lone surrogate {bad!r}, which is not text")) or None
    if isinstance(value, dict):
        pairs = cast("dict[Any, Any]", value).items()
        return _first(_complaint_of_pair(key, item, path, depth) for key, item in pairs)
    if isinstance(value, (list, tuple)):
        items = enumerate(cast("list[Any]", value))
        return _first(_complaint(item, f"{path}[{index}]", depth + 1) for index, item in items)
    if isinstance(value, Secret):
        return NotSerializable(path, "is a secret, which is not kept", hint="hand it to a tool as an argument")
    try:
        builtin = msgspec.to_builtins(value, enc_hook=plain)
    except (TypeError, ValueError, NotImplementedError, RecursionError, OverflowError) as error:
        why = f": {error}" if isinstance(error, ValueError) else ""
        return NotSerializable(path, f"is of the type {type(value).__name__}, which is not JSON{why}")
    return None if builtin is value else _complaint(builtin, path, depth)


def _complaint_of_pair(key: Any, item: Any, path: str, depth: int) -> NotSerializable | None:
    try:
        msgspec.json.encode({key: None}, order="deterministic")
    except (TypeError, ValueError):
        return NotSerializable(path, f"has the key {key!r}, which is not text", hint="use strings as keys")
    return _complaint(item, f"{path}[{key!r}]", depth + 1)


def _first(complaints: Iterator[NotSerializable | None]) -> NotSerializable | None:
    return next((complaint for complaint in complaints if complaint is not None), None)
