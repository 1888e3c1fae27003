"""`holdfast diff`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

import click

from holdfast.cli.command import command, task_argument
from holdfast.cli.environment import Environment

if TYPE_CHECKING:
    from holdfast.cli.show.style import Style


@command("diff")
@task_argument
@click.argument("a", metavar="A|OTHER")
@click.argument("b", type=int, required=False, metavar="[B]")
@click.option("--times", is_flag=True, help="Also show times.")
def diff_(environment: Environment, id: str, a: str, b: int | None, times: bool) -> None:
    """Show what changed between two events of a task, or between two tasks.

    A and B are seqs. Without B, A is compared with the task as it is now. OTHER is another task, such as a fork. --json
    prints a JSON Patch that turns the first into the second, times included.

    Example: holdfast diff trip-oslo 5 9
    """
    from holdfast.engine.reading.timeline import difference

    app = environment.app()
    id = environment.task(id)
    if a.isascii() and a.isdigit():
        until = app.head(id) if b is None else b
        before = None if environment.as_json else app.at(id, int(a)).to_dict()
        patch = app.diff(id, int(a), until)
        names = {"task": id, "a": int(a), "b": until}
    elif b is not None:
        raise click.UsageError("B is a seq, so A must be one too")
    else:
        other = environment.task(a)
        before = app.get(id).to_dict()
        patch = difference(before, app.get(other).to_dict())
        names = {"task": id, "other": other}
    if environment.as_json:
        environment.data({**names, "patch": patch})
        return
    environment.say(_title(names), "dim")
    lines = list(_lines(before, patch, environment.style, times))
    environment.lines(lines)
    if not lines:
        environment.say("no difference" if not patch else "no difference but times; --times shows them")


def _title(names: dict[str, Any]) -> str:
    if "other" in names:
        return f"from {names['task']} to {names['other']}"
    return f"{names['task']} from seq {names['a']} to {names['b']}"


def _lines(before: Any, patch: Sequence[dict[str, Any]], style: Style, times: bool) -> Iterator[str]:
    """A line for each change; what was there before is looked up as the patch is applied."""
    import jsonpatch

    from holdfast.cli.show.formatting import shown
    from holdfast.cli.show.style import clean, cut

    now = before
    for change in patch:
        path = clean(change["path"])
        place = change["path"].split("/")[1:]
        both = (_found(now, change["path"]), change.get("value"))
        old, new = (one if times else _timeless(one, *place) for one in both)
        now = jsonpatch.apply_patch(now, [change])
        if not times and _is_time(*place):
            continue
        match change["op"]:
            case "add":
                sign, text, tone = "+", f"{path}  {shown(new)}", "good"
            case "remove":
                sign, text, tone = "-", f"{path}  {shown(old)}", "bad"
            case "move":
                sign, text, tone = "~", f"{path}  moved from {change['from']}", "warn"
            case _:
                sign, text, tone = "~", f"{path}  {shown(old)} → {shown(new)}", "warn"
        if not path.startswith(("/digest", "/calls")):  # one differs whenever anything does, the other is in the steps
            yield style.paint(f"{sign} ", tone) + cut(clean(text), style.width - 2 if style.width else 0)


def _is_time(*path: str) -> bool:
    """Return whether a place of the document holds a time: `at`, `updated_at`. The agent's own names are not."""
    return path[0] not in _OWN_NAMES and (path[-1] == "at" or path[-1].endswith("_at"))


_OWN_NAMES = ("state", "input", "result", "notes")
"""Parts of the document whose names the agent chooses."""


def _timeless(value: Any, *path: str) -> Any:
    """Return a value of the document without its times, and without fields that say nothing."""
    if isinstance(value, list):
        return [_timeless(one, *path) for one in cast("list[Any]", value)]
    if not isinstance(value, dict) or (path and path[0] in _OWN_NAMES):
        return cast("Any", value)
    pairs = cast("dict[str, Any]", value)
    kept = {name: one for name, one in pairs.items() if not _is_time(*path, name) and one not in (None, "", [], {})}
    return {name: one if name in ("value", *_OWN_NAMES) else _timeless(one, *path, name) for name, one in kept.items()}


def _found(document: Any, pointer: str) -> Any:
    """Return the value at a JSON Pointer, or None if there is none."""
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(document, dict):
            document = cast("dict[str, Any]", document).get(name)
        elif isinstance(document, list) and name.isdigit() and int(name) < len(cast("list[Any]", document)):
            document = cast("list[Any]", document)[int(name)]
        else:
            return None
    return document
