"""Values that an agent was handed from its state: whether it has changed one in place."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

from holdfast.core import codec
from holdfast.core.errors import NotSerializable, StateMutated

_IMMUTABLE = frozenset((str, int, float, bool, type(None), bytes))


class _Loan(NamedTuple):
    """A value that was handed out: what it was made of, the value, and its encoding then."""

    source: Any
    value: Any
    encoded: bytes


class Lent:
    """What one execution has handed out of its state, one value a field; each verb looks whether it is unchanged.

    The whole state, as an instance of its model, has the empty name.
    """

    def __init__(self, place: str = "task.state") -> None:
        self._place = place
        self._loans: dict[str, _Loan] = {}
        self._read_only: list[codec.HandedOut] = []

    def watch(self, handed_out: codec.HandedOut) -> None:
        """Look after lists and dicts, too, that this has handed out."""
        if handed_out not in self._read_only:
            self._read_only.append(handed_out)

    def known(self, name: str, source: Any) -> tuple[Any] | None:
        """The value that was handed out for a field, if that was made of the same."""
        loan = self._loans.get(name)
        return (loan.value,) if loan is not None and loan.source == source else None

    def lend(self, name: str, source: Any, value: Any) -> Any:
        """Hand out a field's value, and remember what it is."""
        if type(value) not in _IMMUTABLE:
            encoded = _encoded(value)
            if encoded is not None:
                self._loans[name] = _Loan(source, value, encoded)
        return value

    def returned(self, name: str) -> None:
        """A field is written: whatever became of the value that was handed out, it is not lost."""
        self._loans.pop(name, None)
        whole = self._loans.get("")
        now = None if whole is None else _encoded(whole.value)
        if whole is not None and now is not None:
            fields = {**codec.parse(whole.encoded.decode()), name: codec.parse(now.decode()).get(name)}
            self._loans[""] = whole._replace(encoded=codec.plain_json(codec.pack_typed(fields)))

    def check(self) -> None:
        """Raise StateMutated, once, if a value that was handed out has changed."""
        for one in self._read_only:
            one.check()
        for name, loan in list(self._loans.items()):
            now = _encoded(loan.value)
            if now != loan.encoded and (now is None or _differ(loan.encoded, now)):
                del self._loans[name]
                raise _mutated(self._place, name, loan.encoded, now)

    def ordinary(self, value: Any) -> Any:
        """Arguments for a step's function, which may change them: copies of what was handed out."""
        return codec.ordinary(value, self._copied) if self._loans else codec.ordinary(value)

    def _copied(self, value: Any) -> Any:
        import copy  # only agents that hand on their state need it

        lent = any(value is loan.value for loan in self._loans.values())
        return copy.deepcopy(value) if lent else value


def _encoded(value: Any) -> bytes | None:
    try:
        return codec.plain_json(codec.pack_typed(value))
    except NotSerializable:
        return None


def _differ(before: bytes, now: bytes) -> bool:
    return bool(codec.parse(before.decode()) != codec.parse(now.decode()))


USER = "user."
"""What names begin with that belong to the state of a task's user."""


def _mutated(place: str, name: str, before: bytes, now: bytes | None) -> StateMutated:
    made = None if now is None else codec.parse(now.decode())
    if name.startswith(USER):
        place, name = "task.user.state", name.removeprefix(USER)
    path = f"{place}.{name}" if name else f"{place}.model"
    where = path + ("" if now is None else _first_difference(codec.parse(before.decode()), made))
    set_it = f"set it: {place}.{name} = …, or {place}.update({name!r}, fn)" if name else "set its fields"
    return StateMutated(where, "was changed in place, and that is not written", hint=f"change a copy, and {set_it}")


def _first_difference(one: Any, two: Any) -> str:
    """Return the place where two plain values first differ, as it is written in code."""
    if isinstance(one, dict) and isinstance(two, dict):
        first, second = cast("dict[str, Any]", one), cast("dict[str, Any]", two)
        for key in {**first, **second}:
            if key not in first or key not in second:
                return f".{key}"
            if first[key] != second[key]:
                return f".{key}{_first_difference(first[key], second[key])}"
    if isinstance(one, list) and isinstance(two, list):
        items = zip(cast("list[Any]", one), cast("list[Any]", two), strict=False)
        for index, (a, b) in enumerate(items):
            if a != b:
                return f"[{index}]{_first_difference(a, b)}"
    return ""
