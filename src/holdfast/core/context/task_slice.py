"""What one step needs to know of a task, cut out of any state of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from msgspec import Raw

from holdfast.core import codec
from holdfast.core.context.slices import ContextSlice, SliceArtifact, SliceFact, slice_context
from holdfast.core.errors import InvalidValue
from holdfast.core.messages.tokens import Counter
from holdfast.core.state import budget
from holdfast.core.state.shapes import State, goal_of


class Found(NamedTuple):
    """A slice, and whether it nearly takes up the budget of artifact bytes."""

    slice: ContextSlice
    pressed: bool


def context_of(
    state: State,
    step: str,
    value: Callable[[Raw], Any],
    *,
    max_bytes: int | None = None,
    max_tokens: int | None = None,
    counter: Counter | None = None,
) -> Found:
    """Goal, step and open questions; then the step's artifacts, the newest facts and other artifacts that fit.

    A budget of artifact bytes limits how much of artifacts is shown whole; the others go by reference. Without another
    limit it is that of the whole slice.
    """
    if not isinstance(step, str) or not step:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(f"{step!r} is not a step", hint='name it: .context("draft", max_bytes=2_000)')
    for name, limit in (("max_bytes", max_bytes), ("max_tokens", max_tokens)):
        if limit is not None and (type(limit) is not int or limit < 1):
            raise InvalidValue(f"{name} is {limit!r}", hint="give a whole number of at least 1", path=name)
    share = None if state.budget is None else state.budget.artifact_bytes
    if max_bytes is None and max_tokens is None:
        max_bytes = share
    if max_bytes is None and max_tokens is None:
        raise InvalidValue(
            "a slice needs a limit, and the task's budget has none",
            hint="give max_bytes or max_tokens, or start the task with Budget(artifact_bytes=…)",
        )
    most = max_bytes if max_bytes is not None else 4 * (max_tokens or 0)
    room = most if share is None else share
    artifacts: list[SliceArtifact] = []
    for id, one in state.artifacts.items():
        artifacts.append(_artifact(id, one, step, min(most, room), value))
        room -= len(artifacts[-1].text.encode()) if share is not None else 0
    facts = [SliceFact(key, value(one.value), one.source) for key, one in state.facts.items()]
    chosen = slice_context(
        goal_of(state, value),
        step,
        state.questions,
        artifacts,
        facts,
        max_bytes=max_bytes,
        max_tokens=max_tokens,
        counter=counter,
    )
    return Found(chosen, share is not None and share - room >= budget.PRESSURE * share)


def _artifact(id: str, one: Any, step: str, most: int, value: Callable[[Raw], Any]) -> SliceArtifact:
    """An artifact of the step with its text, unless it is large in any case; others by reference."""
    ours = one.step == step or one.step.rpartition("/")[2].partition("#")[0] == step
    text = ""
    if ours and one.bytes <= most:
        data = value(one.data)
        text = data if isinstance(data, str) else codec.text(data)
    return SliceArtifact(id, one.type, one.summary, one.bytes, step if ours else one.step, text)
