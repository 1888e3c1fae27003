"""AsyncTask: the verbs of a Task on an event loop, where the waiting ones are awaited."""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack, overload

from holdfast.core import events as ev, limits
from holdfast.core.durations import Duration
from holdfast.core.errors import HoldfastError, InvalidValue
from holdfast.core.events import Usage
from holdfast.core.flows import writers
from holdfast.core.flows.requests import Condition, Subflow
from holdfast.core.retries import Retry
from holdfast.core.wording import verb_of
from holdfast.engine.definitions.agent import Agent
from holdfast.engine.definitions.step import Step
from holdfast.engine.definitions.tool import Tool
from holdfast.engine.definitions.types import R, TextStream
from holdfast.engine.drivers import parallel
from holdfast.engine.execution import races
from holdfast.engine.execution.awaitable import Verb
from holdfast.engine.execution.branches import current_place
from holdfast.engine.execution.loop_execution import LoopExecution
from holdfast.engine.verbs.task import Task, in_other_thread

if TYPE_CHECKING:
    from holdfast.engine.verbs.task import MapOptions


class AsyncTask(Task):
    """What an `async def` agent works with: the same verbs, and the waiting ones are awaited."""

    _execution: LoopExecution

    if TYPE_CHECKING:  # the same verbs, whose types say that they are awaited

        @overload
        def step(
            self,
            fn: Callable[..., Awaitable[R]],
            *args: Any,
            name: str | None = None,
            key: str | None = None,
            retry: Retry | int | None = None,
            retry_on: Sequence[type[BaseException]] = (),
            timeout: Duration | None = None,
            estimate: Usage | int | None = None,
            **kwargs: Any,
        ) -> Awaitable[R]: ...
        @overload
        def step(
            self,
            fn: Callable[..., R],
            *args: Any,
            name: str | None = None,
            key: str | None = None,
            retry: Retry | int | None = None,
            retry_on: Sequence[type[BaseException]] = (),
            timeout: Duration | None = None,
            estimate: Usage | int | None = None,
            **kwargs: Any,
        ) -> Awaitable[R]: ...
        def step(self, *args: Any, **kwargs: Any) -> Any: ...
        @overload
        def stream(
            self,
            fn: Callable[..., TextStream],
            *args: Any,
            name: str | None = None,
            key: str | None = None,
            retry: Retry | int | None = None,
            retry_on: Sequence[type[BaseException]] = (),
            timeout: Duration | None = None,
            estimate: Usage | int | None = None,
            **kwargs: Any,
        ) -> Awaitable[str]: ...
        @overload
        def stream(
            self,
            fn: Callable[..., Generator[Any, Any, R]],
            *args: Any,
            name: str | None = None,
            key: str | None = None,
            retry: Retry | int | None = None,
            retry_on: Sequence[type[BaseException]] = (),
            timeout: Duration | None = None,
            estimate: Usage | int | None = None,
            **kwargs: Any,
        ) -> Awaitable[R]: ...
        @overload
        def stream(
            self,
            fn: Callable[..., Iterable[str]],
            *args: Any,
            name: str | None = None,
            key: str | None = None,
            retry: Retry | int | None = None,
            retry_on: Sequence[type[BaseException]] = (),
            timeout: Duration | None = None,
            estimate: Usage | int | None = None,
            **kwargs: Any,
        ) -> Awaitable[str]: ...
        @overload
        def stream(
            self,
            fn: Callable[..., Iterable[Any] | AsyncIterable[Any] | Awaitable[AsyncIterable[Any]]],
            *args: Any,
            name: str | None = None,
            key: str | None = None,
            retry: Retry | int | None = None,
            retry_on: Sequence[type[BaseException]] = (),
            timeout: Duration | None = None,
            estimate: Usage | int | None = None,
            **kwargs: Any,
        ) -> Awaitable[Any]: ...
        def stream(self, *args: Any, **kwargs: Any) -> Any: ...
        @overload
        def call(
            self, tool: Tool[..., Coroutine[Any, Any, R]], /, *unnamed: Any, key: str | None = None, **arguments: Any
        ) -> Awaitable[R]: ...
        @overload
        def call(
            self, tool: Tool[..., R], /, *unnamed: Any, key: str | None = None, **arguments: Any
        ) -> Awaitable[R]: ...
        def call(self, *args: Any, **kwargs: Any) -> Any: ...
        @overload
        def map(self, fn: Agent[..., R], items: Sequence[Any], **options: Unpack[MapOptions]) -> Awaitable[list[R]]: ...
        @overload
        def map(
            self, fn: Tool[..., Coroutine[Any, Any, R]], items: Sequence[Any], **options: Unpack[MapOptions]
        ) -> Awaitable[list[R]]: ...
        @overload
        def map(self, fn: Tool[..., R], items: Sequence[Any], **options: Unpack[MapOptions]) -> Awaitable[list[R]]: ...
        @overload
        def map(
            self, fn: Callable[..., Awaitable[R]], items: Sequence[Any], **options: Unpack[MapOptions]
        ) -> Awaitable[list[R]]: ...
        @overload
        def map(
            self, fn: Callable[..., R], items: Sequence[Any], **options: Unpack[MapOptions]
        ) -> Awaitable[list[R]]: ...
        def map(self, *args: Any, **kwargs: Any) -> Any: ...  # pyright: ignore[reportIncompatibleMethodOverride]
        def call_tools(  # pyright: ignore[reportIncompatibleMethodOverride]
            self, reply: Mapping[str, Any], tools: Sequence[Tool] | Mapping[str, Tool]
        ) -> Awaitable[list[dict[str, Any]]]: ...
        @overload
        def ask(
            self, question: str, *, answer: type[R], name: str | None = None, timeout: Duration | None = None
        ) -> Awaitable[R | None]: ...
        @overload
        def ask(
            self, question: str, *, answer: Any = None, name: str | None = None, timeout: Duration | None = None
        ) -> Awaitable[Any]: ...
        def ask(self, *args: Any, **kwargs: Any) -> Any: ...  # pyright: ignore[reportIncompatibleMethodOverride]
        def approve(  # pyright: ignore[reportIncompatibleMethodOverride]
            self, question: str, *, name: str | None = None, timeout: Duration | None = None
        ) -> Awaitable[bool]: ...
        def wait(self, signal: str, *, timeout: Duration | None = None) -> Awaitable[Any]: ...
        def sleep(  # pyright: ignore[reportIncompatibleMethodOverride]
            self, length: Duration
        ) -> Awaitable[None]: ...
        def spawn(  # pyright: ignore[reportIncompatibleMethodOverride]
            self, agent: Agent[..., R], input: Mapping[str, Any] | None = None, *, name: str | None = None
        ) -> Awaitable[R]: ...
        def checkpoint(  # pyright: ignore[reportIncompatibleMethodOverride]
            self, label: str
        ) -> Awaitable[None]: ...

    def _refuse_elsewhere(self, called: Tool | Step, verb: str) -> None:
        if not self._execution.is_on_loop():
            raise in_other_thread(called, verb)
        if not called.is_async:
            what = "tool" if isinstance(called, Tool) else "step"
            raise InvalidValue(
                f"{called.name}() is a def {what}, called in an async agent, whose event loop it would block",
                hint=f"write: await task.{verb}({called.name}, …)",
            )

    def _drive(
        self,
        verb: str,
        finish: Any,
        flow: Callable[..., Subflow],
        *args: Any,
        name: str | None = None,
        is_key: bool = False,
    ) -> Verb:
        return self._verb(self._driven(verb, finish, flow, args), verb)

    def _verb(self, inner: Coroutine[Any, Any, Any], verb: str) -> Verb:
        here, execution = current_place.get(), self._execution
        branch = execution.root if here is None or here.execution is not execution else here.branch
        branch.verbs += 1
        return Verb(inner, f"task.{verb}", execution.unawaited, branch.verbs)

    def plain_call(self, tool: Tool, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Verb:
        """Make the durable call when an agent's body calls a tool like a function. Write `await tool(…)`, not this."""
        return super().plain_call(tool, args, kwargs).called(tool.name)

    def plain_step(self, step: Step, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Verb:
        """Do the step when an agent's body calls its function. Write `await draft(…)`, not this."""
        return super().plain_step(step, args, kwargs).called(step.name)

    async def _driven(self, verb: str, finish: Any, flow: Callable[..., Subflow], args: tuple[Any, ...]) -> Any:
        execution = self._execution
        with self.refusals:
            execution.refuse_inside_a_step(verb)
            branch = execution.branch_here(verb)
            try:
                if branch.unsettled is not None:
                    await execution.drive(writers.settle(execution, branch), execution)
                value = execution.value(await execution.drive(flow(execution, branch, *args), execution))
            except HoldfastError:
                if execution.branched:
                    await execution.in_turn(branch.seen)  # a failure is a result, too
                raise
            finally:
                execution.moved(branch)
        if execution.branched:
            await execution.in_turn(branch.seen)
        return value if finish is None else finish(value)

    def _together(self, verb: str, works: Sequence[parallel.Work], finish: Any, limit: int = limits.MAP_LIMIT) -> Verb:
        return self._verb(self._all_driven(verb, works, finish, limit), verb)

    async def _all_driven(self, verb: str, works: Sequence[parallel.Work], finish: Any, limit: int) -> Any:
        execution = self._execution
        with self.refusals:
            execution.refuse_inside_a_step(verb)
            branch = execution.branch_here(verb)
            if branch.unsettled is not None:
                await execution.drive(writers.settle(execution, branch), execution)
            parts = parallel.parts(execution, branch, works)
            outcomes = await execution.drive_all(execution, parts, limit)
            value = parallel.join_results(branch, parts, outcomes, execution.value)
        execution.moved(branch)
        if execution.branched:
            await execution.in_turn(branch.seen)
        return finish(value)

    def _say(self, event: ev.Event, condition: Condition | None = None) -> None:
        super()._say(event, condition)
        self._execution.moved(self._here(verb_of(event, said=True)))

    def race(self, *branches: Any) -> Verb:
        """Let verbs race, cancel all but the first to end, and give `(index, its value)`; what it raises is raised.

        The winner is recorded, so that it is the same on every replay, whatever else the branches wait for.

        >>> first, value = await task.race(task.wait("answer"), task.sleep(60))  # doctest: +SKIP
        """
        if len(branches) < 2:
            raise InvalidValue(f"{len(branches)} can't race", hint="give two or more verbs or coroutines")
        return self._verb(races.race(_Racer(self, self._execution), branches), "race")

    def select(self, *tasks: Any) -> Verb:
        """Give the index of the first of these asyncio tasks to end; the others keep running.

        The winner is recorded, so that it is the same on every replay, whatever else the tasks wait for.
        """
        if len(tasks) < 2:
            raise InvalidValue(f"there is nothing to select of {len(tasks)}", hint="give two or more asyncio tasks")
        return self._verb(races.select(_Racer(self, self._execution), tasks), "select")


class _Racer:
    """A task in a race."""

    def __init__(self, task: AsyncTask, execution: LoopExecution) -> None:
        self.execution = execution
        self.step = task.step
