"""A task's user, from inside: their state as it was when the turn began, and what the task has changed since."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from holdfast.core import codec, events as ev
from holdfast.core.events import Changes
from holdfast.core.state import rules
from holdfast.core.state.patch import StatePatch, changes_of
from holdfast.core.state.shapes import Hot
from holdfast.engine.logs.log import Logs
from holdfast.engine.reading.task_state import FactState, Values
from holdfast.engine.verbs.user_bag import UserBag


class TaskUser:
    """Whose task it is: `task.user.state.city`. What is changed here is in the user's log with the task's own event."""

    def __init__(self, id: str, read: Callable[[], Hot], say: Callable[[ev.Event], None], logs: Logs) -> None:
        self.id = id
        self._read = read
        self._say = say
        self._logs = logs
        self.state = UserBag(self._values, self._change)

    @property
    def facts(self) -> Mapping[str, FactState]:
        """What was learned of them."""
        return Values(self._read().facts, lambda fact: FactState(fact, self._logs))

    def patch(self, patch: StatePatch) -> None:
        """Change several things at once."""
        self._change(changes_of(patch))

    def _values(self) -> Mapping[str, Any]:
        return Values(self._read().bag, lambda raw: codec.unpack(raw, self._logs.blob))

    def _change(self, changes: Changes) -> Mapping[str, Any]:
        rules.check(self._read(), ev.StatePatched(patch=changes))
        self._say(ev.UserPatched(patch=changes))
        return self._values()

    def __repr__(self) -> str:
        return f"<user {self.id}>"
