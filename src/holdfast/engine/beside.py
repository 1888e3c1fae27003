"""What a task writes to other logs together with its own, and what it sees of them.

Those who pay for a task are told what it spent; what it changes of its user's state stands in the user's log.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core import budget
from holdfast.core import events as ev
from holdfast.core.hot import Hot
from holdfast.core.names import user_log
from holdfast.core.patch import Changes
from holdfast.core.records import Write
from holdfast.core.state import evolve
from holdfast.core.summary import first_summary
from holdfast.engine.log import Logs


class Pinned:
    """What a task sees of its user: their state up to a seq, read once."""

    def __init__(self, logs: Logs) -> None:
        self._logs = logs
        self._states: dict[int, Hot] = {}

    def load(self, user: str | None, pins: ev.Pins) -> None:
        """Read the state before anybody asks: an event loop must not wait for it."""
        if user is not None:
            self._at(user, pins)

    def user(self, user: str | None, pins: ev.Pins, changes: Sequence[Changes]) -> Hot:
        """The user's state, and what the task has changed of it."""
        assert user is not None
        state = self._at(user, pins)
        if not changes:
            return state
        state = state.copy()
        for one in changes:
            state = evolve(state, user_log(user), state.seq, state.updated_us, ev.StatePatched(patch=one))
        return state

    def salt(self, user: str, pins: ev.Pins) -> str:
        """What the large values of the user's log are salted with."""
        return self._at(user, pins).salt

    def _at(self, user: str, pins: ev.Pins) -> Hot:
        state = self._states.get(pins.user)
        if state is None:
            self._states.clear()
            state = self._states[pins.user] = self._read(user_log(user), pins.user)
        return state

    def _read(self, name: str, seq: int) -> Hot:
        """A task that began before tasks looked at their users sees nothing of them."""
        if not seq:
            return Hot(summary=first_summary(name, ev.UserCreated(), 0))
        return self._logs.load(name, upto=seq).state


def writes(logs: Logs, hot: Hot, events: Sequence[ev.Event], pinned: Pinned) -> tuple[Write, ...]:
    """What goes to the heads of other logs when these events are written."""
    found: list[Write] = []
    if hot.payers:
        told = list(budget.shares(hot, events))
        found += (logs.beside(payer, told, hot.salt) for payer in hot.payers) if told else ()
    user = hot.summary.user
    patches = [one.patch for one in events if isinstance(one, ev.UserPatched)] if user is not None else []
    if user is not None and patches:
        by = f"{hot.summary.agent} in task {hot.summary.id}"
        said = [ev.StatePatched(patch=patch, by=by) for patch in patches]
        found.append(logs.beside(user_log(user), said, pinned.salt(user, hot.pins)))
    return tuple(found)
