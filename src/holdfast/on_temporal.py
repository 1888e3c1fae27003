"""Run tasks in Temporal: an activity with a heartbeat, a workflow that calls it, and a pump of what is due.

    client = await Client.connect("localhost:7233")
    app = holdfast.open("postgresql://…", agents=[recap])

    await on_temporal.worker(client, app).run()      # in as many processes as you like
    await on_temporal.pump(client, app)              # in one

Each task of Holdfast is a short workflow `holdfast/<id>` with one activity, whose argument is the id. Its steps are in
Holdfast's log, so Temporal's history stays small. The activity tells Temporal that it is alive for as long as the task
runs, so a killed worker's task is tried again elsewhere within `heartbeat`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Coroutine
from datetime import timedelta
from importlib.util import find_spec
from typing import Any, Unpack

from holdfast import App, InvalidValue, MissingExtra, TaskCollected, TaskNotFound
from holdfast.dispatch import Pump, Which, at_least_one
from holdfast.engine.reading.values import Duration, seconds as as_seconds

if find_spec("temporalio") is None:
    raise MissingExtra(
        "temporalio is not installed", hint="from a checkout: pip install 'path/to/holdfast[postgres,temporal]'"
    )

from temporalio import activity, workflow
from temporalio.client import Client, WorkflowHandle
from temporalio.common import RetryPolicy, WorkflowIDConflictPolicy
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

ACTIVITY = "holdfast.work"
WORKFLOW = "holdfast.task"
TASK_QUEUE = "holdfast"
HEARTBEAT_SECONDS = 5.0
"""How long an activity may be silent before Temporal tries it again on another worker."""

LATE_SECONDS = 1.5
"""How much less than that Temporal gets as its limit, but half of it at the least.

Its server acts up to a second late when a heartbeat is missing, and up to another when it starts the next attempt.
"""

SHORTEST_HEARTBEAT_SECONDS = 3.0
"""Below that, what the server is late would be most of it, and `heartbeat` no promise."""

LONGEST = timedelta(days=3650)
"""How long an activity may take: as long as its task. What ends it is the heartbeat."""

CONCURRENCY = 100
STARTED_AT_ONCE = 20
"""How many workflows a pump asks for at a time."""


@workflow.defn(name=WORKFLOW, sandboxed=False)
class TaskWorkflow:
    """Works on one task of Holdfast until it ends or waits. What is due after that is another run of it."""

    @workflow.run
    async def run(self, id: str, heartbeat: float) -> str:
        """Return the task's status."""
        return await workflow.execute_activity(
            ACTIVITY,
            id,
            result_type=str,
            start_to_close_timeout=LONGEST,
            heartbeat_timeout=timedelta(seconds=max(heartbeat - LATE_SECONDS, heartbeat / 2)),
            retry_policy=RetryPolicy(
                initial_interval=timedelta(seconds=0.05),
                maximum_interval=timedelta(seconds=heartbeat),
            ),
        )


def work_activity(app: App) -> Callable[[str], Coroutine[Any, Any, str]]:
    """Return the activity, for a Temporal worker of your own. `app` is opened with the agents.

    It sends a heartbeat for as long as the task runs. If it is cancelled, the task is released after its step.
    """

    @activity.defn(name=ACTIVITY)
    async def work(id: str) -> str:
        async with _beating():
            try:
                return (await app.awork(id)).status
            except (TaskNotFound, TaskCollected):
                return "removed"
            except InvalidValue as error:  # this process can't work on it, whatever is tried again
                raise ApplicationError(error.message, type=error.code, next_retry_delay=timedelta(seconds=5)) from error

    return work


@contextlib.asynccontextmanager
async def _beating() -> AsyncGenerator[None]:
    """Tell Temporal that this activity is alive, a few times within what it may be silent."""
    limit = activity.info().heartbeat_timeout
    if limit is None:
        raise ApplicationError(
            "the activity holdfast.work has no heartbeat_timeout: a killed worker's task would wait for the end of "
            "start_to_close_timeout; call it with heartbeat_timeout=timedelta(seconds=5)",
            non_retryable=True,
        )

    async def beat() -> None:
        while True:
            activity.heartbeat()
            await asyncio.sleep(limit.total_seconds() / 4)

    beats = asyncio.create_task(beat())
    try:
        yield
    finally:
        beats.cancel()


def worker(
    client: Client, app: App, *, task_queue: str = TASK_QUEUE, concurrency: int = CONCURRENCY, **options: Any
) -> Worker:
    """Return a Temporal worker for tasks of the agents that `app` was opened with: `await worker(client, app).run()`.

    `concurrency`: how many tasks it works on at a time. Default 100. Other options are those of Temporal's Worker.
    """
    at_least_one(concurrency, "concurrency")  # Temporal would take 0, and never do anything
    settings: dict[str, Any] = {"max_cached_workflows": 0, **options}  # so nothing waits for a worker that is gone
    return Worker(
        client,
        task_queue=task_queue,
        activities=[work_activity(app)],
        workflows=[TaskWorkflow],
        max_concurrent_activities=concurrency,
        **settings,
    )


async def pump(
    client: Client,
    app: App,
    *,
    task_queue: str = TASK_QUEUE,
    heartbeat: Duration = HEARTBEAT_SECONDS,
    **which: Unpack[Which],
) -> None:
    """Start a workflow for each task that is due, until this is cancelled. Run it in one process, or in two.

    `heartbeat`: how long a worker may be silent before its task is tried elsewhere. Default 5 s, at least 3 s. Temporal
    is given less, since its server notices late. A workflow that is still open is not started twice. The rest is as for
    `dispatch.due`.
    """
    seconds, loop = as_seconds(heartbeat, "heartbeat", above_zero=True), asyncio.get_running_loop()
    if seconds < SHORTEST_HEARTBEAT_SECONDS:
        raise InvalidValue(
            f"heartbeat={heartbeat!r} is shorter than Temporal's server can keep",
            hint=f"give {SHORTEST_HEARTBEAT_SECONDS:.0f} s or more",
        )
    places = asyncio.Semaphore(STARTED_AT_ONCE)

    async def start(id: str) -> WorkflowHandle[Any, Any]:
        async with places:
            return await client.start_workflow(
                WORKFLOW,
                args=[id, seconds],
                id=f"holdfast/{id}",
                task_queue=task_queue,
                task_timeout=timedelta(seconds=2),
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            )

    async def start_all(ids: list[str]) -> None:
        await asyncio.gather(*(start(id) for id in ids))

    sender = Pump(app, lambda ids: asyncio.run_coroutine_threadsafe(start_all(ids), loop).result(), **which)
    try:
        await asyncio.to_thread(sender.run)
    finally:
        sender.stop()
