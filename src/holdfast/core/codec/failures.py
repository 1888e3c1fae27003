"""Exceptions as data, with their causes, and without what must stay secret."""

from __future__ import annotations

from typing import cast

from msgspec.structs import replace

from holdfast.core import limits
from holdfast.core.codec.secrets import hidden
from holdfast.core.errors import StepFailed
from holdfast.core.events import Failure


def failure(error: BaseException, depth: int = 0, secrets: tuple[str, ...] = ()) -> Failure:
    """An exception as data, with its traceback and its causes, and without what must stay secret.

    >>> failure(ValueError("no such city")).message
    'no such city'
    """
    import traceback  # few programs fail, and it costs 4 ms to import

    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    frames = traceback.StackSummary.extract(
        traceback.walk_tb(error.__traceback__), limit=-limits.TRACEBACK_FRAMES, lookup_lines=True
    )
    theirs = [frame for frame in frames if not frame.filename.startswith(_OURS)] or frames
    grouped = cast("tuple[BaseException, ...]", getattr(error, "exceptions", ())) if _is_group(error) else ()
    deeper = depth < limits.MAX_CAUSES
    of_step = error if isinstance(error, StepFailed) else None
    recorded: Failure | None = None if of_step is None else of_step.failure
    return Failure(
        type=type(error).__qualname__,
        message=hidden(_message(error), secrets),
        traceback=tuple(
            _encodable(f"{f.filename}:{f.lineno} in {f.name}: {hidden(f.line or '', secrets)}") for f in theirs
        ),
        code=hidden(_encodable(str(getattr(error, "code", ""))), secrets),
        notes=tuple(hidden(_encodable(str(note)), secrets) for note in getattr(error, "__notes__", ())),
        cause=recorded or (failure(cause, depth + 1, secrets) if cause is not None and deeper else None),
        group=tuple(failure(one, depth + 1, secrets) for one in grouped) if deeper else (),
        step="" if of_step is None else str(of_step.details.get("step", "")),
    )


def failed_step(error: BaseException) -> str:
    """The key of the failed step that an exception comes from, also out of a group; empty if there is none."""
    if isinstance(error, StepFailed):
        return str(error.details.get("step", ""))
    grouped = cast("tuple[BaseException, ...]", getattr(error, "exceptions", ())) if _is_group(error) else ()
    return next((key for key in map(failed_step, grouped) if key), "")


def noted(failure: Failure, notes: list[str]) -> Failure:
    """A failure with a longer message."""
    return replace(failure, notes=(*failure.notes, *notes)) if notes else failure


_OURS = __file__.removesuffix("core/codec/failures.py")
"""Frames of ours say nothing about what went wrong in an agent."""


def _is_group(error: BaseException) -> bool:
    return isinstance(error, BaseExceptionGroup)


def _message(error: BaseException) -> str:
    """An exception's text, even if its own __str__ fails or holds what UTF-8 cannot."""
    try:
        text = str(error)
    except Exception as broken:  # noqa: BLE001 — a user's __str__ may raise anything, and the failure must be kept
        text = f"<{type(error).__qualname__} whose text raised {type(broken).__qualname__}>"
    return _encodable(text)


def _encodable(text: str) -> str:
    """Text that can be written, whatever an exception contains."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
