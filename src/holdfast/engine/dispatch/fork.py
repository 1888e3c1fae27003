"""Forking: a new task whose past is another's. Asking for the same fork twice gives the same fork."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from holdfast.core import codec, events as ev
from holdfast.core.errors import InvalidValue, TaskExists
from holdfast.core.events import Event
from holdfast.core.state import rules
from holdfast.core.state.fold_knowledge import kept_done
from holdfast.core.state.patch import Patch, changes_of
from holdfast.core.state.shapes import Step
from holdfast.engine.control import patches
from holdfast.engine.definitions.agent import Agent
from holdfast.engine.dispatch.begin import begin
from holdfast.engine.logs.log import Log, decoded
from holdfast.engine.logs.logs import Logs


class ForkRequest(Struct, frozen=True):
    """A request for a fork; without `at`, from where the parent is now."""

    id: str
    at: int | None
    patch: Patch | None
    effects: str
    by: str
    seed: str


def fork(logs: Logs, parent: Log, wanted: ForkRequest, agents: Mapping[str, Agent]) -> Log:
    """Begin a fork, or find the one that was begun in the same way under this id."""
    changes = None if wanted.patch is None else changes_of(wanted.patch)
    if wanted.effects not in ("ask", "live", "recorded"):
        raise InvalidValue(f"effects={wanted.effects!r} is not known", hint="use 'ask', 'live' or 'recorded'")
    if parent.state.undo and wanted.effects != "recorded":
        told = "fork it before the first call that was undone (at=…), or only replay it: effects='recorded'"
        rules.refuse_undone(logs.load(parent.name).state, "forked here", told)
    forked = ev.TaskForked(
        parent=parent.name, at=parent.head.seq, seed=wanted.seed, effects=wanted.effects, by=wanted.by
    )
    events: list[Event] = [forked]
    if changes is not None:
        done = kept_done(parent.state, changes.replace_plan)
        patched = ev.StatePatched(patch=changes, by=wanted.by, plan_done=done)
        patches.refuse_unmet(logs, parent.name, parent.state, patched.patch, patches.states_of(parent.state, agents))
        events += patches.check_against_model(logs, parent.state, patched, agents)
    events += _left_out(logs, parent)
    try:
        return begin(logs, wanted.id, events, parent)
    except TaskExists:
        if not _is_the_same(logs, wanted, events, parent.state.salt):
            raise
        return logs.load(wanted.id)


def _left_out(logs: Logs, parent: Log) -> list[Event]:
    """What leaves out the failed step that ended the parent, in a fork from there: else it would fail again at once.

    A call that can be done once only, and may have happened, stays: a fork does not repeat it either.
    """
    failed = {step.key: step for step in parent.state.steps.values() if step.status == "failed"}
    event = _failure_after(logs, parent) if failed else None
    step = None if event is None else failed.get(event.step)
    return [] if step is None or not _may_be_done_anew(step) else [ev.StepVoided(key=step.key, why=ANEW)]


ANEW = "the fork does it again"


def _failure_after(logs: Logs, parent: Log) -> ev.TaskFailed | None:
    """Return the end of a task that had failed where it is forked, and then at the most had things to undo."""
    at = parent.head.seq
    for log, row in logs.rows(parent.name, after=at - 1):
        if row.kind == "task_failed":
            event = decoded(log, row)
            return event if isinstance(event, ev.TaskFailed) and (event.state_seq or row.seq - 1) <= at else None
        if row.seq > at and row.kind in _GOES_ON:
            return None
    return None


_GOES_ON = ("task_claimed", "task_reopened", "turn_started", "task_completed", "task_cancelled")
"""Kinds of events after which a task has not failed where it was before them."""


def _may_be_done_anew(failed: Step) -> bool:
    """Whether a failed step may be left out: what may have happened is known to the fork in another way, if at all."""
    return failed.effect not in ev.ANNOUNCED or not failed.attempts or failed.safe or failed.maybe_done


def _is_the_same(logs: Logs, wanted: ForkRequest, events: list[Event], salt: str) -> bool:
    """Return whether the task of that id was forked from the same place, with the same patch and effects."""
    origin = logs.store.origin(wanted.id)
    if origin is None or origin.parent is None:
        return False
    rows = logs.store.read(wanted.id, after=origin.at, upto=origin.at + 3)
    first, *others = [decoded(wanted.id, row) for row in rows]
    new, *asked = [one for one in events if not isinstance(one, ev.StepVoided)]
    if not isinstance(first, ev.TaskForked) or not isinstance(new, ev.TaskForked):
        return False
    same_place = first.parent == new.parent and (wanted.at is None or first.at == new.at)
    return same_place and first.effects == new.effects and _same_patch(others, asked, salt)


def _same_patch(there: list[Event], asked: list[Event], salt: str) -> bool:
    """Return whether the event after the fork is the patch that is asked for, as it would be stored."""
    before = there[0] if there and isinstance(there[0], ev.StateMigrated) else None
    found = next((one for one in (there[1:2] if before else there[:1]) if isinstance(one, ev.StatePatched)), None)
    if not asked or found is None:
        return not asked and found is None
    draft, _ = codec.draft(asked[-1], 0, salt)
    stored = draft.event
    return isinstance(stored, ev.StatePatched) and stored.patch == found.patch
