"""Holdfast where it is measured like its peers: killed, and going on in another process. Runs in our environment."""

from __future__ import annotations

import asyncio  # noqa: F401 — what is needed late is imported once, before any fork
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import errand
from serving import Life, forked, message, serve

import holdfast
from holdfast import Task, agent, tool

_place = Path(sys.argv[1])


def talk(path: str, turns: int) -> float:
    """Go on with a conversation until it has so many turns; how long until the next one was entered, in seconds."""

    def live(life: Life) -> None:
        began = time.perf_counter()
        conversation = _conversation(turns, lambda: life.says(time.perf_counter() - began))
        holdfast.open(path).run(conversation, id="talk")

    return forked(live)


def _conversation(turns: int, then: Callable[[], object]) -> Any:
    def ask(turn: int) -> dict[str, str]:
        if turn > turns:
            then()
        return message("user", turn)

    @agent(loop=True, max_turns=10**6)
    def conversation(task: Task) -> None:
        task.message(task.step(ask, task.turn, name="ask"))
        task.message(task.step(message, "assistant", task.turn, name="model"))
        if task.turn > turns:
            task.finish(None)

    return conversation


def warm_up() -> None:
    """Use it once before any fork, so that what is loaded late is loaded here; nothing stays open."""
    for turns in (100, 200):
        with holdfast.open(_place / "warm.db", durability="process") as app:
            app.run(_conversation(turns, lambda: None), id=f"warm-{turns}")
            app.get("warm-100")


def prepare(folder: Path) -> None:
    """A file with a schema."""
    holdfast.open(folder / "store.db").close()


def order(folder: Path) -> None:
    """The three deeds as calls that must not be repeated; a doubt is flagged, and settled by a look at the world."""

    def deed(name: str) -> Any:
        return tool(name=name)(lambda: errand.act(folder, name))

    deeds = [deed(name) for name in errand.DEEDS]

    @agent
    def order(task: Task) -> list[str]:
        return [task.call(one) for one in deeds]

    with holdfast.open(folder / "store.db") as app:
        seen = app.run(order, id="order")
        while seen.waiting and seen.waiting.kind == "doubt":
            (key,) = [key for key, step in seen.steps.items() if step.status == "doubt"]
            name = key.partition("#")[0]
            errand.flag(folder, name)
            app.settle("order", key, happened=errand.done(folder, name) > 0, result=name, by="ana")
            seen = app.run(order, id="order")
        assert seen.result == list(errand.DEEDS), seen


if __name__ == "__main__":
    _place.mkdir(exist_ok=True)
    warm_up()
    serve(
        talk=talk,
        **errand.measures(_place, prepare, lambda mode: order),
    )
