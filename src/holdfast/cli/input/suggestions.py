"""What to type: for each thing a task waits for, the very commands that give it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

from holdfast import Tool
from holdfast.cli.input.agents import files_declared
from holdfast.cli.show.formatting import clock, quoted
from holdfast.cli.show.style import clean
from holdfast.core.errors import InvalidValue
from holdfast.core.errors.commands import in_commands
from holdfast.engine.reading import inbox
from holdfast.engine.reading.inbox import LABELS as LABELS, InboxItem, remedies
from holdfast.engine.reading.serving import NO_WORKER
from holdfast.engine.reading.steps import iso
from holdfast.engine.reading.task_state import TaskState
from holdfast.engine.reading.values import BLOCK_QUEUE

if TYPE_CHECKING:
    from holdfast import Agent, App


def command(verb: str, *words: str, options: str = "") -> str:
    """Return a command to type. Words are quoted where they must be, and none passes for an option.

    >>> command("signal", "trip-1", "go", "VALUE", options="--by ana")
    'holdfast signal trip-1 go VALUE --by ana'
    >>> command("signal", "trip-1", "--yes", "VALUE", options="--by ana")
    'holdfast signal --by ana -- trip-1 --yes VALUE'
    """
    named = " ".join(quoted(word) for word in words)
    parts = ["--", named] if any(word.startswith("-") for word in words) else [named]
    order = [options, *parts] if len(parts) > 1 else [*parts, options]
    return " ".join(filter(None, ["holdfast", verb, *order]))


def commands(entry: InboxItem, by: str, store: str = "") -> list[str]:
    """Return the commands for an entry of the inbox. `store`: options, if it is not the default store."""
    left_out = ("FILE",) if files_are_declared() else ()
    return [
        command(one.verb, *(word for word in one.words if word not in left_out), options=one.given(by, store))
        for one in remedies(entry)
    ]


DECLARE = (
    "to settle such calls without a person, declare reconcile=, which asks the destination, or "
    "definite=[…], the errors that mean nothing was done"
)
"""Shown with a call that raised and may have happened."""


def notes(entry: InboxItem, agents: Iterable[Agent] = ()) -> list[str]:
    """Return what to know before a call in doubt is settled: which result to give, and how to need no person."""
    if entry.kind not in ("doubt", "blocked"):
        return []
    tool = entry.tool or "the tool"
    returned = returned_type(entry.tool, agents)
    told = f" ({returned})" if returned else ""
    result = f"VALUE is what {tool} returned{told}; without --result it is null"
    return [result] if entry.prompt is None or entry.kind == "blocked" else [result, DECLARE]


def returned_type(tool: str, agents: Iterable[Agent]) -> str:
    """Return the declared result of a tool, as it is written in the file of these agents; empty if it is not known."""
    import inspect

    names: list[Any] = [one for agent in agents for one in agent.fn.__globals__.values()]
    known = (cast("Any", one) for one in names if isinstance(one, Tool))
    found = next((one for one in known if one.name == tool), None)
    declared: Any = inspect.Signature.empty if found is None else inspect.signature(found.fn).return_annotation
    if declared is inspect.Signature.empty:
        return ""
    return declared if isinstance(declared, str) else getattr(declared, "__name__", str(declared))


def asked(entry: InboxItem) -> str:
    """Return the question to a person, in one line, with commands in place of what a program would say."""
    told = inbox.asked(entry)
    return in_commands(told).partition("; start one")[0] if entry.kind == "no_worker" else told


def entry_json(entry: InboxItem, by: str, store: str = "") -> dict[str, Any]:
    """An entry for programs."""
    return {
        **inbox.as_json(entry, "owner", "used", "of", "why", "ahead"),
        "since": iso(entry.since_us),
        "until": None if entry.until_us is None else iso(entry.until_us),
        "asks": f"{LABELS[entry.kind]}: {asked(entry)}",
        "commands": commands(entry, by, store),
    }


def waiting_lines(
    state: TaskState, entries: Sequence[InboxItem], by: str, store: str, resume: str, agents: Iterable[Agent] = ()
) -> Iterator[str]:
    """Return why a task waits, and exactly what to type. `agents` are those whose tools are known."""
    for entry in entries:
        if entry.kind == "no_worker":
            break  # it is printed below, with how to resume it by hand
        if entry.kind in ("quarantined", "diverged"):
            yield f"{LABELS[entry.kind]}: {clean(asked(entry))}"
            yield from (f"  {line}" for line in commands(entry, by, store))
            return
        until = f" (until {clock(entry.until_us)} UTC)" if entry.until_us else ""
        yield f"{LABELS[entry.kind]}: {clean(asked(entry))}{until}"
        for line in (*commands(entry, by, store), *notes(entry, agents)[:1]):
            yield f"  {line}"
    waiting = state.waiting
    if waiting is None:
        return
    if any(one.kind == "doubt" for one in entries) and state.deadline and state.updated_at >= state.deadline:
        yield "its deadline has passed, so it fails when that is settled; then resume it with --deadline TIME"
    if waiting.kind == "no_worker" and waiting.why.startswith(NO_WORKER):
        yield f"then: {resume}"  # where no worker was ever started, people resume by hand
        return
    if waiting.kind == "no_worker":
        yield f"no worker takes it: {clean(in_commands(waiting.why, options=store))}"
        yield f"or: {resume}"
        return
    for one in waiting.on:
        if one["kind"] == "signal":
            yield f"waits for the signal {one['name']!r}"
            yield f"  {command('signal', state.id, one['name'], 'VALUE', options=store)}"
        elif one["kind"] == "child":
            yield f"waits for its child {one['name']}"
            yield f"  {command('show', one['name'], options=store)}"
        elif one["kind"] == "timer" and waiting.wake_at is not None:
            yield f"sleeps until {waiting.wake_at:%Y-%m-%d %H:%M:%S} UTC"
    yield f"then: {resume}"


def is_block(app: App, id: str) -> bool:
    """Return whether a task lives in a program's own code: `with app.task(…)`, `app.call`, an adapter."""
    row = app.row(id)
    return row is not None and row.queue == BLOCK_QUEUE


RUN_AGAIN = "run your program again"
"""What resumes a task that lives in a program's own code."""


def resume_command(id: str, target: str | None, store: str, *, block: bool = False) -> str:
    """Return the command that resumes a task: with the file that was given, or with none if pyproject.toml names it.

    `block`: the task lives in a program's own code, which no command can resume.
    """
    if block:
        return RUN_AGAIN
    given = target is not None and not target.startswith(":")
    file = [target] if given and target else [] if files_are_declared() else ["FILE"]
    return command("resume", id, *file, options=store)


def files_are_declared() -> bool:
    """Return whether pyproject.toml names the files of agents."""
    try:
        return bool(files_declared()[1])
    except InvalidValue:  # a command that needs that file reports what is wrong with it
        return False
