"""Calling users' functions: what they are given, and what becomes of whatever they return or raise."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from msgspec import UNSET, Raw, UnsetType

from holdfast.core import codec, events as ev
from holdfast.core.codec import Group, UniqueKey, failures
from holdfast.core.errors import HoldfastError, InvalidValue, LeaseLost, NotDone, TaskCollected, TimeLimit, ToolExited
from holdfast.core.events import Usage
from holdfast.core.flows.requests import (
    CheckResult,
    DidNotHappen,
    Happened,
    Invoke,
    KeyOwner,
    Outcome,
    Reconcile,
    Reserve,
    StepRequest,
    Transact,
    Unfit,
    Unknown,
)
from holdfast.core.state import budget
from holdfast.core.state.fold import address
from holdfast.core.state.shapes import State
from holdfast.core.usage import may_report
from holdfast.engine.control import late_results
from holdfast.engine.definitions.call import CALLER, Call
from holdfast.engine.definitions.queue import as_rate
from holdfast.engine.drivers.abandonable import Owner, ThreadCall
from holdfast.engine.execution import mocks
from holdfast.engine.execution.execution import Execution
from holdfast.engine.reading import steps
from holdfast.engine.streams.publisher import ChunkStream
from holdfast.engine.system import ending
from holdfast.failpoints import failpoint


class Invocation:
    """One call of a user's function."""

    __slots__ = (
        *("_act", "_execution", "_turn", "counts", "fn", "given", "key", "request", "sent", "started_us", "stream"),
        "usage",
    )

    def __init__(self, act: Invoke, execution: Execution, connection: Any = None) -> None:
        request = act.request
        self.request = request
        self.key = act.key
        self._act = act
        self._execution = execution
        self._turn = execution.state.turn
        self.started_us = execution.logs.clock.now_us()
        self.usage: Usage | None = None
        self.stream: ChunkStream | None = None
        self.counts: dict[str, int] | None = None
        self.sent = not request.marks_sending
        self.fn = request.fn
        self.given = self._given(connection) if request.tool else {}

    def _given(self, connection: Any) -> dict[str, Any]:
        """Return the function to call, and its arguments; a mock replaces it where nothing may be touched."""
        request, state = self.request, self._execution.state
        filled, given = request.given, dict(request.arguments)
        if state.mock or state.effects == "recorded":
            self.fn, filled = mocks.stand_in(request)
        if "idempotency_key" in filled:
            given["idempotency_key"] = self._act.idempotency_key
        if "connection" in filled:
            given["connection"] = connection
        return given

    @property
    def task(self) -> str:
        """The task whose step it is."""
        return self._execution.log.name

    @property
    def attempt(self) -> int:
        """Which attempt it is, from 1."""
        return self._act.attempt

    @property
    def call(self) -> Call:
        """The call as its function may see it."""
        act, request = self._act, self.request
        self.counts = {} if self.counts is None else self.counts
        return Call(
            self._execution.log.name,
            act.key,
            act.attempt,
            tool=request.tool,
            arguments=request.arguments,
            idempotency_key=act.idempotency_key,
            time_left=self.seconds_left(),
            place=address(self._turn, act.key),
            counts=self.counts,
        )

    def seconds_left(self) -> float | None:
        """Return how long it may still take: the least of its own time limit and the time of its task."""
        execution, timeout = self._execution, self.request.timeout
        left = execution.seconds_left()
        if timeout is None:
            return left
        own = max(0.0, timeout - (execution.logs.clock.now_us() - self.started_us) / 1_000_000)
        return own if left is None else min(own, left)

    def priced(self, usage: Usage) -> Usage:
        """The same usage with what it cost, if anybody knows."""
        return self._execution.priced(usage)

    def streaming(self) -> ChunkStream:
        """Return what publishes its chunks. Of a call with secrets, none is: a secret may lie in several."""
        if self.request.tool and self.request.effect in ev.TRANSACTIONAL:
            raise InvalidValue(
                f"{self.request.tool!r} runs in a transaction, and can't stream",
                hint="stream from a step, or from a tool with another effect",
            )
        if self.stream is None:
            execution, act = self._execution, self._act
            place = (execution.log.name, act.key, act.attempt, execution.log.head.seq)
            self.stream = execution.services.publisher.open(*place, hidden=bool(self.request.secrets))
        return self.stream

    def make(self) -> Any:
        """Call the function, here and now; its value, or something to await."""
        caller = CALLER.set(self)
        try:
            failpoint("act.before")
            if self._act.late_us and self._execution.sleeps.now_us() > self._act.late_us:
                raise _MomentMissed
            return self.fn(**self.given)
        finally:
            CALLER.reset(caller)

    def outcome(self, make: Callable[[], Any]) -> Outcome | Any:
        """Run a call and return its outcome; an awaitable is handed back as it is."""
        try:
            value = make()
        except _MomentMissed:
            return Outcome(started_us=self.started_us, sent=False, missed=True)
        except Exception as error:  # noqa: BLE001 — a failure of the user's function is data, whatever it is
            return self.failed(error)
        except SystemExit as stop:
            return self.failed(self.exited(stop))
        return value if is_awaitable(value) else self.kept(value)

    def kept(self, value: Any) -> Outcome:
        """A value as it is recorded. One that cannot be is the step's failure: it did run."""
        try:
            failpoint("act.after")
            raw = codec.pack(value, "the result of step %r", self.key, restore=self.request.result)
        except Exception as error:  # noqa: BLE001 — whatever a user's object does while it is encoded
            return self.failed(error)
        usage = None
        if self.usage is not None or may_report(value):
            usage = self._spent(codec.unpack(raw, self._execution.logs.blob) if self.usage is None else None)
        if self.stream is not None:
            self.stream.is_whole = True
        kept = codec.hidden_value(raw, self.request.secrets) if self.request.secrets else raw
        return Outcome(kept, None, False, usage, self.started_us)

    def failed(self, error: Exception) -> Outcome:
        """A function that raised. What it used up until then counts."""
        ending.refuse(error, self.task)
        return Outcome(None, error, False, self._spent(), self.started_us, self.sent, output=self._output())

    def _output(self) -> Raw | UnsetType:
        """What it had streamed until it failed; of a call with secrets, nothing."""
        return UNSET if self.stream is None else self.stream.so_far()

    def _spent(self, value: Any = None) -> Usage | None:
        """Return the usage that the function reported, else the usage in its answer."""
        usage = self.usage or budget.reported(value)
        return None if usage is None else self._execution.priced(usage)

    def exited(self, stop: SystemExit) -> ToolExited:
        """A function may not end the process by itself."""
        error = ToolExited(f"step {self.key!r} tried to exit with {stop.code!r}", hint="raise an Exception instead")
        error.__cause__ = stop
        return error

    def late(self, result: Any) -> None:
        """An answer that came after the wait was over."""
        if isinstance(result, Outcome):
            failure = None if result.error is None else failures.failure(result.error, secrets=self.request.secrets)
            late_results.observe(self._execution.logs, self._execution.log.name, self._place, result.value, failure)

    @property
    def _place(self) -> str:
        """Its key as it is known in later turns, if the task has reached one."""
        turn = self._turn
        return self.key if turn == self._execution.state.turn else address(turn, self.key)

    def in_doubt(self, *, abandoned: bool = False, cut: bool = False) -> Outcome:
        """No answer in time. One that is `cut` had time, but its task has none."""
        error = TimeLimit(f"no answer within {self.request.timeout or 0:g} s", hint="raise its timeout")
        return Outcome(None, error, True, None, self.started_us, abandoned=abandoned, cut=cut, output=self._output())

    def begins_too_late(self) -> bool:
        """Return whether the function may not be called any more: its task is out of time, or left this thread."""
        execution = self._execution
        if execution.abandoned:
            raise LeaseLost
        left = execution.seconds_left()
        if left == 0:
            execution.stop.ask_at(execution.sleeps.now_us())
        return left == 0

    def not_called(self) -> Outcome:
        """It was to begin just when its task was stopped, and did not."""
        error = NotDone("its task was stopped before it began")
        return Outcome(None, error, False, None, self.started_us, sent=False, cut=True)

    def left_behind(self, call: ThreadCall, *, cut: bool = False) -> Outcome | None:
        """No answer in time, and its thread may still be at it; None if the answer has come after all."""
        thread = call.abandon()
        if thread is None:
            return None
        self._execution.calls.leave(self.key, thread)
        return self.in_doubt(abandoned=True, cut=cut)

    def owner(self) -> Owner:
        """Return whose thread it is, should it be abandoned."""
        logs = self._execution.logs
        return Owner(logs.store.holder(), logs.full_name(self.task), self.key)

    def announce(self) -> None:
        """Tell others, from another thread, that this step takes long."""
        self._execution.announce(self)

    def announcement(self) -> ev.StepStarted:
        """Return the announcement of this step for other processes."""
        request = self.request
        given: dict[str, Any] = {"tool": request.tool, "effect": request.effect} if request.tool else {}
        given |= {"idempotency_key": self._act.idempotency_key, "started_us": self.started_us}
        return ev.StepStarted(key=self.key, name=request.name, input=request.input, attempt=self._act.attempt, **given)


