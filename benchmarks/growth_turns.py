"""A chat that hands its whole history to the model: what a turn costs, late in the conversation and early.

Each turn adds two messages, or four with a call and its result, and hands a window of all of them to a step. What is
measured is the processor's time of whole turns in the engine, on the store in memory.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import holdfast
from benchmarks.bench import Bench
from benchmarks.table import Row, at_most
from benchmarks.workload import MOST_ROUNDS, say, text
from holdfast import Task, agent

EARLY, LATE, LATEST = 10, 500, 5_000
AROUND = 8
ROUNDS = 3
CURVE = (10, 125, 250, 500, 1_000, 2_000, LATEST)

Handed = Callable[[Task], Any]
"""How a turn hands its history on."""

_TEXTS = [text(300, seed) for seed in range(50)]
_LONG = text(20_000, 1)


def rows(bench: Bench) -> list[Row]:
    """Late turns beside turn 10, by form; then the curve of lists beside read-only sequences."""
    say("growth_turns")
    forms: dict[str, tuple[Handed, bool, Callable[[Any], object]]] = {
        "chat": (_whole, False, len),
        "chat, calls and results": (_whole, True, len),
        "Responses": (_view, True, lambda shown: shown.render("responses")),
        "Anthropic": (_view, True, lambda shown: shown.render("anthropic")),
        "chat, with summaries": (_summarised, True, len),
        "chat, results shortened": (_shortened, True, len),
        "Anthropic, 16,000 tokens": (_cut, True, lambda shown: shown.render("anthropic")),
    }
    return [
        *(_row(f"turn {LATE}, {name}", Chat(*how), LATE, 1.5) for name, how in forms.items()),
        *_curve(),
    ]


class Chat:
    """An agent that talks for so many turns, and knows how much of the processor's time each took."""

    def __init__(self, handed: Handed, calls: bool, used: Callable[[Any], object]) -> None:
        self._handed = handed
        self._calls = calls
        self._used = used
        self.seconds: list[float] = []

    def talk(self, turns: int) -> None:
        """Talk; the turns are measured from one model's reply to the next."""
        self.seconds = []
        last = 0.0

        def reply(shown: Any) -> dict[str, Any]:
            nonlocal last
            self._used(shown)
            now = time.process_time()
            self.seconds.append(now - last)
            last = now
            return {"role": "assistant", "content": _TEXTS[len(self.seconds) % 50]}

        @agent(loop=True, max_turns=turns + 1)
        def chat(task: Task) -> str | None:
            number = task.turn
            task.message({"role": "user", "content": _TEXTS[number % 50]})
            if self._calls:
                call = {"id": f"c{number}", "type": "function", "function": {"name": "look", "arguments": "{}"}}
                task.message({"role": "assistant", "content": None, "tool_calls": [call]})
                said = _LONG if self._handed is _shortened else _TEXTS[number % 50]
                task.message({"role": "tool", "tool_call_id": call["id"], "content": said})
            task.message(task.step(reply, self._handed(task), name="model"))
            return "done" if number == turns else None

        gc.collect()
        last = time.process_time()
        with holdfast.open("memory:") as app:
            done = app.run(chat, {}, id="chat")
            assert done.result == "done", done.failure

    def at(self, turn: int) -> float:
        """What turns around this one took."""
        first = max(1, min(turn - AROUND // 2, len(self.seconds) - AROUND))
        return statistics.median(self.seconds[first : first + AROUND])


def _whole(task: Task) -> Any:
    return task.messages.window()


def _view(task: Task) -> Any:
    return task.messages.view()


def _cut(task: Task) -> Any:
    return task.messages.window(max_tokens=16_000)


def _shortened(task: Task) -> Any:
    return task.messages.window(max_tokens=2_000, keep_last=8)


def _summarised(task: Task) -> Any:
    return task.summarise(_summary, max_tokens=4_000)


def _summary(messages: list[dict[str, Any]]) -> str:
    return "They talked for a while."


def _row(name: str, chat: Chat, late: int, most: float) -> Row:
    found = [_measured(chat, late, (EARLY, late)) for _ in range(min(ROUNDS, MOST_ROUNDS))]
    early, last = (min(one[at] for one in found) for at in (EARLY, late))
    say(".")
    return _beside_early(name, last, early, most)


def _beside_early(name: str, late: float, early: float, most: float) -> Row:
    return Row(
        name=name, measured=late * 1e6, unit="µs", compare=early * 1e6, beside=f"turn {EARLY}", goal=at_most(most)
    )


def _curve() -> Iterator[Row]:
    """Whole turns by their number, handed out as a list and as a read-only sequence."""
    lists, views = (_measured(Chat(how, False, len), CURVE[-1] + AROUND, CURVE) for how in (_whole, _view))
    yield _beside_early(f"turn {LATEST:,}, a list", lists[LATEST], lists[EARLY], 5)
    yield _beside_early(f"turn {LATEST:,}, a read-only sequence", views[LATEST], views[EARLY], 2)
    for turn in CURVE:
        yield Row(
            name=f"turn {turn:,}, all messages as a list",
            measured=lists[turn] * 1e6,
            unit="µs",
            compare=views[turn] * 1e6,
            beside="read-only",
            curve="turns",
            at=turn,
            line="a list",
        )


def _measured(chat: Chat, turns: int, wanted: tuple[int, ...]) -> dict[int, float]:
    chat.talk(turns)
    return {turn: chat.at(turn) for turn in wanted}
