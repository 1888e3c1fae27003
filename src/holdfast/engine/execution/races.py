"""Races whose winner is recorded: of verbs and coroutines that an async agent starts together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any, Protocol

from holdfast.engine.execution.loop_execution import LoopExecution


class Racer(Protocol):
    """What a race needs of a task: where it is executed, and a step that records the winner."""

    @property
    def execution(self) -> LoopExecution: ...

    def step(self, fn: Any, *args: Any, name: str) -> Awaitable[int]: ...


async def race(task: Racer, branches: Sequence[Awaitable[Any]]) -> tuple[int, Any]:
    """Start each in a branch of its own; the first to end wins, and the others are cancelled."""
    branch = task.execution.branch_here("race")
    first = branch.branches + 1
    started = [asyncio.ensure_future(_awaited(one)) for one in branches]
    try:
        winner = await _winner(task, "race", started)
    finally:
        for one in started:
            if not one.done():
                one.cancel()
    losers = [one for index, one in enumerate(started) if index != winner]
    await asyncio.gather(*losers, return_exceptions=True)
    task.execution.claim_branches(branch, range(first, branch.branches + 1))
    return winner, await started[winner]


async def select(task: Racer, tasks: Sequence[asyncio.Future[Any]]) -> int:
    """Wait for the first of some asyncio tasks."""
    return await _winner(task, "select", [asyncio.ensure_future(one) for one in tasks])


async def _winner(task: Racer, name: str, started: Sequence[asyncio.Future[Any]]) -> int:
    """Find which task ends first, and record it. A replay waits for the recorded winner."""
    known: int | None = task.execution.recorded_value(name)
    if known is None:
        await asyncio.wait(started, return_when=asyncio.FIRST_COMPLETED)
        ended = next(index for index, one in enumerate(started) if one.done())
    else:
        ended = known
        await asyncio.wait([started[ended]])
    return await task.step(int, ended, name=name)


async def _awaited(one: Awaitable[Any]) -> Any:
    return await one
