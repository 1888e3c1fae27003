"""Working on a task with an async agent."""

from __future__ import annotations

import asyncio

from holdfast.core import life
from holdfast.engine.drive_async import carry_out, drive_all, drive_async
from holdfast.engine.execute import arguments
from holdfast.engine.loop import LoopRun
from holdfast.engine.task import AsyncTask


async def work_async(run: LoopRun) -> None:
    """Let an `async def` agent work on a task it holds."""
    if run.hot.said or run.hot.bag or run.hot.facts:
        await asyncio.to_thread(run.views.load)  # a replay may look at them, and must not read the store on the loop
    if run.hot.messages.count:
        await asyncio.to_thread(run.views.load_conversation)
    run.drive, run.drive_all = drive_async, drive_all
    task = AsyncTask(run)
    run.start_body = lambda: run.agent.fn(task, **arguments(run))
    await carry_out(life.whole(run, run.agent), run)
