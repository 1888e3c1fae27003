"""A task's user, from inside: their state as it was when the turn began, and what the task has changed since."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from holdfast.core import codec, events as ev
from holdfast.core.events import Changes
from holdfast.core.state import rules
from holdfast.core.state.patch import StatePatch, changes_of
from holdfast.core.state.shapes import State
from holdfast.engine.logs.logs import Logs
from holdfast.engine.reading.steps import Values
from holdfast.engine.reading.task_state import FactState
from holdfast.engine.verbs.bag import refuse_taken

Read = Callable[[], Mapping[str, Any]]


Change = Callable[[Changes], Mapping[str, Any]]


class UserBag:
    """`app.user("u1").state.city = "Oslo"`, and `task.user.state.city`."""

    _read: Read
    _change: Change

    def __init__(self, read: Read, change: Change) -> None:
        """`read` gives what is there, `change` changes it and gives what is there then."""
        object.__setattr__(self, "_read", read)
        object.__setattr__(self, "_change", change)

    def __getitem__(self, name: str) -> Any:
        return self._read()[name]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the user's state has no {name!r}; there is {sorted(self)}") from None

    def __setitem__(self, name: str, value: Any) -> None:
        self._change(Changes(set={name: codec.pack(value, f"state.{name}")}))

    def __setattr__(self, name: str, value: Any) -> None:
        refuse_taken(self, name)
        self[name] = value

    def __delitem__(self, name: str) -> None:
        self._change(Changes(delete=(name,)))

    def __delattr__(self, name: str) -> None:
        del self[name]

    def __contains__(self, name: object) -> bool:
        return name in self._read()

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._read()))

    def get(self, name: str, default: Any = None) -> Any:
        """A value, or the default if there is none."""
        return self._read().get(name, default)

    def all(self) -> dict[str, Any]:
        """Everything at once."""
        return dict(self._read())

    def increment(self, name: str, by: float = 1) -> Any:
        """Add to a number, 0 if it was not there; gives the new one."""
        return self._change(changes_of(StatePatch(increment={name: by})))[name]

    def append(self, name: str, value: Any) -> None:
        """Add to a list, empty if it was not there."""
        self._change(Changes(append={name: codec.pack(value, f"state.{name}")}))

    def __repr__(self) -> str:
        return f"<state {self.all()!r}>"


class TaskUser:
    """Whose task it is: `task.user.state.city`. What is changed here is in the user's log with the task's own event."""

    def __init__(self, id: str, read: Callable[[], State], say: Callable[[ev.Event], None], logs: Logs) -> None:
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
