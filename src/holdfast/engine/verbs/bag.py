"""The state bag: plain values that read like attributes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from holdfast.core import codec, events as ev
from holdfast.core.errors import InvalidValue
from holdfast.core.flows.requests import Branch
from holdfast.core.state.shapes import Hot
from holdfast.engine.execution.execution import Run


class Bag:
    """A task's own state: `task.state.city = "Oslo"`. What is set is said once, not once a replay."""

    __run: Run
    __branch: Callable[[], Branch]
    __say: Callable[[ev.Event], None]

    def __init__(self, run: Run, branch: Callable[[], Branch], say: Callable[[ev.Event], None]) -> None:
        object.__setattr__(self, "_Bag__run", run)
        object.__setattr__(self, "_Bag__branch", branch)
        object.__setattr__(self, "_Bag__say", say)

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the state has no {name!r}; it has {sorted(self.all())}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        refuse_taken(self, name)
        self[name] = value

    def __delattr__(self, name: str) -> None:
        self.__say(ev.StateDeleted(name=name))

    def __getitem__(self, name: str) -> Any:
        return self.__run.value(self.__seen()[name])

    def __setitem__(self, name: str, value: Any) -> None:
        self.__say(ev.StateSet(name=name, value=codec.pack(value, f"state.{name}")))

    def __delitem__(self, name: str) -> None:
        self.__delattr__(name)

    def __contains__(self, name: object) -> bool:
        return name in self.__seen()

    def __iter__(self) -> Iterator[str]:
        return iter(list(self.__seen()))

    def __repr__(self) -> str:
        return f"<state {self.all()!r}>"

    def get(self, name: str, default: Any = None) -> Any:
        """A value, or the default if there is none."""
        raw = self.__seen().get(name)
        return default if raw is None else self.__run.value(raw)

    def increment(self, name: str, by: float = 1) -> Any:
        """Add to a number, 0 if it was not there; gives the new one."""
        self.__say(ev.StateIncremented(name=name, by=by))
        return self[name]

    def append(self, name: str, value: Any) -> None:
        """Add to a list, empty if it was not there."""
        self.__say(ev.StateAppended(name=name, value=codec.pack(value, f"state.{name}")))

    def all(self) -> dict[str, Any]:
        """Everything at once."""
        return {name: self.__run.value(raw) for name, raw in self.__seen().items()}

    def __seen(self) -> dict[str, Any]:
        return self.__run.see(self.__branch()).bag


def bag_of(run: Run, branch: Callable[[], Branch], say: Callable[[ev.Event], None]) -> Bag:
    """The state bag of a task: typed, if its agent declares a model."""
    if run.agent.states is None:
        return Bag(run, branch, say)
    from holdfast.engine.verbs.typed_bag import TypedBag  # only agents that declare a state need it

    return TypedBag(run, branch, say)


def fitting(run: Run, seen: Hot, event: ev.StatePatched) -> ev.StatePatched:
    """An agent's own patch, if what it makes of the state fits the model."""
    if run.agent.states is None:
        return event
    from holdfast.engine.verbs.typed_bag import patched

    return patched(run.agent.states, seen, event, run.logs.blob)


def refuse_taken(bag: object, name: str) -> None:
    """Refuse to set what could not be read again: a name that the bag itself has."""
    if hasattr(type(bag), name) or name.startswith("_"):
        raise InvalidValue(f"state.{name} is taken", hint=f"use state[{name!r}], or another name")
