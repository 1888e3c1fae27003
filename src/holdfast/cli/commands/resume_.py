"""`holdfast resume`."""

from __future__ import annotations

from typing import Any

import click

from holdfast.cli.command import by_options, command, task_argument
from holdfast.cli.completion import files
from holdfast.cli.environment import Environment
from holdfast.cli.show.style import held


@command("resume", lines=True)
@task_argument
@click.argument("target", metavar="[FILE[:AGENT]]", required=False, shell_complete=files)
@click.option(
    "--anyway", is_flag=True, help="Resume it though it is too old for its agent, or its log has lost events."
)
@click.option("--deadline", metavar="TIME", help='By when a task that has failed must be done now, such as "10m".')
@click.option(
    "--hold", metavar="TIME", default="60s", show_default=True, help="How long to block while the task sleeps."
)
@click.option("--wait", metavar="TIME", default="0s", help="How long to wait for another process that has it.")
@click.option("--quiet", is_flag=True, help="Show no progress.")
@by_options
def resume_(
    environment: Environment, id: str, target: str | None, deadline: str | None, quiet: bool, **given: Any
) -> None:
    """Go on with a task that was interrupted, waits or has failed.

    What is on record is replayed and not done again. A failed task is reopened: the step that ended it is tried
    afresh. The agent comes from FILE or from pyproject.toml, never from the store.

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
    stands = app.row(id)  # what is not there, or has ended, does not go on
    agent = agents.agent_of(id, stands, target, agent, known)
    act = lambda: app.resume(id, agent, deadline=deadline, **given)  # noqa: E731
    if deadline is not None and stands is not None and stands.status != "failed":
        raise click.UsageError(f"--deadline is for a task that has failed; {id} is {stands.status}")
    if (
        stands is not None
        and stands.status not in ("completed", "cancelled")
        and not (environment.for_programs or quiet)
    ):
        environment.say(held(f"{id}: goes on in {environment.where}"), "dim")
    task.work(environment, app, id, target, act, quiet=quiet)
