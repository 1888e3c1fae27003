"""What `run` and `resume` have in common: work on a task while its log is watched, and say how it ended."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import click

from holdfast import App
from holdfast.cli.environment import Environment, whoami
from holdfast.cli.failures.refusal import FAILED, INTERRUPTED, WAITING
from holdfast.cli.input.suggestions import command, entry_json, is_block, resume_command, waiting_lines
from holdfast.cli.show.formatting import length, quoted, spent
from holdfast.cli.show.live import Live
from holdfast.cli.show.screen import Screen
from holdfast.cli.show.style import STATUS_TONES, clean, held
from holdfast.core.errors import ApprovalDenied, BudgetExceeded, LeaseLost, TurnLimit
from holdfast.core.events import ANNOUNCED, ApprovalAsked, Failure, TaskCancelled, TaskCompleted, TaskFailed
from holdfast.engine.reading import values
from holdfast.engine.reading.describe import as_json
from holdfast.engine.reading.inbox import InboxItem
from holdfast.engine.reading.task_state import TaskState
from holdfast.engine.reading.values import ENDED


def work(
    environment: Environment,
    app: App,
    id: str,
    target: str | None,
    act: Callable[[], TaskState],
    *,
    quiet: bool = False,
) -> None:
    """Let an agent work, show it, and end the command with what came of it."""
    screen = Screen()
    resume = resume_command(id, target, environment.options, block=is_block(app, id))
    if environment.jsonl:
        watched: Any = Live(app, id, screen, lambda record: environment.json(_line(app, record)))
    else:
        log = command("log", id, options=environment.options)
        watched = nullcontext() if quiet or environment.as_json else Live(app, id, screen, log=log)
    try:
        with watched, warnings_on(screen), screen.prints():
            state = act()
    except KeyboardInterrupt:
        screen.close()
        _say_stopped(environment, app, id, resume)
        raise click.exceptions.Exit(INTERRUPTED) from None
    except (Exception, LeaseLost):
        raise
    except BaseException as error:  # noqa: BLE001 — SystemExit and the like: an agent does not end this command
        screen.close()
        _say_thrown_out(environment, app, id, resume, error)
        raise click.exceptions.Exit(FAILED) from None
    if environment.jsonl and not watched.seen:
        _tell_ending(environment, app, state)
    report(environment, app, state, resume)


def _tell_ending(environment: Environment, app: App, state: TaskState) -> None:
    """Nothing came, because the task had ended: a reader of events gets the one that ended it."""
    ends = [one for one in app.events(state.id) if isinstance(one.event, ENDINGS)] if state.status in ENDED else []
    for record in ends[-1:]:
        environment.json(_line(app, record))


def _line(app: App, record: Any) -> str:
    return values.text(as_json(record, app.fetch))


def _say_stopped(environment: Environment, app: App, id: str, resume: str) -> None:
    state = _begun(environment, app, id)
    if state is None:
        return
    if environment.as_json:
        _tell_state(environment, state, resume, ended_by="Ctrl-C")
    environment.say(f"stopped at seq {state.seq}; everything up to there is on record", "warn")
    under_way = (one for one in state.steps.values() if one.status == "running" and one.tool)
    cut_off = [one.key for one in under_way if one.effect in ANNOUNCED]
    if cut_off:
        environment.say(
            f"{', '.join(cut_off)} was cut off and is in doubt: it may have happened; that is settled when you resume"
        )
    environment.say(f"to resume it: {resume}")


def _begun(environment: Environment, app: App, id: str) -> TaskState | None:
    if not app.head(id):
        environment.say("stopped before the task began; nothing was written")
        return None
    return app.get(id)


def _say_thrown_out(environment: Environment, app: App, id: str, resume: str, error: BaseException) -> None:
    """An agent raised what would end a process."""
    state = _begun(environment, app, id)
    if state is None:
        return
    raised = f"{type(error).__qualname__}: {error}"
    if environment.as_json:
        _tell_state(environment, state, resume, ended_by=raised)
    environment.say(f"{id} stopped at seq {state.seq}: its agent raised {clean(raised)}", "bad")
    environment.say(f"  everything up to there is on record; to resume it: {resume}")


@contextmanager
def warnings_on(screen: Screen) -> Generator[None, None, None]:
    """Print the warnings of Holdfast among the other lines."""

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.name != values.FAILURE_LOGGER:  # the command itself prints how tasks ended
                screen.line(screen.style.paint(record.getMessage(), "warn"))

    logger, lines = logging.getLogger("holdfast"), Lines()
    before = logger.propagate
    logger.addHandler(lines)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(lines)
        logger.propagate = before


def report(environment: Environment, app: App, state: TaskState, resume: str) -> None:
    """Print the result to stdout and all else to stderr, and return the exit code."""
    by = whoami()
    entries = list(app.inbox(state.id))
    if environment.as_json:
        _tell_state(environment, state, resume, entries)
    elif not environment.jsonl:
        lasts = not environment.url.startswith("memory:")
        _tell(environment, state, resume if lasts else "")
        waits = waiting_lines(state, entries, by, environment.options, resume, environment.agents)
        for line in waits if lasts else ():
            environment.say(line)
        if not lasts and state.status != "completed":
            environment.say("  the store was in memory and is gone now; --store holdfast.db keeps it")
    if state.status in ("failed", "cancelled"):
        raise click.exceptions.Exit(FAILED)
    if state.status != "completed":
        raise click.exceptions.Exit(WAITING)


def _tell_state(
    environment: Environment, state: TaskState, resume: str, entries: Sequence[InboxItem] = (), **more: str
) -> None:
    """Print a task for programs, with what it waits for and how it is resumed."""
    on = [entry_json(one, whoami(), environment.options) for one in entries]
    told = {"waiting_on": on, "resume": resume, "store": environment.shown}
    environment.data({**state.to_dict(), **more, **told})


def _tell(environment: Environment, state: TaskState, resume: str) -> None:
    usage = state.budget.usage
    used = spent(usage.input_tokens + usage.output_tokens, usage.cost)
    took = length(int((state.updated_at - state.created_at).total_seconds() * 1_000_000))
    facts = [f"seq {state.seq}", took, *([used] if used else []), f"in {environment.where}"]
    text = held(f"{state.id} is {state.status}  ({' · '.join(facts)})")
    environment.say(text, STATUS_TONES.get(state.status, "warn"))
    if state.status == "completed" and state.result is not None:
        text = state.result if isinstance(state.result, str) else values.text(state.result)
        environment.lines(map(clean, text.split("\n")) if environment.style.terminal else [text])
    if state.failure is not None and state.status == "failed":
        for line in failure_lines(state, environment.debug):
            environment.say(line, "bad")
        for line in after_failure(environment, state, resume) if resume else ():
            environment.say(f"  {line}")


UNDONE = "it was compensated, so it can't be resumed; start it again under another --id"


def after_failure(environment: Environment, state: TaskState, resume: str) -> Iterator[str]:
    """Return what can be done about a failed task, with the command to type."""
    assert state.failure is not None
    if was_undone(state):
        yield UNDONE
    elif was_rejected(state):
        at = " ".join(filter(None, (f"--at {_before_the_request(environment.app(), state)}", environment.options)))
        yield f"a rejected call stays rejected; to start from before it: {command('fork', state.id, options=at)}"
    else:
        late = state.deadline is not None and state.updated_at >= state.deadline
        yield from _first(environment, state, state.failure)
        yield f"what it did is kept; to try again: {resume}{' --deadline 10m' if late else ''}"


def _before_the_request(app: App, state: TaskState) -> int:
    """Return the last seq before the approval of the rejected call was requested."""
    requests = (one.seq for one in app.events(state.id) if isinstance(one.event, ApprovalAsked))
    return max(requests, default=2) - 1


def was_rejected(state: TaskState) -> bool:
    """Return whether a task failed because a person rejected a call: then it fails again when it is resumed."""
    return state.failure is not None and state.failure.code == ApprovalDenied.code


def was_undone(state: TaskState) -> bool:
    """Return whether a task that failed or was cancelled has undone what it did: then it stays ended."""
    return any(key.startswith("~undo/") for key in state.steps)


def _first(environment: Environment, state: TaskState, failure: Failure) -> Iterator[str]:
    """Return what must be done before a failed task is tried again, or it fails again."""
    found = _LIMIT.search(failure.message) if failure.code == BudgetExceeded.code else None
    if found is not None:
        owner, limit = found.groups()
        most = state.budget.limits.get(limit) if owner == state.id else None
        more = "MORE" if most is None else f"{2 * most:.0f}" if most >= 1 else f"{2 * most:g}"
        who = " ".join(filter(None, (f"--by {quoted(whoami())}" if whoami() else "", environment.options)))
        yield f"first raise the limit: {command('budget', owner, f'{limit}={more}', options=who)}"
    if failure.code == TurnLimit.code:
        yield "first raise max_turns= of the agent"


_LIMIT = re.compile(r"app\.raise_budget\('([^']+)', Budget\((\w+)=…\)\)")
"""Whose budget has to be raised, and which limit of it, as BudgetExceeded says."""


def failure_lines(state: TaskState, debug: bool) -> list[str]:
    """Describe the failure of a task: the reason and the lines of the user's code, or the whole traceback."""
    failure = state.failure
    assert failure is not None
    what, remedy = _remedy_apart(failure)
    message = what.replace("\n", "\n    ")
    told = [f"  {failure.type}: {message}", *(f"  {note}" for note in failure.notes)]
    step = next((one for one in reversed(list(state.steps.values())) if one.key in failure.message), None)
    frames: list[str] = []
    for cause in (*_causes(failure), *_causes(None if step is None else step.failure)):
        frames += cause.traceback if debug else [one for one in cause.traceback if not one.startswith(_NOT_THEIRS)][-1:]
    try:
        here = os.getcwd() + os.sep
    except OSError:  # it was removed
        here = os.sep * 2
    told += [f"    {held(frame.removeprefix(here))}" for frame in dict.fromkeys(frames)]
    told += [f"  help: {remedy}"] if remedy else []
    return [clean(line) for one in told for line in one.split("\n")]


def _remedy_apart(failure: Failure) -> tuple[str, str]:
    """Return what failed, and the remedy that an error of Holdfast ends with in brackets; empty if it needs Python.

    >>> failure = Failure("StepFailed", "s#1 failed: TimeLimit (raise it) (catch (it); go)", code="step-failed")
    >>> _remedy_apart(failure)
    ("s#1 failed: TimeLimit (raise it)", 'catch (it); go')
    """
    message, depth = failure.message, 0
    if not failure.code or not message.endswith(")"):
        return message, ""
    for place in range(len(message) - 1, 0, -1):
        depth += {")": 1, "(": -1}.get(message[place], 0)
        if depth == 0:
            remedy = message[place + 1 : -1]
            apart = message[place - 1] == " "
            return (message[: place - 1], "" if "app." in remedy else remedy) if apart else (message, "")
    return message, ""


def _causes(failure: Failure | None) -> Iterator[Failure]:
    while failure is not None:
        yield failure
        failure = failure.cause


ENDINGS = (TaskCompleted, TaskFailed, TaskCancelled)

_NOT_THEIRS = (
    os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep,
    os.path.dirname(os.__file__) + os.sep,
)
"""Where Holdfast and Python itself live."""
