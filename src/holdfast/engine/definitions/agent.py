"""@agent and @tool: declarations. Nothing is registered anywhere; both work as plain functions in a plain test."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from string import Formatter
from typing import Any, Literal, get_args, overload

from msgspec import UNSET

from holdfast.core import limits, names
from holdfast.core.durations import ONCE_ONLY, Duration, Retry, seconds
from holdfast.core.errors import InvalidValue
from holdfast.core.events import Effect
from holdfast.core.phases import Machine
from holdfast.core.state.budget import Budget, limits_of
from holdfast.engine.definitions.signature import Parameters, name_of
from holdfast.engine.definitions.state_versions import States, Upcaster

CheckpointStrategy = Literal["every_step", "every_iteration", "on_state_change", "before_effects"]
OnChange = Literal["error", "rerun", "keep"]
OnDoubt = Literal["ask", "fail", "retry"]


class Agent:
    """A named function that works on tasks. Calling it calls the function."""

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
    ) -> None:
        """Declare an agent.

        `phases` are those of its life, if not the usual ones. `retries` is for steps and calls that declare none.
        Calls of tools whose risk is in `required_for_risk_levels` wait for a person's approval, at most
        `approve_within`. A task that nobody touched for `resume_within` is not resumed. `tools` is what a resumed task
        may need in order to undo what it did in an earlier turn. `state` is the model of `task.state`: a dataclass, a
        msgspec Struct or a pydantic model, of version `state_version` (1). Workers leave tasks alone that another
        `version` of the agent began, unless this one `accepts` it.
        """
        self.fn = fn
        self.parameters = Parameters(fn, name=name, skip=1)
        self.name = names.short_name(self.parameters.name, "agent's name")
        self.stages, self.phases = stages_of(stages), a_machine(phases)
        self.deadline = _seconds(deadline, "deadline")
        self.retry = as_retry(retries)
        self.loop, self.max_turns, self.undoers = loop, max_turns, _undoers(tools)
        self.checkpoint = _one_of(checkpoint, CheckpointStrategy, "checkpoint")
        self.version, self.accepts = version, _versions(version, accepts)
        self.on_change = _one_of(on_change, OnChange, "on_change")
        self.risks = _levels(required_for_risk_levels)
        self.approve_within = _seconds(approve_within, "approve_within")
        self.resume_within = _seconds(resume_within, "resume_within")
        self.budget = None if budget is None else limits_of(budget)
        self.is_async = self.parameters.is_async
        self.states = _states(self.name, state, state_version)
        self.__doc__ = fn.__doc__
        self._check(fn)

    def _check(self, fn: Callable[..., Any]) -> None:
        first = next(iter(inspect.signature(fn).parameters.values()), None)
        if first is None or first.kind is inspect.Parameter.KEYWORD_ONLY or not _may_be_a_task(first.annotation):
            raise InvalidValue(
                f"agent {self.name!r} takes no task", hint=f"write def {self.parameters.name}(task: Task, …)"
            )
        if self.max_turns is not None and not self.loop:
            raise InvalidValue(f"max_turns={self.max_turns} of {self.name!r} has no loop", hint="give loop=True")
        if self.max_turns is not None and self.max_turns < 1:
            raise InvalidValue(
                f"max_turns={self.max_turns} of {self.name!r} lets nothing happen", hint="give 1 or more"
            )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.fn(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<agent {self.name}>"

    @property
    def input_schema(self) -> dict[str, Any]:
        """What it takes, as JSON Schema."""
        return self.parameters.schema()

    @property
    def state_version(self) -> int:
        """The version of the state it declares; 0 if it declares none."""
        return 0 if self.states is None else self.states.version

    def upcast(self, start: int, to: int) -> Callable[[Upcaster], Upcaster]:
        """Declare how a state of one version becomes one of a later version: a function from dict to dict."""
        states = self._declared()
        return lambda fn: states.add(start, to, fn)

    def read_state(self, task: Any) -> Any:
        """A task's state as an instance of this agent's model; older versions are upcast, nothing is written."""
        if not hasattr(task, "state_version"):
            raise InvalidValue(f"{task!r} is not a task's state", hint="write agent.read_state(app.get(id))")
        return task.read(self._declared())

    def _declared(self) -> States:
        if self.states is None:
            raise InvalidValue(f"agent {self.name!r} declares no state", hint="write @agent(state=MyModel)")
        return self.states


def _versions(version: str, accepts: Sequence[str]) -> tuple[str, ...]:
    """The versions whose tasks an agent goes on with: its own, those it names, and what has none."""
    if isinstance(accepts, str) or not all(isinstance(one, str) for one in accepts):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(f"accepts={accepts!r} is not a list of versions", hint='write accepts=["1", "2"]')
    return tuple(dict.fromkeys(("", version, *accepts)))


def block_agent(name: str) -> Agent:
    """Stands in for the agent of a task that lives in a block of code."""

    def body(task: Any) -> None:
        raise AssertionError("a block is entered, not called")

    return Agent(body, name=name)


class Tool:
    """A function with a declared effect on the world. Calling it calls the function."""

    def __init__(
        self,
        fn: Callable[..., Any],
        *,
        name: str | None = None,
        effect: Effect = "once",
        risk: str = "",
        retry: Retry | int | None = None,
        retry_on: Sequence[type[BaseException]] = (),
        timeout: Duration | None = None,
        reconcile: Callable[..., Any] | None = None,
        reconcile_after: Duration = 2.0,
        compensate: Callable[..., Any] | None = None,
        unique: str = "",
        on_doubt: OnDoubt = "ask",
        redact: Sequence[str] = (),
        mock: Any = UNSET,
    ) -> None:
        """`effect` is what it does to the world, and decides what happens if its process dies in the middle of a call.

        Calls of a `risk` wait for approval where the agent or the contract says so. Errors in `retry_on` are tried
        again; any other error of a `once` tool may mean that it happened. A call in doubt is looked up with
        `reconcile`, not before `reconcile_after`; if that cannot tell, `on_doubt` decides. `compensate` undoes a call
        when its task fails. `unique`, such as `"order-{order}"`, makes a call one across tasks. Arguments in `redact`
        stay out of the log. `mock` answers for it in mock tasks.
        """
        self.fn = fn
        self.parameters = Parameters(fn, name=name)
        self.name = names.short_name(self.parameters.name, "tool's name")
        self.effect = _one_of(effect, Effect, "effect")
        self.risk = risk
        self.retry = None if retry is None else as_retry(retry)
        self.retry_on = as_errors(retry_on, self.name)
        limit = limits.TRANSACTION_SECONDS if timeout is None and effect == "transaction" else timeout
        self.timeout = None if limit is None else seconds(limit, "timeout")
        self.reconcile = reconcile
        self.reconcile_after = seconds(reconcile_after, "reconcile_after")
        self.compensate = compensate
        self.unique = unique
        self.on_doubt = _one_of(on_doubt, OnDoubt, "on_doubt")
        self.redact = frozenset(redact)
        self.mock = mock
        self.is_async = self.parameters.is_async
        self.__doc__ = fn.__doc__
        self._check()

    def _check(self) -> None:
        if self.effect == "transaction" and self.is_async:
            raise InvalidValue(f"tool {self.name!r} is async", hint="a transaction tool is a def function")
        if self.effect == "transaction" and "connection" not in self.parameters.given:
            raise InvalidValue(
                f"transaction tool {self.name!r} takes no connection, so it could not write with its record",
                hint=f"write def {self.parameters.name}(…, *, connection), or declare another effect",
            )
        for what, function in (("reconcile", self.reconcile), ("compensate", self.compensate)):
            if function is not None and not callable(function):
                raise InvalidValue(f"{what}={function!r} of {self.name!r} cannot be called", hint="give a function")
        if self.compensate is not None:
            undo_name(self.compensate)
        known = self.parameters.names
        named = [field for _, field, _, _ in Formatter().parse(self.unique) if field] if self.unique else []
        fields = {field.split(".")[0].split("[")[0] for field in named}
        for what, given in (("redact", self.redact), ("unique", fields)):
            unknown = sorted(set(given) - known) if known is not None else []
            if unknown:
                raise InvalidValue(
                    f"{what}= of {self.name!r} names {unknown[0]!r}", hint=f"it takes {sorted(known or ())}"
                )
        if self.effect in ("read", "idempotent") and self.reconcile is not None:
            raise InvalidValue(f"tool {self.name!r} can be repeated", hint="reconcile= is for effect='once'")
        if self.unique and self.effect == "read":
            raise InvalidValue(f"tool {self.name!r} only reads", hint="unique= is for tools that change something")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.fn(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<tool {self.name} {self.effect}>"

    @property
    def input_schema(self) -> dict[str, Any]:
        """What it takes, as JSON Schema: what models and forms need."""
        return self.parameters.schema()

    def unique_key(self, arguments: Mapping[str, Any]) -> str:
        """The key with a meaning of the user's, such as `order-17`; empty if there is none."""
        if not self.unique:
            return ""
        try:
            key = self.unique.format_map(dict(arguments))
            return names.unique_key(key, self.name)
        except (KeyError, IndexError, AttributeError) as error:
            raise InvalidValue(
                f"unique={self.unique!r} of {self.name!r} needs {error}", hint=f"it was given {sorted(arguments)}"
            ) from None


