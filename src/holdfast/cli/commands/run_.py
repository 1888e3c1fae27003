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
@click.option("--input", "file", metavar="FILE", help="A JSON object for the agent; - is stdin.", shell_complete=files)
@click.option("--id", "id", help="The task's id; else a new one. An id that is there goes on.")
@click.option("--mock", is_flag=True, help="Let tools be answered by their mocks: nothing outside is touched.")
@click.option("--user", help="The person it is for.")
@click.option("--thread", help="The conversation it belongs to.")
@click.option("--deadline", metavar="TIME", help='When it must be done, such as "10m".')
@click.option(
    "--hold", metavar="TIME", default="60s", show_default=True, help="How long to block while the task sleeps."
)
@click.option("--wait", metavar="TIME", default="0s", help="How long to wait for another process that has it.")
@click.option("--quiet", is_flag=True, help="Show no progress.")
def run_(environment: Environment, target: str | None, id: str | None, **given: Any) -> None:
    """Start a task, or go on with it, until it ends or waits.

    The agent comes from FILE, or from the files that [tool.holdfast] agents of pyproject.toml names. What it returns
    is printed on stdout, progress on stderr; what it prints itself goes to stderr too. Ends with 0 if the task
    completed, 1 if it failed, 6 if it waits. Ctrl-C once stops after the step under way.

    Example: holdfast run examples/meeting_recap.py -p meeting=planning -p to=ana@example.com -p notes="Ben helps."
    """
    from holdfast.cli.input import agents, values as typed
    from holdfast.cli.work import task
    from holdfast.engine.reading import values
    from holdfast.engine.reading.values import task_log, user_log

    environment.runs_agents()
    input = typed.parameters(given["params"], given["file"])
    agent, known = agents.agent_named(target)
    typed.check(agent, input, given["params"])  # before a store is made for nothing
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
