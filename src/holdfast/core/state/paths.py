"""Paths into the state: `preferences.seat` is the field `seat` of the object `preferences`.

Older versions took a name with a dot for the name of a field. Events say which they mean (`nested`), so old logs fold
as they did; and a field of exactly that name, once it is there, stays what its name means.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, cast

from msgspec import Raw

from holdfast.core import codec, events as ev, limits, names
from holdfast.core.codec import Fetch, How
from holdfast.core.errors import InvalidEvent, InvalidValue
from holdfast.core.events import Event
from holdfast.core.state.shapes import State

Path = tuple[str, ...]


def is_path(name: object) -> bool:
    """Return whether a name leads into an object."""
    return type(name) is str and "." in name


def parts_of(known: Collection[str], name: str, nested: bool = True) -> Path:
    """The names that a path is made of; one, if a field of that name is known.

    >>> parts_of({}, "preferences.seat"), parts_of({"gpt-4.1": 3}, "gpt-4.1"), parts_of({}, "a.b", nested=False)
    (('preferences', 'seat'), ('gpt-4.1',), ('a.b',))
    """
    return tuple(name.split(".")) if nested and is_path(name) and name not in known else (name,)


def field_name(name: str) -> str:
    """A name of a field, or a path; refuses what is not text."""
    return name if type(name) is str else names.encodable(name, "name in the state")


def edit(bag: dict[str, Raw], name: str, how: How, part: Raw = codec.JSON_NULL) -> None:
    """Change what a path leads to, in place."""
    top, *inside = parts_of(bag, name)
    if inside and how == "delete" and top not in bag:
        return
    if inside:
        bag[top] = codec.edited(bag.get(top), inside, how, part)
    elif how == "set":
        bag[top] = part
    elif how == "delete":
        bag.pop(top, None)
    elif how == "increment":
        bag[top] = codec.increased(bag.get(top), codec.unpack(part, _nothing))
    else:
        bag[top] = codec.appended(bag.get(top), part)


def _nothing(hash: str) -> bytes:
    raise AssertionError("a number is never kept beside the log")


# On encoded values, for the rules


def check(bag: Mapping[str, Raw], name: str, part: Raw | None = None) -> Raw | None:
    """Refuse a path that leads nowhere, or a value too deep for it; returns what is there, if that is known."""
    if name in bag:
        return bag[name]
    path = split(name)
    if part is not None and codec.nests_deeper(codec.plain_json(part), limits.MAX_DEPTH - len(path) + 1):
        raise InvalidValue(f"state.{name} nests deeper than {limits.MAX_DEPTH}", hint="flatten it, or store it as text")
    found = bag.get(path[0])
    for depth, part_name in enumerate(path[1:], start=1):
        if found is None or codec.is_apart(found):
            return None
        if codec.shape(found) != "object":
            raise _in_the_way(".".join(path[:depth]), codec.shape(found), name)
        fields: dict[str, Raw] = codec.load(codec.plain_json(found), dict[str, Raw])
        found = fields.get(part_name)
    return found


def _in_the_way(way: str, shape: str, name: str) -> InvalidEvent:
    return InvalidEvent(
        f"state {name!r} can't be reached: {way!r} is {names.a(shape)}, not an object; nothing was written",
        hint=f"set {way!r} as a whole, or let a function make the new value: state.update({way!r}, fn)",
    )


def split(name: str) -> Path:
    """The names of a path; refuses one that has an empty name, or too many."""
    path = tuple(name.split("."))
    if not all(path) or len(path) > limits.MAX_PATH_PARTS:
        wrong = f"has {len(path)} parts" if all(path) else "has an empty part"
        raise InvalidValue(
            f"the path {name[:80]!r} {wrong}; nothing was written",
            hint=f"write 1 to {limits.MAX_PATH_PARTS} names with one dot between them: 'preferences.seat'",
        )
    return path


def opened(state: State, event: Event, fetch: Fetch) -> State:
    """A state in which the values that an event's paths lead into are all there, so that rules can look inside."""
    if not is_nested(event):
        return state
    named: Any = event
    names = event.patch.nested if isinstance(event, ev.StatePatched) else (named.name,)
    tops = {name.partition(".")[0] for name in names if name not in state.bag}
    apart = {top for top in tops if top in state.bag and codec.is_apart(state.bag[top])}
    if not apart:
        return state
    sketch = state.sketch()
    sketch.bag |= {top: codec.wrapped(codec.resolve(state.bag[top], fetch)) for top in apart}
    return sketch


def is_nested(event: Event) -> bool:
    """Return whether an event changes something inside an object of the state."""
    kind = type(event)
    if kind in _NAMED:
        return cast("ev.StateSet", event).nested
    return kind is ev.StatePatched and bool(cast("ev.StatePatched", event).patch.nested)


_NAMED = {ev.StateSet, ev.StateUpdated, ev.StateIncremented, ev.StateAppended, ev.StateDeleted}
NESTING = {*_NAMED, ev.StatePatched}
"""Events that may change something inside an object of the state."""


# On plain values, for readers and models


def plain_lookup(bag: Mapping[str, Any], name: str, value: Callable[[Any], Any]) -> Any:
    """Return the decoded value at a path; None if there is none."""
    try:
        return lookup(bag, name, lambda _, raw: value(raw))
    except KeyError:
        return None


def lookup(bag: Mapping[str, Any], name: str, value: Callable[[str, Any], Any]) -> Any:
    """Return the value at a path; KeyError if there is none. `value` decodes the bag's value of a name."""
    if field_name(name) in bag or not is_path(name):
        return value(name, bag[name])
    top, *inside = name.split(".")
    found = value(top, bag[top])
    for part in inside:
        if not isinstance(found, dict):
            raise KeyError(name)
        found = cast("dict[str, Any]", found)[part]
    return found


def placed(value: Any, path: Path, new: Any) -> Any:
    """A plain value in which the field at a path is another; what is on the way is copied, not changed."""
    if not path:
        return new
    fields: dict[str, Any] = dict(cast("dict[str, Any]", value)) if isinstance(value, dict) else {}
    return {**fields, path[0]: placed(fields.get(path[0]), path[1:], new)}


def without(value: Any, path: Path) -> Any:
    """A plain value without the field at a path."""
    if not isinstance(value, dict) or path[0] not in value:
        return cast("Any", value)
    fields = dict(cast("dict[str, Any]", value))
    inside = fields.pop(path[0])
    return fields if len(path) == 1 else {**fields, path[0]: without(inside, path[1:])}
