"""Versions of a typed state: how what an older agent wrote becomes what this one reads.

Upcasters are users' functions, so they are called where typed state is read and where the first write under a new
version is put together, and never in the fold (law 14).
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from msgspec import Raw
from msgspec.structs import replace

from holdfast.core import codec, events as ev, names
from holdfast.core.codec import Fetch
from holdfast.core.errors import InvalidState, InvalidValue, StateNotMigrated
from holdfast.core.events import Changes, Event
from holdfast.core.state import paths
from holdfast.core.state.shapes import State

if TYPE_CHECKING:
    from holdfast.engine.definitions.state_model import StateModel

Upcaster = Callable[[dict[str, Any]], dict[str, Any]]


class States:
    """The state an agent declares: its model, its version, and the way from older ones."""

    def __init__(self, agent: str, cls: Any, version: int) -> None:
        from holdfast.engine.definitions.state_model import model_of  # only agents that declare a state need it

        self.agent = agent
        self.model: StateModel = model_of(cls)
        self.version = _number(version, "state_version")
        self._upcasters: dict[int, tuple[int, Upcaster]] = {}

    @property
    def versions(self) -> list[int]:
        """The versions that can be read, oldest first."""
        return sorted({*self._upcasters, self.version})

    def add(self, start: int, to: int, fn: Upcaster) -> Upcaster:
        """Remember what turns one version into a later one."""
        named = f"upcast({start!r}, {to!r}) of {self.agent!r}"
        if not (_is_number(start) and _is_number(to) and 0 <= start < to <= self.version):
            raise InvalidValue(f"{named} leads nowhere", hint=f"give two versions, 0 ≤ from < to ≤ {self.version}")
        if start in self._upcasters:
            raise InvalidValue(f"{named} is the second from version {start}", hint="one way leads on from a version")
        if not callable(fn) or inspect.iscoroutinefunction(fn):
            raise InvalidValue(f"{named} is not a plain function", hint="write def …(state: dict) -> dict")
        self._upcasters[start] = (to, fn)
        return fn

    # Reading

    def lifted(self, plain: dict[str, Any], at: int, to: int | None = None) -> dict[str, Any]:
        """Convert a state of one version to a later one; StateNotMigrated if there is no way."""
        goal = self.version if to is None else to
        if at > goal:
            raise StateNotMigrated(
                f"is of version {at}, and agent {self.agent!r} knows {goal}",
                hint="run the newer agent, or roll the task back to before the migration",
                found=at,
                known=goal,
            )
        if not plain:
            return plain  # nothing was written yet, so there is nothing to migrate
        if at == 0 and 0 not in self._upcasters:
            at = 1  # written before the state had a version: the first version is what it was then
        while at < goal:
            at, plain = self._step(plain, at, goal)
        return plain

    def _step(self, plain: dict[str, Any], at: int, goal: int) -> tuple[int, dict[str, Any]]:
        to, upcaster = self._upcasters.get(at, (0, None))
        if upcaster is None or to > goal:
            raise StateNotMigrated(
                f"is of version {at}, and nothing leads from there to {goal}",
                hint=f"write @{self.agent}.upcast({at}, {at + 1}) over a function that takes the old dict",
                found=at,
                known=goal,
            )
        said = f"is of version {at}, and upcast({at}, {to}) of {self.agent!r}"
        try:
            made: Any = upcaster(plain)
        except Exception as error:  # whatever user code raises is reported with the version it was at
            raise StateNotMigrated(
                f"{said} raised {type(error).__name__}: {error}",
                hint="an upcaster gets only the fields that were set; fix it, and resume the task",
                found=at,
                known=goal,
            ) from error
        if not isinstance(made, dict) or not all(isinstance(name, str) for name in made):  # pyright: ignore
            shown = type(made).__name__  # pyright: ignore[reportUnknownArgumentType]
            raise StateNotMigrated(f"{said} gave a {shown}", hint="return the new dict, with names as keys", found=at)
        return to, made  # pyright: ignore[reportUnknownVariableType]

    def lift(self, state: State, to: int, fetch: Fetch) -> State:
        """A state of its own in which the bag is of that version. What did not change is kept as it is stored."""
        plain = {name: codec.unpack(raw, fetch) for name, raw in state.bag.items()}
        at = state.state_version
        made = self.check(plain, at) if to == self.version else self.lifted(plain, at, to)
        lifted = state.sketch()
        lifted.bag = {name: _kept(state.bag.get(name), value, name, fetch) for name, value in made.items()}
        lifted.state_version = to
        return lifted

    def check(self, plain: dict[str, Any], at: int) -> dict[str, Any]:
        """Convert a state to the newest version, and check that nothing is lost and all of it fits."""
        made = self.lifted(plain, at)
        self._refuse_losses(made, at)
        for name, value in made.items():
            codec.pack(value, f"state.{name}")  # an upcaster may give anything
        made = codec.as_json(made)
        self.model.fits(made, made)
        return made

    def _refuse_losses(self, made: Mapping[str, Any], was: int) -> None:
        lost = [name for name in made if name not in self.model.fields]
        if lost:
            raise StateNotMigrated(
                f"is not a field of {self.model.name}: what version {was} kept there would be lost",
                hint="let an upcaster move it or drop it, or add the field to the model",
                path=f"state.{lost[0]}",
                lost=lost,
                found=was,
            )

    def seen(self, state: State, fetch: Fetch) -> State:
        """A state as this agent reads it."""
        if state.state_version == self.version:
            return state
        return self.lift(state, self.version, fetch)

    def read(self, state: State, fetch: Fetch) -> Any:
        """A whole state as an instance of the model."""
        bag = self.seen(state, fetch).bag
        return self.model.whole({name: codec.unpack(raw, fetch) for name, raw in bag.items()})

    # Writing

    def mark(self, state: State) -> int:
        """Return the version that a write carries, if the log doesn't have it yet."""
        return 0 if state.state_version == self.version else self.version

    def preceded(self, events: Sequence[Event], state: State, fetch: Fetch) -> Sequence[Event]:
        """Events to be written after `state`; the first write under a new version comes after the migrated value."""
        for index, event in enumerate(events):
            if version_of(event) > state.state_version:
                return [*events[:index], self.migration(state, fetch), *events[index:]]
        return events

    def migration(self, state: State, fetch: Fetch) -> ev.StateMigrated:
        """Return the event before the first write under a new version."""
        return ev.StateMigrated(version=self.version, bag=self.lift(state, self.version, fetch).bag)


