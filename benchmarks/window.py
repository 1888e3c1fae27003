"""A window over a long conversation whose counts are known, beside the same over a short one."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.bench import Bench
from benchmarks.table import Row, at_most
from benchmarks.workload import best, say, text, timed
from holdfast.core.context.tally import Tally
from holdfast.core.context.window import Window, WindowSummary, fitted, window
from holdfast.core.messages import Message, Text, ToolCall, answer, parse, render

FEW, MANY = 100, 10_000
MAX_TOKENS = 8_000
ROUNDS = 20
CALLS = 5


def rows(bench: Bench) -> list[Row]:
    """The least time of one window, by each strategy; of all it takes to send it; and of adding one message."""
    say("window")
    few, many = conversation(FEW), conversation(MANY)
    tallies = {count: Tally.of(messages) for count, messages in ((FEW, few), (MANY, many))}
    covered = window(tallies[MANY], max_tokens=MAX_TOKENS, strategy="summarise").covers
    summary = WindowSummary("They talked for a while.", covered)
    return [
        _row("window", 5, lambda count: window(tallies[count], max_tokens=MAX_TOKENS)),
        _row(
            "window, ten pinned", 5, lambda count: window(tallies[count], max_tokens=MAX_TOKENS, pinned=range(0, 20, 2))
        ),
        _row(
            "window, summarised",
            5,
            lambda count: window(tallies[count], max_tokens=MAX_TOKENS, strategy="summarise", summary=summary),
        ),
        _row(
            "window and its messages in chat form",
            5,
            lambda count: _sent(tallies[count], few if count == FEW else many),
        ),
        _added(),
    ]


def conversation(count: int) -> list[Message]:
    """Turns of four messages: a question, a call, its result, an answer."""
    messages = [Message("system", (Text("Be brief."),))]
    for turn in range(count // 4):
        call = ToolCall(f"call_{turn}", "read", '{"path":"/var/log/syslog"}')
        messages += [
            Message("user", (Text(text(200, turn)),)),
            Message("assistant", (call,)),
            answer(call, text(800, turn)),
            Message("assistant", (Text(text(300, turn)),)),
        ]
    return messages


def _sent(tally: Tally, messages: list[Message]) -> object:
    found = window(tally, max_tokens=MAX_TOKENS)
    return render(fitted(found, tally, [messages[at] for at in found.positions]))


def _row(name: str, most_ms: float, action: Callable[[int], Window | object]) -> Row:
    def least(count: int) -> Callable[[], float]:
        return lambda: min(timed(lambda: action(count)) for _ in range(CALLS))

    found = best(ROUNDS, few=least(FEW), many=least(MANY))
    return Row(
        name=f"{name}, of {MANY:,} messages",
        measured=found["many"] * 1e3,
        unit="ms",
        compare=found["few"] * 1e3,
        beside=f"of {FEW}",
        goal=at_most(most_ms, "ms"),
    )


def _added() -> Row:
    """What a new message costs: reading it, counting it by estimate, adding it."""
    given = {"role": "user", "content": text(1_000, 1)}

    def add() -> None:
        tally = Tally()
        for _ in range(1_000):
            tally.add(parse(given)[0])

    found = best(ROUNDS, add=lambda: timed(add))
    return Row(name="read, count and add a message of 1 KB", measured=found["add"] * 1e3, unit="µs")
