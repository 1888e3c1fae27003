"""Budgets: what a task may use up, what it has used, and when that is too much. All of it is read off the log.

Recorded usage counts once, with the record of its step. A call that was announced with an estimate and has no usage on
record may have been paid for: its estimate is kept apart as unknown spend, and counts until it is settled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core import events as ev, limits
from holdfast.core.durations import Duration, seconds
from holdfast.core.errors import InvalidValue
from holdfast.core.events import Limits, Usage
from holdfast.core.state.shapes import Lost, State, Step
from holdfast.core.usage import reported_tokens

PRESSURE = 0.8
"""The share of any limit at which the flag `budget_pressure` is raised."""

FLAG = "budget_pressure"
_COUNTED = ("turns", "steps", "calls", "tokens", "artifact_bytes")


class Budget(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a task may use up; what is left out is not limited.

    `calls`, `tokens` and `cost` count its child tasks too. `wall_time` is the time workers hold the task, `deadline=`
    of a task is calendar time. `artifact_bytes` is how much of its artifacts a context slice shows. When a limit is
    reached the task fails, or with `on_exceed="ask"` waits until a person raises it: `app.raise_budget`.

    >>> Budget(tokens=200_000, wall_time="5m")
    Budget(wall_time='5m', tokens=200000)
    """

    turns: int | None = None
    steps: int | None = None
    calls: int | None = None
    wall_time: Duration | None = None
    tokens: int | None = None
    cost: float | None = None
    artifact_bytes: int | None = None
    on_exceed: Literal["fail", "ask"] = "fail"

    def __post_init__(self) -> None:
        for name in (*_COUNTED, "cost"):
            value: Any = getattr(self, name)
            whole = isinstance(value, int) or (name == "cost" and isinstance(value, float))
            if value is not None and (not whole or isinstance(value, bool) or not 0 < value < limits.MAX_BUDGET):
                raise InvalidValue(
                    f"a budget of {name}={value!r} limits nothing sensibly",
                    hint="give a number above 0, or leave it out",
                )
        if self.wall_time is not None:
            seconds(self.wall_time, "wall_time", above_zero=True)
        if self.on_exceed not in ("fail", "ask"):
            raise InvalidValue(f"on_exceed={self.on_exceed!r} is not known", hint='give "fail" or "ask"')

    def __repr__(self) -> str:
        given = ((name, getattr(self, name)) for name in self.__struct_fields__)
        shown = (f"{name}={value!r}" for name, value in given if value not in (None, "fail"))
        return f"Budget({', '.join(shown)})"

    def limits(self) -> Limits:
        """As it is written."""
        plain = {name: getattr(self, name) for name in (*_COUNTED, "cost", "on_exceed")}
        wall_us = None if self.wall_time is None else int(seconds(self.wall_time) * 1_000_000)
        return Limits(**plain, wall_us=wall_us)


def limits_of(budget: object) -> Limits:
    """A given budget, as it is written."""
    if not isinstance(budget, Budget):
        raise InvalidValue(f"{budget!r} is not a budget", hint="give Budget(tokens=…, wall_time=…)")
    return budget.limits()


class Over(NamedTuple):
    """A limit that is reached: whose, which, how much was used, of how much, and how much more is wanted."""

    task: str
    limit: str
    used: float
    of: float
    ahead: float
    ask: bool


# What was used


def used(state: State, now_us: int) -> dict[str, float]:
    """Return the usage of everything that a budget limits. Unconfirmed spend counts as estimated."""
    spent = state.spent
    held_us = state.held_us + (max(0, now_us - state.held_since_us) if state.held_since_us else 0)
    return {
        "turns": state.turn,
        "steps": state.steps_done,
        "calls": state.calls_done + spent.calls,
        "wall_time": held_us / 1_000_000,
        "tokens": spent.input_tokens + spent.output_tokens + spent.lost_tokens,
        "cost": spent.cost + spent.lost_cost,
    }


def allowed(given: Limits) -> Iterator[tuple[str, float]]:
    """The limits that are set, by name."""
    for name in ("turns", "steps", "calls", "tokens", "cost"):
        most: float | None = getattr(given, name)
        if most is not None:
            yield name, most
    if given.wall_us is not None:
        yield "wall_time", given.wall_us / 1_000_000


def wall_end_us(state: State) -> int | None:
    """Return when a task has been held for all its wall time, if it is held until then; None without such a limit."""
    limits = state.budget
    if limits is None or limits.wall_us is None or not state.held_since_us:
        return None
    return state.held_since_us + limits.wall_us - state.held_us


