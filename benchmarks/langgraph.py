"""LangGraph's checkpoints beside its own savers: bytes, processor time and wall time of turns, taking turns.

A turn is what a graph of one node writes: the writes of its task, then a checkpoint. The stock saver on SQLite is given
what Holdfast has by default, synchronous=full.
"""

from __future__ import annotations

import random
import sqlite3
import string
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.checkpoint.base import BaseCheckpointSaver, Checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver

import holdfast
from benchmarks.bench import Absent, Bench
from benchmarks.table import Goal, Row, at_most, skipped
from benchmarks.workload import say
from holdfast.adapters.langgraph import HoldfastSaver

GROWING, SMALL, ON_SERVER = 400, 300, 100
BLOCK = 20


def rows(bench: Bench) -> list[Row]:
    """400 turns of a conversation that grows, 300 of one that does not, and 100 on a server."""
    return [*_growing(bench.place), *_small(bench.place), *_on_server(bench)]


def _growing(place: Path) -> list[Row]:
    say("growing")
    path, connection = place / "growing.db", _stock(place / "growing-stock.db")
    with holdfast.open(path) as app:
        ours, stock = Turns(HoldfastSaver(app)), Turns(SqliteSaver(connection))
        cpu = _cpu_in_turns(ours, stock, GROWING, grows=True)
        read = [_cpu(lambda one=one: one.read(), 20) for one in (ours, stock)]
    connection.execute("pragma wal_checkpoint(truncate)")
    connection.close()
    bytes = [_bytes(path), _bytes(place / "growing-stock.db")]
    name = f"{GROWING} turns of two messages of 500 characters"
    return [
        _row(f"{name}, bytes", bytes[0] / 1e6, "MB", bytes[1] / 1e6, at_most(1 / 20)),
        _row(f"{name}, CPU a turn", cpu[0], "ms", cpu[1], at_most(1.2)),
        _row(f"read the newest checkpoint of {GROWING} turns, CPU", read[0], "ms", read[1]),
    ]


def _small(place: Path) -> list[Row]:
    say("small")
    connection = _stock(place / "small-stock.db")
    with holdfast.open(place / "small.db") as app:
        cpu = _cpu_in_turns(Turns(HoldfastSaver(app)), Turns(SqliteSaver(connection)), SMALL, grows=False)
    connection.close()
    return [_row(f"{SMALL} turns of one message that is replaced, CPU a turn", cpu[0], "ms", cpu[1], at_most(1.5))]


def _on_server(bench: Bench) -> list[Row]:
    say("postgres")
    name = f"{ON_SERVER} growing turns on PostgreSQL, wall time a turn"
    try:
        url, other = bench.database("langgraph"), bench.database("langgraph_stock")
    except Absent as absent:
        return [skipped(name, str(absent))]
    with holdfast.open(url) as app, PostgresSaver.from_conn_string(other) as saver:
        saver.setup()
        wall = _in_turns(Turns(HoldfastSaver(app)), Turns(saver), ON_SERVER, grows=True, clock=time.perf_counter)
    return [_row(name, wall[0], "ms", wall[1], at_most(1.3))]


class Turns:
    """A thread that grows turn by turn."""

    def __init__(self, saver: BaseCheckpointSaver[Any]) -> None:
        self._saver = saver
        self._config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        self._messages: list[BaseMessage] = []
        self._version: str | None = None
        self._number = 0
        self._random = random.Random(1)

    def prepare(self, *, grows: bool) -> Callable[[], None]:
        """The next turn: what is done when it is called is what is measured."""
        self._number += 1
        number = self._number
        new: list[BaseMessage] = [HumanMessage(self._text(), id=f"h{number}"), AIMessage(self._text(), id=f"a{number}")]
        self._messages = [*self._messages, *new] if grows else [new[0]]
        return lambda: self._turn(new, number)

    def _turn(self, new: list[BaseMessage], number: int) -> None:
        if number > 1:
            self._saver.put_writes(self._config, [("messages", new), ("branch:to:tools", None)], f"task-{number}", "~1")
        self._version = version = self._saver.get_next_version(self._version, None)
        made: Checkpoint = {
            "v": 4,
            "id": str(uuid6()),
            "ts": "2026-11-18T12:00:00+00:00",
            "channel_values": {"messages": self._messages},
            "channel_versions": {"messages": version, "__start__": version},
            "versions_seen": {"agent": {"messages": version}, "__input__": {}},
            "updated_channels": ["messages"],
        }
        told: Any = {"source": "loop", "step": number, "parents": {}}
        self._config = self._saver.put(self._config, made, told, {"messages": version})

    def read(self) -> None:
        """Read the newest checkpoint."""
        assert self._saver.get_tuple({"configurable": {"thread_id": "t", "checkpoint_ns": ""}}) is not None

    def _text(self) -> str:
        return "".join(self._random.choices(string.ascii_lowercase + " ", k=500))


def _cpu_in_turns(ours: Turns, stock: Turns, count: int, *, grows: bool) -> list[float]:
    return _in_turns(ours, stock, count, grows=grows, clock=time.process_time)


def _in_turns(ours: Turns, stock: Turns, count: int, *, grows: bool, clock: Callable[[], float]) -> list[float]:
    """Milliseconds a turn of both, in blocks that take turns."""
    spent = [0.0, 0.0]
    for _ in range(count // BLOCK):
        for at, one in enumerate((ours, stock)):
            for _ in range(BLOCK):
                turn = one.prepare(grows=grows)
                began = clock()
                turn()
                spent[at] += clock() - began
    return [one * 1000 / count for one in spent]


def _cpu(work: Callable[[], None], times: int) -> float:
    began = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - began) * 1000 / times


def _stock(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, check_same_thread=False)
    SqliteSaver(connection).setup()
    connection.execute("pragma synchronous=full")
    return connection


def _bytes(path: Path) -> int:
    return sum(one.stat().st_size for one in path.parent.iterdir() if one.name.startswith(path.name))


def _row(name: str, measured: float, unit: str, compare: float, goal: Goal | None = None) -> Row:
    return Row(name=name, measured=measured, unit=unit, compare=compare, beside="LangGraph's saver", goal=goal)