class _MomentMissed(Exception):
    """The moment at which the rate of a tool lets it be called is over: announcing the call, or a thread, took long."""


def is_awaitable(value: object) -> bool:
    """Return whether something can be awaited. What `inspect` offers takes longer than many a step."""
    return hasattr(value, "__await__")


class TransactionInvocation:
    """One call of a function inside a transaction of the store: its result is recorded in the same, or nothing is."""

    def __init__(self, asked: Transact, execution: Execution) -> None:
        self._asked = asked
        self._execution = execution
        self._outcome: Outcome | None = None
        self._started_us = execution.logs.clock.now_us()
        self._left = execution.seconds_left()
        self._own = asked.act.request.timeout
        self.seconds = self._own if self._left is None else min(self._left, self._own or self._left)

    def work(self, connection: Any) -> Group:
        """Called inside the transaction."""
        invocation = Invocation(self._asked.act, self._execution, connection)
        outcome = invocation.outcome(invocation.make)
        if not isinstance(outcome, Outcome):
            outcome = self._failed(TypeError("a transaction tool cannot be awaited"))
        self._outcome = outcome
        if outcome.value is None:
            raise NothingToCommit
        recorded = self._asked.record(outcome)
        return Group((self._execution.log.draft([recorded]), *self._execution.linked_logs.writes([recorded])))

    def outcome(self, done: bool = False, error: Exception | None = None) -> Outcome | None:
        """Return the outcome; None if the log had moved on."""
        if isinstance(error, TimeLimit) and self._left is not None and self.seconds == self._left:
            return Outcome(error=error, started_us=self._started_us, cut=True)
        if error is not None:
            return self._outcome if isinstance(error, NothingToCommit) else self._failed(error)
        return self._outcome if done else None

    def _failed(self, error: Exception) -> Outcome:
        return Outcome(error=error, started_us=self._started_us)


