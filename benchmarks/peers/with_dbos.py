"""DBOS on SQLite or PostgreSQL. It opens files as SQLite does: a rollback journal, each commit synced to the disk."""

from __future__ import annotations

import asyncio
import sys
import time
from functools import cache
from pathlib import Path

import errand
from dbos import DBOS, SetWorkflowID
from serving import RESULT, Life, forked, message, serve

_place = sys.argv[1]


def _launch(url: str) -> None:
    DBOS(
        config={
            "name": "benchmark",
            "system_database_url": url,
            "run_admin_server": False,
            "log_level": "ERROR",
            "application_version": "1",
        }
    )
    DBOS.launch()


@cache
def _launched() -> None:
    """Launch it once, when something is measured in this very process."""
    _launch(_place if "://" in _place else f"sqlite:///{_place}/dbos.db")


@DBOS.step()
def _work(number: int) -> str:
    return RESULT


@DBOS.step()
async def _work_async(number: int) -> str:
    return RESULT


@DBOS.step()
def _entered() -> float:
    return time.monotonic()


@DBOS.workflow()
def _sequence(steps: int) -> None:
    for number in range(steps):
        _work(number)


@DBOS.workflow()
async def _sequence_async(steps: int) -> None:
    for number in range(steps):
        await _work_async(number)


@DBOS.workflow()
def _short() -> float:
    return _entered()


def sequential(steps: int) -> float:
    """Steps of a workflow, one after the other."""
    _launched()
    began = time.perf_counter()
    _sequence(steps)
    return time.perf_counter() - began


def concurrent(tasks: int, steps: int) -> float:
    """Many workflows at once, on one event loop."""
    _launched()

    async def together() -> float:
        began = time.perf_counter()
        await asyncio.gather(*(_sequence_async(steps) for _ in range(tasks)))
        return time.perf_counter() - began

    return asyncio.run(together())


def latency(samples: int) -> list[float]:
    """Seconds from enqueueing to the first step, with the poll interval it comes with."""
    _launched()
    queue = DBOS.register_queue("idle")
    time.sleep(2)
    found: list[float] = []
    for number in range(samples):
        time.sleep(0.037 * number % 1)  # at another moment between two polls each time
        began = time.monotonic()
        found.append(queue.enqueue(_short).get_result() - began)
    return found


_life: list[tuple[Life, int, float]] = []


@DBOS.step()
def _ask(turn: int) -> dict[str, str]:
    life, turns, began = _life[0]
    if turn >= turns:
        life.says(time.perf_counter() - began)
    return message("user", turn)


@DBOS.step()
def _model(turn: int) -> dict[str, str]:
    return message("assistant", turn)


@DBOS.workflow()
def _conversation() -> None:
    messages: list[dict[str, str]] = []
    for turn in range(10**6):
        messages += [_ask(turn), _model(turn)]


def talk(path: str, turns: int) -> float:
    """Go on with a conversation until it has so many turns; how long until the next one was entered, in seconds."""

    def live(life: Life) -> None:
        _life.append((life, turns, time.perf_counter()))
        _launch(f"sqlite:///{path}")
        with SetWorkflowID("talk"):
            _conversation()

    return forked(live)


def prepare(folder: Path) -> None:
    """A file with a schema, made by a launch that was not disturbed."""
    _launch(f"sqlite:///{folder}/store.db")
    DBOS.destroy()


@DBOS.step()
def _deed(folder: str, name: str) -> str:
    return errand.act(Path(folder), name)


@DBOS.workflow()
def _order(folder: str) -> list[str]:
    return [_deed(folder, name) for name in errand.DEEDS]


def order(folder: Path) -> None:
    """The three deeds as steps; a launch goes on with what was pending, and the id gives its result."""
    _launch(f"sqlite:///{folder}/store.db")
    with SetWorkflowID("order"):
        assert _order(str(folder)) == list(errand.DEEDS)


def answer() -> None:
    """Answer what is asked, until nobody asks any more."""
    serve(
        sequential=sequential,
        concurrent=concurrent,
        latency=latency,
        talk=talk,
        **errand.measures(Path(_place), prepare, lambda mode: order),
    )
    if _launched.cache_info().currsize:
        DBOS.destroy()


if __name__ == "__main__":
    answer()
