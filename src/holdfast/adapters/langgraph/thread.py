"""A LangGraph thread in memory, folded from the records it is kept in and brought up to date with one question.

A thread is one key of records. Each `put` and each `put_writes` is one record. A "rewritten" record says that the
thread begins anew with what follows it: what pruning leaves is written again, and all before it is trimmed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

import ormsgpack

from holdfast import Conflict, Record, Records, RecordWrite, StoreBusy, ValueDamaged
from holdfast.adapters.langgraph.values import Packed, Version, from_record, to_record

MOST_TRIES = 100
"""How often a checkpoint is put after whatever other processes wrote meanwhile."""

CHECKPOINT: Final = "checkpoint"
WRITES: Final = "writes"
REWRITTEN: Final = "rewritten"

Content = Mapping[str, Packed | list[Packed]]
"""Values of channels: lists are packed element by element."""

Check = Callable[[str, Packed], None]
"""Refuses the value of a channel."""

VersionsOf = Callable[["Saved"], Mapping[str, Any]]
"""The versions of a checkpoint's channels."""


class Saved(NamedTuple):
    """A checkpoint as it is kept."""

    ns: str
    id: str
    parent: str | None
    body: Packed
    metadata: Packed
    own: dict[str, Version]


class TaskWrites(NamedTuple):
    """What one task wrote after a checkpoint: of each write its place, channel and value."""

    ns: str
    id: str
    task: str
    path: str
    replaces: bool
    writes: list[tuple[int, str, Packed]]


class TaskWrite(NamedTuple):
    """One write. Its order among others of its checkpoint is that of LangGraph: path, task, place."""

    path: str
    task: str
    place: int
    channel: str
    value: Packed


Entry = Saved | TaskWrites | Literal["rewritten"]


