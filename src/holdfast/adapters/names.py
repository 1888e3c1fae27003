"""Names under which adapters record things: another framework's ids, in the characters that ids of tasks may have."""

from __future__ import annotations

import re
from hashlib import sha256

LONGEST = 300
LONGEST_KEY = 150
"""The longest name; of a longer one the end is replaced by a hash."""


def escaped(id: str, *, allowed: str = "_.-", first: bool = False) -> str:
    """Return an id with only letters, digits and `allowed` in it; anything else is written as bytes in hex.

    `first`: the first character must be a letter or a digit. Two ids never become the same one.

    >>> escaped("ana's"), escaped("'a", first=True), escaped("x'a", first=True)
    ('ana=27s', 'x==27a', 'x=27a')
    """
    text = re.sub(rf"[^A-Za-z0-9{re.escape(allowed)}]", _hex, id)
    return f"x={text}" if first and text and not text[0].isalnum() else text


def _hex(found: re.Match[str]) -> str:
    return "".join(f"={byte:02x}" for byte in found[0].encode("utf-8", "surrogatepass"))


def call_id(framework: str, *parts: str) -> str:
    """Return the id of the task that records a call, such as `langgraph:thread-1:call_7`.

    >>> call_id("langgraph", "ana's thread", "call_7")
    'langgraph:ana=27s=20thread:call_7'
    """
    return _short(":".join((framework, *map(escaped, parts))), LONGEST)


def call_key(framework: str, *parts: str) -> str:
    """Return the key of a call that `app.call` makes, such as `adk:shop:ana:session-1:call_7`.

    >>> call_key("adk", "shop", "call#7")
    'adk:shop:call=237'
    """
    return _short(":".join((framework, *map(escaped, parts))), LONGEST_KEY)


def step_key(kind: str, id: str) -> str:
    """Return the key of a step or a call in a task, such as `call:call_7`.

    >>> step_key("call", "fc#1")
    'call:fc=231'
    """
    return _short(f"{kind}:{escaped(id)}", LONGEST_KEY)


def _short(name: str, longest: int) -> str:
    return name if len(name) <= longest else f"{name[: longest - 33]}~{sha256(name.encode()).hexdigest()[:32]}"
