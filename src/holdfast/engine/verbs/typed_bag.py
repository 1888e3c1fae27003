"""The state bag of an agent that declares a model: the same verbs, and what does not fit is refused at the door."""

from __future__ import annotations

import math
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from holdfast.core import codec, events as ev
from holdfast.core.codec import Fetch
from holdfast.core.errors import InvalidState
from holdfast.core.events import Changes
from holdfast.core.flows.requests import Branch
from holdfast.core.state.shapes import Hot
from holdfast.engine.definitions.state_versions import States
from holdfast.engine.execution.execution import Run
from holdfast.engine.reading.task_state import Values
from holdfast.engine.verbs.bag import Bag


class TypedBag(Bag):
    """A task's own state, as its model has it: `task.state.address.city`."""

    __run: Run
    __branch: Callable[[], Branch]
    __say: Callable[[ev.Event], None]
    __states: States

    def __init__(self, run: Run, branch: Callable[[], Branch], say: Callable[[ev.Event], None]) -> None:
        super().__init__(run, branch, say)
        for name, value in (("run", run), ("branch", branch), ("say", say), ("states", run.agent.states)):
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
        start = grown_from(self.__states, self.__known()[1], name, 0)
        self.__change(name, _sum(name, start, by))
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

    def __known(self) -> tuple[Hot, Mapping[str, Any]]:
        known = self.__states.seen(self.__run.see(self.__branch()), self.__run.logs.blob)
        return known, Values(known.bag, self.__run.value)

    @property
    def __mark(self) -> int:
        return self.__states.mark(self.__run.see(self.__branch()))

    def __takes_item(self, name: str, packed: Raw) -> bool:
        """Whether a list that is there may grow without a look at all of it."""
        bag, model = self.__known()[0].bag, self.__states.model
        model.refuse_unknown([name, *bag])
        return name in bag and codec.shape(bag[name]) == "list" and model.takes_item(name, self.__plain(packed))

    def __checked_start(self, name: str, packed: Raw) -> Raw | UnsetType:
        """What a list begins as, if it is not there; refuses what the grown one must not be."""
        start = grown_from(self.__states, self.__known()[1], name, [])
        self.__change(name, _longer(name, start, self.__plain(packed)))
        return codec.pack(start) if start and name not in self else UNSET

    def __plain(self, packed: Raw) -> Any:
        return self.__run.value(packed)

    def __change(self, name: str, value: Any) -> None:
        known: Any = self.__known()[1]  # a ChainMap writes to its first mapping only
        self.__check(ChainMap({name: value}, known), [name])

    def __check(self, plain: Mapping[str, Any], touched: Any) -> None:
        self.__states.model.refuse_unknown([*touched, *plain])
        self.__states.model.fits(plain, touched)


# Patches


def patched(states: States, hot: Hot, event: ev.StatePatched, fetch: Fetch) -> ev.StatePatched:
    """A patch as it is written, if what it makes of the state fits the model; InvalidState if not."""
    patch = event.patch
    if not (patch.set or patch.increment or patch.append):
        return event
    known = states.seen(hot, fetch)
    plain: dict[str, Any] = {name: codec.unpack(raw, fetch) for name, raw in known.bag.items()}
    begun: dict[str, Raw] = {}
    states.model.refuse_unknown([*patch.set, *patch.increment, *patch.append])
    made = {**plain, **{name: codec.unpack(raw, fetch) for name, raw in patch.set.items()}}
    for name, by in patch.increment.items():
        made[name] = _sum(name, grown_from(states, plain, name, 0), by)
    for name, raw in patch.append.items():
        made[name] = _longer(name, grown_from(states, plain, name, []), codec.unpack(raw, fetch))
    for name in (*patch.increment, *patch.append):
        if name not in plain and grown_from(states, plain, name, None):
            begun[name] = codec.pack(made[name])  # a patch cannot say what a number or a list begins from
    states.model.refuse_unknown(made)
    states.model.fits(made, [*patch.set, *patch.increment, *patch.append])
    return replace(event, patch=_begun(patch, begun), state_version=states.mark(hot))


def _begun(patch: Changes, begun: dict[str, Raw]) -> Changes:
    if not begun:
        return patch
    left: dict[str, Any] = {
        "increment": {name: by for name, by in patch.increment.items() if name not in begun},
        "append": {name: raw for name, raw in patch.append.items() if name not in begun},
    }
    return replace(patch, set={**patch.set, **begun}, **left)


def admitted(states: States, hot: Hot, event: ev.StatePatched, fetch: Fetch) -> Sequence[ev.Event]:
    """A patch from outside, and before it the migrated state if it is the first write under a new version."""
    return states.preceded([patched(states, hot, event, fetch)], hot, fetch)


# Numbers and lists that grow


def grown_from(states: States, plain: Mapping[str, Any], name: str, nothing: Any) -> Any:
    """What a number or a list grows from: its value, the model's default, or nothing."""
    states.model.refuse_unknown([name])
    if name in plain:
        return plain[name]
    try:
        return codec.as_json(states.model.value(plain, name))
    except KeyError:
        return nothing


def _sum(name: str, start: Any, by: Any) -> Any:
    for number, what in ((start, "what is there"), (by, "what is added")):
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise _cannot_grow(name, "incremented", f"{what} is {number!r}, not a number")
    total = start + by
    if isinstance(total, float) and not math.isfinite(total):
        raise _cannot_grow(name, "incremented", f"{start!r} plus {by!r} is no number that JSON can hold")
    return total


def _longer(name: str, start: Any, item: Any) -> list[Any]:
    if not isinstance(start, list):
        raise _cannot_grow(name, "appended to", f"it is a {type(start).__name__}, not a list")
    return [*start, item]


def _cannot_grow(name: str, how: str, why: str) -> InvalidState:
    return InvalidState(f"state.{name}", f"cannot be {how}: {why}", hint="nothing was written; set it instead")
