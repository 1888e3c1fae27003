"""Who did what: calls of tools, what people said, what was decided, over all tasks or one, by time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct

from holdfast.core import codec, events as ev
from holdfast.core.codec import LoggedEvent
from holdfast.core.errors import TaskCollected, TaskNotFound
from holdfast.engine.logs.log import DAMAGED
from holdfast.engine.logs.logs import Logs
from holdfast.engine.reading import timeline, verify
from holdfast.engine.reading.describe import describe

CALLS = ("step_started", "step_completed", "step_failed", "attempt_failed", "approval_asked")
_OF_A_CALL = ("step_doubted", "step_settled", "approval_given", "approval_refused")


class AuditRow(Struct, frozen=True, kw_only=True):
    """Something somebody did: an agent through a tool, a person, or an agent that decided."""

    task: str
    seq: int
    at_us: int
    kind: str
    what: str
    about: str
    tool: str = ""
    by: str = ""
    value: Any = None

    def to_json(self) -> str:
        """Return it as a line of JSON."""
        return codec.dump(self).decode()


class AuditQuery(Struct, frozen=True, kw_only=True):
    """Which acts are wanted; what is empty does not matter. `decision` is part of the question."""

    task: str | None = None
    tool: str = ""
    by: str = ""
    decision: str | None = None
    since_us: int | None = None
    until_us: int | None = None


def audit_rows(logs: Logs, asked: AuditQuery, progress: Callable[[int], None] | None = None) -> Iterator[AuditRow]:
    """Every act that is asked for, task by task, each in the order of its log."""
    names = verify.all_names(logs) if asked.task is None else iter((asked.task,))
    seen = 0
    for name in names:
        if asked.task is None and name.rpartition("!")[2].startswith("@"):
            continue  # what tasks did to people's logs stands in their own
        tools: dict[str, str] = {}
        try:
            for record in _own(logs, name, whole=asked.task is not None):
                seen += 1
                if progress is not None and seen % 1000 == 0:
                    progress(seen)
                act = _act(logs, name, record, tools)
                if act is not None and _wanted(act, asked):
                    yield act
        except (TaskNotFound, TaskCollected):
            if asked.task is not None:
                raise
        except DAMAGED as error:
            if asked.task is not None:
                raise
            at: dict[str, Any] = {"seq": error.details.get("seq", 0), "at_us": logs.clock.now_us()}
            yield AuditRow(task=name, **at, kind="damaged", what="damaged", about=error.message)


def _own(logs: Logs, name: str, *, whole: bool) -> Iterator[LoggedEvent]:
    """A task's events; over all tasks, a fork's inherited ones are its parent's and told there."""
    origin = logs.store.origin(name)
    after = 0 if whole or origin is None else origin.at
    return timeline.records(logs, name, after=after)


def _act(logs: Logs, task: str, record: LoggedEvent, tools: dict[str, str]) -> AuditRow | None:
    event: Any = record.event
    key = getattr(event, "key", "")
    if record.kind in CALLS and event.tool:
        tools[key] = event.tool
    tool = tools.get(key, "") if record.kind in (*CALLS, *_OF_A_CALL) else ""
    line = describe(record, logs.blob)
    if not (tool or line.by or isinstance(event, ev.DecisionMade)):
        return None
    return AuditRow(
        task=task,
        seq=record.seq,
        at_us=record.at_us,
        kind=record.kind,
        what=line.verb,
        about=line.about,
        tool=tool,
        by=line.by,
        value=line.value,
    )


def _wanted(act: AuditRow, asked: AuditQuery) -> bool:
    decides = asked.decision is None or (
        act.kind == "decision_made" and asked.decision.lower() in f"{act.about} {act.value}".lower()
    )
    in_time = (asked.since_us is None or act.at_us >= asked.since_us) and (
        asked.until_us is None or act.at_us <= asked.until_us
    )
    return decides and in_time and asked.tool in ("", act.tool) and asked.by in ("", act.by)
