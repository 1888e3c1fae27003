"""A thread's messages, read once: this process caches them, and asks the log whether they still hold.

A thread outlives its tasks, and each of them begins by looking at all of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET, Raw, Struct

from holdfast.core import codec, events as ev, limits
from holdfast.core.codec import Head, Stored
from holdfast.core.messages import stored
from holdfast.core.state.shapes import FOLD_VERSION
from holdfast.engine.logs.cache import Removal, Spoken
from holdfast.engine.logs.log import decoded
from holdfast.engine.logs.logs import Logs


class ThreadMessages(Struct, frozen=True):
    """Messages in order: the seq of each, itself, the running digest after it, whose it is and which of theirs.

    `removals` says what was taken out again: the seq of that event, the seqs it names, and up to which all go.
    """

    seqs: list[int]
    raws: list[Raw]
    digests: list[str]
    owners: list[tuple[str, int]]
    removals: list[Removal]


def read(logs: Logs, name: str, rows: Sequence[Stored], digest: str) -> ThreadMessages:
    """The messages in these rows of a log, after those with that digest. What was erased is left out."""
    found = ThreadMessages([], [], [], [], [])
    for row in rows:
        if row.kind not in _KINDS:
            continue
        event = decoded(name, row)
        if isinstance(event, ev.MessagesRemoved):
            found.removals.append((row.seq, event.seqs, event.upto))
        if not isinstance(event, ev.MessageAdded) or event.message is UNSET:
            continue
        for raw in _said(event.message, logs) if event.raw else (event.message,):
            digest = codec.running(digest, raw)
            found.seqs.append(row.seq)
            found.raws.append(raw)
            found.digests.append(digest)
            found.owners.append((event.task, event.index))
    return found


_KINDS = frozenset(("message_added", "messages_removed"))


def _said(text: Raw, logs: Logs) -> list[Raw]:
    """What an item that was kept as it was given says, as messages."""
    return [codec.pack(one) for one in stored.of_item(codec.parse(codec.unpack(text, logs.blob)))]


def all_of(logs: Logs, name: str) -> ThreadMessages:
    """All messages of a thread. Its lists are the caller's own."""
    spoken = _remembered(logs, name) or _whole(logs, name)
    return ThreadMessages(
        list(spoken.seqs), list(spoken.raws), list(spoken.digests), list(spoken.owners), list(spoken.removals)
    )


def _remembered(logs: Logs, name: str) -> Spoken | None:
    """Return the state in memory, if the log confirms it, and the events since: one question."""
    kept, most = logs.cache.talks.get(name), limits.CACHE_TAIL_EVENTS
    if kept is None:
        return None
    found = logs.store.since(name, kept.head.seq, limit=most + 1)
    rows = found.rows
    fits = bool(rows) and (rows[0].seq, rows[0].digest) == (kept.head.seq, kept.head.digest)
    if not fits or found.erased != kept.erased or len(rows) > most:
        logs.cache.talks.drop(name)
        return None
    if len(rows) == 1:
        return kept
    more = read(logs, name, rows[1:], (kept.digests or [""])[-1])
    lists = (kept.seqs + more.seqs, kept.raws + more.raws, kept.digests + more.digests, kept.owners + more.owners)
    head, weight = Head(rows[-1].seq, rows[-1].digest), kept.weight + _weight(more)
    return _kept(logs, name, Spoken(head, *lists, kept.removals + more.removals, kept.erased, weight))


def _whole(logs: Logs, name: str) -> Spoken:
    """All of it from the store. The erasures are counted first: what is read is at least as new."""
    opening = logs.store.opening(name, version=FOLD_VERSION)
    rows = logs.store.read(name)
    found = read(logs, name, rows, "")
    head = Head(rows[-1].seq, rows[-1].digest) if rows else Head(0, b"")
    lists, erased = (found.seqs, found.raws, found.digests, found.owners), opening.erased if opening else 0
    spoken = Spoken(head, *lists, found.removals, erased, limits.CACHE_STATE_BYTES + _weight(found))
    return _kept(logs, name, spoken) if rows else spoken


def _kept(logs: Logs, name: str, spoken: Spoken) -> Spoken:
    logs.cache.talks.put(name, spoken, spoken.weight)
    return spoken


def _weight(found: ThreadMessages) -> int:
    return sum(limits.CACHE_MESSAGE_BYTES + len(bytes(raw)) for raw in found.raws)
