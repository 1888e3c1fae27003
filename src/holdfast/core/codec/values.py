"""Values ⇄ JSON ⇄ bytes, digests, old events. The only serializer.

A user's value is encoded once, deterministically, and carried as bytes (`Raw`). Where a value may stand, an *envelope*
may stand for it: an object whose encoding begins with `{"$`. A user's own object that begins like that is wrapped, so
data can never pass for an envelope:

    {"$json": …}                                     a user's value that looks like an envelope
    {"$blob": hash, "bytes": n, "shape": "list"}     a large value, kept beside the log
    {"$append": [value, item, …]}                    a list that grew by items
    {"$messages": {"log", "to", "digest"}}           the first `to` messages of a log
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from hashlib import sha256
from itertools import accumulate
from struct import Struct as Layout
from threading import RLock
from typing import Any, cast

import msgspec
from msgspec import UNSET, Raw, Struct, field

from holdfast.core import limits
from holdfast.core.codec.blobs import deflate as deflate, inflate as inflate, zstd
from holdfast.core.codec.failures import HIDDEN
from holdfast.core.codec.records import Blob, Draft
from holdfast.core.codec.secrets import Secret
from holdfast.core.errors import InvalidValue, NotSerializable, ValueDamaged
from holdfast.core.events import BY_KIND, KIND, Changes, Erased, Event, StatePatch

Fetch = Callable[[str], bytes]
"""Gives the stored bytes of a blob by its hash."""

JSON_NULL = Raw(b"null")


class BlobRef(Struct, frozen=True, gc=False, omit_defaults=True):
    """The envelope of a blob."""

    hash: str = field(name="$blob")
    bytes: int
    shape: str
    salt: str = ""


class MessagesRef(Struct, frozen=True, gc=False):
    """A sequence of messages by its identity: whose, how many, and their running digest."""

    log: str
    to: int
    digest: str


def _plain(value: object) -> object:
    """Turn what msgspec does not know into what it does: models of pydantic, if the user brought it."""
    if isinstance(getattr(value, "ref", None), MessagesRef):
        return list(cast("Any", value))
    pydantic: Any = sys.modules.get("pydantic")
    if pydantic is not None and isinstance(value, pydantic.BaseModel):
        return cast("Any", value).model_dump(mode="json")
    raise NotImplementedError  # msgspec's way of being told that nobody knows this type


_encode = msgspec.json.Encoder(order="deterministic", enc_hook=_plain).encode
_encode_struct = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


# Values


def pack(value: Any, path: str = "value", *names: object) -> Raw:
    """Encode a user's value; the path names it in errors. Only there are the names filled into it (`%s`, `%r`).

    >>> bytes(pack({"b": 1, "a": None}))
    b'{"a":null,"b":1}'
    """
    try:
        data = _encode(value)
    except (TypeError, ValueError, NotImplementedError, RecursionError, OverflowError):
        where = path % names if names else path
        raise _complaint(value, where, 0) or NotSerializable(where, f"is a {type(value).__name__}, not JSON")
    if len(data) > limits.MAX_VALUE_BYTES:
        raise NotSerializable(
            path % names if names else path,
            f"is {len(data):,} bytes of JSON; the most is {limits.MAX_VALUE_BYTES:,}",
            hint="keep it in a file or an object store and record where it is",
        )
    # msgspec writes NaN and infinities as null, so only a value with a null in it needs a closer look, and one with
    # nothing inside none at all. (`find`, because `in` raises an error inside and drops it, which takes as long again.)
    if type(value) not in _FLAT and (data.find(b"null") >= 0 or _nests_too_deep(data)):
        where = path % names if names else path
        complaint = _complaint(msgspec.to_builtins(value, enc_hook=_plain), where, 0)
        if complaint is not None:
            raise complaint
    return Raw(b'{"$json":' + data + b"}") if data.startswith(b'{"$') else Raw(data)


_FLAT = frozenset((str, int, bool, type(None)))


def unpack(raw: Raw, fetch: Fetch) -> Any:
    """Decode a value, whatever stands for it."""
    data = bytes(raw)
    return _decode(resolve(raw, fetch) if data.startswith(b'{"$') else data)


def resolve(raw: Raw, fetch: Fetch) -> bytes:
    """The JSON of a value with every envelope opened (a window of messages stays a reference)."""
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
        base, items = resolve(parts[0], fetch), [resolve(part, fetch) for part in parts[1:]]
        return b"[" + b",".join([base[1:-1], *items] if len(base) > 2 else items) + b"]"
    return data


def shape(raw: Raw) -> str:
    """What kind of JSON a value is, without opening it: null, bool, number, str, list or object."""
    data = bytes(raw)
    if data.startswith(b'{"$blob"'):
        return load(data, BlobRef).shape
    if data.startswith(b'{"$append"'):
        return "list"
    return _SHAPES.get(data[:1], "number")


_SHAPES = {b"n": "null", b"t": "bool", b"f": "bool", b'"': "str", b"[": "list", b"{": "object"}


def increased(raw: Raw | None, by: float) -> Raw:
    """A number grown by another; what is no number counts as 0, so that a fold past an erased event goes on."""
    return Raw(_encode((_decode(bytes(raw)) if raw is not None and shape(raw) == "number" else 0) + by))


def appended(raw: Raw | None, item: Raw) -> Raw:
    """A list grown by an item, without decoding either; what is no list counts as an empty one."""
    base, new = bytes(raw) if raw is not None and shape(raw) == "list" else b"[]", bytes(item)
    if base.startswith(b'{"$append"'):
        return Raw(base[:-2] + b"," + new + b"]}")
    if base.startswith(b"{") or new.startswith(b'{"$'):
        return Raw(b'{"$append":[' + base + b"," + new + b"]}")
    return Raw(base[:-1] + (b"," if len(base) > 2 else b"") + new + b"]")


def messages_value(ref: MessagesRef) -> Raw:
    """A window of messages as a value: its identity, not its content."""
    return Raw(b'{"$messages":' + _encode_struct(ref) + b"}")


def changes(patch: StatePatch) -> Changes:
    """A patch as it is written, each value packed. Refuses what is not a patch, saying where."""
    document: dict[str, Any] = {name: getattr(patch, name) for name in patch.__struct_fields__}
    document["append_facts"] = [
        {name: pack(item, f"patch.append_facts[{index}]") if name == "value" else item for name, item in fact.items()}
        for index, fact in enumerate(patch.append_facts)
    ]
    for section in ("set", "append"):
        values = cast("dict[str, Any]", document[section])
        document[section] = {name: pack(value, f"patch.{section}[{name!r}]") for name, value in values.items()}
    try:
        return msgspec.json.decode(_encode(document), type=Changes)
    except (ValueError, TypeError, AttributeError) as error:
        raise InvalidValue(f"the patch is not valid: {error}", hint="nothing was written") from None


# Events


def draft_result(event: Event, at_us: int) -> Draft | None:
    """A step's result that the engine itself put together, the short way; None if it is large.

    Its fields have their types already, so there is nothing to be learned from reading it back.
    """
    body = _encode_struct(event)
    return Draft("step_completed", at_us, body, sha256(body).digest(), event) if len(body) < limits.BLOB_BYTES else None


def small_draft(event: Event, at_us: int) -> Draft | None:
    """An event that brings nothing else along; None if it does."""
    drafted, blobs = draft(event, at_us)
    return None if blobs else drafted


def draft(event: Event, at_us: int, salt: str = "") -> tuple[Draft, tuple[Blob, ...]]:
    """Encode an event, and read it back: what is folded now is exactly what everybody will fold later.

    Large values move into blobs. A field of the wrong type is refused here, before it could make a log unreadable.
    """
    try:
        kind = KIND[type(event)]
        body = _encode_struct(event)
        blobs: tuple[Blob, ...] = ()
        if len(body) >= limits.BLOB_BYTES:
            event, blobs = _slim(event, salt)
            body = _encode_struct(event)
        return Draft(kind, at_us, body, sha256(body).digest(), _DECODERS[kind](body)), blobs
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidValue(
            f"{str(event)[:200]!r} cannot be written: {error}", hint="give an event whose fields have their types"
        ) from None


def unpacked_field(event: Event) -> str | None:
    """The first field of an event that holds a plain value where a packed one belongs."""
    for name, annotation in type(event).__annotations__.items():
        value: Any = getattr(event, name)
        if annotation.startswith("Value") and not _is_packed(value):
            return name
        if annotation == "Fields" and not all(map(_is_packed, dict(value).values())):
            return name
    return None


def _is_packed(value: object) -> bool:
    return isinstance(value, Raw) or value is UNSET


def decode(kind: str, body: bytes | None) -> Event:
    """Decode a stored event. A kind nobody knows is a KeyError, a body that is not one a ValueError."""
    if body is None:
        return _ERASED
    return _DECODERS[kind](body)


_making = RLock()
"""msgspec works out a type when it is first decoded, and two threads must not come to that at once."""

_loaders: dict[Any, Callable[[bytes], Any]] = {}


class _Decoders(dict[str, Callable[[bytes], Event]]):
    """Decoders by kind, made when first needed."""

    def __missing__(self, kind: str) -> Callable[[bytes], Event]:
        with _making:
            made = RETIRED[kind] if kind in RETIRED else msgspec.json.Decoder(BY_KIND[kind]).decode
        self[kind] = made
        return made


RETIRED: dict[str, Callable[[bytes], Event]] = {}
"""Kinds no longer written, each with the function that reads an old body as a present event."""

_DECODERS = _Decoders()
_ERASED = Erased()


def _slim(event: Event, salt: str) -> tuple[Event, tuple[Blob, ...]]:
    """Move an event's large values into blobs."""
    blobs: list[Blob] = []

    def small(raw: Raw) -> Raw:
        if len(raw) < limits.BLOB_BYTES:
            return raw
        ref, blob = make_blob(raw, salt)
        blobs.append(blob)
        return ref

    changed: dict[str, Any] = {}
    for name in event.__struct_fields__:
        value = getattr(event, name)
        if isinstance(value, Raw) and name not in _NEVER_SLIM:
            changed[name] = small(value)
        elif type(value) is dict:
            fields = cast("dict[str, Raw]", value)
            changed[name] = {key: small(item) for key, item in fields.items()}
    return msgspec.structs.replace(event, **changed), tuple(blobs)


