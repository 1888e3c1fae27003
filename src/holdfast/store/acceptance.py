"""The one rule for whether a group may be written: its logs are where it expects, and its unique keys are free."""

from __future__ import annotations

from typing import Protocol

from holdfast.core.codec import Group, Head, Origin, UniqueKey, Write
from holdfast.core.errors import Conflict, KeyTaken
from holdfast.store.protocol import Outcome, Placed, place


class Standing(Protocol):
    """Where logs and keys stand at the moment at which a store decides."""

    def head(self, log: str) -> Head | None: ...

    def base(self, log: str) -> int | None:
        """Return the seq that the log begins after; a cut moves it."""
        ...

    def name(self, log: str) -> tuple[bool, Head | None]:
        """Return whether there is a log of this name, and where one that is gone had ended."""
        ...

    def owner(self, key: str) -> UniqueKey | None:
        """Return the step that took a key."""
        ...


def decide(group: Group, known: Standing) -> Outcome:
    """Find the place of each write, or the reason why none of them may be written."""
    places: list[Placed] = []
    moved: dict[str, Head] = {}
    for write in group.writes:
        head = _follows(write, known, moved)
        if isinstance(head, Conflict):
            return head
        placed = place(head, write.drafts)
        moved[write.log] = placed.head or head
        places.append(placed)
    for take in group.unique_keys:
        owner = known.owner(take.key)
        if owner is not None and take.key not in group.freed_keys:
            return KeyTaken(take.key, owner.log, owner.step)
    return tuple(places)


def _follows(write: Write, known: Standing, moved: dict[str, Head]) -> Head | Conflict:
    """Return the head that a write follows, if it is the one it expects."""
    wanted = write.expect
    if write.origin is not None:
        assert wanted is not None, "a new log says what its chain begins with"
        if write.log not in moved and _may_begin(write.log, write.origin, wanted, known):
            return wanted
        head = moved.get(write.log) or known.head(write.log)
        return Conflict(write.log, 0, head and head.seq)
    head = moved.get(write.log) or known.head(write.log)
    if head is None or (wanted is not None and wanted != head):
        return Conflict(write.log, wanted and wanted.seq, head and head.seq)
    if write.base is not None and write.base != known.base(write.log):
        return Conflict(write.log, wanted and wanted.seq, head.seq)
    return head


def _may_begin(name: str, origin: Origin, start: Head, known: Standing) -> bool:
    """Return whether a log follows the rest of its name; a fork needs its parent, and a name never used."""
    is_there, left = known.name(name)
    if is_there:
        return False
    if origin.parent is not None:
        return left is None and known.name(origin.parent)[0]
    return origin.at == (0 if left is None else left.seq) and (left is None or left == start)