def over_wall_time(state: State, now_us: int) -> Over:
    """Return the message for a task that has used up its wall time."""
    assert state.budget is not None and state.budget.wall_us is not None
    spent, most = used(state, now_us)["wall_time"], state.budget.wall_us / 1_000_000
    return Over(state.summary.id, "wall_time", spent, most, 0, state.budget.on_exceed == "ask")


_FOR = {"turns": "turn", "steps": "step", "calls": "call"}
"""Limits that only the beginning of such a thing reaches. The others stop whatever would begin."""

_OF_THE_TREE = ("calls", "tokens", "cost", "wall_time")
"""Limits of a task that keep its child tasks from beginning anything."""


class Underway(NamedTuple):
    """A step that another branch has begun: whether it is a call, and what it may use up."""

    call: bool
    estimate: Usage | None


def reached(
    state: State,
    now_us: int,
    what: str,
    estimate: Usage | None = None,
    *,
    child: bool = False,
    underway: Sequence[Underway] = (),
) -> Over | None:
    """The first limit that keeps a turn, step or call from beginning. A call is a step too.

    What other branches have begun counts as if it were done.
    """
    if state.budget is None:
        return None
    so_far = used(state, now_us)
    for name, most in allowed(state.budget):
        begins = _FOR.get(name, what)
        concerned = begins in (what, "step" if what == "call" else what) and (not child or name in _OF_THE_TREE)
        ahead = _ahead(name, estimate)
        reserved = sum(_reserved(name, one) for one in underway) if concerned and not child else 0
        begun = so_far[name] + reserved
        if concerned and (begun >= most or begun + ahead > most):
            return Over(state.summary.id, name, begun, most, ahead, state.budget.on_exceed == "ask")
    return None


def _ahead(name: str, estimate: Usage | None) -> float:
    """Return the part of a limit that something would take if it began."""
    if estimate is None:
        return 0
    return {"tokens": estimate.input_tokens + estimate.output_tokens, "cost": estimate.cost or 0}.get(name, 0)


def _reserved(name: str, one: Underway) -> float:
    """Return the part of a limit that something takes which has begun."""
    if name in _FOR:
        return 1 if name == "steps" or (name == "calls" and one.call) else 0
    return _ahead(name, one.estimate)


# The fold


def spend(state: State, usage: Usage, calls: int = 0) -> None:
    """Usage that was reported, by the task itself or by one of its children."""
    spent = state.spent
    state.spent = replace(
        spent,
        input_tokens=spent.input_tokens + usage.input_tokens,
        output_tokens=spent.output_tokens + usage.output_tokens,
        cost=spent.cost + (usage.cost or 0.0),
        calls=spent.calls + calls,
        unpriced=spent.unpriced or ((usage.model or "unknown") if usage.cost is None and _tokens(usage) else ""),
    )


def _tokens(usage: Usage) -> int:
    return usage.input_tokens + usage.output_tokens


def lose(state: State, step: str, why: str, estimate: Usage, at_us: int) -> None:
    """Something went out whose usage is not on record."""
    spent = state.spent
    lost = Lost(step, why, estimate, at_us)
    state.spent = replace(
        spent,
        lost=(*spent.lost, lost)[-limits.MAX_LOST_SHOWN :],
        lost_count=spent.lost_count + 1,
        lost_tokens=spent.lost_tokens + estimate.input_tokens + estimate.output_tokens,
        lost_cost=spent.lost_cost + (estimate.cost or 0.0),
    )


def announced_again(state: State, earlier: Step | None, at_us: int) -> None:
    """A step is tried again that was under way when its worker was lost."""
    if earlier is not None and earlier.estimate is not None and earlier.status == "running":
        lose(state, earlier.key, "its worker was lost before the answer was recorded", earlier.estimate, at_us)


def failed(state: State, begun: Step | None, event: ev.AttemptFailed | ev.StepFailed, at_us: int) -> None:
    """A try failed: what it reported counts; if it reported nothing, its estimate may have been spent."""
    if event.usage is not None:
        spend(state, event.usage)
    elif begun is not None and begun.estimate is not None and begun.status == "running":
        lose(state, event.key, f"it failed without reporting its usage: {event.failure.type}", begun.estimate, at_us)


