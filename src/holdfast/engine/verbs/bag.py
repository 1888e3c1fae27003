"""The state bag: plain values that read like attributes."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec import UNSET, Raw, UnsetType

from holdfast.core import codec, events as ev
from holdfast.core.errors import InvalidValue
from holdfast.core.flows.requests import Branch
from holdfast.core.state.shapes import State
from holdfast.engine.definitions.state_versions import States, fit_patch, lengthened, start_value, total_of
from holdfast.engine.execution.execution import Execution
from holdfast.engine.reading.steps import Values


class Bag:
    """A task's own state: `task.state.city = "Oslo"`. What is set is said once, not once a replay."""

    __execution: Execution
    __branch: Callable[[], Branch]
    __say: Callable[[ev.Event], None]

    def __init__(self, execution: Execution, branch: Callable[[], Branch], say: Callable[[ev.Event], None]) -> None:
        object.__setattr__(self, "_Bag__execution", execution)
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
        return self.__execution.value(self.__seen()[name])

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
        return default if raw is None else self.__execution.value(raw)

    def increment(self, name: str, by: float = 1) -> Any:
        """Add to a number, 0 if it was not there; gives the new one."""
        self.__say(ev.StateIncremented(name=name, by=by))
        return self[name]

    def append(self, name: str, value: Any) -> None:
        """Add to a list, empty if it was not there."""
        self.__say(ev.StateAppended(name=name, value=codec.pack(value, f"state.{name}")))

    def all(self) -> dict[str, Any]:
        """Everything at once."""
        return {name: self.__execution.value(raw) for name, raw in self.__seen().items()}

    def __seen(self) -> dict[str, Any]:
        return self.__execution.see(self.__branch()).bag


def bag_of(execution: Execution, branch: Callable[[], Branch], say: Callable[[ev.Event], None]) -> Bag:
    """The state bag of a task: typed, if its agent declares a model."""
    if execution.agent.states is None:
        return Bag(execution, branch, say)
    # only agents that declare a state need it

    return TypedBag(execution, branch, say)


def fitting(execution: Execution, seen: State, event: ev.StatePatched) -> ev.StatePatched:
    """An agent's own patch, if what it makes of the state fits the model."""
    if execution.agent.states is None:
        return event
    return fit_patch(execution.agent.states, seen, event, execution.logs.blob)


def refuse_taken(bag: object, name: str) -> None:
    """Refuse to set what could not be read again: a name that the bag itself has."""
    if hasattr(type(bag), name) or name.startswith("_"):
        raise InvalidValue(f"state.{name} is taken", hint=f"use state[{name!r}], or another name")


class TypedBag(Bag):
    """A task's own state, as its model has it: `task.state.address.city`."""

    __execution: Execution
    __branch: Callable[[], Branch]
    __say: Callable[[ev.Event], None]
    __states: States

    def __init__(self, execution: Execution, branch: Callable[[], Branch], say: Callable[[ev.Event], None]) -> None:
        super().__init__(execution, branch, say)
        for name, value in (
            ("execution", execution),
            ("branch", branch),
            ("say", say),
            ("states", execution.agent.states),
        ):
            object.__setattr__(self, f"_TypedBag__{name}", value)

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            model = self.__states.model
            why = "is not set yet, and has no default" if name in model.fields else "is not a field"
            raise AttributeError(f"{name!r} of {model.name} {why}; its fields are {', '.join(model.fields)}") from None

    def __delattr__(self, name: str) -> None:
        known, plain = self.__known()
        if name not in known.bag and name not in self.__states.model.fields:
            raise self.__states.model.unknown(name)
        left = {one: plain[one] for one in plain if one != name}
        self.__check(left, ())
        self.__say(ev.StateDeleted(name=name, state_version=self.__mark))

    def __getitem__(self, name: str) -> Any:
        model = self.__states.model
        if name not in model.fields:
            raise KeyError(name)
        plain = self.__known()[1]
        model.refuse_unknown(plain)
        return model.value(plain, name)

    def __setitem__(self, name: str, value: Any) -> None:
        packed = codec.pack(value, f"state.{name}")
        self.__change(name, self.__plain(packed))
        self.__say(ev.StateSet(name=name, value=packed, state_version=self.__mark))

    def __contains__(self, name: object) -> bool:
        return name in self.__known()[0].bag

    def __iter__(self) -> Iterator[str]:
        return iter(list(self.__known()[0].bag))

    def get(self, name: str, default: Any = None) -> Any:
        """A field, or the default if it is not set and the model has none."""
        self.__states.model.refuse_unknown([name])
        try:
            return self[name]
        except KeyError:
            return default

    def increment(self, name: str, by: float = 1) -> Any:
        """Add to a number; one that is not set begins at the model's default, or at 0."""
        start = start_value(self.__states, self.__known()[1], name, 0)
        self.__change(name, total_of(name, start, by))
        fresh = start if name not in self else 0
        self.__say(ev.StateIncremented(name=name, by=by, start=fresh, state_version=self.__mark))
        return self[name]

    def append(self, name: str, value: Any) -> None:
        """Add to a list; one that is not set begins as the model's default, or empty."""
        packed = codec.pack(value, f"state.{name}")
        fresh = UNSET if self.__takes_item(name, packed) else self.__checked_start(name, packed)
        self.__say(ev.StateAppended(name=name, value=packed, start=fresh, state_version=self.__mark))

    def all(self) -> dict[str, Any]:
        """Every field that has a value, set or by default."""
        return self.__states.model.values(self.__known()[1])

    @property
    def model(self) -> Any:
        """The whole state as an instance of its model; InvalidState names what is missing."""
        return self.__states.model.whole(dict(self.__known()[1]))

    def __known(self) -> tuple[State, Mapping[str, Any]]:
        known = self.__states.seen(self.__execution.see(self.__branch()), self.__execution.logs.blob)
        return known, Values(known.bag, self.__execution.value)

    @property
    def __mark(self) -> int:
        return self.__states.mark(self.__execution.see(self.__branch()))

    def __takes_item(self, name: str, packed: Raw) -> bool:
        """Whether a list that is there may grow without a look at all of it."""
        bag, model = self.__known()[0].bag, self.__states.model
        model.refuse_unknown([name, *bag])
        return name in bag and codec.shape(bag[name]) == "list" and model.takes_item(name, self.__plain(packed))

    def __checked_start(self, name: str, packed: Raw) -> Raw | UnsetType:
        """What a list begins as, if it is not there; refuses what the grown one must not be."""
        start = start_value(self.__states, self.__known()[1], name, [])
        self.__change(name, lengthened(name, start, self.__plain(packed)))
        return codec.pack(start) if start and name not in self else UNSET

    def __plain(self, packed: Raw) -> Any:
        return self.__execution.value(packed)

    def __change(self, name: str, value: Any) -> None:
        known: Any = self.__known()[1]  # a ChainMap writes to its first mapping only
        self.__check(ChainMap({name: value}, known), [name])

    def __check(self, plain: Mapping[str, Any], touched: Any) -> None:
        self.__states.model.refuse_unknown([*touched, *plain])
        self.__states.model.fits(plain, touched)
