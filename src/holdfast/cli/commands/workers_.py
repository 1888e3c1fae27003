"""`holdfast workers`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.cli.command import command
from holdfast.cli.environment import Environment

if TYPE_CHECKING:
    from holdfast.engine.reading.serving import LiveWorker


@command("workers", lines=True)
def workers_(environment: Environment) -> None:
    """List running workers and what they serve.

    BUSY is the number of tasks that the worker's process has, and the most it takes. A clogged worker takes no more
    tasks: too many abandoned threads still run in it.

    Example: holdfast workers
    """
    from holdfast.cli.show.formatting import age
    from holdfast.cli.show.table import table

    app = environment.app()
    found = app.workers()
    if environment.for_programs:
        environment.rows([_row(one) for one in found])
        return
    if not found:
        environment.say(f"no worker is running in {environment.where}; start one: holdfast worker FILE")
        return
    tenants = any(one.serving.namespaces != ("",) for one in found)
    now, rows = app.clock.now_us(), list[list[Any]]()
    for one in found:
        said = one.serving
        agents = ", ".join(_versions(name, versions) for name, versions in said.agents.items())
        tasks = f"{one.busy}/{said.concurrency}{' clogged' if said.clogged else ''}"
        where = "all" if said.namespaces is None else ", ".join(said.namespaces)
        rows.append([said.name, tasks, agents, ", ".join(said.queues), *([where] if tenants else [])])
        rows[-1].append(age(said.started_us, now))
    heads = ["WORKER", "BUSY", "AGENTS", "QUEUES", *(["NAMESPACES"] if tenants else []), "SINCE"]
    environment.lines(table(heads, rows, environment.style, right=(1,), text=(2, 3)))


def _versions(name: str, versions: tuple[str, ...]) -> str:
    told = [one for one in versions if one]
    return f"{name} ({', '.join(told)})" if told else name


def _row(one: LiveWorker) -> dict[str, Any]:
    from holdfast.engine.reading.steps import iso

    said = one.serving
    same = {name: getattr(said, name) for name in ("name", "host", "pid", "queues", "namespaces", "concurrency")}
    agents = {name: list(versions) for name, versions in said.agents.items()}
    same |= {"abandoned": list(said.abandoned), "clogged": said.clogged}
    return {**same, "agents": agents, "busy": one.busy, "since": iso(said.started_us), "holder": one.holder}