_NEVER_SLIM = {"hot"}


# Blobs


def make_blob(raw: Raw, salt: str = "") -> tuple[Raw, Blob]:
    """A large value's envelope and what is stored for it. The salt keeps a hash from telling what it was."""
    data = bytes(raw)
    if data.startswith(b'{"$json"'):
        data = data[9:-1]
    hashed = sha256(salt.encode() + data).hexdigest()
    ref = BlobRef(hashed, len(data), shape(raw), salt)
    return Raw(_encode_struct(ref)), Blob(hashed, zstd().compress(data, 3))


def same_fields(stored: dict[str, Raw], given: dict[str, Raw]) -> bool:
    """Whether values are those that were stored, where the large ones are blobs."""
    if stored == given or stored.keys() != given.keys():
        return stored == given
    return all(given[name] == raw or _is_stored(given[name], bytes(raw)) for name, raw in stored.items())


def _is_stored(given: Raw, stored: bytes) -> bool:
    return stored.startswith(b'{"$blob"') and bytes(make_blob(given, load(stored, BlobRef).salt)[0]) == stored


def open_blob(hashed: str, stored: bytes, salt: str = "") -> bytes:
    """The JSON inside a blob, checked against its hash."""
    try:
        data = zstd().decompress(stored)
    except zstd().ZstdError as error:
        raise ValueDamaged(hashed, f"cannot be decompressed: {error}") from None
    if sha256(salt.encode() + data).hexdigest() != hashed:
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


