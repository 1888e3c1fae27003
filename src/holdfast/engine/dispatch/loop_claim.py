"""Working on a task with an async agent."""

from __future__ import annotations

import asyncio

from holdfast.core.codec import Group
from holdfast.core.errors import Conflict
from holdfast.core.events import Event
from holdfast.core.flows import lifecycle
from holdfast.engine.dispatch.claim import arguments
from holdfast.engine.drivers.loop_driver import carry_out, drive_all, drive_async
from holdfast.engine.execution.loop_execution import LoopExecution
from holdfast.engine.logs.log import Log
from holdfast.engine.logs.logs import Logs
from holdfast.engine.logs.loop_commits import LoopCommits
from holdfast.engine.verbs.async_task import AsyncTask
from holdfast.failpoints import failpoint


async def begin_async(logs: Logs, name: str, events: list[Event]) -> Log | None:
    """Write the first events of a task without asking whether it is there; None if it is, or was.

    Many tasks that begin together share their commits, and no thread is needed for any of them.
    """
    log = Log(logs, name)
    write, state = log.begin(events)
    failpoint("claim.before")
    try:
        placed = await LoopCommits(logs.committer).commit(Group((write,)))
    except Conflict:
        return None
    log.accept(write, placed[0], state)
    failpoint("claim.after")
    return log


async def work_async(execution: LoopExecution) -> None:
    """Let an `async def` agent work on a task it holds."""
    if execution.state.immediates or execution.state.bag or execution.state.facts:
        await asyncio.to_thread(
            execution.views.load
        )  # a replay may look at them, and must not read the store on the loop
    if execution.state.messages.count:
        await asyncio.to_thread(execution.views.load_conversation)
    if execution.linked_logs.linked:
        await asyncio.to_thread(execution.linked_logs.load)
    execution.drive, execution.drive_all = drive_async, drive_all
    task = AsyncTask(execution)
    execution.task = task
    execution.start_body = lambda: execution.agent.fn(task, **arguments(execution))
    watch = execution.services.watch
    watch.begin_task(execution, is_limited=execution.careful)
    try:
        await carry_out(lifecycle.task_flow(execution, execution.agent), execution)
    finally:
        task.refusals.restore()  # branches may have outlived the agent's own function
        watch.end_task(execution)
        execution.log.remember()
