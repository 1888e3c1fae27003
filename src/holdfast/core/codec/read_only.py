"""Values as they are read from the state: lists and dicts that cannot be changed, and say what to do instead.

They are `list` and `dict` all the same, for `json`, msgspec, pydantic and `isinstance`. A copy is an ordinary one; what
is inside of a shallow copy is still what was read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn, cast

from msgspec import Raw

from holdfast.core import limits
from holdfast.core.codec.documents import Fetch, decode_plain
from holdfast.core.codec.values import resolve
from holdfast.core.errors import StateMutated, ValueDamaged

Place = tuple[Any, Any]
"""Where a value was read: what it is in, and its key there. Outermost: the verbs it was read with, and its name."""


class ReadOnlyList(list[Any]):
    """A list of a state."""

    __slots__ = ("place",)
    place: Place

    def append(self, item: Any, /) -> NoReturn:
        raise refused(self.place, "append", item)

    def _refuse(self, *given: Any, **named: Any) -> NoReturn:
        raise refused(self.place, "update")

    extend = insert = pop = remove = clear = reverse = _refuse
    sort = _refuse  # pyright: ignore[reportAssignmentType]
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse

    def __reduce_ex__(self, protocol: Any, /) -> tuple[type, tuple[list[Any]]]:
        return list, (list(self),)  # how copy, deepcopy and pickle make another: an ordinary one


class ReadOnlyDict(dict[str, Any]):
    """An object of a state."""

    __slots__ = ("place",)
    place: Place

    def __setitem__(self, key: str, value: Any, /) -> NoReturn:
        raise refused((self.place, key), "set", value)

    def __delitem__(self, key: str, /) -> NoReturn:
        raise refused((self.place, key), "del")

    def _refuse(self, *given: Any, **named: Any) -> NoReturn:
        raise refused(self.place, "update")

    pop = popitem = clear = __ior__ = _refuse
    update = setdefault = _refuse  # pyright: ignore[reportAssignmentType]

    def __reduce_ex__(self, protocol: Any, /) -> tuple[type, tuple[dict[str, Any]]]:
        return dict, (dict(self),)


def outside(id: str) -> str:
    """Build the view by which a task's state is read from outside."""
    return f"{_OUTSIDE}{id!r}).state"


def read_only(value: Any, place: Place) -> Any:
    """A decoded value as it is handed out: every list and object in it knows where it was read.

    All of it at once: what a shallow copy holds must be read-only, and copies are made without asking.
    """
    if type(value) is dict:
        fields = cast("dict[str, Any]", value)
        told = ReadOnlyDict(fields)
        told.place = place
        for key, item in fields.items():
            if type(item) is dict or type(item) is list:
                _SET_FIELD(told, key, read_only(item, (place, key)))
        return told
    if type(value) is list:
        items = cast("list[Any]", value)
        made = ReadOnlyList(items)
        made.place = place
        for index, item in () if _CONTAINERS.isdisjoint(map(type, items)) else enumerate(items):
            if type(item) is dict or type(item) is list:
                _SET_ITEM(made, index, read_only(item, (place, index)))
        return made
    return value


_CONTAINERS: frozenset[type] = frozenset((list, dict))
_SET_ITEM: Callable[..., None] = list[Any].__setitem__
_SET_FIELD: Callable[..., None] = dict[str, Any].__setitem__
READ_ONLY = (ReadOnlyList, ReadOnlyDict)


def ordinary(value: Any, copied: Callable[[Any], Any] | None = None) -> Any:
    """The same value with ordinary lists and dicts wherever there are read-only ones; itself, if there are none.

    `copied` gives what else is to be replaced, or the value as it is.
    """
    if copied is not None and (other := copied(value)) is not value:
        return other
    kind: Any = type(value)  # pyright: ignore[reportUnknownVariableType]
    if kind in (ReadOnlyDict, dict):
        fields = cast("dict[Any, Any]", value)
        told = {key: ordinary(item, copied) for key, item in fields.items()}
        is_same = kind is dict and all(told[key] is item for key, item in fields.items())
        return fields if is_same else told
    if kind in (ReadOnlyList, list, tuple):
        items = cast("list[Any]", value)
        made = [ordinary(item, copied) for item in items]
        is_same = kind is not ReadOnlyList and all(a is b for a, b in zip(items, made, strict=True))
        return items if is_same else tuple(made) if kind is tuple else made
    return value


_BRACKETS = (b"[", b"{")


class _Given(NamedTuple):
    """A value that was handed out: what it was decoded from, the value, and the same with ordinary lists and dicts."""

    raw: Raw | None
    value: Any
    plain: Any