# Digests


_PLACE = Layout(">qq").pack


def genesis(log: str) -> bytes:
    """What the first event's digest chains from; it binds a log to its name, in whatever namespace that is."""
    return sha256(b"holdfast log\n" + log.rpartition("!")[2].encode()).digest()


def chain(previous: bytes, seq: int, kind: str, at_us: int, body_hash: bytes) -> bytes:
    """The digest of an event: of all that came before it, its place, kind, time and body."""
    return sha256(b"".join((previous, _PLACE(seq, at_us), kind.encode(), b"\n", body_hash))).digest()


def body_hash(body: bytes) -> bytes:
    """The hash that stays when a body is erased."""
    return sha256(body).digest()


def running(previous: str, raw: Raw) -> str:
    """The digest of a sequence of messages, grown by one."""
    return sha256(previous.encode() + sha256(bytes(raw)).digest()).hexdigest()[:32]


def fingerprint(value: Any) -> str:
    """The identity of a plain value: equal exactly when it encodes the same."""
    return sha256(_encode(value)).hexdigest()


# Structs of our own: snapshots, exports


def dump(value: Any) -> bytes:
    """Encode one of our own structs."""
    return _encode_struct(value)


def load(data: bytes | Raw, type: Any) -> Any:
    """Decode one of our own structs; ValueError if it is not one."""
    decoder = _loaders.get(type)
    if decoder is None:
        with _making:
            decoder = _loaders[type] = msgspec.json.Decoder(type).decode
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
    """JSON that somebody else wrote; ValueError if it is none, or nested without end."""
    try:
        return _decode(text)
    except RecursionError as error:
        raise ValueError(str(error)) from None


