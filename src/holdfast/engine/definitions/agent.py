"""@agent: who works on tasks, and how. Nothing is registered anywhere; an agent is an object in a plain test."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    Literal,
    Protocol,
    TypedDict,
    TypeGuard,
    Unpack,
    cast,
    overload,
)

from holdfast.core import names
from holdfast.core.durations import Duration, seconds
from holdfast.core.errors import InvalidValue
from holdfast.core.phases import Machine
from holdfast.core.retries import Retry
from holdfast.core.state.budget import Budget, limits_of
from holdfast.engine.definitions.signature import Parameters, json_schema
from holdfast.engine.definitions.state_versions import States, Upcaster
from holdfast.engine.definitions.tool import as_retry, declared_function, is_tool, one_of, undo_name
from holdfast.engine.definitions.types import P, R, R_co

CheckpointStrategy = Literal["every_step", "every_iteration", "on_state_change", "before_effects"]
OnChange = Literal["error", "rerun", "keep"]


class Agent(Generic[P, R_co]):
    """A named function that works on tasks. Calling it calls the function.

    `Agent[P, R]` takes the parameters `P`, after the task, and returns `R`.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        *,
        name: str | None = None,
        stages: Sequence[str] = (),
        phases: Machine | None = None,
        deadline: Duration | None = None,
        retries: Retry | int | None = None,
        loop: bool = False,
        max_turns: int | None = None,
        checkpoint: CheckpointStrategy = "every_step",
        version: str = "",
        accepts: Sequence[str] = (),
        on_change: OnChange = "error",
        required_for_risk_levels: Sequence[str] = (),
        approve_within: Duration | None = None,
        resume_within: Duration | None = None,
        tools: Sequence[Any] = (),
        budget: Budget | None = None,
        state: type | None = None,
        state_version: int | None = None,
        own_thread: bool = True,
        example: Mapping[str, Any] | None = None,
        check: Callable[[Any], object] | None = None,
    ) -> None:
        """Declare an agent.

        `phases` are those of its life, if not the usual ones. `retries` is for steps and calls that declare none.
        Calls of tools whose risk is in `required_for_risk_levels` wait for approval, at most `approve_within`. A task
        without an event for `resume_within` is not resumed. `tools` is what a resumed task may need to undo earlier
        turns. `state` is the model of `task.state`: a dataclass, a msgspec Struct or a pydantic model, of version
        `state_version` (1). Workers leave alone the tasks of another `version`, unless this one `accepts` it.
        `holdfast test` uses the input `example`, and calls `check` with the TaskState: it raises or returns False.
        """
        self.fn, self.__doc__, self.parameters = fn, fn.__doc__, Parameters(fn, name=name, skip=1)
        self.name = names.column_name(self.parameters.name, "agent's name")
        self.stages, self.phases = stages_of(stages), a_machine(phases)
        self.deadline = None if deadline is None else seconds(deadline, "deadline", above_zero=True)
        self.retry, self.loop, self.max_turns = as_retry(retries), loop, max_turns
        self.tools, self.undoers = tuple(tools), _undoers(tools)
        self.checkpoint = one_of(checkpoint, CheckpointStrategy, "checkpoint")
        self.version, self.accepts = version, _versions(version, accepts)
        self.on_change, self.is_async = one_of(on_change, OnChange, "on_change"), self.parameters.is_async
        self.risks, self.approve_within = _levels(required_for_risk_levels), _seconds(approve_within, "approve_within")
        self.resume_within = _seconds(resume_within, "resume_within")
        self.budget, self.own_thread = None if budget is None else limits_of(budget), own_thread
        self.states = _states(self.name, state, state_version)
        self.example, self.check = _example(self.name, example), _checker(self.name, check)
        self._check(fn)

    def _check(self, fn: Callable[..., Any]) -> None:
        first = next(iter(inspect.signature(fn).parameters.values()), None)
        if first is None or first.kind is inspect.Parameter.KEYWORD_ONLY or not _may_be_a_task(first.annotation):
            raise InvalidValue(
                f"agent {self.name!r} takes no task", hint=f"write def {self.parameters.name}(task: Task, …)"
            )
        if not isinstance(self.own_thread, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidValue(
                f"own_thread={self.own_thread!r} of {self.name!r} is neither True nor False", hint="give one of them"
            )
        if self.is_async and not self.own_thread:
            raise InvalidValue(
                f"own_thread=False of {self.name!r} changes nothing: an async agent runs on its event loop",
                hint="leave it out",
            )
        if self.max_turns is not None and not self.loop:
            raise InvalidValue(f"max_turns={self.max_turns} of {self.name!r} has no loop", hint="give loop=True")
        if self.max_turns is not None and (type(self.max_turns) is not int or self.max_turns < 1):
            raise InvalidValue(
                f"max_turns={self.max_turns!r} of {self.name!r} lets nothing happen", hint="give 1 or more"
            )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.fn(*args, **kwargs)

    @property
    def typed_result(self) -> Callable[[Any], Any]:
        """Makes of a task's result, which is plain JSON in the log, what the function declares to return."""
        return self.parameters.result

    def __repr__(self) -> str:
        return f"<agent {self.name}>"

    @property
    def input_schema(self) -> dict[str, Any]:
        """The parameters, as JSON Schema."""
        return self.parameters.schema()

    @property
    def state_schema(self) -> dict[str, Any] | None:
        """The model of its state, as JSON Schema; None if it declares none."""
        return None if self.states is None else json_schema(self.states.model.cls)

    @property
    def state_version(self) -> int:
        """The version of the state it declares; 0 if it declares none."""
        return 0 if self.states is None else self.states.version

    def upcast(self, start: int, to: int) -> Callable[[Upcaster], Upcaster]:
        """Declare how a state of one version becomes one of a later version: a function from dict to dict."""
        states = self._declared()
        return lambda fn: states.add(start, to, fn)

    def read_result(self, task: WithResult) -> R_co:
        """A task's result as what this agent declares to return: `recap.read_result(app.wait(id))`."""
        if not hasattr(task, "stored_result"):
            raise InvalidValue(f"{task!r} is not a task's state", hint="write agent.read_result(app.get(id))")
        task.unwrap()
        return cast("R_co", self.parameters.result(task.stored_result))

    def read_state(self, task: Any) -> Any:
        """A task's state as an instance of this agent's model; older versions are upcast, nothing is written."""
        if not hasattr(task, "state_version"):
            raise InvalidValue(f"{task!r} is not a task's state", hint="write agent.read_state(app.get(id))")
        return task.read(self._declared())

    def _declared(self) -> States:
        if self.states is None:
            raise InvalidValue(f"agent {self.name!r} declares no state", hint="write @agent(state=MyModel)")
        return self.states


def is_agent(given: object) -> TypeGuard[Agent]:
    """Return whether it is an agent, of whatever type."""
    return isinstance(given, Agent)


def _versions(version: str, accepts: Sequence[str]) -> tuple[str, ...]:
    """The versions whose tasks an agent resumes: its own, those it names, and tasks without one."""
    if isinstance(accepts, str) or not all(isinstance(one, str) for one in accepts):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(f"accepts={accepts!r} is not a list of versions", hint='write accepts=["1", "2"]')
    for one in (version, *accepts):
        names.text(one, "version")
    return tuple(dict.fromkeys(("", version, *accepts)))


def block_agent(name: str) -> Agent:
    """Stands in for the agent of a task that lives in a block of code."""

    def body(task: Any) -> Any:
        raise AssertionError("a block is entered, not called")

    return Agent(body, name=name)


if TYPE_CHECKING:

    class WithResult(Protocol):
        """A task's state: what `app.get(id)` gives."""

        @property
        def stored_result(self) -> Any: ...

        def unwrap(self) -> Any: ...

    class AgentOptions(TypedDict, total=False):
        """What `@agent(…)` takes: the parameters of `Agent`."""

        name: str | None
        stages: Sequence[str]
        phases: Machine | None
        deadline: Duration | None
        retries: Retry | int | None
        loop: bool
        max_turns: int | None
        checkpoint: CheckpointStrategy
        version: str
        accepts: Sequence[str]
        on_change: OnChange
        required_for_risk_levels: Sequence[str]
        approve_within: Duration | None
        resume_within: Duration | None
        tools: Sequence[Any]
        budget: Budget | None
        state: type | None
        state_version: int | None
        own_thread: bool
        example: Mapping[str, Any] | None
        check: Callable[[Any], object] | None

    class Declare(Protocol):
        """Makes an agent of a function, `def` or `async def`."""

        @overload
        def __call__(self, fn: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]], /) -> Agent[P, R]: ...
        @overload
        def __call__(self, fn: Callable[Concatenate[Any, P], R], /) -> Agent[P, R]: ...


