"""Where user code runs: in an agent's body, or in a call, and what it may know of that."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

from holdfast.core import limits, names
from holdfast.core.errors import InvalidValue, UnrecordedCall
from holdfast.core.events import Usage


class Call:
    """One call of a tool, or one step. `result` is known when it is to be undone, `announced_at` when in doubt.

    `maybe_done` is set for an undo function whose call failed and may have happened all the same. `write_key(name)`
    names something that the function writes elsewhere, so that a repeated step writes it once.
    """

    __slots__ = (
        *("_counts", "_place", "announced_at", "arguments", "attempt", "idempotency_key", "maybe_done"),
        *("result", "step", "task_id", "time_left", "tool"),
    )

    def __init__(
        self,
        task_id: str,
        step: str,
        attempt: int,
        *,
        tool: str = "",
        arguments: dict[str, Any] | None = None,
        idempotency_key: str = "",
        time_left: float | None = None,
        announced_at: float | None = None,
        result: Any = None,
        maybe_done: bool = False,
        place: str = "",
        counts: dict[str, int] | None = None,
    ) -> None:
        self._place = place or step
        self._counts = {} if counts is None else counts
        self.task_id = task_id
        self.step = step
        self.attempt = attempt
        self.tool = tool
        self.arguments = {} if arguments is None else arguments
        self.idempotency_key = idempotency_key
        self.time_left = time_left
        self.announced_at = announced_at
        self.result = result
        self.maybe_done = maybe_done

    def write_key(self, name: str) -> str:
        """Return a name for something that this attempt writes elsewhere: its task, turn, step, `name` and a count.

        A repeated attempt counts from 1 again, so it asks for the same names in the same order: a library that writes
        only what is not there under that name yet writes nothing twice.
        """
        number = self._counts[name] = self._counts.get(name, 0) + 1
        return f"{self.task_id}:{self._place}:{name}#{number}"

    def __repr__(self) -> str:
        return f"<call {self.step} of {self.task_id}>"


class ChunkSender(Protocol):
    """Publishes what a step streams."""

    def send(self, data: Any) -> None:
        """Publish a chunk: text, or anything that JSON can hold. Returns at once."""
        ...


class Asking:
    """A destination being asked about a call: `reconcile` runs in it."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.usage: Usage | None = None
        self.sent = True

    def priced(self, usage: Usage) -> Usage:
        """Record no usage: asking costs are not charged to a task."""
        return usage

    def streaming(self) -> ChunkSender:
        """Refuse: an answer of the destination is not a step."""
        raise InvalidValue(
            f"streaming() was used while {self.call.step!r} was only asked about or changed",
            hint="stream from the function that a step or a call runs",
        )


class Caller(Protocol):
    """A call of a user's function; what is known of it is put together when it is asked for."""

    usage: Usage | None
    sent: bool

    @property
    def call(self) -> Call: ...

    def priced(self, usage: Usage) -> Usage: ...

    def streaming(self) -> ChunkSender: ...


CALLER: ContextVar[Caller | None] = ContextVar("holdfast_call", default=None)
"""Who makes the call that this code runs in: set around every function of a step, and around `reconcile`."""


