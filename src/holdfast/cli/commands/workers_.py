"""`holdfast workers`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.cli.command import command
from holdfast.cli.environment import Environment

if TYPE_CHECKING:
    from holdfast import App
    from holdfast.engine.reading.serving import LiveWorker


@command("workers", lines=True)
def workers_(environment: Environment) -> None:
    """List workers that are alive, and what they serve.

    BUSY is how many tasks the worker's process holds, of how many it works on at a time.

    Example: holdfast workers
    """
    from holdfast.cli.show.formatting import age
    from holdfast.cli.show.table import table

    app = environment.app()
    found = app.workers()
    busy = _busy(app) if found else {}
    if environment.for_programs:
        environment.rows([_row(one, busy.get(one.holder, 0)) for one in found])
        return
    if not found:
        environment.say(f"no worker is alive in {environment.where}; start one: holdfast worker FILE")
        return
    tenants = any(one.serving.namespaces != ("",) for one in found)
    now, rows = app.clock.now_us(), list[list[Any]]()
    for one in found:
        said = one.serving
        agents = ", ".join(_versions(name, versions) for name, versions in said.agents.items())
        tasks = f"{busy.get(one.holder, 0)}/{said.concurrency}"
        where = "all" if said.namespaces is None else ", ".join(said.namespaces)
        rows.append([said.name, tasks, agents, ", ".join(said.queues), *([where] if tenants else [])])
        rows[-1].append(age(said.started_us, now))
    heads = ["WORKER", "BUSY", "AGENTS", "QUEUES", *(["NAMESPACES"] if tenants else []), "SINCE"]
    environment.lines(table(heads, rows, environment.style, right=(1,)))


def _busy(app: App) -> dict[str, int]:
    """How many tasks each holder has: of all tenants, if the store was opened for none."""
    from holdfast.core import limits
    from holdfast.store.protocol import Query

    counts: dict[str, int] = {}
    for tenant in {one.namespace for one in app.store.queues.depths(app.namespace or None) if one.running}:
        after: str | None = None
        while page := app.store.list(
            Query(status="running", namespace=tenant, after=after, limit=limits.MAX_PAGE_SIZE)
        ):
            for row in page:
                counts[row.holder or ""] = counts.get(row.holder or "", 0) + 1
            after = page[-1].id
    return counts


def _versions(name: str, versions: tuple[str, ...]) -> str:
    told = [one for one in versions if one]
    return f"{name} ({', '.join(told)})" if told else name


def _row(one: LiveWorker, busy: int) -> dict[str, Any]:
    from holdfast.engine.reading.task_state import iso

    said = one.serving
    same = {name: getattr(said, name) for name in ("name", "host", "pid", "queues", "namespaces", "concurrency")}
    agents = {name: list(versions) for name, versions in said.agents.items()}
    return {**same, "agents": agents, "busy": busy, "since": iso(said.started_us), "holder": one.holder}
