"""A conversation of 500 turns: what it costs on disk, and whether late turns cost more than early ones."""

from __future__ import annotations

import statistics
import time
from itertools import count
from pathlib import Path

from msgspec import Raw

import holdfast
from benchmarks.bench import Bench
from benchmarks.table import Row, at_most
from benchmarks.workload import best, new_task, say, text
from holdfast.core import codec
from holdfast.core.codec import MessagesRef
from holdfast.core.events import MessageAdded, StepCompleted, TurnStarted
from holdfast.engine.logs.log import Log

TURNS = 500
MESSAGE_BYTES = 1_024
EARLY, LATE = slice(10, 30), slice(480, 500)
ROUNDS = 6
ID = "conversation"


class Conversation:
    """The same 500 turns, written to a new file every time."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._names = count()
        pairs = range(0, 2 * TURNS, 2)
        self.messages = [(_message("user", n), _message("assistant", n + 1)) for n in pairs]
        self.seconds: list[list[float]] = []

    @property
    def message_bytes(self) -> int:
        """What the messages alone take, as JSON."""
        return sum(len(bytes(one)) for pair in self.messages for one in pair)

    def write(self) -> Path:
        """Write it, one commit an event, and remember what each turn took."""
        path = self._place / f"{next(self._names)}.db"
        with holdfast.open(path, durability="process") as app:
            log = new_task(app, ID)
            taken: list[float] = []
            for turn, (asked, answered) in enumerate(self.messages, start=1):
                began = time.perf_counter()
                _write_turn(log, turn, asked, answered)
                taken.append(time.perf_counter() - began)
            self.seconds.append(taken)
        return path


def rows(bench: Bench) -> list[Row]:
    """Bytes and the medians of neighbouring turns."""
    say("conversation")
    talk = Conversation(bench.place)

    def early() -> float:
        talk.write()
        return statistics.median(talk.seconds[-1][EARLY])

    def late() -> float:
        return statistics.median(talk.seconds[-1][LATE])

    found = best(ROUNDS, early=early, late=late)
    size = talk.write().stat().st_size
    return [
        Row(
            name=f"file of {TURNS} turns, two messages of 1 KB a turn",
            measured=size / 1024,
            unit="KB",
            compare=talk.message_bytes / 1024,
            beside="of messages",
            goal=at_most(2),
        ),
        Row(
            name=f"turn {LATE.start}-{LATE.stop} of it, process",
            measured=found["late"] * 1e6,
            unit="µs",
            compare=found["early"] * 1e6,
            beside=f"turn {EARLY.start}-{EARLY.stop}",
            goal=at_most(1.3),
        ),
    ]


def _message(role: str, seed: int) -> Raw:
    """A message whose JSON has exactly MESSAGE_BYTES."""
    room = MESSAGE_BYTES - len(bytes(codec.pack({"role": role, "content": ""})))
    return codec.pack({"role": role, "content": text(room, seed)})


def _write_turn(log: Log, turn: int, asked: Raw, answered: Raw) -> None:
    log.append((TurnStarted(turn=turn),))
    log.append((MessageAdded(message=asked),))
    said = log.state.messages
    window = codec.messages_value(MessagesRef(log.name, to=said.count, digest=said.digest))
    log.append((StepCompleted(key="model#1", name="model", input={"messages": window}, result=answered),))
    log.append((MessageAdded(step="model#1"),))
