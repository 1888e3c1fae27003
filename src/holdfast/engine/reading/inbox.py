"""What people are waited for: questions, approvals, calls in doubt, budgets that are used up, tasks set aside."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from msgspec import Struct

from holdfast.core import limits
from holdfast.core.errors import TaskCollected, TaskNotFound
from holdfast.core.state.shapes import Divergence, Hot
from holdfast.engine.logs.logs import Logs
from holdfast.engine.reading.task_state import TaskState
from holdfast.store.protocol import Query

Kind = Literal["question", "approval", "doubt", "budget", "quarantined", "diverged"]


class Entry(Struct, frozen=True, kw_only=True):
    """One thing a person can do something about."""

    task: str
    agent: str
    kind: Kind
    key: str
    name: str
    prompt: Any = None
    tool: str = ""
    risk: str = ""
    arguments: dict[str, Any] = {}
    used: float | None = None
    of: float | None = None
    since_us: int = 0
    until_us: int | None = None


def entries(logs: Logs) -> Iterator[Entry]:
    """Everything people are waited for, newest tasks first."""
    after: str | None = None
    while page := logs.store.list(Query(status="waiting", after=after, limit=limits.PAGE_SIZE)):
        for summary in page:
            try:
                yield from entries_of(logs, summary.id)
            except (TaskNotFound, TaskCollected):
                continue  # it went away meanwhile
        after = page[-1].id


def entries_of(logs: Logs, id: str) -> list[Entry]:
    """What one task waits for that a person can give."""
    log = logs.load(id)
    state, hot = TaskState(log, logs), log.state
    if state.waiting is None:
        return []
    own = [] if hot.summary.waiting != "diverged" or hot.divergence is None else [_diverged(hot, hot.divergence)]
    if state.waiting.kind == "quarantined":
        own.append(_set_aside(hot, state.waiting.why))
    return own + [_entry(state, hot, one) for one in state.waiting.on if one["kind"] in _KINDS]


def _diverged(hot: Hot, lost: Divergence) -> Entry:
    """A log that lost events: somebody must say that the task may go on from what is left."""
    told = f"events {lost.head_seq + 1} to {max(lost.head_seq + 1, lost.known_seq)} are gone"
    what: dict[str, Any] = {"key": "diverged", "name": "diverged", "prompt": told, "since_us": hot.updated_us}
    return Entry(task=hot.summary.id, agent=hot.summary.agent, kind="diverged", **what)


def _set_aside(hot: Hot, why: str) -> Entry:
    """A task that was set aside: somebody must say that it may go on."""
    what: dict[str, Any] = {"key": "", "name": "quarantined", "prompt": why, "since_us": hot.updated_us}
    return Entry(task=hot.summary.id, agent=hot.summary.agent, kind="quarantined", **what)


_KINDS: dict[str, Kind] = {"person": "question", "approval": "approval", "doubt": "doubt", "budget": "budget"}


def _entry(state: TaskState, hot: Hot, one: dict[str, Any]) -> Entry:
    since_us, until_us = _times(hot, one["kind"], one["key"])
    more = {name: one[name] for name in ("tool", "risk", "arguments", "used", "of") if name in one}
    return Entry(
        task=state.id,
        agent=state.agent,
        kind=_KINDS[one["kind"]],
        key=one["key"],
        name=one["name"],
        prompt=one["prompt"],
        since_us=since_us,
        until_us=until_us,
        **more,
    )


def _times(hot: Hot, kind: str, key: str) -> tuple[int, int | None]:
    """Since when it waits, and until when."""
    if kind == "person":
        return hot.waits[key].since_us, hot.waits[key].wake_us
    if kind == "approval":
        return hot.approvals[key].asked_us, hot.approvals[key].wake_us
    if kind == "doubt":
        return hot.steps[key].started_us, None
    return hot.updated_us, None
