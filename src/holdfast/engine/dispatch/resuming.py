"""Going on with a task because somebody asks for it, whatever it waits for."""

from __future__ import annotations

from holdfast.core.errors import TaskFinished
from holdfast.core.events import DivergenceAccepted
from holdfast.engine.control import answers
from holdfast.engine.definitions.agent import Agent
from holdfast.engine.dispatch import claim
from holdfast.engine.dispatch.dispatcher import Job, Workshop
from holdfast.engine.logs.log import Log


def job(
    shop: Workshop, log: Log, agent: Agent | None, *, anyway: bool, by: str, why: str, deadline_us: int | None
) -> Job:
    """The work that is left on a task. One that was set aside is taken, one that failed is reopened."""
    known = shop.agent_of(log, agent)
    log = _resumable(shop, log, known, anyway=anyway, by=by, why=why)
    summary = log.state.summary
    if summary.status in ("completed", "cancelled"):
        raise TaskFinished(log.name, summary.status, "app.resume")
    if log.state.ended:
        log = answers.change(shop.logs, log.name, answers.reopen(by, why, deadline_us))
    if summary.waiting != "quarantined":
        return Job(log.name, known, lambda: (log, False))

    def take() -> tuple[Log, bool]:
        claim.claim(log)
        return log, True

    return Job(log.name, known, take)


def _resumable(shop: Workshop, log: Log, agent: Agent, *, anyway: bool, by: str, why: str) -> Log:
    """A task that its agent can go on with; one that has lost events only if somebody says `anyway`."""
    claim.check_resumable(shop.logs, log, agent, anyway=anyway)
    if log.state.summary.waiting != "diverged":
        return log
    return answers.change(shop.logs, log.name, lambda hot: (DivergenceAccepted(by=by, why=why),))
