"""adopt: bring the threads of another LangGraph saver into a Holdfast store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple

from holdfast import App, InvalidValue
from holdfast.adapters.langgraph.saver import HoldfastSaver


class Adopted(NamedTuple):
    """What was brought in, and how much of that had been there already."""

    threads: int
    checkpoints: int
    known: int


def adopt(stock: BaseCheckpointSaver[Any], app: App, *, saver: HoldfastSaver | None = None) -> Adopted:
    """Copy all threads of a stock saver (SQLite, PostgreSQL, memory) into the store; the stock saver is only read.

        with SqliteSaver.from_conn_string("checkpoints.sqlite") as stock:
            adopt(stock, app)

    Run it again to catch up: what is there already stays as it is. `saver` is the one to put checkpoints with, if your
    graph's has a serializer of its own. Default: `HoldfastSaver(app)`.
    """
    if not isinstance(stock, BaseCheckpointSaver):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(f"{stock!r} is not a saver of LangGraph", hint="give adopt(SqliteSaver(…), app)")
    target = saver or HoldfastSaver(app)
    threads: dict[str, list[RunnableConfig]] = {}
    for one in stock.list(None):  # newest first; only where they are is kept, so that the whole need not fit in memory
        threads.setdefault(_place(one.config)[0], []).append(one.config)
    brought = known = 0
    for configs in threads.values():
        versions: dict[str, Mapping[str, Any]] = {}  # of the checkpoints of this thread, by their ids
        for config in reversed(configs):
            one = stock.get_tuple(config)
            if one is None or target.has(*_place(config), one.checkpoint["id"]):
                known += one is not None
                continue
            _bring(target, one, versions)
            brought += 1
    return Adopted(len(threads), brought, known)


def _place(config: RunnableConfig) -> tuple[str, str]:
    given = config.get("configurable", {})
    return str(given["thread_id"]), given.get("checkpoint_ns", "")


def _bring(target: HoldfastSaver, one: CheckpointTuple, versions: dict[str, Mapping[str, Any]]) -> None:
    """Put a checkpoint with its writes."""
    thread, ns = _place(one.config)
    parent = (one.parent_config or {}).get("configurable", {}).get("checkpoint_id")
    given = {"thread_id": thread, "checkpoint_ns": ns, **({} if parent is None else {"checkpoint_id": parent})}
    before, now = versions.get(parent or "", {}), one.checkpoint["channel_versions"]
    versions[one.checkpoint["id"]] = now
    new = {name: version for name, version in now.items() if before.get(name) != version}
    saved = target.put({"configurable": given}, one.checkpoint, one.metadata, new)
    tasks: dict[str, list[tuple[str, Any]]] = {}
    for task, channel, value in one.pending_writes or ():
        tasks.setdefault(task, []).append((channel, value))
    for number, (task, writes) in enumerate(tasks.items()):
        target.put_writes(
            saved, writes, task, f"{number:06}"
        )  # the stock saver does not give the path; this keeps its order
