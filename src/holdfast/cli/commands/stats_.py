"""`holdfast stats`."""

from __future__ import annotations

from holdfast.cli.command import command
from holdfast.cli.environment import Environment


@command("stats")
def stats_(environment: Environment) -> None:
    """Count tasks, events, bytes and queued tasks.

    Example: holdfast stats --json
    """
    from holdfast.cli.show.formatting import size
    from holdfast.cli.show.table import fields
    from holdfast.engine.reading import values

    app = environment.app()
    found, depths = app.stats(), app.depths()
    if environment.as_json:
        environment.data({**values.as_json(found), "queues": values.as_json(depths), "store": environment.shown})
        return
    statuses = ", ".join(f"{count:,} {status}" for status, count in sorted(found.by_status.items()))
    tables = ", ".join(f"{name} {size(count)}" for name, count in sorted(found.bytes_by_table.items()))
    pairs = [("tasks", f"{found.tasks:,}"), ("", ""), ("status", statuses), ("events", f"{found.events:,}")]
    pairs += [("blobs", f"{found.blobs:,}"), ("snapshots", f"{found.snapshots:,}")]
    environment.lines(fields([*pairs, ("size", size(found.bytes)), ("tables", tables)], environment.style))
    if depths:
        from holdfast.cli.show.table import table

        rows = [[one.queue, one.namespace, f"{one.ready:,}", f"{one.running:,}", f"{one.timed:,}"] for one in depths]
        heads = ["QUEUE", "NAMESPACE", "READY", "RUNNING", "TIMED"]
        environment.lines(["", *table(heads, [list(row) for row in rows], environment.style, right=(2, 3, 4))])
    environment.say_store()
