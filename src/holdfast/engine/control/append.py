"""The ground floor: writing events to a task's log by hand. Every one is checked, and refused with its reason."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core import codec, events as ev, limits
from holdfast.core.codec import Group, LoggedEvent, Write
from holdfast.core.errors import Conflict, InvalidValue
from holdfast.core.events import Event
from holdfast.engine.logs.logs import Logs
from holdfast.store.protocol import Placed


def append(logs: Logs, id: str, events: Sequence[Event], expect: int | None) -> list[LoggedEvent]:
    """Write events, all or none, after the seq they must follow, or at the head."""
    if not events or len(events) > limits.MAX_EVENTS_PER_WRITE:
        raise InvalidValue(f"{len(events)} events cannot be written at once", hint="give 1 to 10,000")
    for event in events:
        _refuse_odd(event)
    log = logs.load(id)
    for _ in range(limits.MAX_APPEND_TRIES):
        if expect is not None and log.head.seq != expect:
            raise Conflict(id, expect, log.head.seq)
        log.check(events)
        try:
            write = log.draft(events)
            (placed,) = logs.committer.commit(Group((write,)))
            log.accept(write, placed)
            return _records(write, placed)
        except Conflict:
            log.refresh()
            if logs.store.origin(id) is None:
                raise logs.missing(id) from None
    raise Conflict(id, expect, log.head.seq)


_OWN_VERBS: dict[type[Event], str] = {ev.TaskCreated: "start", ev.TaskForked: "fork", ev.RolledBack: "rollback"}


def _refuse_odd(event: object) -> None:
    """Refuse values that are not events, that belong to a verb of their own, or that were not packed."""
    if not isinstance(event, Event) or type(event) is ev.Erased:
        raise InvalidValue(f"{event!r} is not an event", hint="events are made of the classes in holdfast.events")
    if type(event) in _OWN_VERBS:
        raise InvalidValue(f"{type(event).__name__} is not appended", hint=f"use app.{_OWN_VERBS[type(event)]}()")
    field = codec.unpacked_field(event)
    if field is not None:
        raise InvalidValue(f"{field} of {type(event).__name__} is a plain value", hint="pack it: holdfast.pack(value)")
    try:
        codec.check_event(event)
    except ValueError as error:
        raise InvalidValue(
            f"{type(event).__name__} cannot be written: {error}", hint="pack values: holdfast.pack(value)"
        ) from None


def _records(write: Write, placed: Placed) -> list[LoggedEvent]:
    """Return the events that were just written, with their places."""
    records: list[LoggedEvent] = []
    for seq, (draft, digest) in enumerate(zip(write.drafts, placed.digests, strict=True), start=placed.first):
        assert draft.event is not None
        records.append(LoggedEvent(write.log, seq, draft.kind, draft.at_us, draft.event, digest))
    return records
