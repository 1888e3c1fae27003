"""What every store does. Synchronous, few verbs, safe from several threads; anything that passes
`holdfast.testing.conformance` will do.

A store knows rows, not meanings: it never decodes a body. Digests are computed where the head is known, by `place`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol

from msgspec import Struct

from holdfast.core import codec
from holdfast.core.codec import (
    Blob,
    Draft,
    Erasure,
    Group,
    Head,
    Origin,
    Snapshot,
    Stored,
    Summary,
    Tombstone,
    UniqueKey,
)
from holdfast.core.errors import Conflict, InvalidEvent, InvalidValue, KeyTaken
from holdfast.store.chunks import Chunks
from holdfast.store.queues import Loss, Queues


class Placed(Struct, frozen=True, gc=False):
    """Where a write ended up: the seq of its first event and every event's digest."""

    first: int
    digests: tuple[bytes, ...]

    @property
    def head(self) -> Head | None:
        """The head after the write; None if it wrote no event."""
        return Head(self.first + len(self.digests) - 1, self.digests[-1]) if self.digests else None


TO_THE_END = (1 << 63) - 1
"""A seq, a number or a time beyond all others."""

Outcome = tuple[Placed, ...] | Conflict | KeyTaken
"""What became of a group: a place for each of its writes, or why none was written."""


Order = Literal["newest", "oldest", "changed"]
"""In which order tasks are listed: by when they were made, or the one that changed last first."""


class Query(Struct, frozen=True, kw_only=True):
    """Which tasks to list, and in which order; what is None does not matter.

    A filter is named like the field of Summary that it asks for, or has a row in `ASKED`. `after_changed_us` is when
    the task `after` had last changed when it was seen; without it, when it has by now.
    """

    status: str | None = None
    agent: str | None = None
    stage: str | None = None
    user: str | None = None
    thread: str | None = None
    queue: str | None = None
    parent: str | None = None
    waiting: str | None = None
    version: str | None = None
    in_doubt: bool | None = None
    prefix: str | None = None
    due_us: int | None = None
    expired_us: int | None = None
    changed_since_us: int | None = None
    order: Order = "newest"
    after: str | None = None
    after_changed_us: int | None = None
    limit: int = 100
    namespace: str = ""

    def filters(self) -> dict[str, Any]:
        """Return what it asks of a row, by the name of the filter."""
        return {name: getattr(self, name) for name in self.__struct_fields__ if name not in _NOT_FILTERS}

    def asks_for(self, row: Summary) -> bool:
        """Return whether a row has all that is asked for."""
        asked = ((name, value) for name, value in self.filters().items() if value is not None)
        return all(ASKED[name](row, value) if name in ASKED else getattr(row, name) == value for name, value in asked)

    def matching(self, rows: Iterable[Summary]) -> Iterator[Summary]:
        """Return those of some rows that it asks for."""
        return filter(self.asks_for, rows)

    @property
    def lead(self) -> str:
        """The filter, or the two, whose index is likely to leave the fewest rows; empty if there is none."""
        given = next((name for name in LEADING if getattr(self, name) not in (None, False)), "")
        if given == "status" and self.order == "changed" and self.changed_since_us is not None:
            return "changed_since_us"  # in its order already; by status, every row of it would be read and sorted
        return f"{given}_and_status" if given in WITH_STATUS and self.status is not None else given


_NOT_FILTERS = ("order", "after", "after_changed_us", "limit")

ASKED: dict[str, Callable[[Summary, Any], bool]] = {
    "in_doubt": lambda row, value: bool(row.doubts) == value,
    "prefix": lambda row, value: row.id.startswith(value),
    "due_us": lambda row, value: row.status == "waiting" and row.wake_us is not None and row.wake_us <= value,
    "expired_us": lambda row, value: row.expires_at is not None and row.changed_us + (row.expire_us or 0) <= value,
    "changed_since_us": lambda row, value: row.changed_us >= value,
}
"""Filters that do not compare the field of their name."""

