"""How a log is loaded: from memory, from what servers share, from a snapshot, or from its first event on.

Whatever it begins with, the log must confirm it: the same digest at the same seq, and no body erased since. Confirming
it and reading what came after is one question to the store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from holdfast.core import codec, limits
from holdfast.core.codec import Head, Snapshot, Stored
from holdfast.core.errors import SeqOutOfRange
from holdfast.core.state.shapes import FOLD_VERSION
from holdfast.engine.logs.cache import Ground, Kept

if TYPE_CHECKING:
    from holdfast.engine.logs.log import Log
    from holdfast.engine.logs.logs import Logs


def load(logs: Logs, log: Log, upto: int | None) -> Log:
    """A log and its state, at its head or at an earlier seq."""
    if upto is not None and upto > limits.MAX_SEQ:
        raise SeqOutOfRange(log.name, upto, logs.head(log.name).seq)
    if _from_memory(logs, log, upto) or (upto is None and _from_tier(logs, log)):
        if upto is not None and log.head.seq != upto:
            raise SeqOutOfRange(log.name, upto, log.head.seq)
        return log
    _from_store(logs, log, upto)
    if upto is None:
        logs.cache.remember(log)
    return log


def _from_memory(logs: Logs, log: Log, upto: int | None) -> bool:
    cache = logs.cache
    kept = cache.states.get(log.name)
    if kept is None or (upto is not None and kept.head.seq > upto):
        cache.counts.misses += upto is None
        return False
    if not _confirmed(logs, log, kept, upto):
        cache.drop(log.name)
        return False
    cache.counts.hits += 1
    if upto is None and log.head.seq > kept.head.seq:
        cache.remember(log)
    return True


def _from_tier(logs: Logs, log: Log) -> bool:
    tier = logs.cache.tier
    kept = None if tier is None else tier.get(log.name)
    if tier is None or kept is None:
        return False
    if not _confirmed(logs, log, kept, None):
        tier.drop(log.name)
        return False
    tier.counts.shared_hits += 1
    logs.cache.remember(log)
    return True


def _confirmed(logs: Logs, log: Log, kept: Kept, upto: int | None) -> bool:
    """Begin from a cached state, if the log shows that it still holds and has not grown by too much."""
    seq, most = kept.head.seq, limits.CACHE_TAIL_EVENTS
    found = logs.store.since(log.name, seq, past=kept.ground.past, upto=upto, limit=most + 1)
    rows = found.rows
    if found.erased != kept.ground.erased or not rows or len(rows) > most:
        return False
    if (rows[0].seq, rows[0].digest) != (seq, kept.head.digest):
        return False
    log.resume(kept)
    log.follow(rows[1:], log.name)
    return True


class _Part(Struct, frozen=True):
    """A stretch of a log's past: one log's own events, after one seq up to another, and its newest snapshot there."""

    log: str
    after: int
    upto: int | None
    snapshot: Snapshot | None


def _from_store(logs: Logs, log: Log, upto: int | None) -> None:
    """The newest snapshot that the log confirms, and the tail; without one, everything."""
    parts, ground = _parts(logs, log.name, upto)
    start = next((at for at in range(len(parts) - 1, -1, -1) if _restored(logs, log, parts[at])), -1)
    if start < 0 and parts[0].after:
        log.head = Head(parts[0].after, b"")  # it was removed once, and began again where it had ended
    for part in parts[start + 1 :]:
        log.follow(logs.store.read(part.log, after=max(part.after, log.head.seq), upto=part.upto), part.log)
    log.ground = ground
    if log.head.seq <= parts[-1].after:
        raise logs.missing(log.name)  # it was removed while we read
    if upto is not None and log.head.seq != upto:
        raise SeqOutOfRange(log.name, upto, log.head.seq)
    if log.name[0] != "@" and not log.state.summary.agent and upto is None:
        log.state.summary = logs.store.summary(log.name) or log.state.summary  # its creation was erased, its row not
        log.ground = None


def _parts(logs: Logs, name: str, upto: int | None) -> tuple[list[_Part], Ground]:
    """Return the parts of a log, oldest first, and what they stand on. A part asks the store once."""
    parts: list[_Part] = []
    erased, log, bound = 0, name, upto
    past: list[str] = []
    for _ in range(limits.MAX_FORK_DEPTH):
        opening = logs.store.opening(log, upto=bound, version=FOLD_VERSION)
        if opening is None:
            raise logs.missing(name)
        origin = opening.origin
        erased += opening.erased
        if bound is None or bound > origin.at:
            parts.append(_Part(log, origin.at, bound, opening.snapshot))
        if origin.parent is None:
            break
        bound = origin.at if bound is None else min(bound, origin.at)
        log = origin.parent
        past.append(log)
    if not parts:
        raise SeqOutOfRange(name, upto or 0, logs.head(name).seq)
    return parts[::-1], Ground(erased, tuple(past))


def _restored(logs: Logs, log: Log, part: _Part) -> bool:
    """Begin from a part's snapshot, if it is whole and the log confirms it, and follow the part to its end."""
    snapshot = part.snapshot
    if snapshot is None or snapshot.seq <= part.after:
        return False
    rows: list[Stored] = logs.store.read(part.log, after=snapshot.seq - 1, upto=part.upto)
    if not rows or (rows[0].seq, rows[0].digest) != (snapshot.seq, snapshot.digest):
        _warn("ignored a snapshot of %r at seq %d: the log does not confirm it", part.log, snapshot.seq)
        return False
    try:
        log.restore(snapshot)
    except codec.MALFORMED as error:
        _warn("ignored a snapshot of %r at seq %d: %s", part.log, snapshot.seq, error)
        return False
    log.follow(rows[1:], part.log)
    return True


def _warn(message: str, *values: object) -> None:
    import logging  # 8 ms to import, and hardly ever needed

    logging.getLogger("holdfast").warning(message, *values)
