"""Stored values that change without being read whole: numbers that grow, lists that grow, objects edited inside.

The fold fetches nothing. So a change of a value that lies beside the log, or by one that does, is noted in an envelope,
and carried out when the value is read:

    {"$append": [value, item, …]}                    a list that grew by items
    {"$edits": [value, [how, path, part], …]}        an object that was changed inside
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from msgspec import Raw

from holdfast.core.codec.blobs import json_shape, shape
from holdfast.core.codec.documents import decode_plain, encode, load

How = Literal["set", "delete", "increment", "append"]
Edit = tuple[How, tuple[str, ...], Raw]
"""What is done, at which path inside an object, with what."""

JSON_NULL = Raw(b"null")


def increased(raw: Raw | None, by: float) -> Raw:
    """A number plus another. Anything but a number counts as 0, so that a fold continues past an erased event."""
    return Raw(encode((decode_plain(bytes(raw)) if raw is not None and shape(raw) == "number" else 0) + by))


def appended(raw: Raw | None, item: Raw) -> Raw:
    """A list plus an item, without decoding either. Anything but a list counts as an empty one."""
    base, new = bytes(raw) if raw is not None and shape(raw) == "list" else b"[]", bytes(item)
    if base.startswith(b'{"$append"'):
        return Raw(base[:-2] + b"," + new + b"]}")
    if base.startswith(b"{") or new.startswith(b'{"$'):
        return Raw(b'{"$append":[' + base + b"," + new + b"]}")
    return Raw(_lengthened(base, new))


def _lengthened(base: bytes, item: bytes) -> bytes:
    return base[:-1] + (b"," if len(base) > 2 else b"") + item + b"]"


def edited(raw: Raw | None, path: Sequence[str], how: How, part: Raw = JSON_NULL) -> Raw:
    """An object changed at a path inside it. What is not an object on the way counts as an empty one.

    >>> bytes(edited(Raw(b'{"seat":"aisle"}'), ("meal", "vegan"), "set", Raw(b"true")))
    b'{"meal":{"vegan":true},"seat":"aisle"}'
    """
    is_object = raw is not None and shape(raw) == "object"
    if raw is not None and not is_object and how == "delete":
        return raw
    base = raw if raw is not None and is_object else Raw(b"{}")
    if is_apart(base) or is_apart(part):
        return _noted(bytes(base), path, how, part)
    made = applied(plain_json(base), path, how, plain_json(part))
    return wrapped(b"{}" if made is None else made)


def is_apart(raw: Raw) -> bool:
    """Return whether the JSON of a value is not all here, but has to be put together, or fetched."""
    data = bytes(raw)
    return data.startswith(b'{"$') and not data.startswith(b'{"$json"')


def is_folded(raw: Raw) -> bool:
    """Return whether a value is an envelope that only a fold makes: no event holds one."""
    return bytes(raw).startswith((b'{"$append"', b'{"$edits"'))


def plain_json(raw: Raw) -> bytes:
    """The JSON of a value that is all here."""
    data = bytes(raw)
    return data[9:-1] if data.startswith(b'{"$json"') else data


def wrapped(data: bytes) -> Raw:
    """JSON as a value: what looks like an envelope, and is none, is put into one."""
    return Raw(b'{"$json":' + data + b"}") if data.startswith(b'{"$') else Raw(data)


def applied(data: bytes | None, path: Sequence[str], how: How, part: bytes) -> bytes | None:
    """JSON with one edit carried out; None where nothing is left."""
    if not path:
        return _LEAVES[how](data, part)
    is_object = data is not None and json_shape(data) == "object"
    if not is_object and how == "delete":
        return data
    fields: dict[str, Raw] = load(data, dict[str, Raw]) if data is not None and is_object else {}
    inside = fields.pop(path[0], None)
    made = applied(None if inside is None else bytes(inside), path[1:], how, part)
    if made is not None:
        fields[path[0]] = Raw(made)
    return encode(fields)


def _longer(data: bytes | None, part: bytes) -> bytes:
    return _lengthened(data if data is not None and json_shape(data) == "list" else b"[]", part)


def _larger(data: bytes | None, part: bytes) -> bytes:
    return bytes(increased(None if data is None else Raw(data), decode_plain(part)))


_LEAVES: dict[str, Callable[[bytes | None, bytes], bytes | None]] = {
    "set": lambda data, part: part,
    "delete": lambda data, part: None,
    "increment": _larger,
    "append": _longer,
}


def _noted(base: bytes, path: Sequence[str], how: How, part: Raw) -> Raw:
    """An envelope with one more edit. Edits that no longer matter go when its length passes a power of two."""
    edit = b"[" + encode(how) + b"," + encode(tuple(path)) + b"," + bytes(part) + b"]"
    if not base.startswith(b'{"$edits"'):
        return Raw(b'{"$edits":[' + base + b"," + edit + b"]}")
    longer = base[:-2] + b"," + edit + b"]}"
    return Raw(longer) if len(longer).bit_length() == len(base).bit_length() else _shortened(longer)


def noted_edits(data: bytes) -> tuple[Raw, list[Edit]]:
    """Return the parts of an envelope: a value, and the edits to apply to it, in order."""
    base, *edits = load(data, dict[str, list[Raw]])["$edits"]
    return base, [load(edit, Edit) for edit in edits]


def _shortened(data: bytes) -> Raw:
    """The same envelope without edits that later ones make up for."""
    base, edits = noted_edits(data)
    kept: list[Edit] = []
    for how, path, part in edits:
        if how in ("set", "delete"):
            kept = _without(kept, path, is_deletion=how == "delete")
        last = next((at for at in reversed(range(len(kept))) if _overlap(kept[at][1], path)), None)
        if how == "increment" and last is not None and kept[last][:2] == (how, path):
            part = increased(kept.pop(last)[2], decode_plain(bytes(part)))
        kept.append((how, path, part))
    return Raw(encode({"$edits": [base, *kept]}))


def _without(edits: list[Edit], path: tuple[str, ...], *, is_deletion: bool) -> list[Edit]:
    """Edits without those at a path or inside it. What leads there has become objects by them, and stays so."""
    dropped = {at for at, one in enumerate(edits) if one[1][: len(path)] == path}
    last_made = max((at for at in dropped if edits[at][0] != "delete"), default=None)
    if is_deletion and last_made is not None and len(path) > 1:
        edits[last_made] = ("set", path, JSON_NULL)
        dropped.remove(last_made)
    return [one for at, one in enumerate(edits) if at not in dropped]


def _overlap(one: Sequence[Any], two: Sequence[Any]) -> bool:
    return all(a == b for a, b in zip(one, two, strict=False))