LEADING = (
    *("user", "thread", "parent", "prefix", "in_doubt", "expired_us", "waiting", "due_us", "agent", "stage", "queue"),
    *("status", "changed_since_us"),
)
"""Filters with an index, the one that is likely to be the narrowest first."""

WITH_STATUS = ("user", "agent", "stage")
"""Filters with an index that has the status in it too."""


class TaskCounts(Struct, frozen=True):
    """How many tasks of each status there are, and how many have a call in doubt. Kept, not counted."""

    by_status: dict[str, int]
    in_doubt: int

    def to_json(self) -> str:
        """Return it as a line of JSON."""
        return codec.dump({"by_status": self.by_status, "in_doubt": self.in_doubt, "tasks": self.tasks}).decode()

    @property
    def tasks(self) -> int:
        """The number of tasks."""
        return sum(self.by_status.values())


class ActPlace(Struct, frozen=True, gc=False):
    """Where an event stands among all of a store, by time."""

    at_us: int
    log: str
    seq: int


class ActQuery(Struct, frozen=True, kw_only=True):
    """A query for the audit: which events of a store, before a place, between two times."""

    before: ActPlace | None = None
    since_us: int = -TO_THE_END
    until_us: int = TO_THE_END
    limit: int = 1000


class RowChange(Struct, frozen=True, gc=False):
    """A row that changed, how far its log had come when it was read, and the place of the change in the feed."""

    summary: Summary
    seq: int
    cursor: str


class Opening(Struct, frozen=True, gc=False):
    """What a reader begins with: where a log's own events begin, how many of its bodies were erased, a snapshot."""

    origin: Origin
    erased: int
    snapshot: Snapshot | None


class Since(Struct, frozen=True, gc=False):
    """The events of a log from a seq on, and how many bodies of it and of what it stands on were ever erased.

    `base` is the seq before the log's own first event: after a cut, that of the last event that is gone.
    """

    erased: int
    rows: list[Stored]
    base: int = 0


class Identity(Struct, frozen=True, gc=False):
    """Which store this is, in the whole world, and a key that only those know who can read it."""

    id: str
    key: bytes


class Stats(Struct, frozen=True):
    """How much a store holds."""

    tasks: int
    by_status: dict[str, int]
    events: int
    blobs: int
    snapshots: int
    bytes: int
    bytes_by_table: dict[str, int]

    def to_json(self) -> str:
        """Return it as a line of JSON."""
        return codec.dump(self).decode()


Bindings = Sequence[Any] | Mapping[str, Any]
"""Values for the parameters of a statement, by place or by name."""


