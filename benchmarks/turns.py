"""A loop agent that is shown a window every turn: whether late turns cost more than early ones, in the real engine."""

from __future__ import annotations

import statistics
import time
from typing import Any

import holdfast
from benchmarks.bench import Bench
from benchmarks.table import Row, at_most
from benchmarks.workload import say, text
from holdfast import tool
from holdfast.core.context.window import STRATEGIES, Strategy
from holdfast.llm import loop_agent

TURNS = 3_000
EARLY, LATE = slice(10, 510), slice(2_500, 3_000)
MAX_TOKENS = 2_000
_TEXTS = [text(200, seed) for seed in range(100)]


@tool(effect="read")
def look(number: int) -> str:
    """Look at something."""
    return _TEXTS[number % 100]


class Busy:
    """A model that always wants another look, and knows how much work of the processor lay between its replies."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._last = time.process_time()

    async def __call__(self, messages: list[dict[str, Any]], tools: list[Any], **options: Any) -> dict[str, Any]:
        if not tools:
            return {"role": "assistant", "content": _TEXTS[0]}
        now = time.process_time()
        self.seconds.append(now - self._last)
        self._last = now
        number = len(self.seconds)
        if number > TURNS:
            return {"role": "assistant", "content": "Enough."}
        call = {"id": f"call_{number}", "function": {"name": "look", "arguments": f'{{"number":{number}}}'}}
        return {"role": "assistant", "content": _TEXTS[number % 100], "tool_calls": [call]}


def rows(bench: Bench) -> list[Row]:
    """The medians of neighbouring turns."""
    say("turns")
    return [_row(strategy) for strategy in STRATEGIES]


def _row(strategy: Strategy) -> Row:
    model = Busy()
    limits: dict[str, Any] = {"max_tokens": MAX_TOKENS, "strategy": strategy, "max_turns": TURNS + 1}
    looking = loop_agent("looking", model, [look], "Look around.", **limits)
    with holdfast.open("memory:") as app:
        done = app.run(looking, {"goal": "Look."}, id=strategy)
        assert done.result == "Enough.", done.failure
    late, early = (statistics.median(model.seconds[span]) for span in (LATE, EARLY))
    say(".")
    return Row(
        name=f"turn {LATE.start:,}-{LATE.stop:,} of a loop with a window, {strategy}",
        measured=late * 1e6,
        unit="µs",
        compare=early * 1e6,
        beside=f"turn {EARLY.start}-{EARLY.stop}",
        goal=at_most(1.3),
    )
