"""What people are waited for: questions, approvals, calls in doubt, budgets that are used up, tasks set aside."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from msgspec import Struct

from holdfast.core import limits
from holdfast.core.codec import Summary
from holdfast.core.errors import HoldfastError, TaskCollected, TaskNotFound
from holdfast.core.state.shapes import Divergence, State
from holdfast.engine.logs.listing import list_tasks
from holdfast.engine.logs.log import DAMAGED
from holdfast.engine.logs.logs import Logs
from holdfast.engine.reading.task_state import TaskState
from holdfast.store.protocol import Query

Kind = Literal["question", "approval", "doubt", "budget", "quarantined", "diverged", "damaged"]


class InboxItem(Struct, frozen=True, kw_only=True):
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
    bound: str = ""
    """The digest that says which call and arguments were shown: give it with the approval."""
    used: float | None = None
    of: float | None = None
    since_us: int = 0
    until_us: int | None = None


def inbox_items(logs: Logs) -> Iterator[InboxItem]:
    """Everything people are waited for, newest tasks first."""
    after: str | None = None
    while page := list_tasks(logs.store, Query(status="waiting", after=after, limit=limits.PAGE_SIZE)):
        for summary in page:
            try:
                yield from items_of(logs, summary.id)
            except (TaskNotFound, TaskCollected):
                continue  # it went away meanwhile
            except DAMAGED as error:
                yield _damaged(summary, error)
        after = page[-1].id


def _damaged(summary: Summary, error: HoldfastError) -> InboxItem:
    """A task that cannot be read: what it waits for nobody can tell, but somebody must look at it."""
    what: dict[str, Any] = {"key": "", "name": "damaged", "prompt": error.message, "since_us": summary.changed_us}
    return InboxItem(task=summary.id, agent=summary.agent, kind="damaged", **what)


def items_of(logs: Logs, id: str) -> list[InboxItem]:
    """What one task waits for that a person can give."""
    log = logs.load(id)
    view, state = TaskState(log, logs), log.state
    if view.waiting is None:
        return []
    lost = state.divergence if state.summary.waiting == "diverged" else None
    own = [] if lost is None else [_diverged(state, lost)]
    if view.waiting.kind == "quarantined":
        own.append(_quarantined(state, view.waiting.why))
    return own + [_item(view, state, one) for one in view.waiting.on if one["kind"] in _KINDS]


def _diverged(state: State, lost: Divergence) -> InboxItem:
    """A log that lost events: somebody must say that the task may go on from what is left."""
    told = f"events {lost.head_seq + 1} to {max(lost.head_seq + 1, lost.known_seq)} are gone"
    what: dict[str, Any] = {"key": "diverged", "name": "diverged", "prompt": told, "since_us": state.updated_us}
    return InboxItem(task=state.summary.id, agent=state.summary.agent, kind="diverged", **what)


def _quarantined(state: State, why: str) -> InboxItem:
    """A task that was set aside: somebody must say that it may go on."""
    what: dict[str, Any] = {"key": "", "name": "quarantined", "prompt": why, "since_us": state.updated_us}
    return InboxItem(task=state.summary.id, agent=state.summary.agent, kind="quarantined", **what)


_KINDS: dict[str, Kind] = {"person": "question", "approval": "approval", "doubt": "doubt", "budget": "budget"}


def _item(view: TaskState, state: State, one: dict[str, Any]) -> InboxItem:
    since_us, until_us = _times(state, one["kind"], one["key"])
    more = {name: one[name] for name in ("tool", "risk", "arguments", "bound", "used", "of") if name in one}
    return InboxItem(
        task=view.id,
        agent=view.agent,
        kind=_KINDS[one["kind"]],
        key=one["key"],
        name=one["name"],
        prompt=one["prompt"],
        since_us=since_us,
        until_us=until_us,
        **more,
    )


def _times(state: State, kind: str, key: str) -> tuple[int, int | None]:
    """Since when it waits, and until when."""
    if kind == "person":
        return state.waits[key].since_us, state.waits[key].wake_us
    if kind == "approval":
        return state.approvals[key].asked_us, state.approvals[key].wake_us
    if kind == "doubt":
        return state.steps[key].started_us, None
    return state.updated_us, None