@overload
def agent(fn: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]], /) -> Agent[P, R]: ...
@overload
def agent(fn: Callable[Concatenate[Any, P], R], /) -> Agent[P, R]: ...
@overload
def agent(**options: Unpack[AgentOptions]) -> Declare: ...
def agent(fn: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Declare an agent. The options are those of `Agent`.

    With `loop` the function is called once a turn, until it returns something. `checkpoint` says when results of steps
    become durable, `on_change` what becomes of a recorded step that is called with another input.

    A `def` agent whose task has a deadline, or a limit of wall time, runs in a thread of its own, which is abandoned
    when that time is over. With `own_thread=False` it runs in the caller's thread: only steps with `timeout=` are cut.

    >>> @agent(stages=["drafting", "done"], deadline="10m")
    ... def recap(task, notes: str) -> str: ...
    >>> recap
    <agent recap>
    """

    def declare(function: Callable[..., Any]) -> Agent:
        return Agent(declared_function(function), **options)

    return declare if fn is None else declare(fn)


def a_machine(given: Machine | None) -> Machine | None:
    """The declared phases, if they are a machine."""
    if given is not None and not isinstance(given, Machine):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(
            f"phases={given!r} is not a machine", hint='write phases=Machine({"draft": ["done"], "done": []})'
        )
    return given


def _may_be_a_task(annotation: Any) -> bool:
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    return annotation is inspect.Parameter.empty or "Task" in text or text in ("Any", "object", "Block")


def _states(agent: str, state: type | None, version: int | None) -> States | None:
    if state is None and version is not None:
        raise InvalidValue(f"state_version={version!r} of {agent!r} is of no state", hint="give state=MyModel too")
    return None if state is None else States(agent, state, 1 if version is None else version)


def _undoers(tools: Sequence[Any]) -> dict[str, Any]:
    """Return the functions that can undo calls, by name: those that tools declare, and those given as they are."""
    found: dict[str, Any] = {}
    for one in tools:
        undo: Any = one.compensate if is_tool(one) and one.compensate is not None else one
        found[undo_name(undo)] = undo
    return found


def _example(agent: str, given: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The input that an agent is tried with. Whether it fits is seen when it is: types may not be known yet."""
    if given is not None and not isinstance(given, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(
            f"example={given!r} of {agent!r} is not an input", hint='give its parameters: example={"city": "Oslo"}'
        )
    return None if given is None else dict(given)


def _checker(agent: str, given: Callable[[Any], object] | None) -> Callable[[Any], object] | None:
    if given is not None and not callable(given):
        raise InvalidValue(
            f"check={given!r} of {agent!r} is not a function",
            hint='write check=lambda done: done.result == "…"',
        )
    if given is not None and inspect.iscoroutinefunction(given):
        raise InvalidValue(f"check of {agent!r} is async, and nothing awaits it", hint="write def, not async def")
    return given


def _levels(given: Sequence[str]) -> frozenset[str]:
    return frozenset(names.text(one, "risk") for one in ([given] if isinstance(given, str) else given))


def _seconds(given: Duration | None, what: str) -> float | None:
    return None if given is None else seconds(given, what)


def stages_of(stages: Sequence[str]) -> tuple[str, ...]:
    """Stages as they are declared: different names."""
    if isinstance(stages, str):
        raise InvalidValue(f"stages={stages!r} is one text", hint=f"give a list: stages=[{stages!r}]")
    if len(set(stages)) != len(stages):
        raise InvalidValue(f"stages={stages!r} are not names", hint="give a list of different names")
    return tuple(names.column_name(stage, "stage") for stage in stages)
