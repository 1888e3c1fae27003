"""How values of LangGraph lie in records: packed by the saver's serializer, large ones as blobs.

A value is a pair of its type's name and its bytes, as `serde.dumps_typed` gives it, or Large. On disk a pair whose
type is "msgpack" is its bytes alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

LARGE_BYTES = 4_096
"""A value this large or larger is a blob of its record: compressed, and stored once however often it occurs."""

Dump = Callable[[Any], tuple[str, bytes]]
Load = Callable[[tuple[str, bytes]], Any]


class Large:
    """A value that is not kept in memory: two are the same if their digests are."""

    __slots__ = ("digest", "fetch", "type")

    def __init__(self, type: str, digest: bytes, fetch: Callable[[], bytes]) -> None:
        self.type = type
        self.digest = digest
        self.fetch = fetch

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Large) and (self.type, self.digest) == (other.type, other.digest)

    def __hash__(self) -> int:
        return hash(self.digest)


Packed = tuple[str, bytes] | Large


def pack(value: Any, dump: Dump) -> Packed:
    """Serialize a value."""
    packed = dump(value)
    data = packed[1]
    if len(data) < LARGE_BYTES:
        return packed
    return Large(packed[0], blake2b(data, digest_size=16).digest(), lambda: data)


def typed(packed: Packed) -> tuple[str, bytes]:
    """What the serializer reads: the type and the bytes."""
    return packed if isinstance(packed, tuple) else (packed.type, packed.fetch())


def to_record(packed: Packed, blobs: dict[str, bytes]) -> Any:
    """A packed value as it is written into a record, whose blobs are added to `blobs`."""
    if isinstance(packed, tuple):
        return packed[1] if packed[0] == "msgpack" else [packed[0], packed[1]]
    name = packed.digest.hex()
    blobs[name] = packed.fetch()
    return [packed.type, packed.digest, name]


def from_record(written: Any, blobs: Mapping[str, bytes]) -> Packed:
    """A packed value as it was read from a record."""
    if isinstance(written, bytes):
        return ("msgpack", written)
    if len(written) == 2:
        return (written[0], written[1])
    type, digest, name = written
    return Large(type, digest, lambda: blobs[name])


class Version:
    """The value of a channel at one version: whole, or a list that begins as an earlier one does.

    `brought_by` is the id of the checkpoint that brought it, `base` that of the one it builds on. A version's name may
    occur twice, in two forks; a checkpoint's id does not.
    """

    __slots__ = ("base", "brought_by", "channel", "elements", "kept", "name", "tail", "whole")

    def __init__(
        self,
        brought_by: str,
        channel: str,
        name: str,
        *,
        whole: Packed | None = None,
        base: str | None = None,
        kept: int = 0,
        tail: Sequence[Packed] = (),
    ) -> None:
        self.brought_by = brought_by
        self.channel = channel
        self.name = name
        self.whole = whole
        self.base = base
        self.kept = kept
        self.tail = tail
        self.elements: list[Packed] | None = None  # all of a list; kept of the newest version of a channel only

    @classmethod
    def of(
        cls, brought_by: str, channel: str, name: str, value: Packed | list[Packed], before: Version | None
    ) -> Version:
        """A new version. A list is stored as what it adds to the version before, as far as the two begin alike."""
        if not isinstance(value, list):
            return cls(brought_by, channel, name, whole=value)
        kept = 0 if before is None or before.elements is None else _alike(before.elements, value)
        base = before.brought_by if before is not None and kept else None
        made = cls(brought_by, channel, name, base=base, kept=kept, tail=value[kept:] if kept else value)
        made.elements = value
        return made

    def to_record(self, blobs: dict[str, bytes]) -> Any:
        """It as it is written into a record."""
        if self.whole is not None:
            return [self.name, to_record(self.whole, blobs)]
        return [self.name, self.base, self.kept, [to_record(one, blobs) for one in self.tail]]

    @classmethod
    def from_record(cls, brought_by: str, channel: str, written: Any, blobs: Mapping[str, bytes]) -> Version:
        """It as it was read from a record."""
        if len(written) == 2:
            return cls(brought_by, channel, written[0], whole=from_record(written[1], blobs))
        name, base, kept, tail = written
        return cls(brought_by, channel, name, base=base, kept=kept, tail=[from_record(one, blobs) for one in tail])


def _alike(a: Sequence[Packed], b: Sequence[Packed]) -> int:
    """How many elements two lists begin with that are the same."""
    shorter = min(len(a), len(b))
    if not shorter or a[0] != b[0]:
        return 0
    if a[:shorter] == b[:shorter]:  # a conversation that grew: the usual case, compared at once
        return shorter
    return next((at for at, (one, two) in enumerate(zip(a, b, strict=False)) if one != two), shorter)
