"""Several writers: which changes commute, and which clash.

Two changes clash when they touch the same thing in ways whose order matters. Growing a number twice, adding to a list
twice or raising a flag twice gives the same in any order; setting a value that somebody else has changed does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from msgspec import Raw

from holdfast.core import events as ev
from holdfast.core.events import Changes, Event


class Touch(NamedTuple):
    """One change: to what, how, and, where a value is given, to which."""

    path: str
    how: str
    value: bytes = b""


def first_clash(mine: Changes, theirs: Iterable[Event]) -> tuple[Touch, Touch] | None:
    """My change and theirs that do not go together; None if all do."""
    others: dict[str, list[Touch]] = {}
    for event in theirs:
        for touch in touches(event):
            others.setdefault(touch.path, []).append(touch)
    everything = others.get("", [])  # a rollback
    for touch in patch_touches(mine):
        for other in (*others.get(touch.path, ()), *everything):
            if not _go_together(touch, other):
                return touch, other
    return None


def _go_together(mine: Touch, other: Touch) -> bool:
    if mine.how != other.how:
        return False
    return mine.how in _COMMUTING or mine.value == other.value


_COMMUTING = {"increment", "append", "raise", "clear", "open", "close", "done"}


def touches(event: Event) -> Iterator[Touch]:
    """What an event changes of what several may write."""
    match event:
        case ev.StateSet():
            yield Touch(f"state.{event.name}", "set", bytes(event.value))
        case ev.StateDeleted():
            yield Touch(f"state.{event.name}", "delete")
        case ev.StateIncremented():
            yield Touch(f"state.{event.name}", "increment")
        case ev.StateAppended():
            yield Touch(f"state.{event.name}", "append")
        case ev.FactLearned():
            yield Touch(f"facts.{event.key}", "learn", bytes(event.value))
        case ev.PlanSet():
            yield from _plan(event.steps)
        case ev.PlanStepDone():
            yield from _done(event.step)
        case ev.QuestionOpened():
            yield Touch(f"questions.{event.question}", "open")
        case ev.QuestionClosed():
            yield Touch(f"questions.{event.question}", "close")
        case ev.FlagRaised():
            yield Touch(f"flags.{event.flag}", "raise")
        case ev.FlagCleared():
            yield Touch(f"flags.{event.flag}", "clear")
        case ev.StatePatched():
            yield from patch_touches(event.patch)
        case ev.StateMigrated():
            yield from _bag(event.bag, "migrate")
        case ev.RolledBack():
            yield Touch("", "roll back")
        case _:
            return


def patch_touches(patch: Changes) -> Iterator[Touch]:
    """What a patch changes."""
    for fact in patch.append_facts:
        yield Touch(f"facts.{fact.key}", "learn", bytes(fact.value))
    if patch.replace_plan is not None:
        yield from _plan(patch.replace_plan)
    if patch.complete_plan_step is not None:
        yield from _done(patch.complete_plan_step)
    for question in patch.add_questions:
        yield Touch(f"questions.{question}", "open")
    if patch.close_question is not None:
        yield Touch(f"questions.{patch.close_question}", "close")
    for artifact in patch.add_artifacts:
        yield Touch(f"artifacts.{artifact.artifact_id}", "add", repr(artifact).encode())
    for flag in patch.raise_flags:
        yield Touch(f"flags.{flag}", "raise")
    for flag in patch.clear_flags:
        yield Touch(f"flags.{flag}", "clear")
    yield from _bag(patch.set, "set")
    yield from (Touch(f"state.{name}", "increment") for name in patch.increment)
    yield from (Touch(f"state.{name}", "append") for name in patch.append)
    yield from (Touch(f"state.{name}", "delete") for name in patch.delete)


def _bag(values: dict[str, Raw], how: str) -> Iterator[Touch]:
    for name, value in values.items():
        yield Touch(f"state.{name}", how, bytes(value))


def _done(step: str) -> Iterator[Touch]:
    yield Touch("plan", "done")
    yield Touch(f"plan.{step}", "done")


def _plan(steps: tuple[str, ...]) -> Iterator[Touch]:
    yield Touch("plan", "replace", "\n".join(steps).encode())
