"""Going back to an earlier state of a user: a change like any other, so the history stays and others see it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from holdfast.core import codec, events as ev, limits, names
from holdfast.core.errors import InvalidValue, SeqOutOfRange, StateNotMigrated
from holdfast.core.events import Changes, Event
from holdfast.core.state.shapes import State
from holdfast.engine.control.change import Decide
from holdfast.engine.definitions.state_versions import States, admit_patch
from holdfast.engine.logs.log import decoded
from holdfast.engine.logs.logs import Logs


class Way(Struct, frozen=True):
    """How far back a state goes: to a seq, or before its last so many changes."""

    to: int | None = None
    versions: int = 0


def way_back(to: Any, versions: Any) -> Way:
    """Return how far back a state goes, if exactly one of both is given."""
    if (to is None) == (versions is None):
        raise InvalidValue("rollback goes to a seq, or back by versions", hint="give to=seq, or versions=1")
    if to is not None:
        return Way(to=names.whole(to, "to", least=1))
    return Way(versions=names.whole(versions, "versions", least=1))


def restoring(logs: Logs, name: str, way: Way, states: States | None, by: str, why: str) -> Decide:
    """Decide what sets a state back to what it was, as seen from the state there is when it is written."""

    def decide(state: State) -> Sequence[Event]:
        target = way.to if way.to is not None else _before(logs, name, way.versions, state.seq)
        if target > state.seq:
            raise SeqOutOfRange(name, target, state.seq)
        if target == state.seq:
            raise InvalidValue(
                f"the state is at seq {target} already, so nothing was written",
                hint="give the .seq of an earlier state, or versions=1",
            )
        now = state if states is None else states.seen(state, logs.blob)
        wanted = _as_now(logs.load(name, upto=target).state, now, states, logs)
        kept = {one: raw for one, raw in wanted.bag.items() if _differs(now, one, raw, logs)}
        gone = tuple(one for one in now.bag if one not in wanted.bag)
        if not kept and not gone:
            return ()
        event = ev.StatePatched(patch=Changes(set=kept, delete=gone), by=by, why=why or f"rolled back to {target}")
        return (event,) if states is None else admit_patch(states, state, event, logs.blob)

    return decide


def _before(logs: Logs, name: str, versions: int, seq: int) -> int:
    """Return the seq before the last so many changes of a state; of more than there are, the first seq of the log."""
    upto, left = seq, versions
    while rows := logs.store.read(name, upto=upto, last=limits.READ_CHUNK):
        for row in reversed(rows):
            left -= row.kind == "state_patched" and _changes_state(decoded(name, row))
            if left == 0:
                return row.seq - 1
        upto = rows[0].seq - 1
    origin = logs.store.origin(name)
    return 1 + (0 if origin is None else origin.at)


def _changes_state(event: Event) -> bool:
    """Return whether a patch changes the state. One that only adds facts does not; what was erased is not known."""
    patch = event.patch if isinstance(event, ev.StatePatched) else Changes()
    return bool(patch.set or patch.increment or patch.append or patch.delete)


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
