"""What is given to records, and what they give back."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime

from msgspec import Struct

from holdfast.core import codec
from holdfast.core.codec import RecordBlob
from holdfast.core.durations import Duration

Data = bytes | bytearray | memoryview
"""What a record holds, as it is given."""


class RecordBlobs(Mapping[str, bytes]):
    """The large values of a record by name, each read from the store when it is asked for."""

    def __init__(self, refs: Mapping[str, RecordBlob], fetch: Callable[[RecordBlob], bytes]) -> None:
        self._refs = refs
        self._fetch = fetch

    def __getitem__(self, name: str) -> bytes:
        return self._fetch(self._refs[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._refs)

    def __len__(self) -> int:
        return len(self._refs)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, RecordBlobs):
            return dict(self._refs) == dict(other._refs)
        return dict(self) == other if isinstance(other, Mapping) else NotImplemented

    __hash__ = None

    def __repr__(self) -> str:
        sizes = (f"{name!r}: {ref.bytes:,} bytes" for name, ref in self._refs.items())
        return f"<blobs {{{', '.join(sizes)}}}>"


class Record(Struct, frozen=True):
    """One record: its key, its position, when it was appended, and its bytes as they were given."""

    key: str
    seq: int
    at_us: int
    data: bytes
    blobs: Mapping[str, bytes]
    user: str | None = None
    expire_us: int = 0

    @property
    def at(self) -> datetime:
        """When it was appended, in UTC."""
        return codec.moment(self.at_us)

    @property
    def expires_at(self) -> datetime | None:
        """When `gc` drops its key, if no other record is appended before; None if never."""
        return codec.moment(self.at_us + self.expire_us) if self.expire_us else None

    def to_json(self) -> str:
        """Return it as JSON text: the data in base64, of its blobs the names."""
        told = {"key": self.key, "seq": self.seq, "at": self.at, "data": b64encode(self.data).decode()}
        return codec.dump({**told, "blobs": list(self.blobs), "user": self.user}).decode()


class RecordWrite(Struct, frozen=True, kw_only=True):
    """Records for one key, to be written together with those for others: see `Records.write`."""

    key: str
    data: Data | Sequence[Data]
    blobs: Mapping[str, Data] | None = None
    expect: int | None = None
    user: str | None = None
    expire: Duration | None = None


class RecordChanges(Struct, frozen=True):
    """What happened to a key since a cursor: enough to bring up to date what was read before.

    If `restarted`, what was read before is void, and `records` begin with the oldest there is. Otherwise forget the
    records before `first` (they were trimmed) and those in `erased`, and add `records`. `cursor` is for the next time.
    `head` is the seq of the last thing that happened to the key, 0 if it is not there: what `expect` takes.
    """

    records: list[Record]
    erased: list[int]
    first: int
    restarted: bool
    cursor: str | None
    head: int
