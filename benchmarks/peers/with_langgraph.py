"""LangGraph with its SQLite checkpointer: WAL, synchronous=FULL, and durability="sync".

Two ways of taking steps: a graph whose one node goes to itself, and tasks in a functional entrypoint.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import time
from itertools import count
from pathlib import Path
from typing import Any, TypedDict

import aiosqlite
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, StateGraph
from serving import RESULT, serve

_ids = count()
_place = Path(sys.argv[1])


class State(TypedDict):
    """What a graph carries from node to node."""

    left: int
    result: str


def _node(state: State) -> State:
    return {"left": state["left"] - 1, "result": RESULT}


async def _node_async(state: State) -> State:
    return _node(state)


def _graph(node: Any, saver: Any) -> Any:
    """One node that goes to itself until no step is left."""
    builder = StateGraph(State)
    builder.add_node("work", node)
    builder.add_edge(START, "work")
    builder.add_conditional_edges("work", lambda state: "work" if state["left"] else END)
    return builder.compile(checkpointer=saver)


def _config(steps: int) -> dict[str, Any]:
    return {"configurable": {"thread_id": f"thread-{next(_ids)}"}, "recursion_limit": steps + 10}


@task
def _work(number: int) -> str:
    return RESULT


def _functional(saver: Any) -> Any:
    @entrypoint(checkpointer=saver)
    def steps(number: int) -> None:
        for one in range(number):
            _work(one).result()

    return steps


def _saver() -> SqliteSaver:
    connection = sqlite3.connect(_place / "langgraph.db", check_same_thread=False)
    connection.execute("pragma synchronous=full")
    return SqliteSaver(connection)


_saver_here = _saver()
_lone = _graph(_node, _saver_here)
_tasks = _functional(_saver_here)


def sequential(steps: int) -> float:
    """Nodes of a graph, one after the other."""
    began = time.perf_counter()
    _lone.invoke({"left": steps, "result": ""}, _config(steps), durability="sync")
    return time.perf_counter() - began


def functional(steps: int) -> float:
    """Tasks of an entrypoint, one after the other."""
    began = time.perf_counter()
    _tasks.invoke(steps, _config(steps), durability="sync")
    return time.perf_counter() - began


def concurrent(tasks: int, steps: int) -> float:
    """Many threads of a graph at once, on one event loop."""

    async def together() -> float:
        async with aiosqlite.connect(_place / "langgraph-async.db") as connection:
            await connection.execute("pragma synchronous=full")
            saver = AsyncSqliteSaver(connection)
            await saver.setup()
            graph = _graph(_node_async, saver)
            began = time.perf_counter()
            given: State = {"left": steps, "result": ""}
            await asyncio.gather(*(graph.ainvoke(given, _config(steps), durability="sync") for _ in range(tasks)))
            return time.perf_counter() - began

    return asyncio.run(together())


if __name__ == "__main__":
    serve(sequential=sequential, functional=functional, concurrent=concurrent)
