"""Values, events and workers as the page shows them: short, or by their beginning with a place to get the rest."""

from __future__ import annotations

from typing import Any, cast
from urllib.parse import quote

from holdfast import App
from holdfast.engine.reading import values
from holdfast.engine.reading.describe import describe, process_name
from holdfast.engine.reading.values import LoggedEvent
from holdfast.web.requests.site import Site

SHOWN = 120
"""How many characters of a value a row has."""

LARGE = 2_048
"""Values with more characters than this are shown by their beginning."""

BRIEF = 60
"""Results in JSON with more characters than this are summarised in a line."""


def value_of(value: Any, task: str, seq: int, pointer: str) -> Any:
    """A value, or of a large one how large it is, how it begins, and where the whole of it is."""
    if value is None or isinstance(value, bool | int | float):
        return value
    text = value if isinstance(value, str) else values.text(value)
    if len(text) <= LARGE:
        return value
    return {"$blob": {"bytes": len(text.encode()), "preview": text[:LARGE], "href": href_of(task, seq, pointer)}}


def href_of(task: str, seq: int, pointer: str) -> str:
    """The place of a whole value: of the event that wrote it, by its place in the event."""
    return f"/blobs/{quote(task, safe='')}/{seq}/{quote(pointer, safe='')}"


def brief(text: str | None) -> str:
    """What a long JSON text holds, in a line: how many items with which fields, or the fields; else nothing.

    >>> brief('[' + ', '.join(['{"euros": 243, "flight": "SK4035"}'] * 3) + ']')
    '3 items, each with euros, flight'
    """
    if text is None or len(text) <= BRIEF or text.lstrip()[:1] not in ("[", "{"):
        return ""
    try:
        found = values.parse(text)
    except ValueError:  # it only looks like JSON
        return ""
    if isinstance(found, dict):
        told = [f"{name}: {_kind(value)}" for name, value in cast("dict[str, Any]", found).items()]
        return short(", ".join(told))
    items = cast("list[Any]", found)
    names = [", ".join(cast("dict[str, Any]", one)) if isinstance(one, dict) else "" for one in items]
    same = f", each with {names[0]}" if names and names[0] and len(set(names)) == 1 else ""
    return short(f"{_kind(items)}{same}")


def _kind(value: Any) -> str:
    match value:
        case list():
            count = len(cast("list[Any]", value))
            return f"{count} item{'' if count == 1 else 's'}"
        case dict():
            count = len(cast("dict[str, Any]", value))
            return f"{count} field{'' if count == 1 else 's'}"
        case _:
            return short(value)


def short(value: Any) -> str:
    """A value as a text that fits into a row."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else values.text(value)
    if not isinstance(value, str) and len(text) <= LARGE:  # as the command line has it: messages and calls can be read
        text = values.shown(value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"


def money(cost: float | None) -> str | None:
    return None if cost is None else f"{cost:.6f}"


def holder_json(site: Site, holder: str | None) -> dict[str, Any] | None:
    """A worker's process as people know it, with its machine if that is known."""
    if holder is None:
        return None
    return {"name": holder, "pid": process_name(holder), "machine": site.machine(holder)}


def row_of(app: App, record: LoggedEvent) -> list[Any]:
    """An event as a short array: seq, ms, kind, verb, about, value, tone, took, attempt, tokens, cost, by, dull."""
    line = describe(record, app.fetch)
    head = [record.seq, record.at_us // 1000, record.kind, line.verb, line.about, short(line.value), line.tone]
    return [*head, line.took_us // 1000, line.attempt, line.tokens, money(line.cost), line.by, line.dull]