@overload
def agent(fn: Callable[..., Any], /, **options: Any) -> Agent: ...
@overload
def agent(**options: Any) -> Callable[[Callable[..., Any]], Agent]: ...
def agent(fn: Callable[..., Any] | None = None, /, **options: Any) -> Agent | Callable[[Callable[..., Any]], Agent]:
    """Declare an agent. The options are those of `Agent`.

    With `loop` the function is called once a turn, until it returns something. `checkpoint` says when results of steps
    become durable, `on_change` what becomes of a recorded step that is called with another input.

    >>> @agent(stages=["drafting", "done"], deadline="10m")
    ... def recap(task, notes: str) -> str: ...
    >>> recap
    <agent recap>
    """

    def declare(function: Callable[..., Any]) -> Agent:
        return Agent(_function(function), **options)

    return declare if fn is None else declare(fn)


@overload
def tool(fn: Callable[..., Any], /, **options: Any) -> Tool: ...
@overload
def tool(**options: Any) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(fn: Callable[..., Any] | None = None, /, **options: Any) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Declare a tool. The options are those of `Tool`; what declares no effect can be done `once` only.

    >>> @tool(effect="read")
    ... def look_up(city: str) -> dict: ...
    >>> look_up.input_schema["required"]
    ['city']
    """

    def declare(function: Callable[..., Any]) -> Tool:
        return Tool(_function(function), **options)

    return declare if fn is None else declare(fn)


def a_machine(given: Machine | None) -> Machine | None:
    """The phases somebody declares, if they are a machine."""
    if given is not None and not isinstance(given, Machine):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(
            f"phases={given!r} is no machine", hint='write phases=Machine({"draft": ["done"], "done": []})'
        )
    return given


def _function(fn: Any) -> Any:
    if not callable(fn):
        raise InvalidValue(f"{fn!r} is not a function", hint="options are given by name: @tool(effect=…)")
    return fn


def _may_be_a_task(annotation: Any) -> bool:
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    return annotation is inspect.Parameter.empty or "Task" in text or text in ("Any", "object", "Block")


def _states(agent: str, state: type | None, version: int | None) -> States | None:
    if state is None and version is not None:
        raise InvalidValue(f"state_version={version!r} of {agent!r} is of no state", hint="give state=MyModel too")
    return None if state is None else States(agent, state, 1 if version is None else version)


def _undoers(tools: Sequence[Any]) -> dict[str, Any]:
    """What can undo things, by name: what tools declare for it, and functions given as they are."""
    found: dict[str, Any] = {}
    for one in tools:
        undo = one.compensate if isinstance(one, Tool) and one.compensate is not None else one
        found[undo_name(undo)] = undo
    return found


def undo_name(undo: Any) -> str:
    """What something that undoes is called in the log."""
    if getattr(undo, "__name__", "") == "<lambda>":
        raise InvalidValue(
            "a lambda cannot undo anything: the log names what does, and a resumed task finds it by that name",
            hint="give a named function: def undo(…)",
        )
    return undo.name if isinstance(undo, Tool) else name_of(undo)


def as_errors(given: Any, name: str) -> tuple[type[BaseException], ...]:
    """Errors that are worth another try; one may be given as it is."""
    listed: tuple[Any, ...] = (given,) if isinstance(given, type) else tuple(given)
    for one in listed:
        if not (isinstance(one, type) and issubclass(one, BaseException)):
            raise InvalidValue(f"retry_on= of {name!r} has {one!r}", hint="give exceptions: retry_on=[ConnectionError]")
    return listed


def as_retry(given: Retry | int | None) -> Retry:
    """A number of attempts as a policy."""
    if given is None:
        return ONCE_ONLY
    return given if isinstance(given, Retry) else Retry(attempts=given)


def _levels(given: Sequence[str]) -> frozenset[str]:
    return frozenset([given] if isinstance(given, str) else given)


def _seconds(given: Duration | None, what: str) -> float | None:
    return None if given is None else seconds(given, what)


def stages_of(stages: Sequence[str]) -> tuple[str, ...]:
    """Stages as they are declared: different names."""
    if isinstance(stages, str):
        raise InvalidValue(f"stages={stages!r} is one text", hint=f"give a list: stages=[{stages!r}]")
    if len(set(stages)) != len(stages):
        raise InvalidValue(f"stages={stages!r} are not names", hint="give a list of different names")
    return tuple(names.short_name(stage, "stage") for stage in stages)


def _one_of(value: str, allowed: Any, what: str) -> Any:
    if value not in get_args(allowed):
        raise InvalidValue(f"{what}={value!r} is not known", hint=f"use one of {', '.join(get_args(allowed))}")
    return value