class SavedThread:
    """The checkpoints of a thread, their values and pending writes. Its lock is held around everything below."""

    def __init__(self, records: Records, key: str) -> None:
        self.lock = threading.RLock()
        self.bytes = 0
        self._records = records
        self._key = key
        self._cursor: str | None = None
        self._head = -1  # the seq up to which everything is folded; -1 before the first look
        self._first = self._begins = 0  # the seq of the oldest record there is, and of the last rewriting
        self._clear()

    def _clear(self) -> None:
        self.bytes = 0
        self.checkpoints: dict[str, dict[str, Saved]] = {}
        self._writes: dict[tuple[str, str], dict[tuple[str, int], TaskWrite]] = {}
        self._versions: dict[tuple[str, str, str], Version] = {}
        self._newest: dict[tuple[str, str], Version] = {}

    # Reading

    def refresh(self) -> SavedThread:
        """Fold in what was written since the last time, by this process or another."""
        changes = self._records.changes(self._key, self._cursor)
        if changes.erased:  # a person's data was erased from the middle: what is left is folded anew
            changes = self._records.changes(self._key)
        if changes.restarted:
            self._clear()
            self._head = -1
        for record in changes.records:
            if record.seq > self._head:  # what this process wrote itself is folded already
                entry = _entry(record)
                self._fold(entry, len(record.data))
                self._begins = record.seq if entry == REWRITTEN else self._begins
        self._cursor, self._head, self._first = changes.cursor, changes.head, changes.first
        return self

    def newest(self, ns: str) -> Saved | None:
        """The newest checkpoint of a namespace: ids are in the order of time."""
        found = self.checkpoints.get(ns)
        return found[max(found)] if found else None

    def find(self, ns: str, id: str) -> Saved | None:
        """A checkpoint by its id."""
        return self.checkpoints.get(ns, {}).get(id)

    def content(self, saved: Saved, versions: Mapping[str, Any], channels: Iterable[str] | None = None) -> Content:
        """The values that a checkpoint has, given the versions of its channels; a channel may have none."""
        found: dict[str, Packed | list[Packed]] = {}
        for channel in versions if channels is None else channels:
            name = str(versions.get(channel))
            version = saved.own.get(channel)
            if version is None or version.name != name:
                version = self._versions.get((saved.ns, channel, name))
            if version is not None:
                found[channel] = self._elements(saved.ns, version) if version.whole is None else version.whole
        return found

    def pending(self, saved: Saved) -> list[TaskWrite]:
        """The writes of tasks that follow a checkpoint, in LangGraph's order."""
        return sorted(self._writes.get((saved.ns, saved.id), {}).values(), key=lambda one: one[:3])

    def _elements(self, ns: str, version: Version) -> list[Packed]:
        """All elements of a list, from the versions that it builds on."""
        if version.elements is not None:
            return version.elements
        chain, at = [version], version
        while at.base is not None and at.elements is None:
            earlier = self.find(ns, at.base)
            if earlier is None or version.channel not in earlier.own:
                raise ValueDamaged(
                    "", f"of channel {version.channel!r} is incomplete: records of its thread were erased"
                )
            at = earlier.own[version.channel]
            chain.append(at)
        elements = list(at.elements or ())
        for one in reversed(chain if at.elements is None else chain[:-1]):
            elements[one.kept :] = one.tail
        if self._newest.get((ns, version.channel)) is version:
            version.elements = elements
        return elements

    # Writing

    def put(self, saved: Saved, content: Content, versions: Mapping[str, Any], check: Check) -> None:
        """Append a checkpoint with what is new of its values: of lists what they add. `check` may refuse a value."""
        if self._head < 0:
            self.refresh()
        for _ in range(MOST_TRIES):
            made = saved._replace(
                own={name: self._next(saved, name, str(versions[name]), content[name]) for name in content}
            )
            for channel, version in made.own.items():
                for value in version.tail if version.whole is None else (version.whole,):
                    check(channel, value)
            data, blobs = _written(made)
            try:
                seq = self._records.append(self._key, data, blobs=blobs, expect=self._head)
            except Conflict:  # another process was faster: what this builds on may be gone
                self.refresh()
                continue
            self._head = seq
            self._fold(made, len(data))
            return
        raise StoreBusy(f"others kept writing to thread {self._key!r}; the checkpoint was not saved", hint="try again")

    def _next(self, saved: Saved, channel: str, name: str, value: Packed | list[Packed]) -> Version:
        """A new version of a channel, which builds on the newest if both are lists."""
        before = self._newest.get((saved.ns, channel))
        if before is not None and before.whole is None:
            self._elements(saved.ns, before)
        return Version.of(saved.id, channel, name, value, before)

    def put_writes(self, given: TaskWrites) -> None:
        """Append what a task wrote. It builds on nothing, so it goes wherever the thread ends."""
        data, blobs = _written(given)
        seq = self._records.append(self._key, data, blobs=blobs)
        if seq == self._head + 1:
            self._head = seq
            self._fold(given, len(data))

    def keep(self, choose: Callable[[], Sequence[Saved]], versions: VersionsOf) -> None:
        """Keep the checkpoints that `choose` chooses, with their writes and values, and nothing else of the thread.

        If another process writes meanwhile, it chooses again.
        """
        for _ in range(MOST_TRIES):
            self.refresh()
            kept = choose()
            is_less = len(kept) < sum(map(len, self.checkpoints.values()))
            try:
                if is_less and not kept:
                    self._records.drop(self._key, expect=self._head)
                    return
                if is_less:
                    self._rewrite(self.copies(kept, versions))
                self._trim()
                return
            except Conflict:
                continue
        raise StoreBusy(f"others kept writing to thread {self._key!r}; nothing was deleted", hint="try again")

    def _rewrite(self, entries: Sequence[Entry]) -> None:
        marker = RecordWrite(key=self._key, data=_written(REWRITTEN)[0], expect=self._head)
        self._records.write([marker, *(self._to_write(one) for one in entries)])
        self.refresh()

    def _trim(self) -> None:
        """Take away what is before the last rewriting, also one that a killed process did not come to trim."""
        if self._first < self._begins:
            kept = len(self._records.read(self._key, after=self._begins - 1))
            self._records.trim(self._key, keep=kept, expect=self._head)

    def copies(self, kept: Sequence[Saved], versions: VersionsOf) -> list[Entry]:
        """Return entries that hold all of these checkpoints, so that they need nothing else of this thread."""
        made: list[Entry] = []
        newest: dict[tuple[str, str], Version] = {}
        done: set[tuple[str, str, str]] = set()
        for saved in sorted(kept, key=lambda one: one.id):
            named = versions(saved)
            own: dict[str, Version] = {}
            for channel, value in self.content(saved, named).items():
                place, name = (saved.ns, channel), str(named[channel])
                if channel in saved.own or (*place, name) not in done:
                    own[channel] = newest[place] = Version.of(saved.id, channel, name, value, newest.get(place))
                    done.add((*place, name))
            made.append(saved._replace(own=own))
            made += _by_task(saved, self.pending(saved))
        return made

    def append(self, entries: Sequence[Entry]) -> None:
        """Append entries of another thread, all or nothing."""
        if entries:
            self._records.write([self._to_write(one) for one in entries])

    def _to_write(self, entry: Entry) -> RecordWrite:
        data, blobs = _written(entry)
        return RecordWrite(key=self._key, data=data, blobs=blobs)

    # Folding

    def _fold(self, entry: Entry, size: int) -> None:
        if entry == REWRITTEN:
            self._clear()
        elif isinstance(entry, Saved):
            self._fold_checkpoint(entry)
        else:
            kept = self._writes.setdefault((entry.ns, entry.id), {})
            for place, channel, value in entry.writes:
                if entry.replaces or (entry.task, place) not in kept:
                    kept[entry.task, place] = TaskWrite(entry.path, entry.task, place, channel, value)
        self.bytes += size

    def _fold_checkpoint(self, saved: Saved) -> None:
        self.checkpoints.setdefault(saved.ns, {})[saved.id] = saved
        for channel, version in saved.own.items():
            self._versions[saved.ns, channel, version.name] = version
            before = self._newest.get((saved.ns, channel))
            if before is not None and before is not version:
                before.elements = None
            self._newest[saved.ns, channel] = version