class Rows:
    """What a statement gave: its rows, to be gone through once, and how many rows it changed."""

    def __init__(self, rows: Sequence[tuple[Any, ...]], rowcount: int) -> None:
        self._rows = iter(rows)
        self.rowcount = rowcount

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return self._rows

    def fetchone(self) -> tuple[Any, ...] | None:
        """The next row, or None when there is none left."""
        return next(self._rows, None)

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Every row that is left."""
        return list(self._rows)


class Connection(Protocol):
    """A way into the store's own database, inside a transaction that the store ends.

    What is written here and the record of the call commit together, or not at all:

        @tool(effect="transaction")
        def transfer(account: str, cents: int, *, connection: Connection) -> None:
            connection.execute("update accounts set cents = cents - ? where name = ?", (cents, account))

    It belongs to the thread it was given to, and is of no use once the transaction has ended.
    """

    @property
    def dialect(self) -> str:
        """Whose SQL it speaks: "sqlite" or "postgres"."""
        ...

    def execute(self, sql: str, bindings: Bindings = ()) -> Rows:
        """Run a statement to its end."""
        ...

    def executemany(self, sql: str, rows: Iterable[Bindings]) -> Rows:
        """Run a statement once for each row of values."""
        ...


Work = Callable[[Connection], Group]
"""What user code does inside a transaction; it gives what is to be written with it."""


class Store(Protocol):
    """Keeps logs. Everything here is durable when the call returns.

    `lease_seconds` is how long its workers may be silent. Only `append_at_once` is called on an event loop. One that
    `always_waits` writes nothing that way: each of its writes waits for a disk or a server.
    """

    url: str
    lease_seconds: float
    always_waits: bool

    @property
    def queues(self) -> Queues:
        """The queues that workers claim from."""
        ...

    @property
    def chunks(self) -> Chunks:
        """The chunks that steps stream while they run."""
        ...

    def append(self, groups: Sequence[Group]) -> list[Outcome]:
        """Write groups in one transaction. A group that conflicts fails alone and writes nothing.

        What a group erases or cuts goes in the same transaction. A cut that was made before is not an error.
        """
        ...

    def append_at_once(self, group: Group) -> Outcome | None:
        """Write a group if no wait is needed; None, and nothing is written, if something has.

        That is: the disk, a server, another writer, or care of the file that is due. It is called on event loops.
        """
        ...

    def append_event(self, log: str, expect: Head, draft: Draft) -> bytes | Conflict:
        """The common case, as short as it can be: one event after a known head. Gives its digest."""
        ...

    def transact(self, log: str, expect: Head, work: Work, seconds: float | None = None) -> Outcome:
        """Run `work` inside one write transaction, with a connection to the same database, and write what it gives.

        That the log's head is `expect` is checked first: if not, it is Conflict and `work` never runs. If the group is
        refused, or `work` raises or takes longer than `seconds` (TimeLimit), everything is rolled back. What `work`
        raises is raised as it is. Others who write wait meanwhile; the store takes no other write from `work` itself.
        """
        ...

    def head(self, log: str) -> Head | None:
        """The last position of a log, or None if there is no such log."""
        ...

    def heads(self, logs: Sequence[str]) -> dict[str, int]:
        """The seqs of the last events of many logs, in one question. Those that are not there are left out."""
        ...

    def origin(self, log: str) -> Origin | None:
        """Return the start of a log's own events, or None if there is no such log."""
        ...

    def read(
        self,
        log: str,
        *,
        after: int = 0,
        upto: int | None = None,
        limit: int | None = None,
        last: int | None = None,
    ) -> list[Stored]:
        """A log's own events in order, from after one seq up to and including another.

        `limit` gives only the oldest so many, `last` only the newest; never both are asked for.
        """
        ...

    def read_kind(
        self, log: str, kind: str, *, after: int = 0, upto: int | None = None, last: int | None = None
    ) -> list[Stored]:
        """Events of one of the cold kinds in order, by index; `last` gives only the newest so many."""
        ...

    def opening(self, log: str, *, upto: int | None = None, version: int) -> Opening | None:
        """`origin` and `snapshot` in one question, and how many bodies were erased; None if there is no such log.

        What is read after that is at least as new as the number of erasures: its fold may be kept under that
        number.
        """
        ...

    def since(
        self, log: str, seq: int, *, past: Sequence[str] = (), upto: int | None = None, limit: int | None = None
    ) -> Since:
        """A log's own events from `seq` on, at most so many, and how many bodies of it and of `past` were erased.

        One question, so that a reader that has folded up to `seq` learns whether that still holds, and what came then.
        """
        ...

    def blob(self, hash: str, *, within: str = "") -> bytes | None:
        """Return a blob's stored bytes, still compressed, if a log refers to it whose name begins with `within`."""
        ...

    def blobs_of(self, log: str) -> list[Blob]:
        """Every blob a log's own events refer to."""
        ...

    def snapshot(self, log: str, *, upto: int | None = None, version: int) -> Snapshot | None:
        """The newest snapshot of that version, at or before a seq."""
        ...

    def drop_snapshots(self, *, log: str | None = None, before_us: int | None = None) -> int:
        """Delete snapshots, of one log or all, older than a time or all. They are a cache."""
        ...

    def summary(self, log: str) -> Summary | None:
        """A task's row."""
        ...

    def list(self, query: Query) -> list[Summary]:
        """Tasks in the order that is asked for, by index. `after` is the last one seen."""
        ...

    def counts(self, namespace: str | None = None) -> TaskCounts:
        """Count the tasks: of one tenant, or of all. The cost does not grow with their number."""
        ...

    def namespaces(self) -> list[str]:
        """Return the tenants that have tasks, by name; without one, the empty name. Not a question a task."""
        ...

    def acts(self, query: ActQuery) -> list[tuple[str, Stored]]:
        """Return the events for the audit, with their logs, newest first, by index.

        Calls of tools, what people did, what was decided; some others may be among them.
        """
        ...

    def changes(self, after: str | None, *, limit: int = 1000) -> list[RowChange]:
        """Rows that changed after a place in the feed, in the order in which the changes were committed.

        A row is in it once, at its last change. After None comes everything.
        """
        ...

    def last_change(self) -> str:
        """The place in the feed after which come the changes that are committed from now on."""
        ...

    def logs(self, *, prefix: str | None = None, after: str | None = None, limit: int = 1000) -> list[str]:
        """The names of all logs in the order they were made; with a `prefix`, those that begin with it, by name.

        `after` is the last name seen: by name any text, in the order they were made a log that is there or was.
        """
        ...

    def newest(self, *, prefix: str, after: str | None = None, limit: int = 1000) -> list[tuple[str, Stored]]:
        """The last event of each log that `logs` gives for a prefix, with its name."""
        ...

    def forks(self, log: str) -> list[str]:
        """The logs whose past this log is."""
        ...

    def finished(self, *, before_us: int | None, skip: int, limit: int) -> list[str]:
        """Ended tasks, newest end first, after the first `skip`, whose end is older than a time."""
        ...

    def owner_of_key(self, key: str) -> UniqueKey | None:
        """Return the log that took a unique key."""
        ...

    def unique_keys(self, *, after: str = "", limit: int = 1000) -> list[UniqueKey]:
        """Unique keys in their order."""
        ...

    def tombstone(self, log: str) -> Tombstone | None:
        """Return the tombstone of a removed log."""
        ...

    def tombstones(self, *, after: str = "", limit: int = 1000) -> list[Tombstone]:
        """Return the tombstones of removed logs, by name."""
        ...

    def erasures(self, log: str) -> list[Erasure]:
        """Which bodies of a log were erased."""
        ...

    def erase(self, erasures: Sequence[Erasure]) -> None:
        """Set bodies to nothing, and drop their blobs and the log's snapshots. Hashes stay, so the chain verifies."""
        ...

    def remove(self, tombstones: Sequence[Tombstone]) -> list[str]:
        """Remove whole logs and the blobs only they used, leaving tombstones; gives the names of those removed.

        A log whose head is no longer the tombstone's, or that is the past of a fork, stays. Its name is given again
        only to a log that continues at the tombstone: without a parent, after its seq and its digest.
        """
        ...

    def restore_marks(self, tombstones: Sequence[Tombstone], keys: Sequence[UniqueKey]) -> None:
        """Adopt another store's tombstones and unique keys. A tombstone that is there moves forward, never back."""
        ...

    def rows(self, log: str) -> list[Stored]:
        """A log's own events as they lie in the table itself, for verification: no index is trusted."""
        ...

    def anchor(self, log: str) -> Head | None:
        """A head this log is known to have had; one that is behind it has lost events."""
        ...

    def check(self) -> list[str]:
        """Return the findings of the store's own integrity check; none if all is well."""
        ...

    def stats(self) -> Stats:
        """Count everything."""
        ...

    def backup(self, path: str) -> None:
        """Write a consistent copy to a new file while other processes keep working."""
        ...

    def identity(self) -> Identity:
        """Which store this is. A copy that was made of its files has the same; one made by `copy_to` has its own."""
        ...

    def holder(self) -> str:
        """The name under which this store's process is known to be alive."""
        ...

    def alive(self, holder: str, lease: float | None = None) -> bool:
        """Return whether that process lives: there is a sign of life now, or there was one within its lease."""
        ...

    def loss(self, holder: str, lease: float | None = None) -> Loss | None:
        """Return the proof that a worker's tasks may be taken over; None while they may not.

        It may take a while: a sign of life that is missing for a moment is looked for again.
        """
        ...

    def close(self, *, present: bool = False) -> None:
        """Close everything; closing twice is fine. With `present`, this process counts as alive until `depart`."""
        ...

    def depart(self) -> None:
        """End the sign of life of this process: what it holds may be taken over."""
        ...


