"""A task's user, from inside: their state as it was when the turn began, and what the task has changed since."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from holdfast.core import codec, decide
from holdfast.core import events as ev
from holdfast.core.patch import Changes, StatePatch
from holdfast.engine.bag import refuse_taken
from holdfast.engine.view import FactState, Values

Read = Callable[[], Any]
Say = Callable[[ev.Event], None]


class TaskUser:
    """Whose task it is: `task.user.state.city`. What is changed here is in the user's log with the task's own event."""

    def __init__(self, id: str, read: Read, say: Say, logs: Any) -> None:
        self.id = id
        self._read = read
        self._say = say
        self._logs = logs
        self.state = TaskUserBag(read, say, logs)

    @property
    def facts(self) -> Mapping[str, FactState]:
        """What was learned of them."""
        return Values(self._read().facts, lambda fact: FactState(fact, self._logs))

    def patch(self, patch: StatePatch) -> None:
        """Change several things at once."""
        self.state.patch_with(patch)

    def __repr__(self) -> str:
        return f"<user {self.id}>"


class TaskUserBag:
    """A user's state as a task sees it; reads like attributes."""

    _read: Read
    _say: Say
    _logs: Any

    def __init__(self, read: Read, say: Say, logs: Any) -> None:
        object.__setattr__(self, "_read", read)
        object.__setattr__(self, "_say", say)
        object.__setattr__(self, "_logs", logs)

    def _change(self, changes: Changes) -> None:
        decide.check(self._read(), ev.StatePatched(patch=changes))
        self._say(ev.UserPatched(patch=changes))

    def __getitem__(self, name: str) -> Any:
        return codec.unpack(self._read().bag[name], self._logs.blob)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the user's state has no {name!r}; it has {sorted(self)}") from None

    def __setitem__(self, name: str, value: Any) -> None:
        self._change(Changes(set={name: codec.pack(value, f"user.state.{name}")}))

    def __setattr__(self, name: str, value: Any) -> None:
        refuse_taken(self, name)
        self[name] = value

    def __delitem__(self, name: str) -> None:
        self._change(Changes(delete=(name,)))

    def __delattr__(self, name: str) -> None:
        del self[name]

    def __contains__(self, name: object) -> bool:
        return name in self._read().bag

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._read().bag))

    def get(self, name: str, default: Any = None) -> Any:
        """A value, or the default if there is none."""
        raw = self._read().bag.get(name)
        return default if raw is None else codec.unpack(raw, self._logs.blob)

    def all(self) -> dict[str, Any]:
        """Everything at once."""
        return {name: self[name] for name in self}

    def increment(self, name: str, by: float = 1) -> Any:
        """Add to a number, 0 if it was not there; gives the new one."""
        self.patch_with(StatePatch(increment={name: by}))
        return self[name]

    def append(self, name: str, value: Any) -> None:
        """Add to a list, empty if it was not there."""
        self._change(Changes(append={name: codec.pack(value, f"user.state.{name}")}))

    def patch_with(self, patch: StatePatch) -> None:
        """Say a patch, checked as any other."""
        self._change(codec.changes(patch))

    def __repr__(self) -> str:
        return f"<state {self.all()!r}>"
