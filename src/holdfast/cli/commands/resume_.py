"""`holdfast resume`."""

from __future__ import annotations

from typing import Any

import click

from holdfast.cli.command import by_options, command, task_argument
from holdfast.cli.completion import files
from holdfast.cli.environment import Environment
from holdfast.cli.show.style import held

ENDED_WELL = ("completed", "cancelled")
"""Statuses of tasks that are not resumed."""


@command("resume", lines=True)
@task_argument
@click.argument("target", metavar="[FILE[:AGENT]]", required=False, shell_complete=files)
@click.option(
    "--anyway", is_flag=True, help="Resume it even if it is too old for its agent, or its log has lost events."
)
@click.option("--deadline", metavar="TIME", help='For a failed task: how long it may take from now on, such as "10m".')
@click.option(
    "--hold", metavar="TIME", default="60s", show_default=True, help="How long to block while the task sleeps."
)
@click.option("--wait", metavar="TIME", default="0s", help="How long to wait if another process is working on it.")
@click.option("--quiet", is_flag=True, help="Show no progress.")
@by_options
def resume_(
    environment: Environment, id: str, target: str | None, deadline: str | None, quiet: bool, **given: Any
) -> None:
    """Resume a task that was interrupted, is waiting or has failed.

    Recorded steps are replayed, not repeated. A failed task is reopened: its failed step gets fresh attempts. The agent
    comes from FILE or pyproject.toml, never from the store.

    Example: holdfast resume @last agents.py
    """
    from holdfast.cli.input import agents
    from holdfast.cli.work import task
    from holdfast.engine.reading import values

    environment.runs_agents()
    for name, length in (("deadline", deadline), ("hold", given["hold"]), ("wait", given["wait"])):
        values.seconds(length or 0, name)
    agent, known = agents.agents_for(target)
    app = environment.app(agents=known)
    id = environment.task(id)
    stands = app.row(id)  # what is not there, or has ended, is not resumed
    agent = agents.agent_of(id, stands, target, agent, known)
    if stands is not None and stands.status not in ENDED_WELL:
        agents.refuse_unknown(id, stands, known, environment.options)
    act = lambda: app.resume(id, agent, deadline=deadline, **given)  # noqa: E731
    if deadline is not None and stands is not None and stands.status != "failed":
        raise click.UsageError(f"--deadline is for a failed task, and {id!r} is {stands.status}")
    if stands is not None and stands.status not in ENDED_WELL and not (environment.for_programs or quiet):
        busy = stands.status == "running" and not app.is_interrupted(stands)
        patient = busy and values.seconds(given["wait"], "wait") > 0
        if not busy:
            environment.say(held(f"{id}: resumed in {environment.where}"), "dim")
        elif patient:
            environment.say(held(f"{id}: waiting for the worker that has it, up to {given['wait']}"), "dim")
    task.work(environment, app, id, target, act, quiet=quiet)
