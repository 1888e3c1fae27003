"""Tasks around code that is no agent: a `with` block whose verbs are durable."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from holdfast.core import events, life
from holdfast.core.errors import InvalidValue, TaskExists
from holdfast.engine import contracts, execute, mocks, outside
from holdfast.engine.agent import Agent, nobody
from holdfast.engine.drive import drive
from holdfast.engine.log import Log
from holdfast.engine.run import Run
from holdfast.engine.task import Block
from holdfast.engine.workshop import Workshop


@contextmanager
def block(
    shop: Workshop, id: str, created: events.TaskCreated, then: tuple[events.Event, ...] = ()
) -> Generator[Block, None, None]:
    """Enter a task, new or known; what happens in the block is how it ends."""
    log = _entered(shop, id, created, then)
    agent = nobody(created.agent)
    with shop.busy.with_(id):
        if not log.state.ended:
            execute.claim(log)
        run = Run(shop.logs, log, agent)
        run.children, run.mocks = shop.child, shop.mocks.get(id, {})
        if run.hot.turn:
            run.begin_prelude()
        task = Block(run)
        ending = _Ending()
        with execute.stopped_by_interrupt(run.stop, id):
            try:
                yield task
            except BaseException as error:  # noqa: BLE001 — the task ends, or is let go of, as its agent would be
                ending.error = error
            run.body = lambda: ending.result(task)
            if not log.state.ended or ending.error is not None:
                _end(run, agent, ending)


class _Ending:
    """How a block was left."""

    def __init__(self) -> None:
        self.error: BaseException | None = None

    def result(self, task: Block) -> Any:
        if self.error is not None:
            raise self.error
        return task.result


def _end(run: Run, agent: Agent, ending: _Ending) -> None:
    try:
        if not run.hot.ended and not run.suspended:
            drive(life.whole(run, agent), run)
    finally:
        run.log.remember()
    if ending.error is not None:
        raise ending.error


def _entered(shop: Workshop, id: str, created: events.TaskCreated, then: tuple[events.Event, ...]) -> Log:
    """The task of a block: begun, found, or, if it had failed, opened again."""
    logs = shop.logs
    if logs.store.origin(id) is None:
        with contextlib.suppress(TaskExists):
            shop.begin(id, created, then)
    log = logs.load(id)
    if not log.state.block or log.state.summary.agent != created.agent:
        raise InvalidValue(
            f"task {id!r} belongs to the agent {log.state.summary.agent!r}", hint="use app.run or app.resume for it"
        )
    execute.same_input(logs, log, created.input)
    contracts.same_contract(logs, log, created, then)
    mocks.refuse_real(log, created.mock)
    if log.state.summary.status == "failed" and not log.state.undoing:
        log = outside.change(logs, id, outside.reopen("", "entered again"))
    return log