def document(given: Any, what: str) -> dict[str, Any]:
    """A JSON object that somebody gave, as text or read already."""
    try:
        read = _decode(given) if isinstance(given, str | bytes) else given
    except ValueError as error:
        raise InvalidValue(f"the {what} is not JSON: {error}", hint="give a JSON object") from None
    if not isinstance(read, dict):
        raise InvalidValue(f"the {what} is not a JSON object", hint='give {"name": value}')
    return cast("dict[str, Any]", read)


def text(value: Any) -> str:
    """A value as JSON text."""
    pack(value)
    return _encode(value).decode()


def as_json(value: Any) -> Any:
    """A value as plain lists and dicts, for people and for diffs."""
    return _decode(_encode(value))


# Secrets


def hidden_value(raw: Raw, secrets: tuple[str, ...]) -> Raw:
    """A value in which nothing secret can be read."""
    data = bytes(raw)
    for secret in secrets:
        data = data.replace(_encode(secret)[1:-1], HIDDEN.encode())
    return Raw(data)


# What is wrong with a value


def _nests_too_deep(data: bytes) -> bool:
    if data.count(b"[") + data.count(b"{") <= limits.MAX_DEPTH:
        return False
    brackets = data.translate(None, _NOT_BRACKETS)
    return max(accumulate(map(_NESTING.__getitem__, brackets))) > limits.MAX_DEPTH


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
        plain = msgspec.to_builtins(value, enc_hook=_plain)
    except (TypeError, ValueError, NotImplementedError, RecursionError, OverflowError):
        return NotSerializable(path, f"is of the type {type(value).__name__}, which is not JSON")
    return None if plain is value else _complaint(plain, path, depth)


def _complaint_of_pair(key: Any, item: Any, path: str, depth: int) -> NotSerializable | None:
    try:
        msgspec.json.encode({key: None})
    except (TypeError, ValueError):
        return NotSerializable(path, f"has the key {key!r}, which is not text", hint="use strings as keys")
    return _complaint(item, f"{path}[{key!r}]", depth + 1)


def _first(complaints: Iterator[NotSerializable | None]) -> NotSerializable | None:
    return next((complaint for complaint in complaints if complaint is not None), None)
