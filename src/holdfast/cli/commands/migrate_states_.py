"""`holdfast migrate-states`."""

from __future__ import annotations

import click

from holdfast.cli.command import command
from holdfast.cli.completion import files
from holdfast.cli.environment import Environment


@command("migrate-states")
@click.argument("target", metavar="[FILE][:AGENT]", required=False, shell_complete=files)
def migrate_states_(environment: Environment, target: str | None) -> None:
    """Migrate the typed state of open tasks to their agents' current version.

    The agents' upcasters convert the state. Without this command, a task is migrated when its state is next written.
    Agents come from FILE or pyproject.toml. Ended tasks are not changed, and tasks that a worker has are left to it.
    Exit code: 1 if a state could not be migrated.

    Example: holdfast migrate-states agents.py:travel
    """
    from holdfast.cli.failures.refusal import FAILED
    from holdfast.cli.input import agents
    from holdfast.cli.show.style import clean
    from holdfast.core.errors import InvalidValue

    environment.runs_agents()
    named, known = agents.agents_for(target)
    typed = [one for one in ([named] if named is not None else known) if one.states is not None]
    if not typed:
        raise InvalidValue(
            "no agent here declares a typed state; nothing was written",
            hint="name the file of such an agent: holdfast migrate-states agents.py",
        )
    app = environment.app(agents=known)
    done = {one.name: app.migrate_states(one) for one in typed}
    if environment.as_json:
        environment.data({name: _facts(one) for name, one in done.items()})
    else:
        for name, one in done.items():
            count = len(one.migrated)
            left = f"; {len(one.busy)} left to their workers" if one.busy else ""
            tasks = "1 task" if count == 1 else f"{count} tasks"
            environment.lines([clean(f"{name}: migrated {tasks} to version {one.version}{left}")])
            environment.lines(clean(f"{id}: {why}") for id, why in one.failed.items())
        environment.say_store()
    if any(one.failed for one in done.values()):
        raise click.exceptions.Exit(FAILED)


def _facts(done: object) -> dict[str, object]:
    return {name: getattr(done, name) for name in ("version", "migrated", "busy", "failed")}
