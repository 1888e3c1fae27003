"""The states of one turn, at each of its events: one state that grows, with containers that remember.

Thousands of branches see the task at thousands of moments. A copy of the state for each would cost what all that came
before costs, each time. Here a moment costs a few words, and the moments can be read in any order.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

from msgspec.structs import replace

from holdfast.core.events import Event
from holdfast.core.state.fold import evolve
from holdfast.core.state.shapes import CONTAINERS, State

_ABSENT: Any = object()
_START = -1
_DICTS = tuple(name for name in CONTAINERS if State.__annotations__[name].startswith("dict["))
_LISTS = tuple(name for name in CONTAINERS if name not in _DICTS)


class Moments:
    """A state that grows event by event, and what it was after each of them."""

    def __init__(self, start: State) -> None:
        self._growing = start.copy()
        self._seqs: list[int] = []
        self._moments: list[tuple[State, tuple[int, ...]]] = []
        self._keep(start.seq)

    @property
    def seq(self) -> int:
        """The event up to which it has grown."""
        return self._growing.seq

    def grow(self, log: str, seq: int, at_us: int, event: Event) -> None:
        """Apply the next event."""
        for name in _DICTS:
            getattr(self._growing, name).seq = seq
        self._growing = evolve(self._growing, log, seq, at_us, event)
        self._keep(seq)

    def at(self, seq: int) -> State:
        """Return the state after the last event up to that seq. It may be sketched on; what it holds is not copied."""
        moment, lengths = self._moments[max(bisect_right(self._seqs, seq) - 1, 0)]
        state = replace(moment)
        for name in _DICTS:
            known: _Remembering = getattr(moment, name)
            setattr(state, name, Then(known, state.seq) if known.changes or known else {})
        for name, length in zip(_LISTS, lengths, strict=True):
            setattr(state, name, getattr(moment, name)[:length])
        return state

    def _keep(self, seq: int) -> None:
        """Keep this moment. An event may have put a new container in the place of one: from here on, that remembers."""
        state = self._growing
        for name in _DICTS:
            container = getattr(state, name)
            if type(container) is not _Remembering:
                setattr(state, name, _Remembering(container, seq))
        self._seqs.append(seq)
        self._moments.append((replace(state), tuple([len(getattr(state, name)) for name in _LISTS])))


class _Remembering(dict[str, Any]):
    """A dict that knows which value a key had after which event, and its place in the order.

    The fold uses only the methods that are defined here, and those that read. A list of the fold only grows or is
    replaced, so its length tells what it was.
    """

    __slots__ = ("_inserted", "_places", "_positions", "_sizes", "changes", "seq")

    def __init__(self, items: dict[str, Any], seq: int) -> None:
        super().__init__(items)
        self.seq = seq
        self.changes: dict[str, list[tuple[int, int, Any]]] = {}
        self._positions: tuple[str, ...] | None = tuple(items)
        self._places: dict[str, int] = {}
        self._inserted = len(items)
        self._sizes = [(_START, len(items))]

    def __setitem__(self, key: str, value: Any) -> None:
        self._remember(key, value)
        super().__setitem__(key, value)
        self._resized()

    def __delitem__(self, key: str) -> None:
        if key not in self:
            raise KeyError(key)
        self._remember(key, _ABSENT)
        super().__delitem__(key)
        self._resized()

    def pop(self, key: str, *default: Any) -> Any:
        """Remove a key."""
        if key not in self:
            return super().pop(key, *default)
        value = self[key]
        del self[key]
        return value

    def update(self, items: dict[str, Any]) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Set several keys."""
        for key, value in items.items():
            self[key] = value

    clear = popitem = setdefault = __ior__ = None  # type: ignore  # the fold has no use for them

    def _remember(self, key: str, value: Any) -> None:
        known = self.changes.get(key)
        before = self.get(key, _ABSENT)
        if known is None:  # set before the value is: a reader in another thread looks here after it has read that
            known = self.changes[key] = [(_START, _START, before)]
        place = known[-1][1]
        if before is _ABSENT:
            place = self._inserted
            self._inserted += 1
        known.append((self.seq, place, value))

    def _resized(self) -> None:
        if len(self) != self._sizes[-1][1]:
            self._sizes.append((self.seq, len(self)))

    def value(self, key: str, seq: int) -> Any:
        """Return the value of a key after that event."""
        value = self.get(key, _ABSENT)
        known = self.changes.get(key)
        return value if known is None else known[bisect_right(known, seq, key=_seq_of) - 1][2]

    def size(self, seq: int) -> int:
        """Return how many keys there were after that event."""
        return self._sizes[bisect_right(self._sizes, seq, key=_seq_of) - 1][1]

    def keys_at(self, seq: int) -> list[str]:
        """Return the keys after that event, in their order then."""
        positions = self._positions
        if positions is not None:
            self._places = {key: place for place, key in enumerate(positions)}
            self._positions = None
        found = {key: self._places[key] for key in list(self) if key not in self.changes}
        for key, known in list(self.changes.items()):
            _, place, value = known[bisect_right(known, seq, key=_seq_of) - 1]
            found.pop(key, None)
            if value is not _ABSENT:
                found[key] = self._places[key] if place == _START else place
        return sorted(found, key=found.__getitem__)


class Then(MutableMapping[str, Any]):
    """A dict as it was after an event, with changes of its own, which nothing else sees."""

    __slots__ = ("_changed", "_known", "_new", "_seq")

    def __init__(self, known: _Remembering, seq: int) -> None:
        self._known = known
        self._seq = seq
        self._changed: dict[str, Any] = {}
        self._new: dict[str, Any] = {}

    def copy(self) -> Then:
        """Return the same, to be changed apart."""
        other = Then(self._known, self._seq)
        other._changed, other._new = self._changed.copy(), self._new.copy()
        return other

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a key, or `default`."""
        found = self._find(key)
        return default if found is _ABSENT else found

    def __getitem__(self, key: str) -> Any:
        found = self._find(key)
        if found is _ABSENT:
            raise KeyError(key)
        return found

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self._find(key) is not _ABSENT

    def __setitem__(self, key: str, value: Any) -> None:
        is_in_place = key not in self._new and self._find(key) is not _ABSENT
        (self._changed if is_in_place else self._new)[key] = value

    def __delitem__(self, key: str) -> None:
        if self._new.pop(key, _ABSENT) is not _ABSENT:
            return
        if self._find(key) is _ABSENT:
            raise KeyError(key)
        self._changed[key] = _ABSENT

    def __iter__(self) -> Iterator[str]:
        yield from [key for key in self._known.keys_at(self._seq) if self._changed.get(key) is not _ABSENT]
        yield from self._new

    def __len__(self) -> int:
        gone = sum(1 for value in self._changed.values() if value is _ABSENT)
        return self._known.size(self._seq) - gone + len(self._new)

    def __or__(self, other: Mapping[str, Any]) -> dict[str, Any]:
        return {**self, **other}

    def __ior__(self, other: Mapping[str, Any]) -> Then:
        self.update(other)
        return self

    def _find(self, key: str) -> Any:
        if key in self._new:
            return self._new[key]
        if key in self._changed:
            return self._changed[key]
        return self._known.value(key, self._seq)


def _seq_of(change: tuple[int, ...]) -> int:
    return change[0]
