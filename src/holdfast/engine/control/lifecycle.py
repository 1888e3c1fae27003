"""Cancelling and reopening tasks, raising budgets, and children that ended before."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from msgspec import UNSET

from holdfast.core import codec, events as ev, limits
from holdfast.core.codec import Group
from holdfast.core.errors import (
    Conflict,
    Diverged,
    InvalidValue,
    LogCorrupt,
    TaskCollected,
    TaskNotFound,
    UnknownEvent,
    ValueDamaged,
)
from holdfast.core.events import Event, Limits
from holdfast.core.state import budget, rules
from holdfast.core.state.shapes import State
from holdfast.engine.control.change import Decide, change, child_ended, stopped
from holdfast.engine.logs.log import Log
from holdfast.engine.logs.logs import Logs
from holdfast.store.protocol import Query

_NONE = "no limit is named"
_SUSPENDED = ev.KIND[ev.TaskSuspended]
_LEFT_ALONE = (TaskNotFound, TaskCollected, Diverged, LogCorrupt, UnknownEvent, ValueDamaged)
"""What keeps a task from being looked at. A worker that is to work on it says so."""


def raise_budget(logs: Logs, id: str, given: Limits, by: str, why: str) -> Log:
    """Allow a task more, and let its children that wait for that look again."""

    def decide(state: State) -> Sequence[Event]:
        before = {} if state.budget is None else dict(budget.allowed(state.budget))
        wanted = dict(budget.allowed(given))
        lower = next((name for name, most in wanted.items() if most <= before.get(name, 0)), None)
        if lower is not None or not (wanted or given.artifact_bytes):
            told = (
                f"the limit of {lower} is {before[lower]:g}, and {wanted[lower]:g} is not above it" if lower else _NONE
            )
            raise InvalidValue(told, hint="name a limit and a number above the present one")
        return (ev.BudgetRaised(limits=given, by=by, why=why),)

    log = change(logs, id, decide)
    _look_again(logs, log.state, by)
    return log


def _look_again(logs: Logs, state: State, by: str) -> None:
    for wait in state.waits.values():
        if wait.kind == "child" and logs.store.origin(wait.name) is not None:
            child = logs.load(wait.name).state
            if child.summary.status == "waiting" and _asks_for_more(child):
                change(
                    logs, wait.name, lambda state: (ev.BudgetRaised(by=by, why="a paying task's budget was raised"),)
                )
            _look_again(logs, child, by)


def _asks_for_more(state: State) -> bool:
    """Return whether a task or one of its branches waits for a budget. Older versions did not record branches."""
    return state.summary.waiting == "budget" or any(one.why == "budget" for one in state.blockers)


def child_again(logs: Logs, parent: str, child: str, deadline_us: int | None = None) -> None:
    """Let a reopened parent's child that has ended count again: a failed one is resumed, others report their end.

    `deadline_us`: when the time of the child is over now, as far as its parent goes.
    """
    state = logs.load(child).state
    waits = logs.load(parent).state.waits.values()
    if not state.ended or not any(wait.kind == "child" and wait.name == child for wait in waits):
        return
    if state.summary.status == "failed" and not state.undoing:
        change(logs, child, reopen("", "its parent was resumed", deadline_us))
        return
    result = codec.JSON_NULL if state.result is UNSET else state.result
    failed = state.failure or ev.Failure("Cancelled", f"task {child!r} was cancelled", code="cancelled")
    done = state.summary.status == "completed"
    ending = ev.TaskCompleted(result=result) if done else ev.TaskFailed(failure=failed)
    writes = child_ended(logs, parent, child, ending)
    if writes:
        with contextlib.suppress(Conflict):  # another process did it
            logs.committer.commit(Group(writes))


def cancel(by: str, why: str, *, alone: bool = True) -> Decide:
    """Ask a task to stop. `alone`: whether none of its children still does something."""
    return lambda state: stopped(state, ev.CancelRequested(by=by, why=why), alone=alone)


def wake_answered(logs: Logs) -> int:
    """Wake tasks that an older version suspended although their answer had come; how many there were."""
    after: str | None = None
    woken = 0
    for _ in range(limits.WAKE_PAGES):
        page = logs.store.list(Query(status="waiting", after=after, limit=limits.PAGE_SIZE))
        for row in page:
            with contextlib.suppress(*_LEFT_ALONE):
                woken += _wake(logs, row.id)
        if len(page) < limits.PAGE_SIZE:
            break
        after = page[-1].id
    return woken


def _wake(logs: Logs, id: str) -> bool:
    if _had_looked(logs, id) or not rules.is_answered(logs.load(id).state):
        return False

    def decide(state: State) -> Sequence[Event]:
        answered = rules.is_answered(state)
        return (ev.TaskReleased(why="its answer came before it was suspended"),) if answered else ()

    change(logs, id, decide)
    return True


def _had_looked(logs: Logs, id: str) -> bool:
    """Return whether a task ends with a suspension of today's versions: its state need not be loaded to see that."""
    for row in logs.store.read(id, last=1):
        event = codec.decode(row.kind, row.body) if row.kind == _SUSPENDED else None
        return isinstance(event, ev.TaskSuspended) and event.looked
    return False


def reopen(by: str, why: str, deadline_us: int | None = None, *, anyway: bool = False) -> Decide:
    """Reopen a failed task: the step that ended it is tried afresh. Or a quarantined one.

    `anyway` also lets a task that has lost events continue from what is left.
    """

    def decide(state: State) -> Sequence[Event]:
        if anyway and state.summary.waiting == "diverged":
            if deadline_us is not None:
                raise InvalidValue(
                    f"a new deadline is for a task that has failed; task {state.summary.id!r} has lost events",
                    hint="leave the deadline out; if the task fails because it has passed, reopen it with a new one",
                )
            return (ev.DivergenceAccepted(by=by, why=why),)
        rules.refuse_diverged(state)
        failed = [step for step in state.steps.values() if step.status == "failed"]
        void = state.failed_step if any(step.key == state.failed_step for step in failed) else ""
        return (ev.TaskReopened(void=void, by=by, why=why, deadline_us=deadline_us, phase=state.phase_below),)

    return decide
