"""The state bag: plain values that read like attributes."""

from __future__ import annotations

import functools
import inspect
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from holdfast.core import codec, events as ev, names
from holdfast.core.errors import InvalidValue
from holdfast.core.flows import writers
from holdfast.core.flows.requests import Branch
from holdfast.core.state import paths, rules
from holdfast.core.state.paths import is_path
from holdfast.core.state.shapes import State
from holdfast.engine.definitions.lent import Lent
from holdfast.engine.definitions.state_versions import (
    States,
    changed_field,
    fit_patch,
    lengthened,
    start_value,
    total_of,
)
from holdfast.engine.execution.execution import Execution
from holdfast.engine.reading.steps import Values

Update = Callable[[Any], Any]
"""A function that makes a new value of the one there is; None if there is none."""


class Verbs(NamedTuple):
    """What a state is read and written with: the task's own verbs, as the branch that uses them sees them."""

    execution: Execution
    here: Callable[[], Branch]
    say: Callable[..., None]
    drive: Callable[..., Any]


class StateBag:
    """What every bag of state has: a value reads like an attribute or an item, and a name with a dot is a path."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError:
            raise AttributeError(self._missing(name)) from None

    def __setattr__(self, name: str, value: Any) -> None:
        if hasattr(type(self), name) or name.startswith("_"):  # it could not be read again
            raise InvalidValue(f"state.{name} is taken", hint=f"use state[{name!r}], or another name")
        self[name] = value

    def __delattr__(self, name: str) -> None:
        del self[name]

    def __getitem__(self, name: str) -> Any:
        raise NotImplementedError

    def __setitem__(self, name: str, value: Any) -> None:
        raise NotImplementedError

    def __delitem__(self, name: str) -> None:
        raise NotImplementedError

    def get(self, name: str, default: Any = None) -> Any:
        """A value, or the default if there is none; read-only, both of them."""
        try:
            return self[name]
        except KeyError:
            return self._default(name, default)

    def set(self, name: str, value: Any) -> None:
        """Set a value, by its name or by a path: `state.set("preferences.seat", "aisle")`."""
        self[name] = value

    def _default(self, name: str, default: Any) -> Any:
        raise NotImplementedError

    def _missing(self, name: str) -> str:
        """Say that there is no such value, and what there is."""
        raise NotImplementedError


class Bag(StateBag):
    """A task's own state: `task.state.city = "Oslo"`. A value is recorded once, not once a replay.

    A name with a dot is a path: `task.state.set("preferences.seat", "aisle")`. Lists and dicts that are read here are
    read-only: change a copy and set it, or use a verb.
    """

    _verbs: Verbs
    _handed_out: codec.HandedOut

    def __init__(self, verbs: Verbs) -> None:
        object.__setattr__(self, "_verbs", verbs)
        object.__setattr__(self, "_handed_out", codec.HandedOut("task.state", verbs.execution.logs.blob))

    def __getitem__(self, name: str) -> Any:
        bag = self._seen().bag
        raw = bag.get(paths.field_name(name))
        return paths.lookup(bag, name, self._value) if raw is None else self._value(name, raw)

    def __setitem__(self, name: str, value: Any) -> None:
        packed = codec.pack(value, f"state.{name}")
        self._handed_out.written(name)
        self._verbs.say(ev.StateSet(name=name, value=packed, nested=is_path(name)))

    def __delitem__(self, name: str) -> None:
        self._handed_out.written(paths.field_name(name))
        self._verbs.say(ev.StateDeleted(name=name, nested=is_path(name)))

    def __contains__(self, name: object) -> bool:
        return self._leads_somewhere(str(name)) if is_path(name) else name in self._seen().bag

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._seen().bag))

    def __repr__(self) -> str:
        return f"<state {self.all()!r}>"

    def increment(self, name: str, by: float = 1) -> Any:
        """Add to a number, 0 if it was not there; gives the new one."""
        self._verbs.say(ev.StateIncremented(name=name, by=by, nested=is_path(name)))
        return self[name]

    def append(self, name: str, value: Any) -> None:
        """Add to a list, empty if it was not there."""
        packed = codec.pack(value, f"state.{name}")
        self._verbs.say(ev.StateAppended(name=name, value=packed, nested=is_path(name)))

    def update(self, name: str, fn: Update) -> Any:
        """Let a function make a new value of the newest one, None if there is none; gives the new one.

        A waiting verb: it is durable when it returns, and an async agent awaits it. If another writer is faster, `fn`
        is called again. On replay the recorded value counts, and `fn` is not called. What it raises is recorded, too,
        and raised as StepFailed.

        >>> task.state.update("total", lambda total: (total or 0) + 5)  # doctest: +SKIP
        """
        refuse_no_update("task.state", name, fn)
        path = ("state", *paths.parts_of((), name))

        def make(state: State, key: str) -> ev.Event:
            event = self._updated(state, key, name, fn)
            rules.check(paths.opened(state, event, self._verbs.execution.logs.blob), event)
            return event

        def made(_: Any) -> Any:
            return self[name]

        return self._verbs.drive("state.update", made, writers.update, path, make)

    def all(self) -> dict[str, Any]:
        """Everything at once."""
        return {name: self._value(name, raw) for name, raw in self._seen().bag.items()}

    def _default(self, name: str, default: Any) -> Any:
        return lent(self._verbs.execution, self._handed_out.default(name, default), self._handed_out)

    def _missing(self, name: str) -> str:
        return f"the state has no {name!r}; it has {sorted(self.all())}"

    def _updated(self, state: State, key: str, name: str, fn: Update) -> ev.Event:
        found = paths.plain_lookup(state.bag, name, self._verbs.execution.value)
        value = codec.pack(updated(fn, found, name), f"state.{name}")
        return ev.StateUpdated(key=key, name=name, value=value, nested=is_path(name))

    def _leads_somewhere(self, path: str) -> bool:
        try:
            self[path]
        except KeyError:
            return False
        return True

    def _value(self, name: str, raw: Raw) -> Any:
        return lent(self._verbs.execution, self._handed_out.value(name, raw), self._handed_out)

    def _seen(self) -> State:
        return self._verbs.execution.see(self._verbs.here())


def lend(execution: Execution) -> Lent:
    """Note that an execution has handed out a part of its state."""
    if execution.lent is None:
        execution.lent = Lent()
    return execution.lent


def lent(execution: Execution, value: Any, handed_out: codec.HandedOut) -> Any:
    """A value that is handed out; functions of steps get an ordinary one of a list or dict."""
    if type(value) in codec.READ_ONLY:
        lend(execution).watch(handed_out)
    return value


def refuse_no_update(verbs: str, name: object, fn: object) -> None:
    """Refuse what `update` cannot do anything with."""
    if not isinstance(name, str):
        raise InvalidValue(f"{name!r} is not the name of a field", hint=f'write {verbs}.update("name", fn)')
    names.short_name(name, "name in the state")
    paths.split(name)
    if not callable(fn) or inspect.iscoroutinefunction(fn):
        raise InvalidValue(
            f"{fn!r} is not a plain function", hint=f"write {verbs}.update({name!r}, lambda value: …), without async"
        )


def updated(fn: Update, found: Any, name: str) -> Any:
    """Apply a function to a value. One that changes a list or a dict in place and returns nothing is refused."""
    before = codec.pack_typed(found) if isinstance(found, list | dict) else None
    made = fn(found)
    if made is None and before is not None and codec.pack_typed(found) != before:
        raise InvalidValue(
            f"the function that updates {name!r} changed what it was given, and returned None; nothing was written",
            hint="let it return the new value",
        )
    return made


def bag_of(verbs: Verbs) -> Bag:
    """The state bag of a task: typed, if its agent declares a model."""
    return Bag(verbs) if verbs.execution.agent.states is None else TypedBag(verbs)


def fitting(execution: Execution, seen: State, event: ev.StatePatched) -> ev.StatePatched:
    """An agent's own patch, if what it makes of the state fits the model."""
    if execution.agent.states is None:
        return event
    return fit_patch(execution.agent.states, seen, event, execution.logs.blob)


