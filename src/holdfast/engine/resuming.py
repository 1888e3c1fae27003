"""Going on with a task because somebody asks for it, whatever it waits for."""

from __future__ import annotations

from holdfast.core.errors import TaskFinished
from holdfast.engine import execute, outside
from holdfast.engine.agent import Agent
from holdfast.engine.log import Log
from holdfast.engine.workshop import Job, Workshop


def job(shop: Workshop, log: Log, agent: Agent | None, *, anyway: bool, reopen: outside.Decide) -> Job:
    """The work that is left on a task. One that was set aside is taken, one that failed is reopened."""
    known = shop.agent_of(log, agent)
    execute.check_resumable(shop.logs, log, known, anyway=anyway)
    summary = log.state.summary
    if summary.status in ("completed", "cancelled"):
        raise TaskFinished(log.name, summary.status, "app.resume")
    if log.state.ended:
        log = outside.change(shop.logs, log.name, reopen)
    if summary.waiting != "quarantined":
        return Job(log.name, known, lambda: (log, False))

    def take() -> tuple[Log, bool]:
        execute.claim(log)
        return log, True

    return Job(log.name, known, take)
