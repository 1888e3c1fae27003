"""`holdfast show`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.command import command, task_argument
from holdfast.cli.environment import Environment
from holdfast.core.events import ANNOUNCED

if TYPE_CHECKING:
    from holdfast import TaskState
    from holdfast.cli.show.style import Style
    from holdfast.engine.reading.inbox import InboxItem
    from holdfast.engine.reading.steps import StepState


_TOLD = (("completed", "done"), ("failed", "error"), ("waiting", "waiting_feedback"))
"""Phases that say no more than the status does."""


@command("show")
@task_argument
@click.option("--at", "seq", type=int, metavar="SEQ", help="Show it as it was just after this event.")
def show_(environment: Environment, id: str, seq: int | None) -> None:
    """Show a task as it is now, or as it was just after an event.

    Example: holdfast show trip-oslo --at 7
    """
    from holdfast.cli.environment import whoami
    from holdfast.cli.input.suggestions import entry_json, is_block, resume_command
    from holdfast.cli.work.task import failure_lines

    app = environment.app()
    id = environment.task(id)
    state = app.get(id) if seq is None else app.at(id, seq)
    entries = list(app.inbox(id)) if seq is None else []
    store = environment.options
    if environment.as_json:
        environment.data(
            {**state.to_dict(), **_more(state), "waiting_on": [entry_json(one, whoami(), store) for one in entries]}
        )
        return
    environment.lines(_head(state, environment.style))
    for section in (_knows, _steps):
        environment.lines(section(state, environment.style))
    if state.failure is not None and state.status == "failed":
        environment.lines(
            ["", *(environment.style.paint(line, "bad") for line in failure_lines(state, environment.debug))]
        )
    if seq is None:
        resume = resume_command(id, None, store, block=is_block(app, id))
        todo = list(_todo(environment, state, entries, resume))
        environment.lines(["", *(environment.style.paint(line, "warn") for line in todo)] if todo else [])


def _todo(environment: Environment, state: TaskState, entries: list[InboxItem], resume: str) -> Iterator[str]:
    """Return what can be done about a task now, with the commands to type; nothing if it needs nothing."""
    from holdfast.cli.environment import whoami
    from holdfast.cli.input.suggestions import RUN_AGAIN, command, waiting_lines
    from holdfast.cli.work.task import UNDONE, after_failure, was_rejected, was_undone

    if state.waiting is not None:
        yield from waiting_lines(state, entries, whoami(), environment.options, resume)
    elif state.interrupted:
        yield f"to resume it: {resume}"
    elif state.status == "failed":
        yield from after_failure(environment, state, resume)
        if resume != RUN_AGAIN and not was_undone(state) and not was_rejected(state):
            yield f"or leave it to a worker: {command('reopen', state.id, options=environment.options)}"
    elif state.status == "cancelled":
        earlier = command("fork", state.id, options=environment.options)
        yield UNDONE if was_undone(state) else f"to start a new task from its end: {earlier}"


def _more(state: TaskState) -> dict[str, Any]:
    told: dict[str, Any] = {"interrupted": state.interrupted}
    if state.expires_at is not None:
        told["expires_at"] = state.expires_at.isoformat().replace("+00:00", "Z")
    return told


def _head(state: TaskState, style: Style) -> Iterator[str]:
    from holdfast.cli.commands.list_ import why_waiting
    from holdfast.cli.show.formatting import clock, shown, spent
    from holdfast.cli.show.live import bar
    from holdfast.cli.show.style import STATUS_TONES
    from holdfast.cli.show.table import Cell, fields

    status = "interrupted" if state.interrupted else state.status
    kind = "" if state.waiting is None else state.waiting.kind
    why = why_waiting(kind) if kind else ""
    usage = state.budget.usage
    yield from fields(
        [
            ("task", Cell(f"{state.id}{'  (mock)' if state.mock else ''}", "bold")),
            ("agent", state.agent),
            ("status", Cell(f"{status}{why}", STATUS_TONES.get(status, "plain"))),
            ("stage", state.stage or ""),
            ("phase", "" if (state.status, state.phase) in _TOLD or state.phase == "idle" else state.phase),
            ("turn", str(state.turn) if state.turn else ""),
            ("seq", str(state.seq)),
            ("goal", state.goal),
            ("user", state.user or ""),
            ("thread", state.thread or ""),
            ("parent", state.parent or ""),
            ("input", shown(dict(state.input)) if state.input else ""),
            ("result", shown(state.result) if state.status == "completed" and state.result is not None else ""),
            ("spent", spent(usage.input_tokens + usage.output_tokens, usage.cost)),
            ("deadline", "" if state.deadline is None else f"{state.deadline:%Y-%m-%d %H:%M:%S} UTC"),
            ("expires", "" if state.expires_at is None else f"{state.expires_at:%Y-%m-%d %H:%M:%S} UTC"),
            ("created", f"{clock(int(state.created_at.timestamp() * 1_000_000))} UTC"),
            ("updated", f"{clock(int(state.updated_at.timestamp() * 1_000_000))} UTC"),
        ],
        style,
    )
    for name, most in state.budget.limits.items():
        yield f"{style.paint('budget', 'dim')}  {bar(name, state.budget.used[name], most, style)}"


def _knows(state: TaskState, style: Style) -> Iterator[str]:
    """Return the agent's facts, plan and decisions, section by section; empty sections are left out."""
    from holdfast.cli.show.formatting import shown
    from holdfast.cli.show.style import clean, cut

    sections: dict[str, list[str]] = {
        "plan": [f"[{'x' if step.done else ' '}] {step.text}" for step in state.plan],
        "state": [f"{name} = {shown(value)}" for name, value in state.state.items()],
        "facts": [f"{name} = {shown(fact.value)}  ({fact.source})" for name, fact in state.facts.items()],
        "decisions": [_decision(one) for one in state.decisions],
        "questions": list(state.questions),
        "notes": [f"{name} = {shown(value)}" for name, value in state.notes.items()],
        "artifacts": [f"{one.id}  {one.type}, {one.bytes:,} bytes  {one.summary}" for one in state.artifacts.values()],
        "flags": list(state.flags),
        "checkpoints": [f"{label} at {seq}" for label, seq in state.checkpoints.items()],
    }
    for name, lines in sections.items():
        if lines:
            yield ""
            yield style.paint(name, "bold")
            yield from (f"  {cut(clean(line), style.width - 2 if style.width else 0)}" for line in lines)