def _by_task(saved: Saved, pending: Iterable[TaskWrite]) -> list[TaskWrites]:
    """The writes of a checkpoint, each task's together."""
    tasks: dict[str, TaskWrites] = {}
    for one in pending:
        first = TaskWrites(saved.ns, saved.id, one.task, one.path, True, [])
        tasks.setdefault(one.task, first).writes.append((one.place, one.channel, one.value))
    return [*tasks.values()]


def _written(entry: Entry) -> tuple[bytes, dict[str, bytes] | None]:
    """The data and the blobs of the record that holds an entry."""
    blobs: dict[str, bytes] = {}
    match entry:
        case Saved():
            own = {channel: version.to_record(blobs) for channel, version in entry.own.items()}
            body, metadata = to_record(entry.body, blobs), to_record(entry.metadata, blobs)
            written = [CHECKPOINT, entry.ns, entry.id, entry.parent, body, metadata, own]
        case TaskWrites():
            writes = [[place, channel, to_record(value, blobs)] for place, channel, value in entry.writes]
            written = [WRITES, *entry[:5], writes]
        case _:
            written = [REWRITTEN]
    return ormsgpack.packb(written), blobs or None


def _entry(record: Record) -> Entry:
    """What a record says."""
    kind, *given = ormsgpack.unpackb(record.data)
    if kind == CHECKPOINT:
        ns, id, parent, body, metadata, own = given
        versions = {channel: Version.from_record(id, channel, one, record.blobs) for channel, one in own.items()}
        return Saved(ns, id, parent, from_record(body, record.blobs), from_record(metadata, record.blobs), versions)
    if kind == WRITES:
        writes = [(place, channel, from_record(value, record.blobs)) for place, channel, value in given[5]]
        ns, id, task, path, replaces, _ = given
        return TaskWrites(ns, id, task, path, replaces, writes)
    return REWRITTEN
