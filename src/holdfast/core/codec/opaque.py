"""Records: opaque bytes as the bodies of a log's rows, and what they refer to.

A body is a line of JSON, then the data as it was given. The line has a nonce, so that the hash that stays when a record
is erased tells nothing, and the large values beside the record, by name. Nothing here is folded: no record is an event.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from hashlib import sha256

import msgspec
from msgspec import Struct

from holdfast.core import limits
from holdfast.core.codec.blobs import decompressed, zstd
from holdfast.core.codec.documents import encode_struct, load
from holdfast.core.codec.records import Blob, Draft, Stored
from holdfast.core.errors import ValueDamaged

RECORD_ADDED = "record_added"
RECORD_ERASED = "record_erased"

_HASH = re.compile("[0-9a-f]{64}")


class RecordBlob(Struct, frozen=True, gc=False):
    """A large value beside a record: the hash of its content, and its size."""

    hash: str
    bytes: int


class RecordHeader(Struct, frozen=True, omit_defaults=True):
    """What stands before the data of a record."""

    nonce: str
    user: str | None = None
    blobs: dict[str, RecordBlob] = {}
    expire_us: int = 0


class RecordsErased(Struct, frozen=True):
    """The body of what says that records were erased: their seqs."""

    nonce: str
    seqs: list[int]


def draft_record(data: bytes, header: RecordHeader, at_us: int) -> Draft:
    """A record ready to be written."""
    body = encode_struct(header) + b"\n" + data
    return Draft(RECORD_ADDED, at_us, body, sha256(body).digest())


def draft_erased(seqs: Sequence[int], nonce: str, at_us: int) -> Draft:
    """Draft the event of erased records, ready to be written."""
    body = encode_struct(RecordsErased(nonce, list(seqs)))
    return Draft(RECORD_ERASED, at_us, body, sha256(body).digest())


def make_record_blob(data: bytes) -> tuple[RecordBlob, Blob]:
    """Return a record's reference to a large value, and the bytes to store. Equal content is stored once."""
    hashed = sha256(data).hexdigest()
    return RecordBlob(hashed, len(data)), Blob(hashed, zstd().compress(data, 3))


def open_record_blob(ref: RecordBlob, stored: bytes) -> bytes:
    """The large value of a record, checked against its hash and size."""
    try:
        data = decompressed(stored, limits.MAX_VALUE_BYTES)
    except ValueError as error:
        raise ValueDamaged(ref.hash, str(error)) from None
    if len(data) != ref.bytes or sha256(data).hexdigest() != ref.hash:
        raise ValueDamaged(ref.hash, "does not have the content it is named after")
    return data


def read_record(body: bytes) -> tuple[RecordHeader, bytes]:
    """Return the header and the data of a record; ValueError if it is not a record."""
    end = body.find(b"\n")
    if end < 0:
        raise ValueError("it has no header")
    return _header(body[:end]), body[end + 1 :]


_header = msgspec.json.Decoder(RecordHeader).decode


def erased_seqs(body: bytes) -> list[int]:
    """Which records were erased; ValueError if the body does not say so."""
    found: RecordsErased = load(body, RecordsErased)
    return found.seqs


def is_live(row: Stored) -> bool:
    """Return whether a row is a record that can be read: neither erased, nor the note of an erasure."""
    return row.kind == RECORD_ADDED and row.body is not None


def record_blobs(row: Stored) -> Mapping[str, RecordBlob]:
    """The large values that a row of records refers to, by name; ValueError if it is none, KeyError if unknown."""
    if row.kind not in (RECORD_ADDED, RECORD_ERASED):
        raise KeyError(row.kind)
    if row.body is None:
        return {}
    if row.kind == RECORD_ERASED:
        erased_seqs(row.body)
        return {}
    blobs = read_record(row.body)[0].blobs
    for name, ref in blobs.items():
        if not _HASH.fullmatch(ref.hash) or not 0 <= ref.bytes <= limits.MAX_VALUE_BYTES:
            raise ValueError(f"it has no blob {name!r}: {ref}")
    return blobs
