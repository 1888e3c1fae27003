"""@step: a function whose calls from an agent's body are steps."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypedDict, Unpack, overload

from holdfast.core.durations import Duration, seconds
from holdfast.core.errors import InvalidValue
from holdfast.core.retries import Retry
from holdfast.engine.definitions.agent import Agent
from holdfast.engine.definitions.call import BODY, CALLER
from holdfast.engine.definitions.signature import Parameters
from holdfast.engine.definitions.tool import Errors, Tool, as_retry, declared_function, error_test
from holdfast.engine.definitions.types import P, R, R_co


class Step(Generic[P, R_co]):
    """A function that is called once for each step, ever: replay takes its result from the log.

    Called like a function in an agent's body, it is `task.step`. Inside another step, in a tool and outside of agents
    it is the plain function; `.fn` is that everywhere. `Step[P, R]` takes the parameters `P` and returns `R`.
    """

    def __init__(
        self,
        fn: Callable[P, R_co],
        *,
        name: str | None = None,
        retry: Retry | int | None = None,
        retry_on: Errors = (),
        timeout: Duration | None = None,
    ) -> None:
        """`name` is the step's name in the log, if not the function's.

        A step that fails is tried again as `retry` says; only after errors in `retry_on`, if given. `timeout` is how
        long each attempt may take. `task.step(fn, retry=…)` takes precedence.
        """
        if isinstance(fn, Tool | Agent):
            raise InvalidValue(f"{fn!r} is not a plain function", hint="a tool is called as it is, in an agent's body")
        self.fn = fn
        self.parameters = Parameters(fn, name=name)
        self.name = self.parameters.name
        self.retry = None if retry is None else as_retry(retry)
        self.timeout = None if timeout is None else seconds(timeout, "timeout")
        error_test(retry_on, f"retry_on= of {self.name!r}")
        self.retry_on = retry_on
        self.is_async = self.parameters.is_async
        functools.update_wrapper(self, fn)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """In an agent's body: do this step, as `task.step` does. Elsewhere: call the function."""
        body = BODY.get()
        if body is None or CALLER.get() is not None:
            return self.fn(*args, **kwargs)
        return body.plain_step(self, args, kwargs)

    def __get__(self, instance: object, owner: type | None = None) -> Step[..., R_co]:
        """A method: the same step of one object."""
        bound = None if instance is None else self.fn.__get__(instance, owner)
        if bound is None:
            return self
        given: dict[str, Any] = {"retry": self.retry, "retry_on": self.retry_on, "timeout": self.timeout}
        return Step(bound, name=self.name, **given)

    def __repr__(self) -> str:
        return f"<step {self.name}>"


if TYPE_CHECKING:

    class StepOptions(TypedDict, total=False):
        """What `@step(…)` takes: the parameters of `Step`."""

        name: str | None
        retry: Retry | int | None
        retry_on: Errors
        timeout: Duration | None


@overload
def step(fn: Callable[P, R], /) -> Step[P, R]: ...
@overload
def step(**options: Unpack[StepOptions]) -> Callable[[Callable[P, R]], Step[P, R]]: ...
def step(fn: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Declare a step: called from an agent's body, it is done once, ever. The options are those of `Step`.

    >>> @step(retry=3)
    ... def draft(notes: str) -> str:
    ...     return notes.upper()
    >>> draft("outside of an agent it is a plain function")
    'OUTSIDE OF AN AGENT IT IS A PLAIN FUNCTION'
    """

    def declare(function: Callable[..., Any]) -> Step:
        return Step(declared_function(function, "step"), **options)

    return declare if fn is None else declare(fn)
