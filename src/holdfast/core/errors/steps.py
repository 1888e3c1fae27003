"""Errors about steps and calls."""

from __future__ import annotations

from typing import Any

from holdfast.core.errors.base import HoldfastError
from holdfast.core.errors.values import InvalidValue


class StepFailed(HoldfastError):
    """A step failed for good, now or when it was recorded."""

    code = "step-failed"
    message = "step {step!r} failed after {tries}: {type}: {reason}{unsure}"
    hint = "catch StepFailed to continue without it; a failed task can be resumed"

    def __init__(self, key: str, attempts: int, type: str, message: str, *, maybe_done: bool = False) -> None:
        unsure = "; it may have happened, and this exact call is not made again until it is settled"
        words = {"tries": _tries(attempts), "unsure": unsure if maybe_done else ""}
        more = {"maybe_done": True} if maybe_done else {}
        self._fill(words, step=key, attempts=attempts, type=type, reason=message, **more)

    failure: Any = None
    """What the step's function raised, as it is recorded (`Failure`), with its causes; the same on every replay."""

    @property
    def reason(self) -> str:
        """The type and message of the exception that the step's function raised."""
        return f"{self.details['type']}: {self.details['reason']}"

    @property
    def maybe_done(self) -> bool:
        """True if the call may have happened all the same: it raised, and its destination can't be asked."""
        return bool(self.details.get("maybe_done"))


def _tries(attempts: int) -> str:
    return "1 attempt" if attempts == 1 else f"{attempts} attempts"


class ApprovalDenied(StepFailed):
    """A person rejected the call, or no answer came in time."""

    code = "approval-denied"
    message = "call {step!r} was not approved: {why}"
    hint = "catch ApprovalDenied to continue without it"

    def __init__(self, key: str, why: str) -> None:
        self._fill({"why": why}, step=key)


class EffectConflict(HoldfastError):
    """A unique key was used for another call."""

    code = "effect-conflict"
    message = "the unique key {key!r} belongs to {owner}, {why}; the call was not made"
    hint = "give other work another key"

    def __init__(self, key: str, owner: str, why: str) -> None:
        self._fill({"why": why}, key=key, owner=owner)


class UnnamedThread(HoldfastError):
    """A verb was used in a bare thread without a name of its own."""

    code = "unnamed-thread"

    def __init__(self, verb: str, why: str, hint: str = "") -> None:
        super().__init__(
            f"{verb} was used in a thread of its own {why}".rstrip(),
            hint=hint or "threads have no order a replay could repeat: give each step its own name=, or use task.map",
            verb=verb,
        )


class NotRecorded(HoldfastError):
    """A fork that only replays came to a call that was not recorded."""

    code = "not-recorded"
    message = "call {step!r} is not in the log of {parent!r}, and this fork only replays"
    hint = "give the tool a mock, or fork with effects='ask'"

    def __init__(self, key: str, parent: str) -> None:
        self._fill(step=key, parent=parent)


class NoMock(HoldfastError):
    """A mock task came to a call of a tool without a mock."""

    code = "no-mock"
    message = "tool {tool!r} has no mock, and in a mock task nothing else is called: {step!r} was not made"
    hint = "declare one, @tool(mock=…), or give one: app.run(…, mock={{{tool!r}: …}})"

    def __init__(self, tool: str, key: str) -> None:
        self._fill(tool=tool, step=key)


class ToolExited(HoldfastError):
    """A tool tried to end the process."""

    code = "tool-exited"


class SelfApproval(HoldfastError):
    """An agent, or an actor that works for it, tried to make a decision that only a person can make."""

    code = "self-approval"
    message = "{verb} was refused for task {task!r}: {why}; nothing was decided"
    hint = "let a person decide: holdfast inbox"

    def __init__(self, verb: str, id: str, why: str) -> None:
        self._fill({"why": why}, task=id, verb=verb)


class ReplayDiverged(HoldfastError):
    """A replay reached a new step instead of the recorded one of that name: the work could be done twice."""

    code = "replay-diverged"
    message = (
        "step {step!r} is new, but the agent did not come back to {recorded!r}, which is recorded; it was not done"
    )
    hint = (
        "start branches in the same order as when the task began; @agent(on_change='rerun') runs it again; "
        "in new tasks, key=… makes a call independent of that order"
    )

    def __init__(self, key: str, recorded: str) -> None:
        self._fill(step=key, recorded=recorded)


class StepChanged(HoldfastError):
    """A recorded step is called with another input."""

    code = "step-changed"
    message = "step {step!r} was recorded with {recorded!r} and is now called with {given!r}"
    hint = "keep the recorded result with @agent(on_change='keep'), or run it again with on_change='rerun'"

    def __init__(self, key: str, recorded: Any, given: Any) -> None:
        self._fill(step=key, recorded=recorded, given=given)


class NestedStep(HoldfastError):
    """A verb was used inside a step."""

    code = "nested-step"
    message = "{what} was used inside the step {step!r}"
    hint = "use it in the agent's own body, or spawn a child task there"

    def __init__(self, verb: str, step: str) -> None:
        self._fill({"what": f"task.{verb}" if verb.isidentifier() else verb}, verb=verb, step=step)


class NotDone(HoldfastError):
    """Raised by a tool: nothing happened, so it may be tried again."""

    code = "not-done"

    def __init__(
        self, why: str = "nothing was done", *, retry_after: float | str | None = None, permanent: bool = False
    ) -> None:
        """`retry_after` is how long to wait before the next attempt: seconds, or the text of a `Retry-After` header.

        `permanent` means that another attempt would come to nothing too: none is made.
        """
        given: Any = retry_after
        is_time = isinstance(given, str) or (type(given) in (int, float) and 0 <= given < 1e10)
        if given is not None and not is_time:
            raise InvalidValue(
                f"retry_after={retry_after!r} is not a time to wait", hint="give seconds, or the header's text as it is"
            )
        if type(permanent) is not bool:
            raise InvalidValue(f"permanent={permanent!r} is neither True nor False", hint="give permanent=True")
        told = {"retry_after": retry_after, "permanent": permanent}
        details = {name: value for name, value in told.items() if value not in (None, False)}
        super().__init__(why, hint="a tool raises this when it is sure", **details)

    @property
    def retry_after(self) -> float | str | None:
        """The wait before the next attempt: seconds, or the text of a header."""
        return self.details.get("retry_after")

    @property
    def permanent(self) -> bool:
        """True if another attempt would come to nothing too."""
        return bool(self.details.get("permanent"))


class RetriesExhausted(HoldfastError):
    """A function that `holdfast.retry` called raised in every attempt. The last error is its cause."""

    code = "retries-exhausted"
    message = "{name} failed after {tries}: {type}: {reason}"
    hint = "try again later, or allow more: retry=Retry(attempts=…)"

    def __init__(self, name: str, attempts: int, type: str, message: str) -> None:
        self._fill({"name": name, "tries": _tries(attempts)}, attempts=attempts, type=type, reason=message)


class TimeLimit(HoldfastError):
    """A deadline or a step's time limit has passed."""

    code = "time-limit"


class TurnLimit(HoldfastError):
    """A loop did not come to an end."""

    code = "turn-limit"


class StepNotFound(HoldfastError):
    """The task has no such step."""

    code = "step-not-found"
    message = "task {id!r} has no step {step!r}"
    hint = "in a loop a key has its turn: '3/draft#1'; to list the steps: app.steps(id)"

    def __init__(self, id: str, step: str) -> None:
        self._fill(id=id, step=step)
