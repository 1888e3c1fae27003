"""LangGraph with its SQLite checkpointer (WAL, synchronous=FULL) or its PostgreSQL one, and durability="sync".

Two ways of taking steps: a graph whose one node goes to itself, and tasks in a functional entrypoint.
"""

from __future__ import annotations

import asyncio
import operator
import sqlite3
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cache
from itertools import count
from pathlib import Path
from typing import Annotated, Any, TypedDict

import aiosqlite
import errand
import psycopg
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, StateGraph
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool
from serving import RESULT, Life, forked, message, serve

CONNECTIONS = 10

_ids = count()
_place = sys.argv[1]


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


def _saver(path: object) -> SqliteSaver:
    connection = sqlite3.connect(str(path), check_same_thread=False)
    connection.execute("pragma synchronous=full")
    return SqliteSaver(connection)


def _saver_at(url: str) -> PostgresSaver:
    saver = PostgresSaver(psycopg.connect(url, autocommit=True, prepare_threshold=0, row_factory=dict_row))
    saver.setup()
    return saver


@cache
def _lone() -> tuple[Any, Any]:
    """A graph and an entrypoint with one saver, made when something is measured in this very process."""
    saver = _saver_at(_place) if "://" in _place else _saver(f"{_place}/langgraph.db")
    return _graph(_node, saver), _functional(saver)


def sequential(steps: int) -> float:
    """Nodes of a graph, one after the other."""
    graph, _ = _lone()
    began = time.perf_counter()
    graph.invoke({"left": steps, "result": ""}, _config(steps), durability="sync")
    return time.perf_counter() - began


def functional(steps: int) -> float:
    """Tasks of an entrypoint, one after the other."""
    _, tasks = _lone()
    began = time.perf_counter()
    tasks.invoke(steps, _config(steps), durability="sync")
    return time.perf_counter() - began


@asynccontextmanager
async def _async_saver() -> AsyncIterator[Any]:
    if "://" in _place:
        options = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
        async with AsyncConnectionPool(_place, kwargs=options, min_size=CONNECTIONS, max_size=CONNECTIONS) as pool:
            yield AsyncPostgresSaver(pool)  # type: ignore[arg-type]
    else:
        async with aiosqlite.connect(f"{_place}/langgraph-async.db") as connection:
            await connection.execute("pragma synchronous=full")
            yield AsyncSqliteSaver(connection)


def concurrent(tasks: int, steps: int) -> float:
    """Many threads of a graph at once, on one event loop."""

    async def together() -> float:
        async with _async_saver() as saver:
            await saver.setup()
            graph = _graph(_node_async, saver)
            began = time.perf_counter()
            given: State = {"left": steps, "result": ""}
            await asyncio.gather(*(graph.ainvoke(given, _config(steps), durability="sync") for _ in range(tasks)))
            return time.perf_counter() - began

    return asyncio.run(together())


def _added(messages: list[Any], more: list[list[Any]]) -> list[Any]:
    return [*messages, *(one for some in more for one in some)]


class Talk(TypedDict):
    """A conversation: every checkpoint has all of it."""

    turn: int
    messages: Annotated[list[Any], operator.add]


class TalkByDeltas(TypedDict):
    """A conversation in the channel that keeps what was added, and all of it now and then; it is said to be beta."""

    turn: int
    messages: Annotated[list[Any], DeltaChannel(_added)]


def talk(path: str, turns: int, deltas: bool = False) -> float:
    """Go on with a conversation until it has so many turns; how long until the next one was entered, in seconds."""

    def live(life: Life) -> None:
        def take_turn(state: Any) -> Any:
            turn = state["turn"]
            if turn >= turns:
                life.says(time.perf_counter() - began)
            return {"turn": turn + 1, "messages": [message("user", turn), message("assistant", turn)]}

        began = time.perf_counter()
        builder = StateGraph(TalkByDeltas if deltas else Talk)
        builder.add_node("turn", take_turn)
        builder.add_edge(START, "turn")
        builder.add_edge("turn", "turn")
        _go_on(builder, Path(path), {"turn": 0, "messages": []}, "sync")

    return forked(live)


def _go_on(builder: Any, path: Path, given: Any, durability: Any) -> Any:
    """Begin a thread, or resume it if there is something of it."""
    saver = _saver(path)
    graph = builder.compile(checkpointer=saver)
    config: Any = {"configurable": {"thread_id": "one"}, "recursion_limit": 10**6}
    begun = saver.get_tuple(config) is not None
    return graph.invoke(None if begun else given, config, durability=durability)


class Done(TypedDict):
    """What was done to the world."""

    deeds: Annotated[list[str], operator.add]


def prepare(folder: Path) -> None:
    """A file with a schema."""
    _saver(folder / "store.db").setup()


def order(durability: str) -> Callable[[Path], None]:
    """The three deeds as nodes."""

    def live(folder: Path) -> None:
        def deed(name: str) -> Any:
            return lambda state: {"deeds": [errand.act(folder, name)]}

        builder = StateGraph(Done)
        for name, before in zip(errand.DEEDS, (START, *errand.DEEDS), strict=False):
            builder.add_node(name, deed(name))
            builder.add_edge(before, name)
        seen = _go_on(builder, folder / "store.db", {"deeds": []}, durability)
        assert seen["deeds"] == list(errand.DEEDS), seen

    return live


def warm_up() -> None:
    """Use it once, in memory, before any fork: what is loaded late is loaded here."""
    _graph(_node, InMemorySaver()).invoke({"left": 3, "result": ""}, _config(3), durability="sync")


if __name__ == "__main__":
    warm_up()
    serve(
        sequential=sequential,
        functional=functional,
        concurrent=concurrent,
        talk=talk,
        **errand.measures(Path(_place), prepare, order),
    )
