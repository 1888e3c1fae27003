"""Tasks that begin by the clock.

A schedule is code, and leaves nothing in the store but its tasks. The id of each is made of the schedule's name and the
time it is for, so any number of workers may declare the same one: starting a task twice is starting it once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from holdfast.core import cron, names
from holdfast.core.codec import moment
from holdfast.core.durations import Duration, seconds
from holdfast.core.errors import InvalidValue
from holdfast.core.phases import Machine
from holdfast.core.state.budget import Budget
from holdfast.engine.definitions.agent import Agent
from holdfast.engine.dispatch.begin import TaskOptions
from holdfast.engine.reading import contracts

Starter = Callable[["Schedule", str], bool]
"""Starts the task of that id for a schedule; whether no worker had. A queue may be full."""


class Schedule:
    """When tasks of an agent begin: `Schedule("report", report, "0 8 * * 1-5", zone="Europe/Oslo")`, or "every 15m".

    One that was missed by no more than `late`, because no worker was there, begins when one is; others are skipped.
    The other parameters are those of `app.start`.
    """

    def __init__(
        self,
        name: str,
        agent: Agent,
        when: str,
        input: Mapping[str, Any] | None = None,
        *,
        zone: str = "UTC",
        late: Duration = "10m",
        user: str | None = None,
        thread: str | None = None,
        goal: str = "",
        stages: Sequence[str] = (),
        queue: str = "default",
        priority: int = 0,
        key: str | None = None,
        after: Duration | None = None,
        deadline: Duration | None = None,
        contract: contracts.Given | None = None,
        phases: Machine | None = None,
        mock: bool | Mapping[Any, Any] = False,
        budget: Budget | None = None,
    ) -> None:
        self.name = names.task_log(name)
        if not isinstance(agent, Agent):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidValue(f"{agent!r} is not an agent", hint="declare it with @agent")
        self.agent = agent
        self.when, self.zone = when, zone
        self.input = dict(input or {})
        self.options = TaskOptions(
            user=user,
            thread=thread,
            goal=goal,
            stages=stages,
            queue=queue,
            priority=priority,
            key=key,
            after=after,
            deadline=deadline,
            contract=contract,
            phases=phases,
            mock=mock,
            budget=budget,
        )
        self._times, self._zone = cron.times(when, zone), cron.zone_of(zone)
        self._late_us = int(seconds(late, "late") * 1_000_000)
        self._begun_us = 0

    def __repr__(self) -> str:
        return f"<schedule {self.name}: {self.when}>"

    def next_us(self, now_us: int) -> int:
        """When the next task begins."""
        return self._times.next(now_us, self._zone)

    def begin_due(self, now_us: int, start: Starter) -> bool:
        """Start the task of the last time that has come, unless it was; whether that was here and now."""
        due_us = self._times.last(now_us, self._zone)
        if due_us <= self._begun_us or now_us - due_us > self._late_us:
            return False
        begun = start(self, f"{self.name}/{moment(due_us):%Y-%m-%dT%H:%M:%SZ}")
        self._begun_us = due_us
        return begun