def _decision(one: dict[str, Any]) -> str:
    from holdfast.cli.show.formatting import shown

    return f"{one['question']} {shown(one['choice'])}" + (f", {one['why']}" if one["why"] else "")


def _effect(step: StepState) -> str:
    """Return the effect of a call. Older logs do not say which a call had that was never made."""
    return step.effect if step.tool and (step.attempts or step.effect in ANNOUNCED) else ""


def _steps(state: TaskState, style: Style) -> Iterator[str]:
    from holdfast.cli.show.formatting import length, shown
    from holdfast.cli.show.table import Cell, table

    tones = {"completed": "good", "failed": "bad", "doubt": "warn", "running": "head", "retrying": "warn"}
    ended = state.status in ("completed", "failed", "cancelled")
    words = {"doubt": "in doubt"} | ({"running": "cut off", "retrying": "cut off"} if ended else {})
    rows: list[list[Cell | str]] = []
    for step in state.steps.values():
        took = length(step.raw.ended_us - step.raw.started_us) if step.raw.ended_us else ""
        came = f"{step.failure.type}: {step.failure.message}" if step.failure is not None else shown(step.result)
        came = "" if step.status not in ("completed", "failed") else came
        told = Cell(words.get(step.status, step.status), tones.get(step.status, "plain"))
        rows.append([step.key, told, str(step.attempts), took, _effect(step), came])
    if rows:
        yield ""
        heads = ["STEP", "STATUS", "TRIES", "TOOK", "EFFECT", "RESULT"]
        yield from table(heads, rows, style, right=(2, 3), text=(5,))
