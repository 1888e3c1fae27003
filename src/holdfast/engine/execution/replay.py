"""What a replay has to keep an eye on: calls that can be made once only, and recorded steps not asked for yet."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from holdfast.core.events import ANNOUNCED, CHANGING
from holdfast.core.flows.requests import StepRequest
from holdfast.core.state.shapes import State, Step


class Attempt(Protocol):
    """The thread of an attempt."""

    finished: bool


_announcing = threading.Lock()
"""Held for a moment while a call is found to be the only one of its kind."""


class LiveCalls:
    """The calls under way in one execution, those it left behind, and abandoned threads."""

    def __init__(self, state: State, on_end: Callable[[], None]) -> None:
        """`on_end` is called whenever a call is no longer under way."""
        self._open = {step.key for step in state.steps.values() if step.unsettled} if state.steps else set[str]()
        self._on_end = on_end
        self._live: dict[str, StepRequest] = {}
        self._left_behind: set[str] = set()
        self._threads: dict[str, Attempt] = {}
        self.cut: dict[str, StepRequest] = {}
        """Calls that were under way in a body when it was abandoned."""

    def begin(self, key: str, request: StepRequest) -> bool:
        """Note that a call will be announced and made; False if a branch makes one like it, which comes first."""
        with _announcing:
            if self.like(key, request) is not None:
                return False
            self._live[key] = request
            self._left_behind.discard(key)
            return True

    def like(self, key: str, request: StepRequest) -> str | None:
        """Return the key of a call of the same tool with the same arguments that another branch is making."""
        if request.effect not in ANNOUNCED:
            return None
        for other, made in self._live.copy().items():  # another thread may end a call meanwhile
            if other != key and made.tool == request.tool and made.input == request.input:
                return other
        return None

    def end(self, key: str, *, left_behind: bool = False) -> None:
        """Note that a call has its outcome, or that its branch continued without one."""
        if left_behind:
            self._left_behind.add(key)
        if self._live.pop(key, None) is not None:
            self._on_end()

    @property
    def any(self) -> bool:
        """True if a call is under way, or may be open though it is not being made."""
        return bool(self._live or self._open or self._left_behind)

    def not_over(self) -> set[str]:
        """Return the keys of calls that were open when this execution began, or that it left behind."""
        return self._open | self._left_behind

    def is_live(self, key: str) -> bool:
        """Return whether a branch of this execution is making the call."""
        return key in self._live

    def is_left_behind(self, key: str) -> bool:
        """Return whether the branch that made the call continued without its outcome."""
        return key in self._left_behind

    def leave(self, key: str, attempt: Attempt) -> None:
        """Note that the thread of an attempt is abandoned."""
        self._threads[key] = attempt

    def abandon(self, thread: Attempt) -> None:
        """Note that the thread of the body was abandoned, in the middle of the calls it makes."""
        self.cut = dict(self._live)
        self._threads |= dict.fromkeys(self.cut, thread)

    def inherit(self, left: LiveCalls) -> None:
        """Take over from an execution whose body was abandoned."""
        self.cut, self._threads = left.cut, left._threads

    def is_sending(self, key: str) -> bool:
        """Return whether a thread that was left behind is still at the call."""
        attempt = self._threads.get(key)
        return attempt is not None and not attempt.finished


def unclaimed_steps(state: State) -> set[str]:
    """Return the keys of the recorded steps, calls and children of this turn."""
    recorded = {step.key for step in state.steps.values() if _is_work(state, step)}
    recorded.update(wait.key for wait in state.waits.values() if wait.kind == "child")
    return {key for key in recorded if not key[:1].isdigit()}  # the others are left over from earlier turns


def _is_work(state: State, step: Step) -> bool:
    """Return whether doing it again would matter: not for waits and checkpoints, except a wait for a child."""
    is_wait = step.effect not in CHANGING and not step.tool
    return not is_wait or step.name.startswith(f"{state.summary.id}/")
