"""`holdfast stats`."""

from __future__ import annotations

from holdfast.cli.command import command
from holdfast.cli.place import Place


@command("stats")
def stats_(place: Place) -> None:
    """Count tasks, events and bytes.

    Example: holdfast stats --json
    """
    from holdfast.cli.table import fields
    from holdfast.cli.words import size
    from holdfast.core import codec

    found = place.app().stats()
    if place.as_json:
        place.data({**codec.as_json(found), "store": place.shown})
        return
    statuses = ", ".join(f"{count:,} {status}" for status, count in sorted(found.by_status.items()))
    tables = ", ".join(f"{name} {size(count)}" for name, count in sorted(found.bytes_by_table.items()))
    pairs = [("tasks", f"{found.tasks:,}"), ("", ""), ("status", statuses), ("events", f"{found.events:,}")]
    pairs += [("blobs", f"{found.blobs:,}"), ("snapshots", f"{found.snapshots:,}")]
    place.lines(fields([*pairs, ("size", size(found.bytes)), ("tables", tables)], place.look))
    place.say_store()
