"""@tool: what a function does to the world, and what is done when its answer is lost."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from string import Formatter
from typing import TYPE_CHECKING, Any, Generic, Literal, TypedDict, TypeGuard, Unpack, get_args, overload

from msgspec import UNSET

from holdfast.core import limits, names
from holdfast.core.durations import Duration, seconds
from holdfast.core.errors import InvalidValue, NestedStep
from holdfast.core.events import ANNOUNCED, CHANGING, REPEATABLE, TRANSACTIONAL, Effect
from holdfast.core.flows.requests import ErrorTest
from holdfast.core.retries import ONCE_ONLY, Retry
from holdfast.engine.definitions.call import BODY, CALLER, in_hook, warn_unrecorded
from holdfast.engine.definitions.json_schema import SchemaParameters
from holdfast.engine.definitions.queue import as_rate
from holdfast.engine.definitions.signature import Parameters, name_of
from holdfast.engine.definitions.types import P, R, R_co

OnDoubt = Literal["ask", "fail", "retry"]
Errors = Sequence[type[BaseException]] | Callable[[BaseException], bool]
"""Exception classes, with their subclasses, or a function of the exception: one class often has HTTP 400 and 500."""


class Tool(Generic[P, R_co]):
    """A function with a declared effect on the world. `Tool[P, R]` takes the parameters `P` and returns `R`.

    Called like a function in an agent's body, it is a durable call, like `task.call`. Inside a step, only a tool that
    reads can be called. Outside of agents it is the plain function; `.fn` is that everywhere.

    `Tool(fn, name=…, schema=…)` declares its parameters by a JSON Schema, for a function that takes `**arguments`.
    """

    def __init__(
        self,
        fn: Callable[P, R_co],
        *,
        name: str | None = None,
        schema: Mapping[str, Any] | None = None,
        effect: Effect | None = None,
        risk: str = "",
        retry: Retry | int | None = None,
        retry_on: Errors = (),
        definite: Errors = (),
        marks_sending: bool = False,
        timeout: Duration | None = None,
        rate: str = "",
        reconcile: Callable[..., Any] | None = None,
        reconcile_after: Duration = 2.0,
        abandoned_after: Duration | None = None,
        compensate: Callable[..., Any] | None = None,
        unique: str = "",
        on_doubt: OnDoubt | None = None,
        redact: Sequence[str] = (),
        mock: Any = UNSET,
    ) -> None:
        """`effect` is what it does to the world, and decides what happens when an answer is lost. Default: `once`.

        Calls of a `risk` wait for approval where the agent or the contract says so. An error of a `once` tool may mean
        that it happened, so the call is in doubt. Not so for errors in `definite`, which mean that it did nothing, and
        in `retry_on`, which are also tried again; each is a list of exceptions or a function of one. With
        `marks_sending`, errors raised before `with holdfast.sending():` mean that too. A call in doubt is looked up
        with `reconcile`, not before `reconcile_after`; if that can't tell, `on_doubt` decides: "ask" a person (the
        default), "fail" or "retry". A tool that declares no effect fails after an error. After a `timeout`, the thread
        of a `def` tool may still be sending. Until it ends, or `abandoned_after` has passed, DidNotHappen is not
        believed and the call is not made again; default: 10 timeouts, at least 60 s. `rate`, as "10/s", is for all
        workers of the store. `compensate` undoes a call when its task fails. `mock` is its stand-in. `unique`, such as
        `"order-{order}"`, makes a call one across tasks. `redact` keeps arguments out of the log.
        """
        self.parameters = Parameters(fn, name=name) if schema is None else SchemaParameters(fn, schema, name=name)
        self.name = names.column_name(self.parameters.name, "tool's name")
        self.risk = names.text(risk, "risk")
        self.retry = None if retry is None else as_retry(retry)
        self.retry_on = error_test(retry_on, f"retry_on= of {self.name!r}")
        self.definite = error_test(definite, f"definite= of {self.name!r}")
        self._declare(effect, on_doubt)
        self._limit(timeout, abandoned_after)
        self.reconcile, self.compensate, self.marks_sending, self.rate = reconcile, compensate, marks_sending, rate
        self.reconcile_after = seconds(reconcile_after, "reconcile_after")
        self.fn, self.unique, self._in_unique = fn, unique, _fields_of(unique)
        self.redact, self.mock = frozenset(redact), mock
        self.is_async, self.__doc__ = self.parameters.is_async, fn.__doc__
        self._check()

    def _limit(self, timeout: Duration | None, abandoned_after: Duration | None) -> None:
        """Set how long an attempt may take, and how long the thread of one that took longer may still be at it."""
        default = limits.TRANSACTION_SECONDS if self.effect in TRANSACTIONAL else None
        limit = default if timeout is None else timeout
        self.timeout = None if limit is None else seconds(limit, "timeout", above_zero=True)
        patience = max(limits.ABANDONED_SECONDS, limits.ABANDONED_TIMEOUTS * (self.timeout or 0))
        self.abandoned_after = patience if abandoned_after is None else seconds(abandoned_after, "abandoned_after")

    def _declare(self, effect: Effect | None, on_doubt: OnDoubt | None) -> None:
        """Set what it does to the world. A tool that declares no effect is `once`, and fails when it raises."""
        self.declared = effect is not None
        self.effect: Effect = "once" if effect is None else one_of(effect, Effect, "effect")
        self.on_doubt: OnDoubt = "ask" if on_doubt is None else one_of(on_doubt, OnDoubt, "on_doubt")
        self.on_raise: OnDoubt = self.on_doubt if on_doubt is not None or self.declared else "fail"

    def _check(self) -> None:
        if self.rate != "":
            as_rate(self.rate, f"tool {self.name!r}", whole=True)
        if self.effect in TRANSACTIONAL and self.is_async:
            raise InvalidValue(f"tool {self.name!r} is async", hint="a transaction tool is a def function")
        if self.effect in TRANSACTIONAL and "connection" not in self.parameters.given:
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
        for what, given in (("redact", self.redact), ("unique", self._in_unique)):
            unknown = sorted(set(given) - known) if known is not None else []
            if unknown:
                raise InvalidValue(
                    f"{what}= of {self.name!r} names {unknown[0]!r}", hint=f"it takes {sorted(known or ())}"
                )
        if self.effect in REPEATABLE and self.reconcile is not None:
            raise InvalidValue(f"tool {self.name!r} can be repeated", hint="reconcile= is for effect='once'")
        if self.effect not in ANNOUNCED and (marks := self.marks_sending):
            raise InvalidValue(f"marks_sending={marks} of {self.name!r}", hint="it is for effect='once'")
        if self.unique and self.effect not in CHANGING:
            raise InvalidValue(f"tool {self.name!r} only reads", hint="unique= is for tools that change something")

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """In an agent's body: make a durable call, as `task.call` does. Elsewhere: call the function.

        Inside a step only a tool that reads can be called; `tool.fn` is always the plain function.
        """
        caller, body = CALLER.get(), BODY.get()
        if caller is not None:
            if self.effect in CHANGING:
                raise NestedStep(f"{self.name}()", caller.call.step)
        elif body is not None:
            return body.plain_call(self, args, kwargs)
        elif self.effect in CHANGING:
            warn_unrecorded(self.name)
        return self.fn(*args, **kwargs)

    def __set_name__(self, owner: type, name: str) -> None:
        """Refuse a method, unless it is static: a tool's arguments are recorded, and its object can't be."""
        if isinstance(self.parameters, SchemaParameters) or not self._takes_self():
            return
        raise InvalidValue(
            f"@tool on the method {owner.__name__}.{name}: its object can't be recorded as an argument",
            hint="declare a function, and reach the object in it; or use @step, which takes methods",
        )

    def _takes_self(self) -> bool:
        first = next(iter(inspect.signature(self.fn).parameters), "")
        return inspect.isfunction(self.fn) and first in ("self", "cls")

    def __repr__(self) -> str:
        return f"<tool {self.name} {self.effect}>"

    @property
    def input_schema(self) -> dict[str, Any]:
        """The parameters, as JSON Schema, for models and forms."""
        return self.parameters.schema()

    def takes(self, name: str) -> bool:
        """Return whether it has a parameter of that name."""
        return name in (self.parameters.names or ())

    def refuse_unlabelled(self, secret: Iterable[str]) -> None:
        """Refuse secret arguments in a unique key, unless a label stands for them."""
        for name in secret:
            if name in self._in_unique:
                raise InvalidValue(
                    f"unique={self.unique!r} of {self.name!r} names {name!r}, which is secret",
                    hint=f'give it a label: {name}=Secret(…, label="…"), or leave it out of the key',
                )

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


if TYPE_CHECKING:

    class ToolOptions(TypedDict, total=False):
        """What `@tool(…)` takes: the parameters of `Tool`."""

        name: str | None
        schema: Mapping[str, Any] | None
        effect: Effect | None
        risk: str
        retry: Retry | int | None
        retry_on: Errors
        definite: Errors
        marks_sending: bool
        timeout: Duration | None
        rate: str
        reconcile: Callable[..., Any] | None
        reconcile_after: Duration
        abandoned_after: Duration | None
        compensate: Callable[..., Any] | None
        unique: str
        on_doubt: OnDoubt | None
        redact: Sequence[str]
        mock: Any


@overload
def tool(fn: Callable[P, R], /) -> Tool[P, R]: ...
@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(fn: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Declare a tool. The options are those of `Tool`; what declares no effect can be done `once` only.

    >>> @tool(effect="read")
    ... def look_up(city: str) -> dict: ...
    >>> look_up.input_schema["required"]
    ['city']
    """

    def declare(function: Callable[..., Any]) -> Tool:
        return Tool(declared_function(function), **options)

    return declare if fn is None else declare(fn)


