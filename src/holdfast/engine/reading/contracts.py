"""Contracts at work: a task that begins with one, a state that stands alone, a task's state as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from msgspec import UNSET

from holdfast.core import codec, events as ev
from holdfast.core.codec import Origin
from holdfast.core.errors import InputConflict, InvalidValue
from holdfast.core.events import Event
from holdfast.core.phases import Machine
from holdfast.core.state.budget import Budget, limits_of
from holdfast.core.state.fold import evolve
from holdfast.core.state.shapes import State, Step
from holdfast.engine.definitions.agent import a_machine
from holdfast.engine.logs.log import Log, decoded
from holdfast.engine.logs.logs import Logs
from holdfast.engine.reading.task_state import TaskState
from holdfast.engine.system.clock import SystemClock

First = tuple[ev.TaskCreated, tuple[Event, ...]]
"""The first event of a task, and what follows it in the same write."""

Given = str | bytes | Mapping[str, Any]
"""A contract: JSON text, or the same as a mapping."""

ALONE = "contract"
"""The id of a state that stands alone."""


def declared(
    wanted: Given | None, phases: Machine | None, budget: Budget | None, goal: str
) -> tuple[dict[str, Any], tuple[Event, ...]]:
    """Return what a contract, phases, a budget and a goal add to a task's first event, and what follows it."""
    machine = a_machine(phases)
    fields: dict[str, Any] = {} if machine is None else {"phases": machine}
    if budget is not None:
        fields["budget"] = limits_of(budget)
    if wanted is None:
        return {**fields, "goal": goal} if goal else fields, ()
    from holdfast.core.state import contract  # few tasks begin with one

    reading = contract.read(wanted)
    more, then = contract.beginning(reading)
    if goal and reading.contract.goal not in ("", goal):
        raise InvalidValue(
            f"goal={goal!r}, and the contract's is {reading.contract.goal!r}", hint="give the goal in one place"
        )
    for message in reading.contract.messages:
        if not isinstance(message, dict) or not isinstance(cast("dict[str, Any]", message).get("role"), str):
            raise InvalidValue(f"{message!r} is not a message", hint='give {"role": "user", "content": …}')
    if "budget" in fields and "budget" in more:
        raise InvalidValue("the contract has a budget, and another is given", hint="give the budget in one place")
    return fields | more | {"goal": reading.contract.goal or goal}, then


def same_contract(logs: Logs, log: Log, first: ev.TaskCreated, then: Sequence[Event]) -> None:
    """The same id with another contract is other work. Resuming a task needs none."""
    from holdfast.core.state import contract

    state = log.state
    if not first.contract or first.contract == state.contract:
        return
    born = logs.load(log.name, upto=state.begun - 1).state if state.begun > 1 else state
    wanted: State | None = None
    for seq, event in enumerate((first, *then), start=1):
        wanted = evolve(wanted, log.name, seq, 0, event)
    assert wanted is not None
    recorded, given = (
        contract.document(one, lambda raw: codec.unpack(raw, logs.blob), decisions=(), messages=(), calls=())
        for one in (born, wanted)
    )
    other = [name for name in {**recorded, **given} if recorded.get(name) != given.get(name)]
    shown = [{name: one.get(name) for name in other} or "another contract" for one in (recorded, given)]
    raise InputConflict(log.name, *shown)


def inherited(parent: State, logs: Logs) -> dict[str, Any]:
    """Return the part of a parent's contract that binds its child: giving work away evades no constraint."""
    if parent.constraints is UNSET:
        return {}
    constraints = codec.pack(codec.unpack(parent.constraints, logs.blob))
    return {"constraints": constraints}


def alone(given: Given) -> TaskState:
    """A state of which there is nothing but its contract."""
    from holdfast.core.state import contract
    from holdfast.store.memory.store import MemoryStore

    reading = contract.read(given)
    logs = Logs(MemoryStore(), SystemClock())
    log = Log(logs, ALONE)
    events = contract.fold_contract(reading)
    log.check(events[: 1 + len(contract.beginning(reading).then)])
    log.append(events, origin=Origin())
    return TaskState(log, logs)


def of_state(view: TaskState, state: State, logs: Logs) -> dict[str, Any]:
    """A task's state as a contract."""
    from holdfast.core.state import contract

    def value(raw: Any) -> Any:
        return codec.unpack(raw, logs.blob)

    calls = _calls(logs, view.id, state)
    told = ("question", "choice", "why", "options")
    decisions = [{name: made[name] for name in told} for made in view.decisions]
    return contract.document(state, value, decisions=decisions, messages=view.messages, calls=calls)


def _calls(logs: Logs, id: str, state: State) -> list[tuple[int, Step]]:
    """Every call of a tool, with its turn. Those of earlier turns are read from the log."""
    found: list[tuple[int, Step]] = []
    if state.turn:
        past: State | None = None
        for log, row in logs.live_rows(id, upto=state.turn_seq - 1):
            event = decoded(log, row)
            if past is not None and isinstance(event, ev.TurnStarted):
                found += [(past.turn, step) for step in past.steps.values() if step.tool and not step.open]
            past = evolve(past, log, row.seq, row.at_us, event)
        if past is not None:
            found += [(past.turn, step) for step in past.steps.values() if step.tool and not step.open]
    return found + [(state.turn, step) for step in state.steps.values() if step.tool]
