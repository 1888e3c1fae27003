"""Digests: of a log's chain, of a running conversation, of a value."""

from __future__ import annotations

from hashlib import sha256
from struct import Struct as Layout
from typing import Any

from msgspec import Raw

from holdfast.core.codec.documents import encode

_PLACE = Layout(">qq").pack


def genesis(log: str) -> bytes:
    """Return the digest that the first event chains from. It binds a log to its name, in any namespace."""
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
    return sha256(encode(value)).hexdigest()
