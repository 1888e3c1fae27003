"""The filter bar: `status:failed agent:recap id:order-* changed<3h` as filters of a list."""

from __future__ import annotations

import shlex
from typing import Any

from holdfast.core.errors import InvalidValue

WORDS = ("status", "agent", "stage", "user", "thread", "queue", "parent", "waiting", "id")
FIELDS = "status: agent: stage: user: thread: queue: parent: waiting: id:prefix* changed<3h"
"""What an index serves, as it is typed."""

_ASKED = {"question": "person", "approval": "person"}
"""What people call a wait, and what its row says."""


def filters_of(text: str) -> dict[str, Any]:
    """Read a filter. One that no index serves is refused, with one that would do: a slow scan is never made silently.

    >>> filters_of("status:failed agent:'my agent' changed<3h")
    {'status': 'failed', 'agent': 'my agent', 'changed_since': '3h'}
    """
    try:
        words = shlex.split(text)
    except ValueError:
        raise InvalidValue(f"the filter {text!r} has a quote without an end", hint=f"use {FIELDS}") from None
    found: dict[str, Any] = {}
    for word in words:
        found |= _one(word)
    return found


def _one(word: str) -> dict[str, Any]:
    if word.startswith("changed<"):
        return {"changed_since": word.removeprefix("changed<")}
    name, colon, value = word.partition(":")
    if not colon and not any(sign in word for sign in "<>=!"):
        return {"prefix": word.removesuffix("*")}
    if name not in WORDS or not colon or not value:
        raise InvalidValue(f"no index serves {word!r}", hint=f"use {FIELDS}")
    if name == "id":
        return {"prefix": value.removesuffix("*")}
    if name == "status" and value == "interrupted":
        return {"interrupted": True}
    if name == "status" and value in ("doubt", "in-doubt"):
        return {"in_doubt": True}
    return {name: _ASKED.get(value, value) if name == "waiting" else value}