def written_inside() -> InvalidEvent:
    """Return the error for a write that is asked for inside a transaction's own work."""
    return InvalidEvent("nothing else is written inside a transaction tool", hint="do it before or after the call")


def name_range(prefix: str, after: str | None) -> tuple[str, str]:
    """Return the first name, and the end, of those that begin with a prefix and come after another name.

    Both are one bound each, so that a page in the middle of many names begins where it begins. Names are compared by
    code points, and hold no NUL: so what comes after a name comes no sooner than that name and the next character.

    >>> name_range("@records/", None)
    ('@records/', '@records0')
    """
    first = prefix if after is None else max(prefix, after + "\1")
    kept = prefix.rstrip("\U0010ffff")
    if not kept:
        return first, "\U0010ffff"  # which no name begins with
    last = ord(kept[-1]) + 1
    return first, kept[:-1] + chr(0xE000 if last == 0xD800 else last)  # no text holds what lies between


def change_place(cursor: str | None) -> tuple[int, int]:
    """Return the number of a change, and of the log, that stand in a cursor of the feed; before all others if none.

    >>> change_place("17.4")
    (17, 4)
    """
    if cursor is None:
        return -1, 0
    if not isinstance(cursor, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(f"{cursor!r} is not a place in the feed", hint="give the cursor of a change")
    change, dot, log = cursor.partition(".")
    if not (dot and change.isascii() and change.isdigit() and log.isascii() and log.isdigit() and len(cursor) < 40):
        raise InvalidValue(
            f"{cursor!r} is not a place in the feed", hint="give the cursor of a change, or leave it out"
        )
    return min(int(change), TO_THE_END), min(int(log), TO_THE_END)


_CALLS = frozenset(("step_started", "step_completed", "step_failed", "attempt_failed", "approval_asked"))
_ALWAYS = frozenset(("decision_made", "step_doubted", "step_settled", "approval_given", "approval_refused"))
_SIGNED = frozenset(
    (
        *("state_patched", "patch_refused", "task_created", "task_forked", "cancel_requested", "task_cancelled"),
        *("task_reopened", "rolled_back", "task_diverged", "divergence_accepted", "budget_raised", "wait_ended"),
        "signal_received",
    )
)
ACT_KINDS = _CALLS | _ALWAYS | _SIGNED
"""Kinds of events that `acts` may give: calls if they name a tool, others if they name who."""


def is_act(row: Stored) -> bool:
    """Return whether `acts` gives an event: what the condition of the index says, where there is no index."""
    if row.kind in _ALWAYS:
        return True
    mark = b'"tool":"' if row.kind in _CALLS else b'"by":"'
    return row.kind in ACT_KINDS and row.body is not None and mark in row.body


def gone_from_list(name: str | None) -> InvalidValue:
    """Say why a list by change can't continue after a task that was removed."""
    return InvalidValue(
        f"task {name!r} was removed: a list by change can't continue after it", hint="list from the start"
    )


def miscounted(row: tuple[str, str, int, int]) -> str:
    """Say how a kept count differs from the rows."""
    namespace, status, kept, found = row
    of = f" of tenant {namespace!r}" if namespace else ""
    return f"the kept count of {status} tasks{of} is {kept}, and there are {found}"


def place(head: Head, drafts: Sequence[Draft]) -> Placed:
    """Give drafts their seqs and digests after a head."""
    seq, digest = head.seq, head.digest
    digests: list[bytes] = []
    for draft in drafts:
        seq += 1
        digest = codec.chain(digest, seq, draft.kind, draft.at_us, draft.body_hash)
        digests.append(digest)
    return Placed(head.seq + 1, tuple(digests))


class Generation:
    """Which process this is: a child that was forked off is the next. Asked before every write, so it costs nothing."""

    now = 0


def _born() -> None:
    Generation.now += 1


os.register_at_fork(after_in_child=_born)