def hold(state: State, event: ev.Event, at_us: int) -> None:
    """A worker claims the task, or releases it. A worker that was lost held it until its last event."""
    if state.held_since_us:
        until_us = state.updated_us if isinstance(event, ev.TaskClaimed | ev.TaskDiverged) else at_us
        state.held_us += max(0, until_us - state.held_since_us)
    state.held_since_us = at_us if isinstance(event, ev.TaskClaimed) else 0
    if isinstance(event, _ENDINGS):
        for step, estimate in forsaken(state):
            lose(state, step.key, "the task ended before its answer was recorded", estimate, at_us)
            state.steps[step.key] = replace(step, estimate=None)


def forsaken(state: State) -> list[tuple[Step, Usage]]:
    """Steps that were announced with an estimate and have no outcome."""
    announced = ((step, step.estimate) for step in state.steps.values() if step.status == "running")
    return [(step, estimate) for step, estimate in announced if estimate is not None]


_ENDINGS = (ev.TaskCompleted, ev.TaskFailed, ev.TaskCancelled)
HOLDING = frozenset((ev.TaskClaimed, ev.TaskReleased, ev.TaskSuspended, ev.TaskDiverged, *_ENDINGS))


def press(state: State, at_us: int) -> None:
    """Raise the flag when a limit is nearly reached, once for each limit."""
    assert state.budget is not None
    so_far = used(state, at_us)
    for name, most in allowed(state.budget):
        if so_far[name] >= PRESSURE * most and so_far[name] and name not in state.pressed:
            state.pressed = (*state.pressed, name)
            if FLAG not in state.flags:
                state.flags.append(FLAG)


def raised(state: State, event: ev.BudgetRaised) -> None:
    """New limits take the place of those they name."""
    before = state.budget or Limits()
    given = {name: getattr(event.limits, name) for name in Limits.__struct_fields__}
    changed = {name: value for name, value in given.items() if value is not None and name != "on_exceed"}
    if changed:
        state.budget = replace(before, **changed)
        names = {name.replace("wall_us", "wall_time") for name in changed}
        state.pressed = tuple(name for name in state.pressed if name not in names)
        if not state.pressed:
            state.flags = [flag for flag in state.flags if flag != FLAG]


def carried(back: State, now: State, at_us: int) -> None:
    """A rollback undoes no spending."""
    for name in ("budget", "payers", "spent", "calls_done", "steps_done", "held_us", "held_since_us", "pressed"):
        setattr(back, name, getattr(now, name))
    for step in now.steps.values():
        announced_again(back, step, at_us)


def shares(state: State, events: Sequence[ev.Event]) -> Iterator[ev.ChildSpent]:
    """Return the events for the logs of those who pay for a task, when it writes these events."""
    child = state.summary.id
    told = {event.key for event in events if isinstance(event, _SPENDING)}
    for event in events:
        begun = state.steps.get(event.key) if isinstance(event, _SPENDING) else None
        estimate = None if begun is None or begun.status != "running" else begun.estimate
        match event:
            case ev.StepStarted() if estimate is not None:
                yield ev.ChildSpent(child=child, usage=estimate, lost=True)
            case ev.StepCompleted() if event.tool or event.usage is not None:
                yield ev.ChildSpent(child=child, usage=event.usage or Usage(), calls=1 if event.tool else 0)
            case ev.StepSettled() if event.happened:
                yield ev.ChildSpent(child=child, calls=1)
            case ev.StepFailed() | ev.AttemptFailed():
                calls = 1 if event.tool and isinstance(event, ev.StepFailed) and event.attempts else 0
                if event.usage is not None or calls:
                    yield ev.ChildSpent(child=child, usage=event.usage or Usage(), calls=calls)
                if event.usage is None and estimate is not None:
                    yield ev.ChildSpent(child=child, usage=estimate, lost=True)
            case ev.TaskCompleted() | ev.TaskFailed() | ev.TaskCancelled():
                left = (estimate for step, estimate in forsaken(state) if step.key not in told)
                yield from (ev.ChildSpent(child=child, usage=one, lost=True) for one in left)
            case _:
                pass


_SPENDING = (ev.StepStarted, ev.StepCompleted, ev.StepSettled, ev.StepFailed, ev.AttemptFailed)


# What providers report


def reported(value: Any) -> Usage | None:
    """The usage that a model's answer carries, in any of the forms providers give it."""
    told = reported_tokens(value)
    if told is None or (told.input is None and told.output is None):
        return None
    model = value.get("model")
    return Usage((told.input or 0) + told.cached, told.output or 0, model=model if isinstance(model, str) else "")