class HandedOut:
    """The values of a state that were handed out last, so that a value is decoded and wrapped once.

    Code in C, and `list.append(x, …)`, change a list without asking it. So each verb looks whether values are as they
    were: what they hold is shared with their plain form, which makes that a matter of microseconds.
    """

    __slots__ = ("_bytes", "_fetch", "_known", "_verbs")

    def __init__(self, verbs: str, fetch: Fetch) -> None:
        """`verbs` is how a state is written to: `task.state`."""
        self._verbs = verbs
        self._fetch = fetch
        self._known: dict[str, _Given] = {}
        self._bytes = 0

    def value(self, name: str, raw: Raw) -> Any:
        """A field's value, read-only."""
        data = bytes(raw)
        try:
            if data[:1] not in _BRACKETS:
                return decode_plain(data)  # most are numbers and texts, which can't be changed in place
            known = self._known.get(name)
            if known is not None and known.raw is raw:
                return known.value
            data = resolve(raw, self._fetch)
            plain = decode_plain(data)
            value = read_only(plain, (self._verbs, name))
        except ValueError as error:
            raise ValueDamaged("", f"cannot be read: {error}") from error
        self._keep(name, _Given(raw, value, plain), len(data))
        return value

    def default(self, name: str, value: Any) -> Any:
        """Return the default of a field that is not set. It is read-only too, like a field that is set."""
        made = read_only(value, (self._verbs, name))
        if type(made) in READ_ONLY:
            self._known[name] = _Given(None, made, ordinary(made))
        return made

    def written(self, name: str) -> None:
        """A field is written: whatever became of the value that was handed out, it is not lost."""
        self._known.pop(name, None)

    def check(self) -> None:
        """Refuse to continue if a value that was handed out is not what it was: StateMutated, once."""
        for name, given in list(self._known.items()):
            if _differ(given.value, given.plain):
                del self._known[name]
                place = f"{self._verbs}{_attribute(name)}"
                hint = f"change a copy, and set it: {place} = …, or {self._verbs}.update({name!r}, fn)"
                raise StateMutated(place, "was changed in place, and that is not written", hint=hint)

    def _keep(self, name: str, given: _Given, size: int) -> None:
        if self._bytes + size > limits.HANDED_OUT_BYTES:
            self._known.clear()
            self._bytes = 0
        if size <= limits.HANDED_OUT_BYTES:
            self._known[name] = given
            self._bytes += size


def _differ(one: Any, two: Any) -> bool:
    try:
        return bool(one != two)
    except Exception:  # noqa: BLE001 — whatever was put into it has a comparison of its own, so it is not what it was
        return True


# What to do instead


def refused(place: Place, verb: str, value: Any = None) -> StateMutated:
    """The error about a change in place: it names the verb that makes that change."""
    verbs, path = _path(place)
    inside = next((depth for depth, key in enumerate(path) if depth and not _is_name(key)), len(path))
    verb = verb if inside == len(path) else "update"  # paths lead through objects, not into lists
    if verbs.startswith(_OUTSIDE):
        id = verbs.removeprefix(_OUTSIDE).removesuffix(").state")
        write = f"write: app.patch({id}, StatePatch({_SECTION[verb](_shown('.'.join(path[:inside])), _shown(value))}))"
    else:
        write = _WRITE[verb](verbs, ".".join(path[:inside]), _shown(value))
    first = _attribute(path[0])
    read = "".join(f"[{key!r}]" for key in path[1:])
    return StateMutated(
        f"{verbs}{first}{read}", "can't be changed in place: what is read from the state is read-only", hint=write
    )


def _path(place: Place) -> tuple[str, list[Any]]:
    path: list[Any] = []
    outer, key = place
    while not isinstance(outer, str):
        path.append(key)
        outer, key = outer
    return outer, [key, *reversed(path)]


def _attribute(name: str) -> str:
    return f".{name}" if name.isidentifier() else f"[{name!r}]"


def _is_name(key: Any) -> bool:
    return isinstance(key, str) and bool(key) and "." not in key


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LENGTH else f"{text[:_LENGTH]}…"


_LENGTH = 60
_WRITE: dict[str, Callable[[str, str, str], str]] = {
    "append": lambda verbs, path, value: f'write: {verbs}.append("{path}", {value})',
    "set": lambda verbs, path, value: f'write: {verbs}.set("{path}", {value})',
    "del": lambda verbs, path, value: f'write: del {verbs}["{path}"]',
    "update": lambda verbs, path, value: f'write: {verbs}.update("{path}", fn); or change a copy, and set that',
}

_OUTSIDE = "app.get("
"""How the state of a task is read from outside: it is written by a patch."""

_SECTION: dict[str, Callable[[str, str], str]] = {
    "append": lambda path, value: f"append={{{path}: {value}}}",
    "set": lambda path, value: f"set={{{path}: {value}}}",
    "del": lambda path, value: f"delete=[{path}]",
    "update": lambda path, value: f"set={{{path}: …}}",
}