class TypedBag(Bag):
    """A task's own state, as its model has it: `task.state.address.city`."""

    def __delitem__(self, name: str) -> None:
        known, plain = self._known()
        top, *inside = path = paths.parts_of((), paths.field_name(name))
        if top not in known.bag and top not in self._states.model.fields:
            raise self._states.model.unknown(top)
        left = {one: plain[one] for one in plain if one != top}
        if inside:
            left[top] = changed_field(self._states, plain, path, "delete", None)
        self._check(left, [top] if inside else ())
        self._written(path)
        if inside and top not in known.bag:  # it was there by default
            self[top] = left[top]
        else:
            self._verbs.say(ev.StateDeleted(name=name, state_version=self._mark, nested=bool(inside)))

    def __getitem__(self, name: str) -> Any:
        model, path = self._states.model, paths.parts_of((), paths.field_name(name))
        top, inside = path[0], path[1:]
        if top not in model.fields:
            raise KeyError(name)
        known, plain = self._known()
        model.refuse_unknown(plain)
        loans, source = lend(self._verbs.execution), model.made_of(known.bag, top)
        handed = loans.known(top, source)
        value = handed[0] if handed is not None else loans.lend(top, source, model.value(plain, top))
        return functools.reduce(inside_of, inside, value)

    def __setitem__(self, name: str, value: Any) -> None:
        packed = codec.pack_typed(value, f"state.{name}")
        path = paths.parts_of((), name)
        plain = self._known()[1]
        whole = changed_field(self._states, plain, path, "set", self._plain(packed))
        self._change(path[0], whole)
        self._written(path)
        if len(path) > 1 and path[0] not in plain:  # what its default has beside it is written, too
            name, packed, path = path[0], codec.pack_typed(whole), path[:1]
        self._verbs.say(ev.StateSet(name=name, value=packed, state_version=self._mark, nested=len(path) > 1))

    def __contains__(self, name: object) -> bool:
        is_set = str(name).partition(".")[0] in self._known()[0].bag
        return is_set and (not is_path(name) or self._leads_somewhere(str(name)))

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._known()[0].bag))

    def get(self, name: str, default: Any = None) -> Any:
        """A field, or the default if it is not set and the model has none."""
        self._states.model.refuse_unknown([str(name).partition(".")[0]])
        return super().get(name, default)

    def increment(self, name: str, by: float = 1) -> Any:
        """Add to a number; one that is not set begins at the model's default, or at 0."""
        path = paths.parts_of((), name)
        if len(path) > 1:
            self._grow(path, "increment", by, ev.StateIncremented(name=name, by=by, nested=True))
            return self[name]
        start = start_value(self._states, self._known()[1], name, 0)
        self._change(name, total_of(name, start, by))
        fresh = start if name not in self else 0
        self._verbs.say(ev.StateIncremented(name=name, by=by, start=fresh, state_version=self._mark))
        return self[name]

    def append(self, name: str, value: Any) -> None:
        """Add to a list; one that is not set begins as the model's default, or empty."""
        packed = codec.pack_typed(value, f"state.{name}")
        path = paths.parts_of((), name)
        if len(path) > 1:
            self._grow(path, "append", self._plain(packed), ev.StateAppended(name=name, value=packed, nested=True))
            return
        fresh = UNSET if self._takes_item(name, packed) else self._checked_start(name, packed)
        self._verbs.say(ev.StateAppended(name=name, value=packed, start=fresh, state_version=self._mark))

    def all(self) -> dict[str, Any]:
        """Every field that has a value, set or by default."""
        plain = self._known()[1]
        missing = self._states.model.missing(plain)
        self._states.model.refuse_unknown(plain)
        return {name: self[name] for name in self._states.model.fields if name not in missing}

    @property
    def model(self) -> Any:
        """The whole state as an instance of its model; InvalidState names what is missing."""
        known, plain = self._known()
        loans, source = lend(self._verbs.execution), tuple(known.bag.items())
        handed = loans.known("", source)
        return handed[0] if handed is not None else loans.lend("", source, self._states.model.whole(dict(plain)))

    def _missing(self, name: str) -> str:
        model = self._states.model
        why = "is not set yet, and has no default" if name in model.fields else "is not a field"
        return f"{name!r} of {model.name} {why}; its fields are {', '.join(model.fields)}"

    def _updated(self, state: State, key: str, name: str, fn: Update) -> ev.Event:
        states, execution, path = self._states, self._verbs.execution, paths.parts_of((), name)
        states.model.refuse_unknown(path[:1])
        plain = Values(states.seen(state, execution.logs.blob).bag, execution.value)
        try:
            found = functools.reduce(inside_of, path[1:], states.model.value(plain, path[0]))
        except KeyError:
            found = None
        value = codec.pack_typed(updated(fn, found, name), f"state.{name}")
        whole = changed_field(states, plain, path, "set", self._plain(value))
        self._check(ChainMap({path[0]: whole}, dict(plain)), path[:1])
        if len(path) > 1 and path[0] not in plain:
            name, value, path = path[0], codec.pack_typed(whole), path[:1]
        mark = states.mark(state)
        return ev.StateUpdated(key=key, name=name, value=value, state_version=mark, nested=len(path) > 1)

    @property
    def _states(self) -> States:
        states = self._verbs.execution.agent.states
        assert states is not None
        return states

    def _known(self) -> tuple[State, Mapping[str, Any]]:
        execution = self._verbs.execution
        known = self._states.seen(self._seen(), execution.logs.blob)
        return known, Values(known.bag, execution.value)

    @property
    def _mark(self) -> int:
        return self._states.mark(self._seen())

    def _written(self, path: paths.Path) -> None:
        """A whole field is written: what was handed out of it, and perhaps changed, is not lost."""
        if self._verbs.execution.lent is not None and len(path) == 1:
            self._verbs.execution.lent.returned(path[0])

    def _grow(
        self, path: paths.Path, how: codec.How, value: Any, event: ev.StateIncremented | ev.StateAppended
    ) -> None:
        """Let something inside a field grow. A field that is not set is written with what its default has beside it."""
        plain = self._known()[1]
        whole = changed_field(self._states, plain, path, how, value)
        self._change(path[0], whole)
        if path[0] in plain:
            self._verbs.say(replace(event, state_version=self._mark))
        else:
            self[path[0]] = whole

    def _takes_item(self, name: str, packed: Raw) -> bool:
        """Return whether a list that is there may grow without a look at all of it."""
        bag, model = self._known()[0].bag, self._states.model
        model.refuse_unknown([name, *bag])
        return name in bag and codec.shape(bag[name]) == "list" and model.takes_item(name, self._plain(packed))

    def _checked_start(self, name: str, packed: Raw) -> Raw | UnsetType:
        """Return the first value of a list that is not there; refuse one that the grown list must not be."""
        start = start_value(self._states, self._known()[1], name, [])
        self._change(name, lengthened(name, start, self._plain(packed)))
        return codec.pack_typed(start) if start and name not in self else UNSET

    def _plain(self, packed: Raw) -> Any:
        return self._verbs.execution.value(packed)

    def _change(self, name: str, value: Any) -> None:
        known: Any = self._known()[1]  # a ChainMap writes to its first mapping only
        self._check(ChainMap({name: value}, known), [name])

    def _check(self, plain: Mapping[str, Any], touched: Any) -> None:
        self._states.model.refuse_unknown([*touched, *plain])
        self._states.model.fits(plain, touched)


def inside_of(value: Any, part: str) -> Any:
    """A part of a typed value: an item of a mapping, or a field of an object. KeyError if there is none."""
    if isinstance(value, Mapping):
        return value[part]  # pyright: ignore[reportUnknownVariableType]
    if part.startswith("_") or not hasattr(value, part):
        raise KeyError(part)
    return getattr(value, part)
