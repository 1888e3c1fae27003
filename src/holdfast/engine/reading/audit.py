"""Who did what: calls of tools, what people did, what was decided, over all tasks or one, newest first.

Over all tasks, acts are found by an index of the store: the first page costs the same however many tasks there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core import codec, events as ev, limits, names
from holdfast.core.codec import LoggedEvent, Stored
from holdfast.core.errors import InvalidValue, TaskCollected, TaskNotFound
from holdfast.engine.logs.log import DAMAGED, decoded
from holdfast.engine.logs.logs import Logs
from holdfast.engine.reading.describe import describe
from holdfast.store.protocol import TO_THE_END, ActPlace, ActQuery

CALLS = ("step_started", "step_completed", "step_failed", "attempt_failed", "approval_asked")
_OF_A_CALL = ("step_doubted", "step_settled", "approval_given", "approval_refused")


class AuditRow(codec.JsonStruct, frozen=True, kw_only=True):
    """One act: an agent's tool call, a person's act, or an agent's decision."""

    task: str
    seq: int
    at_us: int
    kind: str
    what: str
    about: str
    tool: str = ""
    by: str = ""
    value: Any = None
    answered_by: str = ""
    """The task whose call answered for one that was not made here."""

    @property
    def cursor(self) -> str:
        """Its place in the audit: `app.audit(after=row.cursor)` gives what was done before it."""
        return f"{self.at_us}.{self.seq}.{self.task}"


def as_json(row: AuditRow, *more: str) -> dict[str, Any]:
    """An act for programs: what every face says of it, and these fields too."""
    return {name: getattr(row, name) for name in (*_SAME, *more)}


_SAME = ("task", "seq", "kind", "what", "about", "tool", "by")


class AuditQuery(Struct, frozen=True, kw_only=True):
    """Which acts are wanted; what is empty does not matter. `decision` is part of the question."""

    task: str | None = None
    tool: str = ""
    by: str = ""
    decision: str | None = None
    since_us: int | None = None
    until_us: int | None = None
    after: str | None = None
    limit: int | None = None


def audit_rows(logs: Logs, asked: AuditQuery, progress: Callable[[int], None] | None = None) -> Iterator[AuditRow]:
    """Every act that is asked for, newest first. `progress` is called with the number of events read."""
    if asked.limit is not None:
        names.whole(asked.limit, "limit", least=1, most=limits.MAX_SEQ)
    for what, given in (("tool", asked.tool), ("by", asked.by), ("after", asked.after), ("decision", asked.decision)):
        if given is not None:
            names.text(given, what)
    before = None if asked.after is None else _place(asked.after)
    rows = _of_all(logs, asked, before) if asked.task is None else _of_task(logs, asked.task, before)
    return islice(_acts(logs, asked, rows, progress), asked.limit)


def _place(cursor: str) -> ActPlace:
    at_us, _, rest = cursor.partition(".")
    seq, _, task = rest.partition(".")
    if not task or not at_us.removeprefix("-").isdecimal() or not seq.isdecimal() or len(at_us + seq) > 40:
        raise InvalidValue(f"after={cursor!r} is not a place in the audit", hint="give the cursor of an audit row")
    return ActPlace(int(at_us), task, int(seq))


Rows = Iterator[tuple[str, str, Stored]]
"""Events with the task that is asked about, and the log they lie in."""


def _of_all(logs: Logs, asked: AuditQuery, before: ActPlace | None) -> Rows:
    """Events of all tasks, by the store's index; a fork's inherited ones are its parent's."""
    since_us = -TO_THE_END if asked.since_us is None else asked.since_us
    until_us = TO_THE_END if asked.until_us is None else asked.until_us
    size = min(limits.READ_CHUNK, max(asked.limit or limits.READ_CHUNK, limits.PAGE_SIZE))
    query = ActQuery(before=before, since_us=since_us, until_us=until_us, limit=size)
    while page := logs.store.acts(query):
        for name, row in page:
            if not name.rpartition("!")[2].startswith("@"):  # what tasks did to people's logs stands in their own
                yield name, name, row
        name, last = page[-1]
        query = replace(query, before=ActPlace(last.at_us, name, last.seq))


def _of_task(logs: Logs, task: str, before: ActPlace | None) -> Rows:
    """Events of one task, a fork's inherited ones included, from the last one back."""
    if before is not None and before.log != task:
        raise InvalidValue(
            f"the cursor is a place in {before.log!r}, not in {task!r}", hint="leave out task=, or after="
        )
    upto = None if before is None else before.seq - 1
    for segment in reversed(logs.segments(task)):
        end = segment.upto if upto is None else upto if segment.upto is None else min(upto, segment.upto)
        while chunk := logs.store.read(segment.log, after=segment.after, upto=end, last=limits.READ_CHUNK):
            for row in reversed(chunk):
                yield task, segment.log, row
            end = chunk[0].seq - 1


def _acts(logs: Logs, asked: AuditQuery, rows: Rows, progress: Callable[[int], None] | None) -> Iterator[AuditRow]:
    for seen, (task, log, row) in enumerate(rows, start=1):
        if progress is not None and seen % 1000 == 0:
            progress(seen)
        try:
            act = _act(logs, task, LoggedEvent(log, row.seq, row.kind, row.at_us, decoded(log, row), row.digest))
        except (TaskNotFound, TaskCollected):
            continue  # it went away meanwhile
        except DAMAGED as error:
            if asked.task is not None:
                raise
            at: dict[str, Any] = {"seq": row.seq, "at_us": row.at_us}
            yield AuditRow(task=task, **at, kind="damaged", what="damaged", about=error.message)
            continue
        if act is not None and _wanted(act, asked):
            yield act


def _act(logs: Logs, task: str, record: LoggedEvent) -> AuditRow | None:
    event: Any = record.event
    tool: str = event.tool if record.kind in CALLS else ""
    if record.kind in _OF_A_CALL:
        tool = _tool_of(logs, record.log, record.seq, event.key)
    line = describe(record, logs.blob)
    if not (tool or line.by or isinstance(event, ev.DecisionMade)):
        return None
    other: str = event.task if isinstance(event, ev.StepCompleted | ev.StepFailed) else ""
    return AuditRow(
        task=task,
        seq=record.seq,
        at_us=record.at_us,
        kind=record.kind,
        what=f"answered by task {other}" if other else line.verb,
        about=line.about,
        tool=tool,
        by=line.by,
        value=line.value,
        answered_by=other,
    )


def _tool_of(logs: Logs, log: str, seq: int, key: str) -> str:
    """The tool of a call that an event is about. It stands shortly before it, so look backwards."""
    width, upto = 16, seq - 1
    own = key.split("/", 1)[1] if key.split("/", 1)[0].isdigit() else key  # from later turns it has its turn before it
    while upto > 0:
        after = max(0, upto - width)
        for name, row in reversed(list(logs.rows(log, after=after, upto=upto))):
            event: Any = decoded(name, row) if row.kind in CALLS else None
            if event is not None and event.key in (key, own) and event.tool:
                return event.tool
        width, upto = width * 4, after
    return ""


def _wanted(act: AuditRow, asked: AuditQuery) -> bool:
    decides = asked.decision is None or (
        act.kind == "decision_made" and asked.decision.lower() in f"{act.about} {act.value}".lower()
    )
    in_time = (asked.since_us is None or act.at_us >= asked.since_us) and (
        asked.until_us is None or act.at_us <= asked.until_us
    )
    return decides and in_time and asked.tool in ("", act.tool) and asked.by in ("", act.by)
