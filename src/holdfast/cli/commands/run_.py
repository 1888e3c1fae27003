"""`holdfast run`."""

from __future__ import annotations

from typing import Any

import click

from holdfast.cli.command import command, param_option
from holdfast.cli.completion import files
from holdfast.cli.environment import LAST, Environment
from holdfast.cli.show.style import held


@command("run", lines=True)
@click.argument("target", metavar="[FILE][:AGENT]", required=False, shell_complete=files)
@param_option
@click.option(
    "--input",
    "file",
    metavar="FILE",
    help="The agent's input: a file with a JSON object, or - for stdin.",
    shell_complete=files,
)
@click.option("--id", "id", help="The task's id. If it exists, that task is resumed. Default: a new id.")
@click.option("--mock", is_flag=True, help="Call the tools' mocks instead of the tools, so nothing outside is changed.")
@click.option("--user", help="The user the task belongs to.")
@click.option("--thread", help="The thread (conversation) the task belongs to.")
@click.option("--deadline", metavar="TIME", help='How long the task may take, such as "10m"; then it fails.')
@click.option(
    "--hold", metavar="TIME", default="60s", show_default=True, help="How long to block while the task sleeps."
)
@click.option("--wait", metavar="TIME", default="0s", help="How long to wait if another process is working on it.")
@click.option("--quiet", is_flag=True, help="Show no progress.")
def run_(environment: Environment, target: str | None, id: str | None, **given: Any) -> None:
    """Start a task, or resume it, and work on it until it ends or waits.

    The agent comes from FILE. Without FILE it comes from the files that [tool.holdfast] agents in pyproject.toml lists.
    The result is printed on stdout. Progress, and what the agent prints, goes to stderr. Exit code: 0 if the task
    completed, 1 if it failed, 6 if it waits. Ctrl-C once: stop after the current step.

    Example: holdfast run examples/meeting_recap.py -p meeting=planning -p to=ana@example.com -p notes="Ben helps."
    """
    from holdfast.cli.input import agents, values as typed
    from holdfast.cli.work import task
    from holdfast.engine.reading import values
    from holdfast.engine.reading.values import task_log, user_log

    environment.runs_agents()
    input = typed.parameters(given["params"], given["file"])
    agent, known = agents.agent_named(target)
    input = typed.fitted(agent, input, given["params"])  # before a store is made for nothing
    for name in ("deadline", "hold", "wait"):
        values.seconds(given[name] or 0, name)
    if given["user"] is not None:
        user_log(given["user"])
    if id not in (None, LAST):
        task_log(id)
    app = environment.app(make=True, agents=known)
    id = task_log(environment.task(id)) if id is not None else app.new_id()
    named = {name: given[name] for name in ("user", "thread", "deadline") if given[name] is not None}
    waits = {"hold": given["hold"], "wait": given["wait"]}
    act = lambda: app.run(agent, input, id=id, mock=given["mock"], **waits, **named)  # noqa: E731
    if not environment.for_programs and not given["quiet"]:
        environment.say(held(f"{id}: {agent.name}{' (mock)' if given['mock'] else ''} in {environment.where}"), "dim")
        if link := environment.page_link(id):
            environment.say(f"on the page: {link}", "dim")
    task.work(environment, app, id, target, act, quiet=given["quiet"])
