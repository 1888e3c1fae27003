"""One task being worked on, here and now: what it has said but not written, what each branch sees, how it ends."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from msgspec.structs import replace

from holdfast.core import codec, decide
from holdfast.core import events as ev
from holdfast.core.errors import Conflict, LeaseLost, NestedStep, Suspended
from holdfast.core.events import Event
from holdfast.core.flows import Branch
from holdfast.core.hot import Hot, Step
from holdfast.core.records import Stored
from holdfast.core.state import evolve, saying
from holdfast.engine.agent import Agent
from holdfast.engine.log import Log, Logs, decoded


class Call:
    """What a tool may know of the call it is in, and what `reconcile` is asked about."""

    def __init__(self, task_id: str, step: Step | None, key: str, attempt: int, **given: Any) -> None:
        self.task_id = task_id
        self.step = key
        self.attempt = attempt
        self.tool: str = given.get("tool", "")
        self.arguments: dict[str, Any] = given.get("arguments", {})
        self.idempotency_key: str = given.get("idempotency_key", "")
        self.time_left: float | None = given.get("time_left")
        self.announced_at = None if step is None else step.started_us / 1_000_000


_current: ContextVar[Call | None] = ContextVar("holdfast_call", default=None)


def current_call() -> Call | None:
    """The call a tool is running in: its idempotency key, attempt and time left. None outside a step."""
    return _current.get()


@contextmanager
def calling(call: Call) -> Generator[None, None, None]:
    """Mark that a step's function is running."""
    token = _current.set(call)
    try:
        yield
    finally:
        _current.reset(token)


class Run:
    """The work on one claimed task. Its verbs may be used from several threads; its log is written by one at a time."""

    def __init__(self, logs: Logs, log: Log, agent: Agent) -> None:
        self.logs = logs
        self.log = log
        self.agent = agent
        self.root = Branch(seen=log.head.seq)
        self.suspended = False
        self.turn_is_over = False
        self._buffer: list[Event] = []
        self._lock = threading.RLock()
        self._begin_view()

    @property
    def hot(self) -> Hot:
        """The state as folded so far."""
        return self.log.state

    def begin_turn(self) -> None:
        """Start again from no steps: keys, sayings and views are those of the turn."""
        self._begin_view()

    def _begin_view(self) -> None:
        first = self.hot.turn_seq or 1
        self.root = Branch(seen=first)
        self._recorded: dict[tuple[str, int], Event] | None = None

    # Writing

    def record(self, events: tuple[Event, ...], decided: bool = False) -> bool:
        """Write what was said and these events. False, and nothing written, if `decided` and the log had moved on."""
        with self._lock:
            while True:
                try:
                    self.log.append((*self._buffer, *events))
                except Conflict:
                    self._catch_up()
                    if decided:
                        return False
                else:
                    self._buffer.clear()
                    return True

    def _catch_up(self) -> None:
        """Fold in what others appended. A newer claim, or a rollback, means the task is no longer ours."""
        for row in self.log.refresh():
            if row.kind in ("task_claimed", "rolled_back"):
                raise LeaseLost(f"task {self.log.name!r} was taken over at seq {row.seq}")

    def say(self, branch: Branch, event: Event) -> None:
        """An immediate verb: kept until the next durable write, or recognised as said before."""
        self.refuse_inside_a_step(type(event).__name__)
        with self._lock:
            identity = saying(branch.mark, event)
            count = branch.said[identity] = branch.said.get(identity, 0) + 1
            if count <= self.hot.said.get(identity, 0):
                branch.own.append((identity, count))
                return
            decide.check(self.view(branch), event)
            said = replace(event, said=branch.mark)
            self._buffer.append(said)
            branch.own.append(said)

    def flush(self) -> None:
        """Write what was said."""
        with self._lock:
            if self._buffer:
                self.record(())

    def refuse_inside_a_step(self, verb: str) -> None:
        """Verbs belong to the agent's body; and after a wait nothing more is done."""
        if self.suspended:
            raise Suspended
        call = current_call()
        if call is not None and call.task_id == self.log.name:
            raise NestedStep(verb, call.step)

    # Seeing

    def view(self, branch: Branch) -> Hot:
        """What a branch sees: the state up to its last waiting verb, and what it has said since (law 5)."""
        with self._lock:
            past = self.hot if branch.seen >= self.log.head.seq else self._past(branch.seen)
            if not branch.own:
                return past
            seen = past.copy()
            for one in branch.own:
                event = one if isinstance(one, Event) else self._said_before(one)
                seen = evolve(seen, self.log.name, seen.seq, seen.updated_us, event)
            return seen

    def _past(self, seq: int) -> Hot:
        return self.logs.load(self.log.name, upto=seq).state

    def _said_before(self, which: tuple[str, int]) -> Event:
        """What was said at that place the first time: its value counts, whatever the code says now."""
        if self._recorded is None:
            self._recorded = _sayings(self.log.name, self.logs.store.read(self.log.name, after=self.hot.turn_seq))
        return self._recorded[which]

    def value(self, raw: Any) -> Any:
        """Decode a value of the log."""
        return codec.unpack(raw, self.logs.blob)


def _sayings(log: str, rows: list[Stored]) -> dict[tuple[str, int], Event]:
    found: dict[tuple[str, int], Event] = {}
    counts: dict[str, int] = {}
    for row in rows:
        event = decoded(log, row)
        if event.said:
            identity = saying(event.said, event)
            counts[identity] = counts.get(identity, 0) + 1
            found[identity, counts[identity]] = event
    return found


def ending(error: Exception) -> ev.TaskFailed:
    """How a task ends whose agent raised."""
    return ev.TaskFailed(failure=codec.failure(error))
