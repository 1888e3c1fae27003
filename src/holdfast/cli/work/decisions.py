"""Decisions of a person about a task, from the command line; if asked, the task is continued at once."""

from __future__ import annotations

import click

from holdfast.cli.environment import Environment
from holdfast.cli.input import agents
from holdfast.cli.input.changes import Act, changed, stands_now
from holdfast.cli.work import task
from holdfast.core.errors import InvalidValue


def decided(environment: Environment, id: str, act: Act, done: str, *, target: str | None, resume: bool) -> None:
    """Do something to a task; with `resume`, continue it here with the agent of `target`."""
    if resume:
        _and_resumed(environment, id, act, done, target)
        return
    if target is not None:
        raise click.UsageError(f"{target} is the file to resume with; add --resume, or leave it out")
    changed(environment, id, act, done)


def _and_resumed(environment: Environment, id: str, act: Act, done: str, target: str | None) -> None:
    """Look for the agent first: without one nothing is done."""
    environment.runs_agents()
    agent, known = agents.agents_for(target)
    app = environment.app(agents=known)
    id = environment.task(id)
    row = app.row(id)
    agent = agents.agent_of(id, row, target, agent, known)
    if row is not None and not any(one.name == row.agent for one in known):
        raise InvalidValue(
            f"--resume needs the agent {row.agent!r}, and no file was named; nothing was written",
            hint="name its file, or leave out --resume",
        )
    state = act(app, id)
    if not environment.for_programs:
        environment.say(stands_now(id, done, state))
    task.work(environment, app, id, target, lambda: app.resume(id, agent))
