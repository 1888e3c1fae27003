"""Events ⇄ bytes: encoded for the store, and decoded again, old kinds too."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any, cast

import msgspec
from msgspec import UNSET, Raw

from holdfast.core import limits
from holdfast.core.codec.blobs import make_blob
from holdfast.core.codec.documents import encode_struct, making
from holdfast.core.codec.records import Blob, Draft
from holdfast.core.errors import InvalidValue
from holdfast.core.events import BY_KIND, KIND, Erased, Event, StepCompleted


def draft_result(event: StepCompleted, at_us: int) -> Draft | None:
    """A step's result that the engine itself put together, the short way; None if it is large.

    Its fields have their types already, so there is nothing to be learned from reading it back.
    """
    if len(event.result) >= limits.BLOB_BYTES:
        return None
    body = encode_struct(event)
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
        body = encode_struct(event)
        blobs: tuple[Blob, ...] = ()
        if len(body) >= limits.BLOB_BYTES:
            event, blobs = _slim(event, salt)
            body = encode_struct(event)
        if len(body) > limits.MAX_EVENT_BYTES:
            raise ValueError(f"it is {len(body):,} bytes; the most is {limits.MAX_EVENT_BYTES:,}")
        return Draft(kind, at_us, body, sha256(body).digest(), _DECODERS[kind](body)), blobs
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidValue(
            f"{str(event)[:200]!r} cannot be written: {error}",
            hint="give fields of their types, and keep what is large in a file or an object store",
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
    """Decode a stored event. An unknown kind is a KeyError, a wrong body a ValueError."""
    if body is None:
        return _ERASED
    return _DECODERS[kind](body)


class _Decoders(dict[str, Callable[[bytes], Event]]):
    """Decoders by kind, made when first needed."""

    def __missing__(self, kind: str) -> Callable[[bytes], Event]:
        with making:
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
