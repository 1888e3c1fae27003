"""Several writers: which changes commute, and which clash.

Two changes clash when they touch the same thing in ways whose order matters. Growing a number twice, adding to a list
twice or raising a flag twice gives the same in any order. Anything else that another writer changed clashes, whatever
the value: two writers who set the same may each have counted on being the only one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import Raw

from holdfast.core import events as ev
from holdfast.core.events import Changes, Event
from holdfast.core.state.paths import Path, parts_of


class Touch(NamedTuple):
    """One change: to what, how, and, where a value is given, to which."""

    path: Path
    how: str
    value: bytes = b""

    def __str__(self) -> str:
        return f"{self.how} {self.value.decode()[:_SHOWN]}".strip()


class Clash(NamedTuple):
    """My change, another's that does not go together with it, and whose that is."""

    mine: Touch
    theirs: Touch
    by: str = ""


_SHOWN = 80
_COMMUTING = {"increment", "append", "raise", "clear", "open", "close", "done"}


def first_clash(mine: Iterable[Touch], theirs: Iterable[Event]) -> Clash | None:
    """My change and theirs that do not go together; None if all do."""
    others: dict[Path, list[tuple[Touch, Event]]] = {}
    for event in theirs:
        for touch in touches(event):
            others.setdefault(touch.path[:2], []).append((touch, event))
    broad = [path for path in others if len(path) < 2]  # a plan, a migration, a rollback: they touch all below them
    for touch in mine:
        for path in [touch.path[:2], *broad] if len(touch.path) > 1 else list(others):
            for other, event in others.get(path, ()):
                if overlap(touch.path, other.path) and not _go_together(touch, other):
                    return Clash(touch, other, getattr(event, "by", ""))
    return None


def stale_read(
    mine: Iterable[Touch], since: Mapping[Path, int], later: Sequence[tuple[int, Event]], own: str
) -> Clash | None:
    """My change of something that I read at a seq, and another's change of the same `later`; None if there is none.

    What the task itself, `own`, wrote does not count, and what it set has the last word over what came before.
    """
    for touch in mine:
        found, seq = None, since.get(touch.path)
        for at, event in later if seq is not None else ():
            if at <= (seq or 0):
                continue
            for other in touches(event):
                if getattr(event, "task", "") != own and overlap(touch.path, other.path):
                    found = Clash(touch, other, getattr(event, "by", ""))
                elif other.how in ("set", "delete") and other.path == touch.path[: len(other.path)]:
                    found = None
        if found is not None:
            return found
    return None


def overlap(one: Path, two: Path) -> bool:
    """Return whether two paths lead to the same thing, or one of them into what the other leads to.

    >>> overlap(("state", "a"), ("state", "a", "b")), overlap(("state", "a"), ("state", "b")), overlap((), ("plan",))
    (True, False, True)
    """
    return all(a == b for a, b in zip(one, two, strict=False))


def _go_together(mine: Touch, other: Touch) -> bool:
    return mine.how == other.how and mine.how in _COMMUTING


def touches(event: Event) -> Iterator[Touch]:
    """Return the shared fields that an event changes."""
    match event:
        case ev.StateSet() | ev.StateUpdated():
            yield Touch(_in_bag(event.name, event.nested), "set", bytes(event.value))
        case ev.StateDeleted():
            yield Touch(_in_bag(event.name, event.nested), "delete")
        case ev.StateIncremented():
            yield Touch(_in_bag(event.name, event.nested), "increment")
        case ev.StateAppended():
            yield Touch(_in_bag(event.name, event.nested), "append")
        case ev.FactLearned():
            yield Touch(("facts", event.key), "learn", bytes(event.value))
        case ev.PlanSet():
            yield _plan(event.steps)
        case ev.PlanStepDone():
            yield Touch(("plan", event.step), "done")
        case ev.QuestionOpened():
            yield Touch(("questions", event.question), "open")
        case ev.QuestionClosed():
            yield Touch(("questions", event.question), "close")
        case ev.ArtifactAdded():
            yield Touch(("artifacts", event.artifact_id), "add")
        case ev.FlagRaised():
            yield Touch(("flags", event.flag), "raise")
        case ev.FlagCleared():
            yield Touch(("flags", event.flag), "clear")
        case ev.StatePatched():
            yield from patch_touches(event.patch)
        case ev.UserPatched():
            yield from (touch._replace(path=("user", *touch.path)) for touch in patch_touches(event.patch))
        case ev.ThreadPatched():
            yield from (touch._replace(path=("thread", *touch.path)) for touch in patch_touches(event.patch))
        case ev.StateMigrated():
            yield Touch(("state",), "migrate")
        case ev.RolledBack():
            yield Touch((), "roll back")
        case _:
            return


def patch_touches(patch: Changes) -> Iterator[Touch]:
    """Return the fields that a patch changes."""
    for fact in patch.append_facts:
        yield Touch(("facts", fact.key), "learn", bytes(fact.value))
    if patch.replace_plan is not None:
        yield _plan(patch.replace_plan)
    if patch.complete_plan_step is not None:
        yield Touch(("plan", patch.complete_plan_step), "done")
    for question in patch.add_questions:
        yield Touch(("questions", question), "open")
    if patch.close_question is not None:
        yield Touch(("questions", patch.close_question), "close")
    for artifact in patch.add_artifacts:
        yield Touch(("artifacts", artifact.artifact_id), "add", artifact.summary.encode())
    for flag in patch.raise_flags:
        yield Touch(("flags", flag), "raise")
    for flag in patch.clear_flags:
        yield Touch(("flags", flag), "clear")
    yield from _patched_bag(patch)


def _patched_bag(patch: Changes) -> Iterator[Touch]:
    sections: dict[str, Mapping[str, Raw] | Iterable[str]] = {"set": patch.set, "delete": patch.delete}
    sections |= {"increment": patch.increment, "append": patch.append}
    for how, section in sections.items():
        for name in section:
            value = bytes(patch.set[name]) if how == "set" else b""
            yield Touch(_in_bag(name, name in patch.nested), how, value)


def _in_bag(name: str, nested: bool) -> Path:
    return ("state", *parts_of((), name, nested))


def _plan(steps: tuple[str, ...]) -> Touch:
    return Touch(("plan",), "replace", "\n".join(steps).encode())
