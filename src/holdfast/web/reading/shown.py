"""Values, events and workers as the page shows them: short, or by their beginning with a place to get the rest."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from holdfast import App
from holdfast.engine.reading import values
from holdfast.engine.reading.describe import describe, process_name
from holdfast.engine.reading.values import LoggedEvent

SHOWN = 120
"""How many characters of a value a row has."""

LARGE = 2_048
"""Values with more characters than this are shown by their beginning."""


def value_of(value: Any, task: str, seq: int, pointer: str) -> Any:
    """A value, or of a large one how large it is, how it begins, and where the whole of it is."""
    if value is None or isinstance(value, bool | int | float):
        return value
    text = value if isinstance(value, str) else values.text(value)
    if len(text) <= LARGE:
        return value
    href = f"/blobs/{quote(task, safe='')}/{seq}/{quote(pointer, safe='')}"
    return {"$blob": {"bytes": len(text.encode()), "preview": text[:LARGE], "href": href}}


def short(value: Any) -> str:
    """A value as a text that fits into a row."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else values.text(value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"


def money(cost: float | None) -> str | None:
    return None if cost is None else f"{cost:.6f}"


def holder_json(holder: str | None) -> dict[str, Any] | None:
    """A worker's process as people know it."""
    return None if holder is None else {"name": holder, "pid": process_name(holder)}


def row_of(app: App, record: LoggedEvent) -> list[Any]:
    """An event as a short array: seq, ms, kind, verb, about, value, tone, took, attempt, tokens, cost, by, dull."""
    line = describe(record, app.fetch)
    head = [record.seq, record.at_us // 1000, record.kind, line.verb, line.about, short(line.value), line.tone]
    return [*head, line.took_us // 1000, line.attempt, line.tokens, money(line.cost), line.by, line.dull]