class NothingToCommit(Exception):
    """Rolls a transaction back."""


def question(asked: Reconcile, execution: Execution) -> Call:
    """Build the call that `reconcile` is asked about."""
    step = asked.step
    known: dict[str, Any] = {"tool": step.tool, "idempotency_key": step.idempotency_key}
    known["arguments"] = asked.request.arguments
    return Call(
        execution.log.name,
        step.key,
        step.attempts,
        **known,
        announced_at=(step.announced_us or step.started_us) / 1_000_000,
    )


def answer(given: Any, request: StepRequest) -> Happened | DidNotHappen | Unknown | Unfit:
    """Read the answer of `reconcile`. Anything else counts as Unknown; a result of another type is Unfit."""
    if isinstance(given, Happened):
        try:
            codec.pack(given.result, "its result", restore=request.result, must_fit=True)
        except HoldfastError as error:
            return Unfit(f"reconcile says it happened, but {error.message}")
    return given if isinstance(given, Happened | DidNotHappen | Unknown) else Unknown()


def unfit(asked: CheckResult, execution: Execution) -> str:
    """Say why a settled result can't be one of the tool's; empty if it can."""
    if asked.request.result is None:
        return ""
    try:
        asked.request.result(execution.value(asked.result))
    except HoldfastError as error:
        return f"{error.message} ({error.hint})" if error.hint else error.message
    return ""


def recalled(key: str, execution: Execution) -> Any:
    """A step of the log this one was forked from."""
    state = execution.state
    place = f"{state.turn}/{key}" if state.turn else key
    return steps.step_of(execution.logs, state.forked_from, place)


def payers(ids: tuple[str, ...], execution: Execution) -> list[State]:
    """The states of the tasks whose budgets this one uses up, as far as they are still there."""
    found: list[State] = []
    for id in ids:
        with contextlib.suppress(TaskCollected):
            found.append(execution.logs.load(id).state)
    return found


def reserved(asked: Reserve, execution: Execution) -> tuple[int, int, bool]:
    """Reserve the next moment at which the rate of a tool lets a call begin, among all processes of the store."""
    logs = execution.logs
    slot = logs.store.queues.reserve(asked.tool, as_rate(asked.rate), logs.clock.now_us())
    return slot.wait_us, slot.grace_us, slot.is_reserved


def owner(unique: str, execution: Execution) -> KeyOwner | None:
    """Return the owner of a unique key, and the outcome of its call."""
    take: UniqueKey | None = execution.logs.store.owner_of_key(unique)
    if take is None:
        return None
    try:
        step = steps.current_outcome(execution.logs, take.log, take.step)
        step = step or steps.kept_step(execution.logs, take.log, unique)
    except HoldfastError:
        return KeyOwner(take, None, gone=True)
    return KeyOwner(take, step)
