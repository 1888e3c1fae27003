"""Control flow, outside the tree of errors (law 11), which `except Exception` does not see; and a warning."""

from __future__ import annotations


class Suspended(BaseException):
    """The task waits and holds no memory. Not an Exception: `except Exception` does not see it."""


class Stopped(BaseException):
    """The process was asked to stop; the task is released before its next step, and can be resumed."""


class Cancelled(BaseException):
    """The task was asked to stop, and stops before its next step."""


class LeaseLost(BaseException):
    """Another worker has taken the task; nothing more is written here."""


class UnrecordedCall(UserWarning):
    """A tool with an effect was called outside the agent that is running: nothing records the call."""


class UnresolvedType(UserWarning):
    """A declared type can't be looked up, so its values are neither checked nor restored."""
