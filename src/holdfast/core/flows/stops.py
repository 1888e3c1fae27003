"""What stops a task: its end, a cancel, the end of the process, its deadline, its wall time.

A verb asks before it begins (`may_begin`). What is under way at that moment is cut by the driver, and its
flow asks again: so a hanging step ends for the same reasons, with the same errors, as one that comes too late.
"""

from __future__ import annotations

from holdfast.core.errors import BudgetExceeded, Cancelled, StepChanged, Stopped, TaskFinished, TimeLimit
from holdfast.core.flows.requests import Branch, Now, Park, Subflow, Surroundings
from holdfast.core.state import budget
from holdfast.core.state.shapes import ENDED, State


def may_begin(surroundings: Surroundings, branch: Branch | None, key: str) -> Subflow:
    """Refuse to begin anything once the task has ended or was cancelled, is being undone, or is out of time."""
    refuse_to_begin(surroundings, surroundings.state, branch, key)
    yield from in_time(surroundings)


def refuse_to_begin(surroundings: Surroundings, state: State, branch: Branch | None, key: str) -> None:
    """Refuse what needs no look at the clock."""
    if state.summary.status in ENDED:
        raise TaskFinished(state.summary.id, state.summary.status, f"step {key!r}")
    if (state.cancel is not None or state.undoing) and (branch is None or not branch.path.startswith("~undo")):
        raise Cancelled
    if surroundings.stop.asked:
        raise Stopped
    if branch is not None and branch.turn != state.turn:
        raise StepChanged(key, "nothing before the first turn", f"a new step in turn {state.turn}")


def in_time(surroundings: Surroundings) -> Subflow:
    """Continue while there is time. After that the task fails, or waits until its budget is raised."""
    while is_limited(surroundings.state):
        now_us: int = yield Now()
        over = out_of_time(surroundings.state, now_us)
        if over is None:
            return
        if not isinstance(over, Park):
            raise over
        yield over


def is_limited(state: State) -> bool:
    """Return whether the time of a task can be over. What it did is undone however long that takes."""
    limited = state.summary.deadline_us is not None or (state.budget is not None and state.budget.wall_us is not None)
    return limited and not state.undoing


def ends_us(state: State, until_us: int | None = None) -> int | None:
    """Return when the time of a task is over, if it is held until then; None if it may take for ever.

    `until_us` is when its parent's wall time is over, if it is worked on for a parent.
    """
    if until_us is not None and not state.undoing:
        return earliest(state.summary.deadline_us, budget.wall_end_us(state), until_us)
    return earliest(state.summary.deadline_us, budget.wall_end_us(state)) if is_limited(state) else None


def out_of_time(state: State, now_us: int) -> TimeLimit | BudgetExceeded | Park | None:
    """Return what becomes of a task whose time is over: its failure, or its wait for a larger budget."""
    if not is_limited(state):
        return None
    deadline_us, wall_end_us = state.summary.deadline_us, budget.wall_end_us(state)
    if deadline_us is not None and now_us >= deadline_us:
        id = state.summary.id
        again = f'resume it with a new one: app.resume({id!r}, agent, deadline="10m")'
        return TimeLimit(f"the deadline of task {id!r} has passed", hint=again)
    if wall_end_us is None or now_us < wall_end_us:
        return None
    over = budget.over_wall_time(state, now_us)
    if over.ask:
        return Park("budget", state.seq, deadline_us)
    return BudgetExceeded(over.task, over.limit, over.used, over.of, over.ahead)


def earliest(*times: int | None) -> int | None:
    """Return the first of some times, if there is any."""
    return min((one for one in times if one is not None), default=None)