class Body(Protocol):
    """The body of an agent, or a block: where a tool or a step that is called like a function is durable."""

    def plain_call(self, tool: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make a durable call of a tool."""
        ...

    def is_of(self, logs: object, id: str) -> bool:
        """Return whether it is the body of that task."""
        ...

    def plain_step(self, step: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Do a step that was declared with @step."""
        ...


BODY: ContextVar[Body | None] = ContextVar("holdfast_body", default=None)
"""The body that this code runs in, whichever function of it."""


def acting(by: str) -> str:
    """Return who acts: the name that was given; else HOLDFAST_BY, unless an agent's body, step or tool acts."""
    return by if by or CALLER.get() is not None or BODY.get() is not None else os.environ.get("HOLDFAST_BY", "")


_bodies: set[int] = set()
"""The ids of bodies that run in this process, but for those whose thread was abandoned. It keeps none of them alive."""


class _Entered:
    """A body that was entered, and where: blocks in generators may be left in another order than entered."""

    __slots__ = ("body", "call", "is_over", "outer")

    def __init__(self, body: Body) -> None:
        self.body, self.outer, self.call, self.is_over = body, _ENTERED.get(), CALLER.get(), False


_ENTERED: ContextVar[_Entered | None] = ContextVar("holdfast_entered", default=None)


@contextmanager
def in_body(body: Body) -> Generator[None, None, None]:
    """Run code as the body of an agent: not inside a call, though a call may have started the agent."""
    entered = _Entered(body)
    _ENTERED.set(entered)
    BODY.set(body)
    CALLER.set(None)
    _bodies.add(id(body))
    try:
        yield
    finally:
        _bodies.discard(id(body))
        entered.is_over = True
        inner = _ENTERED.get()
        while inner is not None and inner.is_over:
            CALLER.set(inner.call)
            inner = inner.outer
            BODY.set(None if inner is None else inner.body)
            _ENTERED.set(inner)


@contextmanager
def in_hook(name: str) -> Generator[None, None, None]:
    """Run a user's hook in a body: what it calls is not the agent's doing, so it is not a step of the agent."""
    if BODY.get() is None or CALLER.get() is not None:
        yield
        return
    before = CALLER.set(Asking(Call("", name, 1)))
    try:
        yield
    finally:
        CALLER.reset(before)


def abandon_body(body: Body) -> None:
    """Forget a body that runs in an abandoned thread: what is called elsewhere has nothing to do with it."""
    _bodies.discard(id(body))


def refuse_own(logs: object, id: str, verb: str) -> None:
    """Refuse to read a task through the app in its own body: what is read would differ on replay."""
    body = BODY.get()
    if body is not None and CALLER.get() is None and body.is_of(logs, id):
        raise InvalidValue(
            f"app.{verb}({id!r}) in the body of that very task would give something else on every replay",
            hint="read task.current, which is the same on every replay; in a step, app.get is allowed",
        )


_warned: set[tuple[str, int]] = set()


def warn_unrecorded(tool: str) -> None:
    """Warn, once for each place in the code, that a tool is called beside an agent's body and nothing records it."""
    import sys
    import warnings

    if not _bodies:
        return
    frame = sys._getframe(2)  # pyright: ignore[reportPrivateUsage] — who called the tool
    place = (frame.f_code.co_filename, frame.f_lineno)
    if place not in _warned:
        _warned.add(place)
        told = f"tool {tool!r} is called outside the agent that is running: nothing records it. Use task.call(…, key=…)"
        warnings.warn(told, UnrecordedCall, stacklevel=3)


def current_call() -> Call | None:
    """The call a tool is running in: its idempotency key, attempt and time left. None outside a step."""
    caller = CALLER.get()
    return None if caller is None else caller.call


def streaming() -> ChunkSender:
    """Return what publishes chunks of the step or tool this code runs in: `streaming().send("some text")`.

    Watchers get them with `app.follow(id, chunks=True)`. Nothing of them is recorded: only the step's result is.
    """
    caller = CALLER.get()
    if caller is None:
        raise InvalidValue(
            "streaming() was used outside a step",
            hint="call it in the function that task.step or task.call runs, or use task.stream",
        )
    return caller.streaming()


@contextmanager
def sending() -> Generator[None, None, None]:
    """Mark, in a tool that declares `marks_sending=True`, the part in which its effect may happen.

    An error raised before it means that nothing happened; one raised in it or after it leaves the call in doubt.
    """
    caller = CALLER.get()
    if caller is not None:
        caller.sent = True
    yield


def report_usage(*, input_tokens: int = 0, output_tokens: int = 0, cost: float | None = None, model: str = "") -> None:
    """Report from inside a step or tool what it has used up. Several reports add up. They count with the step's record.

    A result with a provider's `usage` needs no report.
    """
    caller = CALLER.get()
    if caller is None:
        raise InvalidValue("usage was reported outside a step", hint="report it from the function a step calls")
    for name, value in (("input_tokens", input_tokens), ("output_tokens", output_tokens), ("cost", cost or 0)):
        number = isinstance(value, int) or name == "cost"
        if not number or isinstance(value, bool | str) or not 0 <= value < limits.MAX_BUDGET:
            raise InvalidValue(f"{name}={value!r} cannot have been used up", hint="give a whole number, 0 or more")
    names.encodable(model, "model's name")
    before = caller.usage or Usage()
    more = caller.priced(Usage(input_tokens, output_tokens, cost, model or before.model))
    total = None if more.cost is None and before.cost is None else (before.cost or 0.0) + (more.cost or 0.0)
    tokens = before.input_tokens + input_tokens, before.output_tokens + output_tokens
    caller.usage = Usage(*tokens, cost=total, model=model or before.model)
