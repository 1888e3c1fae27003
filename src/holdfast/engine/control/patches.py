"""Patches from outside: merged with what others changed, checked against the agent's model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from holdfast.core import codec, events as ev, names
from holdfast.core.errors import InvalidValue, PatchConflict, SeqOutOfRange, StateNotMigrated
from holdfast.core.events import Changes, Event
from holdfast.core.state import merge, paths
from holdfast.core.state.fold_knowledge import kept_done
from holdfast.core.state.shapes import State
from holdfast.engine.control.change import Decide
from holdfast.engine.definitions.agent import Agent
from holdfast.engine.definitions.state_versions import States, admit_patch, field_of
from holdfast.engine.logs.log import decoded
from holdfast.engine.logs.logs import Logs


def patch(
    logs: Logs, id: str, changes: Changes, expect: int | None, by: str, why: str, agents: Mapping[str, Agent]
) -> Decide:
    """Change what an agent knows, unless others changed the same since `expect`, or it is not what it requires."""
    if expect is not None and (isinstance(expect, bool) or not isinstance(expect, int) or expect < 0):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(
            f"expect={expect!r} is not a seq; nothing was written",
            hint="give the .seq of the state that you have looked at",
        )

    def decide(state: State) -> Sequence[Event]:
        if expect is not None:
            _refuse_clash(logs, id, state, changes, expect)
        refuse_unmet(logs, id, state, changes, states_of(state, agents))
        done = kept_done(state, changes.replace_plan)
        patched = ev.StatePatched(patch=changes, by=by, why=why, plan_done=done)
        events = check_against_model(logs, state, patched, agents)
        _refuse_migrating(logs, state, events)
        return events

    return decide


def update(logs: Logs, id: str, name: str, make: Callable[[Any], Any]) -> Decide:
    """Let a function make a new value of the one there is. It is called again if the log moves meanwhile."""

    def decide(state: State) -> Sequence[Event]:
        value = codec.pack(make(field_of(None, state, name, logs.blob)), f"state.{name}")
        changes = Changes(set={name: value}, nested=(name,) if paths.is_path(name) else ())
        return (ev.StatePatched(patch=changes),)

    return decide


def check_against_model(
    logs: Logs, state: State, event: ev.StatePatched, agents: Mapping[str, Agent]
) -> Sequence[Event]:
    """A patch, if it fits the state that the task's agent declares; an agent that is not known here meets it later."""
    states = states_of(state, agents)
    return (event,) if states is None else admit_patch(states, state, event, logs.blob)


def states_of(state: State, agents: Mapping[str, Agent]) -> States | None:
    """The model that a task's agent declares, if the agent is known here."""
    agent = None if state.block else agents.get(state.summary.agent)
    return None if agent is None else agent.states


def _refuse_migrating(logs: Logs, state: State, events: Sequence[Event]) -> None:
    """An agent at work reads the version it knows; it would not know a newer one."""
    holder = state.summary.holder
    if len(events) > 1 and state.state_version and holder is not None and logs.store.alive(holder):
        raise StateNotMigrated(
            f"is of version {state.state_version}, and an agent of that version is at work on it; nothing was written",
            hint="patch it when the task waits or has ended, or with the older agent",
            found=state.state_version,
        )


def refuse_unmet(logs: Logs, id: str, state: State, changes: Changes, states: States | None = None) -> None:
    """Refuse a patch if a field is not what it requires."""
    for name, raw in changes.require.items():
        wanted, found = codec.unpack(raw, logs.blob), field_of(states, state, name, logs.blob)
        if not codec.same_json(wanted, found):
            shown: dict[str, Any] = {"mine": codec.text(wanted)[:80], "theirs": codec.text(found)[:80], "base": found}
            raise PatchConflict(id, f"state.{name}", **shown, required=True, **_whose(id))


def _refuse_clash(logs: Logs, id: str, state: State, changes: Changes, expect: int) -> None:
    if expect > state.seq:
        raise SeqOutOfRange(id, expect, state.seq)
    rows = logs.rows(id, after=expect, upto=state.seq) if expect < state.seq else ()
    clash = merge.first_clash(merge.patch_touches(changes), (decoded(log, row) for log, row in rows))
    if clash is not None:
        raise _patch_conflict(logs, id, expect, clash)


def _patch_conflict(logs: Logs, id: str, expect: int, clash: merge.Clash) -> PatchConflict:
    section, *rest = clash.mine.path
    known = logs.load(id, upto=expect).state if expect else None
    base: Any = None
    if known is not None and section == "state":
        base = field_of(None, known, ".".join(rest), logs.blob)
    elif known is not None and section == "facts" and rest[0] in known.facts:
        base = codec.unpack(known.facts[rest[0]].value, logs.blob)
    elif known is not None and section == "plan":
        base = [step.text for step in known.plan]
    sides: dict[str, Any] = {"mine": str(clash.mine), "theirs": str(clash.theirs), "by": clash.by}
    return PatchConflict(id, ".".join(clash.mine.path), base=base, **sides, **_whose(id))


def _whose(log: str) -> dict[str, Any]:
    return {"user": names.user_of(log), "thread": names.thread_of(log)}
