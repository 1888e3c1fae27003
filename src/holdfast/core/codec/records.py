"""What passes between a log and its store: plain, frozen data."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from msgspec import Struct

from holdfast.core.codec.documents import encode_struct
from holdfast.core.events import Event


class Head(Struct, frozen=True, gc=False):
    """The last position of a log and the digest there."""

    seq: int
    digest: bytes


class Draft(Struct, frozen=True, gc=False):
    """An event ready to be written, before it has a place. An erased one has no body.

    `event` is the same in memory, as it will be read back; stores do not look at it.
    """

    kind: str
    at_us: int
    body: bytes | None
    body_hash: bytes
    event: Event | None = None


class Stored(Struct, frozen=True, gc=False):
    """An event as a store gives it back."""

    seq: int
    kind: str
    at_us: int
    body: bytes | None
    body_hash: bytes
    digest: bytes


class Blob(Struct, frozen=True, gc=False):
    """A large value beside the log. `data` is what lies in the store: compressed JSON."""

    hash: str
    data: bytes


class LoggedEvent(Struct, frozen=True):
    """An event at its place in a log, as people read it."""

    log: str
    seq: int
    kind: str
    at_us: int
    event: Event
    digest: bytes

    @property
    def at(self) -> datetime:
        """When it was written, in UTC."""
        return moment(self.at_us)

    def to_json(self) -> str:
        """Return it as a line of JSON. A large value is named by its hash: `app.fetch(hash)` reads it."""
        told = {"task": self.log, "seq": self.seq, "at": self.at, "kind": self.kind, "event": self.event}
        return encode_struct(told).decode()


class Origin(Struct, frozen=True, gc=False):
    """Where a log's own events begin: after `at` of the parent, or from nothing."""

    parent: str | None = None
    at: int = 0


class Summary(Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """What a queue or a list needs to know of a task without reading its log. Itself a fold."""

    id: str
    agent: str
    status: str = "pending"
    stage: str | None = None
    user: str | None = None
    thread: str | None = None
    parent: str | None = None
    waiting: str | None = None
    holder: str | None = None
    lease_seconds: float = 0.0
    queue: str = "default"
    priority: int = 0
    wake_us: int | None = None
    deadline_us: int | None = None
    created_us: int = 0
    changed_us: int = 0
    mock: bool = False
    namespace: str = ""
    key: str | None = None
    version: str = ""
    claims: int = 0
    doubts: tuple[str, ...] = ()
    """The calls that are in doubt, by their keys."""
    expire_us: int | None = None
    """How long the task may wait, or be pending, with nothing happening to it, before `gc` cancels it."""

    @property
    def created_at(self) -> datetime:
        """When the task was created."""
        return moment(self.created_us)

    @property
    def expires_at(self) -> datetime | None:
        """When `gc` cancels it, unless something happens before; None if it does not wait, or never expires."""
        waits = self.expire_us is not None and self.status in ("pending", "waiting")
        return moment(self.changed_us + (self.expire_us or 0)) if waits else None

    @property
    def changed_at(self) -> datetime:
        """When what is shown here last changed."""
        return moment(self.changed_us)

    def to_json(self) -> str:
        """Return it as a line of JSON, with every field. Times in microseconds since 1970 end in `_us`."""
        return encode_struct({name: getattr(self, name) for name in self.__struct_fields__}).decode()


class Snapshot(Struct, frozen=True, gc=False):
    """A cached fold. Valid only while the log has this digest at this seq."""

    seq: int
    digest: bytes
    version: int
    at_us: int
    body: bytes


class Write(Struct, frozen=True, gc=False):
    """Events for one log. `expect` is the head they follow; None means whatever the head is then.

    `origin` is given for the first write of a log only. `base` is where its own events must begin: a write
    that removes what was read expects that nothing was removed since.
    """

    log: str
    drafts: tuple[Draft, ...]
    expect: Head | None = None
    origin: Origin | None = None
    summary: Summary | None = None
    blobs: tuple[Blob, ...] = ()
    snapshot: Snapshot | None = None
    base: int | None = None


def merge_writes(writes: Sequence[Write]) -> tuple[Write, ...]:
    """One write a log: of a group, each log is written to once, with all that there is to say to it."""
    if len(writes) < 2:
        return tuple(writes)
    found: dict[str, Write] = {}
    for write in writes:
        before = found.get(write.log)
        found[write.log] = write if before is None else _followed(before, write)
    return tuple(found.values())


def _followed(one: Write, two: Write) -> Write:
    return Write(
        one.log,
        one.drafts + two.drafts,
        two.expect if one.expect is None else one.expect,
        one.origin or two.origin,
        two.summary or one.summary,
        one.blobs + two.blobs,
        one.snapshot or two.snapshot,
        two.base if one.base is None else one.base,
    )


class UniqueKey(Struct, frozen=True, gc=False):
    """A unique key and the call that takes it."""

    key: str
    log: str
    step: str
    input_hash: str = ""


class Erasure(Struct, frozen=True, gc=False):
    """Whose body was erased, by whom and why; and the large values that only it referred to."""

    log: str
    seq: int
    by: str
    why: str
    at_us: int
    blobs: tuple[str, ...] = ()


class Tombstone(Struct, frozen=True, gc=False):
    """What is left of a log, or of the beginning of one: where it ended, and the digest there."""

    log: str
    seq: int
    digest: bytes
    at_us: int
    why: str = ""


class LogCut(Struct, frozen=True, gc=False):
    """The beginning of a log that is removed, up to and with the seq of a tombstone, and what only it referred to.

    Events after it stay: a whole log is not cut but removed.
    """

    stone: Tombstone
    blobs: tuple[str, ...] = ()


class Group(Struct, frozen=True, gc=False):
    """What is written together, or not at all.

    `erasures` and `cuts` are carried out with it. Their logs are written to in the same group, after a known head and
    base: so nothing that is removed can be referred to anew meanwhile, or was removed before.
    """

    writes: tuple[Write, ...]
    unique_keys: tuple[UniqueKey, ...] = ()
    freed_keys: tuple[str, ...] = ()
    erasures: tuple[Erasure, ...] = ()
    cuts: tuple[LogCut, ...] = ()

    @property
    def removes(self) -> bool:
        """True if something that was written goes with it."""
        return bool(self.erasures or self.cuts)


MIN_AT_US, MAX_AT_US = -62_000_000_000_000_000, 250_000_000_000_000_000
"""Times between the years 6 and 9892. Others are none: no calendar here can show them."""


def moment(at_us: int) -> datetime:
    """Microseconds since 1970 as a time in UTC. What no calendar shows is the first or the last time that one does."""
    seconds, micros = divmod(min(max(at_us, MIN_AT_US), MAX_AT_US), 1_000_000)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=micros)
