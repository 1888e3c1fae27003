"""Going back to an earlier state of a user: a change like any other, so the history stays and others see it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.core import codec, events as ev, limits
from holdfast.core.errors import InvalidValue, SeqOutOfRange, StateNotMigrated
from holdfast.core.events import Changes, Event
from holdfast.core.state.shapes import State
from holdfast.engine.control.change import Decide
from holdfast.engine.definitions.state_versions import States
from holdfast.engine.logs.logs import Logs

_CHANGING = "state_patched"


def before(logs: Logs, name: str, versions: Any) -> int:
    """Return the seq before the last so many changes of a state; of more than there are, the first seq of the log."""
    if type(versions) is not int or versions < 1:
        raise InvalidValue(f"versions={versions!r} is not a number of changes", hint="give 1 or more")
    upto, left = None, versions
    while rows := logs.store.read(name, upto=upto, last=limits.READ_CHUNK):
        for row in reversed(rows):
            left -= row.kind == _CHANGING
            if left == 0:
                return row.seq - 1
        upto = rows[0].seq - 1
    origin = logs.store.origin(name)
    return 1 + (0 if origin is None else origin.at)


def restoring(logs: Logs, name: str, to: int, states: States | None, by: str, why: str) -> Decide:
    """Decide what sets a state back to what it was at a seq."""
    if type(to) is not int:
        raise InvalidValue(f"to={to!r} is not a seq", hint="give the .seq of an earlier state")
    past = logs.load(name, upto=to).state

    def decide(state: State) -> Sequence[Event]:
        if to >= state.seq:
            raise SeqOutOfRange(name, to, state.seq)
        wanted = _as_now(past, state, states, logs)
        kept = {one: raw for one, raw in wanted.bag.items() if _differs(state, one, raw, logs)}
        gone = tuple(one for one in state.bag if one not in wanted.bag)
        if not kept and not gone:
            return ()
        return (ev.StatePatched(patch=Changes(set=kept, delete=gone), by=by, why=why),)

    return decide


def _as_now(past: State, state: State, states: States | None, logs: Logs) -> State:
    """An earlier state, of the version that is there now."""
    if past.state_version == state.state_version or not past.bag:
        return past
    if states is None:
        raise StateNotMigrated(
            f"was of version {past.state_version} then, and is of version {state.state_version} now",
            hint="open the store with users=UserModel(…) that has the upcasts",
            found=past.state_version,
        )
    return states.lift(past, state.state_version, logs.blob)


def _differs(state: State, name: str, raw: Any, logs: Logs) -> bool:
    there = state.bag.get(name)
    return there is None or codec.resolve(there, logs.blob) != codec.resolve(raw, logs.blob)
