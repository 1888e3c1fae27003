"""Errors about logs: what may not be written to one, what cannot be read from one."""

from __future__ import annotations

from typing import Any

from holdfast.core.errors.base import HoldfastError, log_words


class SeqOutOfRange(HoldfastError):
    """The log has no such position."""

    code = "seq-out-of-range"
    message = "{whose} has no seq {seq!r}"
    hint = "its log goes from {first} to {head}"

    def __init__(self, id: str, seq: int, head: int, first: int = 1) -> None:
        self._fill({"whose": log_words(id), "first": first}, id=id, seq=seq, head=head)


class Conflict(HoldfastError):
    """The log has moved on since it was read."""

    code = "conflict"
    message = "the log of {log!r} was expected at seq {expected}, but {where}; nothing was written"
    hint = "another writer was first: read the log and decide again"

    def __init__(self, log: str, expected: int | None, actual: int | None) -> None:
        where = "no such log" if actual is None else f"its head is {actual}"
        self._fill({"where": where}, log=log, expected=expected, actual=actual)

    @classmethod
    def of_records(cls, log: str, expected: int, actual: int | None) -> Conflict:
        """The records of a key are not the expected ones."""
        where = "it is not there" if actual is None else f"it ends at {actual}"
        return cls._made(
            f"the key {log!r} was expected to end at seq {expected}, but {where}; nothing was written",
            hint="another writer was first: read the key and decide again",
            log=log,
            expected=expected,
            actual=actual,
        )


class PatchConflict(HoldfastError):
    """A change conflicts with another writer's, or a field is not what the change requires; shows both."""

    code = "patch-conflict"

    def __init__(
        self,
        id: str,
        path: str,
        *,
        base: Any,
        mine: str,
        theirs: str,
        by: str = "",
        user: str = "",
        required: bool = False,
        thread: str = "",
    ) -> None:
        whose, read = (f"user {user!r}", "the user") if user else (f"task {id!r}", "the task")
        if thread:
            whose, read = f"thread {thread!r}", "the thread"
        written = f" by {by!r}" if by else ""
        told = f"was {base!r}; you: {mine}; others meanwhile: {theirs}{written}"
        hint = f"read {read} and decide again"
        if required:
            told = f"is {theirs}, and the change requires {mine}"
        else:
            hint += "; increment and append do not conflict with other writers, and update tries again"
        super().__init__(
            f"{path!r} of {whose} {told}; nothing was written",
            hint=hint,
            id=id,
            path=path,
            base=base,
            mine=mine,
            theirs=theirs,
            by=by,
            user=user or None,
            thread=thread or None,
        )


class StateMutated(HoldfastError):
    """A list or dict of the state was changed in place."""

    code = "state-mutated"

    def __init__(self, path: str, why: str, *, hint: str) -> None:
        super().__init__(f"{path} {why}", hint=hint, path=path)


class KeyTaken(HoldfastError):
    """A unique key belongs to another call."""

    code = "key-taken"
    message = "the unique key {key!r} belongs to step {step!r} of task {log!r}; nothing was written"
    hint = "use that call's result, or another key"

    def __init__(self, key: str, log: str, step: str) -> None:
        self._fill(key=key, log=log, step=step)


class InvalidEvent(HoldfastError):
    """The log does not allow this event now."""

    code = "invalid-event"


class InvalidTransition(InvalidEvent):
    """The phase or stage cannot be reached from here."""

    code = "invalid-transition"


class UnknownEvent(HoldfastError):
    """An event of a kind this version does not know."""

    code = "unknown-event"
    message = "event {seq} of {log!r} is of the kind {kind!r}, which this version does not know"
    hint = "it was written by a newer version: upgrade holdfast; nothing was changed"

    def __init__(self, log: str, seq: int, kind: str) -> None:
        self._fill(log=log, seq=seq, kind=kind)


class LogCorrupt(HoldfastError):
    """A log is damaged: it is not what was written."""

    code = "log-corrupt"

    def __init__(self, log: str, seq: int, why: str, *, hint: str = "") -> None:
        super().__init__(
            f"the log of {log!r} is damaged at seq {seq}: {why}" if seq else f"{log!r} is damaged: {why}",
            hint=hint or "other tasks are not affected: copy them to a new store, and import this one from a backup",
            log=log,
            seq=seq,
            why=why,
        )


class ValueDamaged(HoldfastError):
    """A large value is missing or damaged."""

    code = "value-damaged"
    message = "{what} {why}"
    hint = "app.verify() lists the events that refer to it"

    def __init__(self, hash: str, why: str) -> None:
        self._fill({"what": f"the value {hash[:12]}…" if hash else "a value", "why": why}, hash=hash)