def version_of(event: Event) -> int:
    """Under which version of the state something is written, if it says so."""
    return getattr(event, "state_version", 0)


def _kept(old: Raw | None, value: Any, name: str, fetch: Fetch) -> Raw:
    packed = codec.pack_typed(value, f"state.{name}")
    if old is None or codec.is_folded(old) or codec.resolve(packed, fetch) != codec.resolve(old, fetch):
        return packed
    return old


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(value: object, what: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InvalidValue(f"{what}={value!r} is not a version", hint="count versions from 1")
    return value


def fit_patch(states: States, state: State, event: ev.StatePatched, fetch: Fetch) -> ev.StatePatched:
    """A patch as it is written, if what it makes of the state fits the model; InvalidState if not."""
    patch = event.patch
    if not (patch.set or patch.increment or patch.append or patch.nested):
        return event
    known = states.seen(state, fetch)
    plain: dict[str, Any] = {name: codec.unpack(raw, fetch) for name, raw in known.bag.items()}
    made, begun = dict(plain), set[str]()
    for how, name, value in _changes(patch, fetch):
        path = paths.parts_of(plain, name, name in patch.nested)
        begins = path[0] not in plain and (how, len(path)) != ("set", 1)
        if begins and start_value(states, plain, path[0], None):
            begun.add(path[0])  # a patch cannot say what a number, a list or an object begins from
        made[path[0]] = changed_field(states, made, path, how, value)
    touched = [name for name in made if made[name] is not plain.get(name, _NOT_SET)]
    states.model.refuse_unknown(made)
    states.model.fits(made, touched)
    whole = {name: codec.pack_typed(made[name]) for name in begun}
    return replace(event, patch=_begun(patch, whole), state_version=states.mark(state))


_NOT_SET = object()


def _changes(patch: Changes, fetch: Fetch) -> Iterator[tuple[codec.How, str, Any]]:
    """Return a patch's changes in the bag. Deleting a whole field is left out: an unset field has no type."""
    for name, raw in patch.set.items():
        yield "set", name, codec.unpack(raw, fetch)
    for name, by in patch.increment.items():
        yield "increment", name, by
    for name, raw in patch.append.items():
        yield "append", name, codec.unpack(raw, fetch)
    for name in patch.delete:
        if name in patch.nested:
            yield "delete", name, None


def changed_field(states: States, plain: Mapping[str, Any], path: paths.Path, how: codec.How, value: Any) -> Any:
    """A field as a change at a path makes it. One that is not set begins as the model's default, or as nothing."""
    states.model.refuse_unknown(path[:1])
    name, inside = ".".join(path), path[1:]
    if how == "set" and not inside:
        return value
    nothing: Any = {} if inside else _NOTHING[how]
    start = start_value(states, plain, path[0], nothing)
    if how == "delete":
        return paths.without(start, inside)
    there = _reached(start, path) if inside else start
    there = _NOTHING[how] if there is None and inside else there
    if how == "increment":
        value = total_of(name, there, value)
    elif how == "append":
        value = lengthened(name, there, value)
    return paths.placed(start, inside, value)


_NOTHING: dict[str, Any] = {"increment": 0, "append": [], "set": None, "delete": None}


def _reached(start: Any, path: paths.Path) -> Any:
    """Return the value at a path inside a field; None if there is none. InvalidState if something is in the way."""
    found = start
    for depth, part in enumerate(path[1:], start=1):
        if found is None:
            return None
        if not isinstance(found, dict):
            way, name = ".".join(path[:depth]), ".".join(path)
            shown = type(found).__name__
            raise InvalidState(
                f"state.{name}",
                f"can't be reached: state.{way} is {names.a(shown)}, not an object",
                hint=f"nothing was written; set state.{way} as a whole",
            )
        found = cast("dict[str, Any]", found).get(part)
    return found


def _begun(patch: Changes, begun: dict[str, Raw]) -> Changes:
    """A patch that sets as a whole what it would otherwise begin from nothing."""
    if not begun:
        return patch

    def left(name: str) -> bool:
        return paths.parts_of((), name, name in patch.nested)[0] not in begun

    sections: dict[str, Any] = {
        name: {key: value for key, value in getattr(patch, name).items() if left(key)}
        for name in ("set", "increment", "append")
    }
    sections["set"] |= begun
    kept = {"delete": tuple(filter(left, patch.delete)), "nested": tuple(filter(left, patch.nested))}
    return replace(patch, **sections, **kept)


def admit_patch(states: States, state: State, event: ev.StatePatched, fetch: Fetch) -> Sequence[ev.Event]:
    """A patch from outside, and before it the migrated state if it is the first write under a new version."""
    return states.preceded([fit_patch(states, state, event, fetch)], state, fetch)


def start_value(states: States, plain: Mapping[str, Any], name: str, nothing: Any) -> Any:
    """Return the value that a number or a list grows from: its own, the model's default, or nothing."""
    states.model.refuse_unknown([name])
    if name in plain:
        return plain[name]
    try:
        return codec.as_json(states.model.value(plain, name))
    except KeyError:
        return nothing


def field_of(states: States | None, state: State, name: str, fetch: Fetch) -> Any:
    """Return the JSON value at a path, set or by the model's default; None if there is none."""
    if states is None:
        return paths.plain_lookup(state.bag, name, lambda raw: codec.unpack(raw, fetch))
    plain = {one: codec.unpack(raw, fetch) for one, raw in states.seen(state, fetch).bag.items()}
    path = paths.parts_of(plain, name)
    return _reached(start_value(states, plain, path[0], None), path)


def total_of(name: str, start: Any, by: Any) -> Any:
    for number, what in ((start, "what is there"), (by, "what is added")):
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise _cannot_grow(name, "incremented", f"{what} is {number!r}, not a number")
    total = start + by
    if isinstance(total, float) and not math.isfinite(total):
        raise _cannot_grow(name, "incremented", f"{start!r} plus {by!r} is not a number that JSON can hold")
    return total


def lengthened(name: str, start: Any, item: Any) -> list[Any]:
    if not isinstance(start, list):
        raise _cannot_grow(name, "appended to", f"it is {names.a(type(start).__name__)}, not a list")
    return [*start, item]


def _cannot_grow(name: str, how: str, why: str) -> InvalidState:
    return InvalidState(f"state.{name}", f"cannot be {how}: {why}", hint="nothing was written; set it instead")
