"""What replies of models say of their tokens. The names that providers use stand here, and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

USAGE = "usage"
"""Where a reply has it."""

CHAT_INPUT = "prompt_tokens"
"""What only chat completions say."""

INPUT = (CHAT_INPUT, "input_tokens")
CACHED = ("cache_read_input_tokens", "cache_creation_input_tokens")
"""What Anthropic counts apart from the input."""

OUTPUT = ("completion_tokens", "output_tokens")
DETAILS, THOUGHT = ("completion_tokens_details", "output_tokens_details"), "reasoning_tokens"
"""Where the output says how much of it the model only thought."""


class TokenReport(NamedTuple):
    """A provider's own count of a reply; None is what it does not say. `thought` is part of `output`."""

    input: int | None
    cached: int
    output: int | None
    thought: int


def may_report(value: Any) -> bool:
    """Return whether a result may carry usage: a cheap look before it is decoded."""
    return USAGE in value if type(value) is dict else hasattr(value, USAGE)


def reported_tokens(reply: Any) -> TokenReport | None:
    """Read the usage of a reply, in any of the forms providers give it; None if it has none.

    >>> reported_tokens({"content": "Almost.", "usage": {"prompt_tokens": 12, "completion_tokens": 3}})
    TokenReport(input=12, cached=0, output=3, thought=0)
    """
    given = cast("Mapping[str, Any]", reply).get(USAGE) if isinstance(reply, Mapping) else None
    if not isinstance(given, Mapping):
        return None
    usage = cast("Mapping[str, Any]", given)
    details = [cast("Mapping[str, Any]", one) for one in map(usage.get, DETAILS) if isinstance(one, Mapping)]
    return TokenReport(
        _count(usage, INPUT),
        sum(_count(usage, (name,)) or 0 for name in CACHED),
        _count(usage, OUTPUT),
        sum(_count(one, (THOUGHT,)) or 0 for one in details),
    )


def _count(usage: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    """Read a count under the first of its names that has one; some endpoints fill the others with 0."""
    told = [one for one in map(usage.get, names) if type(one) is int and one >= 0]
    return next((one for one in told if one), told[0] if told else None)