def is_tool(given: object) -> TypeGuard[Tool]:
    """Return whether it is a tool, of whatever type."""
    return isinstance(given, Tool)


def _fields_of(unique: str) -> set[str]:
    """Return the parameters that a unique key is made of."""
    try:
        named = [field for _, field, _, _ in Formatter().parse(unique) if field] if unique else []
    except ValueError as error:
        hint = 'write parameters in braces: unique="order-{order}"'
        raise InvalidValue(f"unique={unique!r} can't be read: {error}", hint=hint) from None
    return {field.split(".")[0].split("[")[0] for field in named}


def declared_function(fn: Any, decorator: str = "tool") -> Any:
    """Refuse what a decorator was given that is not a function."""
    if isinstance(fn, Tool):
        raise InvalidValue(f"{fn!r} is a tool already", hint="declare a function once")
    if not callable(fn):
        example = "effect=…" if decorator == "tool" else "retry=3"
        raise InvalidValue(f"{fn!r} is not a function", hint=f"options are given by name: @{decorator}({example})")
    return fn


def undo_name(undo: Any) -> str:
    """Return the log's name for a function that undoes."""
    if getattr(undo, "__name__", "") == "<lambda>":
        raise InvalidValue(
            "a lambda cannot undo anything: the log names what does, and a resumed task finds it by that name",
            hint="give a named function: def undo(…)",
        )
    if not callable(undo):
        raise InvalidValue(f"{undo!r} cannot undo anything: it cannot be called", hint="give a function or a tool")
    return undo.name if isinstance(undo, Tool) else name_of(undo)


def error_test(given: Any, what: str) -> ErrorTest | None:
    """Return a function that says of an exception whether it is one of those given; None if there are none.

    They are given as exception classes, or as a function of the exception.
    """
    if callable(given) and not isinstance(given, type):

        def test(error: BaseException) -> bool:
            with in_hook(what):
                return bool(given(error))

        return test
    listed: tuple[Any, ...] = (given,) if isinstance(given, type) else tuple(given)
    for one in listed:
        if not (isinstance(one, type) and issubclass(one, BaseException)):
            raise InvalidValue(
                f"{what} has {one!r}",
                hint=f"give exceptions, {what.split()[0]}[ConnectionError], or a function of the exception",
            )
    return (lambda error: isinstance(error, listed)) if listed else None


def as_retry(given: Retry | int | None) -> Retry:
    """A number of attempts as a policy."""
    if given is None:
        return ONCE_ONLY
    return given if isinstance(given, Retry) else Retry(attempts=given)


def one_of(value: str, allowed: Any, what: str) -> Any:
    if value not in get_args(allowed):
        raise InvalidValue(f"{what}={value!r} is not known", hint=f"use one of {', '.join(get_args(allowed))}")
    return value
