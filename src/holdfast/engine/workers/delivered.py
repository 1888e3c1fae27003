"""Working on a task that a dispatcher sent: only if it is due, and no other process has it.

A message may come twice, late, or for a task that has ended: then nothing happens. What a worker does about tasks that
kill it, or that their agent cannot resume, is done here too. Limits of queues are kept where the messages are sent.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any

from holdfast.core import limits, names
from holdfast.core.errors import (
    Conflict,
    HoldfastError,
    InvalidValue,
    LeaseLost,
    StoreBusy,
    StoreFull,
    StoreReadOnly,
    StoreUnreachable,
    TaskBusy,
)
from holdfast.engine.definitions.agent import Agent
from holdfast.engine.definitions.call import refuse_own
from holdfast.engine.dispatch import checks
from holdfast.engine.dispatch.dispatcher import Assignment, Dispatcher
from holdfast.engine.logs.log import Log
from holdfast.engine.workers.due import at_least_one
from holdfast.engine.workers.factory import dispatcher_of
from holdfast.engine.workers.worker import set_aside

PASSING = (StoreBusy, StoreUnreachable, StoreFull, StoreReadOnly)
"""Errors of a store that may work again. Until then the task is tried again here: this process may hold it."""

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.1, 5.0
"""How long it waits before it tries such a store again."""


def delivery(own: Dispatcher, namespace: str, id: str, *, hold: float, max_deaths: int) -> Delivery:
    """Return the task of an id, or of `tenant!id`. `own` is the dispatcher of `namespace`, and knows the agents."""
    tenant, _, name = id.rpartition(names.NAMESPACE_END) if isinstance(id, str) else ("", "", id)  # pyright: ignore[reportUnnecessaryIsInstance]
    if tenant and namespace and tenant != namespace:
        raise InvalidValue(
            f"{id!r} is a task of another namespace than {namespace!r}", hint="open the store without a namespace"
        )
    dispatcher = dispatcher_of(own, namespace, tenant or namespace)
    if dispatcher is not own:
        dispatcher.register_all([*own.agents.values()])
    refuse_own(dispatcher.logs, name, "work")
    return Delivery(dispatcher, names.task_log(name), hold, at_least_one(max_deaths, "max_deaths"))


class Delivery:
    """A task that a dispatcher sent to this process."""

    def __init__(self, dispatcher: Dispatcher, name: str, hold: float, max_deaths: int) -> None:
        self.logs = dispatcher.logs
        self._dispatcher = dispatcher
        self._name = name
        self._hold = hold
        self._max_deaths = max_deaths
        self._agent: Agent | None = None

    def typed_result(self, value: Any) -> Any:
        """Restore a result as its agent declares it, if the agent is known here."""
        return value if self._agent is None else self._agent.typed_result(value)

    def work(self) -> Log:
        """Work on it until it ends or waits, if it is due; give how it stands then."""
        pauses = _pauses()
        while True:
            try:
                return self._dispatcher.work(self._assignment())
            except _NothingToDo as found:
                return found.log
            except (TaskBusy, LeaseLost):
                return self.logs.load(self._name)
            except PASSING:
                time.sleep(next(pauses))

    async def work_async(self) -> Log:
        """`work`, to be awaited: an async agent works on the running event loop, a `def` agent in a thread.

        If it is cancelled, the task is released after its step, by the thread of a `def` agent too.
        """
        import asyncio

        pauses = _pauses()
        while True:
            try:
                assignment = await asyncio.to_thread(self._assignment)
                try:
                    return await self._dispatcher.work_async(assignment)
                except asyncio.CancelledError:
                    assignment.stop.ask()
                    raise
            except _NothingToDo as found:
                return found.log
            except (TaskBusy, LeaseLost):
                return await asyncio.to_thread(self.logs.load, self._name)
            except PASSING:
                await asyncio.sleep(next(pauses))

    def _assignment(self) -> Assignment:
        log = self.logs.load(self._name)
        self._refuse_not_due(log)
        agent = self._agent = self._dispatcher.agent_of(log, None)
        if log.state.summary.version not in agent.accepts:
            raise _NothingToDo(log)  # a process of its version gets it too
        return Assignment(self._name, agent, lambda: (self._claimed(agent), True), self._hold)

    def _claimed(self, agent: Agent) -> Log:
        """The task's log, once the task is taken. It may be nobody's work by now."""
        log = self.logs.load(self._name)
        for _ in range(limits.MAX_APPEND_TRIES):
            self._refuse_not_due(log)
            try:
                log.claim()
            except Conflict:
                log.refresh()
                continue
            if (unfit := self._unfit(log, agent)) is not None:
                set_aside(log, unfit)
                raise _NothingToDo(log)
            return log
        raise TaskBusy(self._name, log.state.summary.holder or "")

    def _refuse_not_due(self, log: Log) -> None:
        """Leave a task that has ended, or waits: by the rule by which stores find what workers may take."""
        summary, now_us = log.state.summary, self.logs.clock.now_us()
        is_free = summary.status == "pending" and summary.wake_us is None
        has_woken = summary.status in ("pending", "waiting") and summary.wake_us is not None
        if not (is_free or summary.status == "running" or (has_woken and (summary.wake_us or 0) <= now_us)):
            raise _NothingToDo(log)

    def _unfit(self, log: Log, agent: Agent) -> str | None:
        """Why a task is not worked on although it was due."""
        if log.state.deaths >= self._max_deaths:
            return f"{log.state.deaths} workers in a row died while they worked on it, without a step being done"
        try:
            checks.check_resumable(self.logs, log, agent)
        except HoldfastError as error:
            return str(error)
        return None


class _NothingToDo(Exception):
    """There is nothing to do on a task here and now: `log` is how it stands."""

    def __init__(self, log: Log) -> None:
        self.log = log


def _pauses() -> Iterator[float]:
    """Longer and longer pauses, of which no two processes have the same."""
    pause = FIRST_PAUSE_SECONDS
    while True:
        yield pause * (0.5 + random.random())
        pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
