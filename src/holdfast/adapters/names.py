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
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 33]}~{sha256(name.encode()).hexdigest()[:32]}"


def _escaped(found: re.Match[str]) -> str:
    return "".join(f"={byte:02x}" for byte in found[0].encode("utf-8", "surrogatepass"))


def step_key(kind: str, id: str) -> str:
    """Return the key of a step or a call in a task, such as `call:call_7`.

    >>> step_key("call", "fc#1")
    'call:fc=231'
    """
    name = f"{kind}:{re.sub(r'[^A-Za-z0-9_.-]', _escaped, id)}"
    return name if len(name) <= LONGEST_KEY else f"{name[: LONGEST_KEY - 33]}~{sha256(name.encode()).hexdigest()[:32]}"
