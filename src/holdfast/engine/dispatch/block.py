"""Tasks around code that is not an agent: a `with` block whose verbs are durable."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from holdfast.core import events
from holdfast.core.errors import InvalidValue, Suspended, TaskExists, TimeLimit
from holdfast.core.flows import lifecycle, writers
from holdfast.engine.control.change import change
from holdfast.engine.control.lifecycle import reopen
from holdfast.engine.definitions.agent import Agent, block_agent
from holdfast.engine.definitions.call import in_body
from holdfast.engine.dispatch import checks, claim
from holdfast.engine.dispatch.dispatcher import Assignment, Dispatcher
from holdfast.engine.dispatch.runner import SharedThread
from holdfast.engine.drivers.driver import drive
from holdfast.engine.execution import mocks
from holdfast.engine.execution.execution import Execution
from holdfast.engine.logs.log import Log
from holdfast.engine.reading import contracts
from holdfast.engine.verbs.block import Block


@contextmanager
def block(
    dispatcher: Dispatcher, id: str, created: events.TaskCreated, then: tuple[events.Event, ...] = ()
) -> Generator[Block, None, None]:
    """Enter a task, new or known; what happens in the block is how it ends."""
    log = entered(dispatcher, id, created, then)
    agent = block_agent(created.agent)
    assignment = Assignment(id, agent, lambda: (log, True))
    with dispatcher.busy.with_(id, assignment.stop):
        if not log.state.ended:
            claim.claim(log)
        execution = dispatcher.execution(Execution, assignment, log)
        if execution.state.turn:
            execution.begin_prelude()
        task = Block(execution)
        ending = _Ending()
        with claim.stopped_by_interrupt(execution.stop, id), SharedThread(execution):
            try:
                with in_body(task), task.refusals.ended():
                    yield task
                drive(writers.settle_all(execution), execution)
            except BaseException as error:  # noqa: BLE001 — the task ends, or is released, as its agent would be
                ending.error = error
            execution.body = lambda: ending.result(task)
            if not log.state.ended or ending.error is not None:
                _end(execution, agent, ending, dispatcher)


class _Ending:
    """How a block was left."""

    def __init__(self) -> None:
        self.error: BaseException | None = None

    def result(self, task: Block) -> Any:
        if self.error is not None:
            raise self.error
        return task.result


def _end(execution: Execution, agent: Agent, ending: _Ending, dispatcher: Dispatcher) -> None:
    is_open = not execution.state.ended and not execution.suspended
    try:
        if is_open:
            drive(lifecycle.task_flow(execution, agent), execution)
    finally:
        execution.log.remember()
        if is_open and execution.state.summary.status == "failed":
            dispatcher.expect_failure(execution.log)
            dispatcher.tell_failure(execution.log)
    if ending.error is not None:
        raise ending.error
    failure = execution.state.failure
    if execution.suspended:
        raise Suspended
    if failure is not None:  # the block came to its end after the deadline
        raise TimeLimit(failure.message, hint="enter it again with a new deadline")


def entered(dispatcher: Dispatcher, id: str, created: events.TaskCreated, then: tuple[events.Event, ...]) -> Log:
    """The task of a block: begun, found, or, if it had failed, opened again."""
    logs = dispatcher.logs
    if logs.store.origin(id) is None:
        with contextlib.suppress(TaskExists):
            dispatcher.begin(id, created, then)
    log = logs.load(id)
    if not log.state.block or log.state.summary.agent != created.agent:
        raise InvalidValue(
            f"task {id!r} belongs to the agent {log.state.summary.agent!r}", hint="use app.run or app.resume for it"
        )
    checks.same_input(logs, log, created.input)
    contracts.same_contract(logs, log, created, then)
    mocks.refuse_real(log, created.mock)
    if log.state.summary.status == "failed" and not log.state.undoing:
        log = change(logs, id, reopen("", "entered again"))
    return log
