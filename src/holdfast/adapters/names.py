"""Names under which adapters record things: another framework's ids, in the characters that ids of tasks may have."""

from __future__ import annotations

import re
from hashlib import sha256

LONGEST = 300
LONGEST_KEY = 150
"""The longest name; of a longer one the end is replaced by a hash."""


def call_id(framework: str, *parts: str) -> str:
    """Return the id of the task that records a call, such as `langgraph:thread-1:call_7`.

    >>> call_id("langgraph", "ana's thread", "call_7")
    'langgraph:ana=27s=20thread:call_7'
    """
    name = ":".join((framework, *(re.sub(r"[^A-Za-z0-9_.-]", _escaped, part) for part in parts)))
    return _short(name, LONGEST)


def call_key(framework: str, *parts: str) -> str:
    """Return the key of a call that `app.call` makes, such as `adk:shop:ana:session-1:call_7`.

    >>> call_key("adk", "shop", "call#7")
    'adk:shop:call=237'
    """
    return _short(":".join((framework, *(re.sub(r"[^A-Za-z0-9_.-]", _escaped, part) for part in parts))), LONGEST_KEY)


def _short(name: str, longest: int) -> str:
    return name if len(name) <= longest else f"{name[: longest - 33]}~{sha256(name.encode()).hexdigest()[:32]}"


def _escaped(found: re.Match[str]) -> str:
    return "".join(f"={byte:02x}" for byte in found[0].encode("utf-8", "surrogatepass"))


def step_key(kind: str, id: str) -> str:
    """Return the key of a step or a call in a task, such as `call:call_7`.

    >>> step_key("call", "fc#1")
    'call:fc=231'
    """
    name = f"{kind}:{re.sub(r'[^A-Za-z0-9_.-]', _escaped, id)}"
    return _short(name, LONGEST_KEY)
