"""Patches from outside: merged with what others changed, checked against the agent's model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.core import codec, events as ev
from holdfast.core.errors import PatchConflict, SeqOutOfRange, StateNotMigrated
from holdfast.core.events import Changes, Event
from holdfast.core.state import merge
from holdfast.core.state.shapes import State
from holdfast.engine.control.change import Decide
from holdfast.engine.definitions.agent import Agent
from holdfast.engine.definitions.state_versions import admit_patch
from holdfast.engine.logs.log import decoded
from holdfast.engine.logs.logs import Logs


def patch(
    logs: Logs, id: str, changes: Changes, expect: int | None, by: str, why: str, agents: Mapping[str, Agent]
) -> Decide:
    """Change what an agent knows. What others changed since `expect` must go together with it."""

    def decide(state: State) -> Sequence[Event]:
        if expect is not None and expect < state.seq:
            rows = logs.rows(id, after=expect, upto=state.seq)
            found = merge.first_clash(changes, (decoded(log, row) for log, row in rows))
            if found is not None:
                raise _patch_conflict(logs, id, expect, *found)
        elif expect is not None and expect > state.seq:
            raise SeqOutOfRange(id, expect, state.seq)
        events = check_against_model(logs, state, ev.StatePatched(patch=changes, by=by, why=why), agents)
        _refuse_migrating(logs, state, events)
        return events

    return decide


def check_against_model(
    logs: Logs, state: State, event: ev.StatePatched, agents: Mapping[str, Agent]
) -> Sequence[Event]:
    """A patch, if it fits the state that the task's agent declares; an agent nobody knows here meets it later."""
    agent = None if state.block else agents.get(state.summary.agent)
    if agent is None or agent.states is None:
        return (event,)
    return admit_patch(agent.states, state, event, logs.blob)


def _refuse_migrating(logs: Logs, state: State, events: Sequence[Event]) -> None:
    """An agent at work reads the version it knows; it would not know a newer one."""
    holder = state.summary.holder
    if len(events) > 1 and state.state_version and holder is not None and logs.store.alive(holder):
        raise StateNotMigrated(
            f"is of version {state.state_version}, and an agent of that version is at work on it; nothing was written",
            hint="patch it when the task waits or has ended, or with the older agent",
            found=state.state_version,
        )


def _patch_conflict(logs: Logs, id: str, expect: int, mine: merge.Touch, theirs: merge.Touch) -> PatchConflict:
    section, _, name = mine.path.partition(".")
    known = logs.load(id, upto=expect).state
    base: Any = None
    if section == "state" and name in known.bag:
        base = codec.unpack(known.bag[name], logs.blob)
    elif section == "facts" and name in known.facts:
        base = codec.unpack(known.facts[name].value, logs.blob)
    elif section == "plan":
        base = [step.text for step in known.plan]
    shown = [f"{one.how} {one.value.decode()[:80]}".strip() for one in (mine, theirs)]
    return PatchConflict(id, mine.path, base=base, mine=shown[0], theirs=shown[1])
