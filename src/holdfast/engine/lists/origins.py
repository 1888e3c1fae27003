"""Where the values of a call's arguments come from: the model that asked for it, people, tools, the task's input."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Literal, cast

from msgspec import Struct

from holdfast.core import codec
from holdfast.core.codec import Fetch, LoggedEvent
from holdfast.engine.lists.chat import chat
from holdfast.engine.reading.describe import as_json

MOST_NAMED = 3
"""How many places are named for one value."""

MOST_PARTS = 2_000
"""How many parts of one event's value are looked at."""

SHORTEST = 3
"""Shorter texts are the same by accident, unless their names are the same too."""

_WROTE: dict[str, Literal["person", "tool", "input"]] = {
    "task_created": "input",
    "step_completed": "tool",
    "step_settled": "person",
    "wait_ended": "person",
    "signal_received": "person",
    "state_patched": "person",
}


class ValueOrigin(Struct, frozen=True):
    """An earlier place of a value: who wrote it, as what (a person's name, a step), and at which seq."""

    who: Literal["model", "person", "tool", "step", "input"]
    name: str
    seq: int


def origins(
    records: Sequence[LoggedEvent], call: str, arguments: Mapping[str, Any], fetch: Fetch
) -> dict[str, list[ValueOrigin]]:
    """Return for each argument of a call where its value stands earlier, oldest first.

    If a model asked for the call, what it wrote is exact. Everything else is found by the same value: a place where it
    could come from, which does not prove it.
    """
    asked = _asked(records, call, fetch)
    found: dict[str, list[ValueOrigin]] = {
        name: [ValueOrigin("model", "", asked[1])] if name in asked[0] and asked[0][name] == value else []
        for name, value in arguments.items()
    }
    left = {name: value for name, value in arguments.items() if not found[name]}
    for record in records if left else ():
        told = as_json(record, fetch) if record.kind in _WROTE else None
        if told is None or (_WROTE[record.kind] == "person" and not told["by"]):
            continue
        parts = list(islice(_parts("", told["value"]), MOST_PARTS))
        for name, value in left.items():
            if len(found[name]) < MOST_NAMED and any(_fits(name, value, *part) for part in parts):
                found[name].append(_origin(record, told))
    return {name: places for name, places in found.items() if places}


def _asked(records: Sequence[LoggedEvent], call: str, fetch: Fetch) -> tuple[dict[str, Any], int]:
    """Return the arguments that a model gave for the call, and the seq of its message."""
    for entry in chat(records, fetch):
        for one in entry.calls:
            if one.step == call:
                try:
                    given = codec.load(one.arguments.encode(), dict[str, Any])
                except ValueError:  # models write what is not a JSON object, too
                    return {}, 0
                return given, entry.seq
    return {}, 0


def _origin(record: LoggedEvent, told: Mapping[str, Any]) -> ValueOrigin:
    who = _WROTE[record.kind]
    if who == "person":
        return ValueOrigin("person", told["by"], record.seq)
    if who == "tool":
        return ValueOrigin("tool" if getattr(record.event, "tool", "") else "step", told["about"], record.seq)
    return ValueOrigin("input", "", record.seq)


def _parts(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """A value and every part of it, each with its name."""
    yield name, value
    if isinstance(value, dict):
        for key, one in cast("dict[str, Any]", value).items():
            yield from _parts(key, one)
    elif isinstance(value, list):
        for one in cast("list[Any]", value):
            yield from _parts(name, one)


def _fits(name: str, value: Any, at: str, part: Any) -> bool:
    if value is None or isinstance(value, bool) or type(value) is not type(part) or value != part:
        return False
    return at in ("", name) or (isinstance(value, str) and len(value) >= SHORTEST)
