"""What is known of a user's function: its name, its parameters, their types.

Types come from annotations, never from data. A value is checked and converted where it enters and where it comes back
from the log, so the first time and every replay give the same.
"""

from __future__ import annotations

import collections.abc
import functools
import inspect
import sys
import typing
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from holdfast.core import codec, names
from holdfast.core.errors import InvalidInput, InvalidValue
from holdfast.engine.definitions.declared.annotations import Annotations
from holdfast.engine.definitions.declared.convert import convert, mentions_pydantic

GIVEN = ("idempotency_key", "connection")
"""Parameters that Holdfast fills in itself."""


class Parameters:
    """The parameters of a function, as far as users fill them in."""

    def __init__(
        self, fn: Callable[..., Any], *, name: str | None = None, skip: int = 0, is_declared: bool = True
    ) -> None:
        """`skip` first parameters are not the user's. `is_declared`: with a decorator, so its types are meant."""
        self.fn = fn
        self.name = name_of(fn) if name is None else names.column_name(name, "name")
        self._signature = _signature(fn, skip)
        skipped = () if skip == 0 else tuple(inspect.signature(fn).parameters)[:skip]
        self._annotations = Annotations(fn, quiet=(*GIVEN, *skipped) if is_declared else None)
        self.given = tuple(name for name in GIVEN if self._signature and name in self._signature.parameters)
        self._positional = _plain_names(self._signature)
        self.is_async = _is_async(fn)

    @functools.cached_property
    def types(self) -> dict[str, Any]:
        """Annotations by name; `return` among them."""
        return self._annotations.types()

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments by name, so that the way they were passed does not matter."""
        _check_names(kwargs)
        if self._signature is None:
            return {**{str(index): value for index, value in enumerate(args)}, **kwargs}
        if not kwargs and len(args) <= len(self._positional):
            return dict(zip(self._positional, args, strict=False))
        try:
            bound = self._signature.bind_partial(*args, **kwargs)
        except TypeError as error:
            raise InvalidInput(f"{self.name} cannot be called like that: {error}", hint=self._usage()) from None
        named: dict[str, Any] = {}
        for name, value in bound.arguments.items():
            kind = self._signature.parameters[name].kind
            named.update(value if kind is inspect.Parameter.VAR_KEYWORD else {name: value})
        return named

    def check(self, input: Mapping[str, Any]) -> dict[str, Any]:
        """Input as the function wants it: nothing missing, nothing unknown, every type right."""
        _check_names(input)
        if self._signature is None:
            return dict(input)
        known, required, is_loose = self._wanted
        if not (is_loose or known >= input.keys()):
            unknown = next(name for name in input if name not in known)
            raise InvalidInput(f"{self.name} has no parameter {unknown!r}", hint=self._usage())
        for name in required:
            if name not in input:
                raise InvalidInput(f"{self.name} needs {name!r}", hint=self._usage())
        return {name: self._typed(name, value) for name, value in input.items()}

    def packed(self, input: Mapping[str, Any], what: str = "input") -> dict[str, msgspec.Raw]:
        """Input as it is recorded. Bytes are taken where the parameter is declared to be bytes, and gets them back."""
        return {
            name: codec.pack(value, f"{what}[{name!r}]", restore=functools.partial(self._typed, name))
            for name, value in input.items()
        }

    @functools.cached_property
    def _wanted(self) -> tuple[frozenset[str], list[str], bool]:
        """The names that users fill in, those they have to, and whether any other will do."""
        parameters: Mapping[str, inspect.Parameter] = {} if self._signature is None else self._signature.parameters
        known = {name: one for name, one in parameters.items() if name not in self.given}
        required = [name for name, one in known.items() if _is_required(one)]
        return frozenset(known), required, any(one.kind is inspect.Parameter.VAR_KEYWORD for one in known.values())

    def needs(self, name: str) -> bool:
        """Tell whether it has a parameter of that name without a default."""
        return name in self._wanted[1]

    @property
    def names(self) -> set[str] | None:
        """The names it takes; None if it takes any."""
        if self._signature is None or not all(map(_is_plain, self._signature.parameters.values())):
            return None
        return set(self._signature.parameters)

    def with_defaults(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments, and the defaults of what was not given."""
        known = () if self._signature is None else self._signature.parameters.values()
        defaults = {one.name: one.default for one in known if one.default is not inspect.Parameter.empty}
        return {**defaults, **arguments}

    def schema(self) -> dict[str, Any]:
        """The parameters as JSON Schema, for models and forms."""
        if self._signature is None:
            return {"type": "object"}
        shown = {n: one for n, one in self._signature.parameters.items() if n not in self.given and _is_plain(one)}
        properties: dict[str, Any] = {}
        definitions: dict[str, Any] = {}
        for name, one in shown.items():
            schema = json_schema(self.types.get(name, Any))
            definitions.update(schema.pop("$defs", {}))
            if one.default is not inspect.Parameter.empty:
                schema["default"] = codec.as_json(one.default)
            properties[name] = schema
        required = [name for name, one in shown.items() if one.default is inspect.Parameter.empty]
        whole = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
        return {**whole, "$defs": definitions} if definitions else whole

    def result(self, value: Any) -> Any:
        """A value from the log as what the function says it returns."""
        wanted = self._returns
        return (
            value if wanted is Any or type(value) is wanted else convert(value, wanted, f"the result of {self.name}()")
        )

    def refuse_set(self) -> None:
        """Refuse a function that returns a set, before it is called."""
        raise InvalidValue(
            f"{self.name} returns a set, which has no order", hint="declare a list, and return sorted(…)"
        )

    @functools.cached_property
    def returns_set(self) -> bool:
        """True if a set is, or is part of, what it declares to return."""
        return _mentions_set(self._returns)

    @functools.cached_property
    def _returns(self) -> Any:
        wanted = self.types.get("return", Any)
        return Any if wanted in (inspect.Parameter.empty, None) else wanted

    def _typed(self, name: str, value: Any) -> Any:
        wanted = self.types.get(name, Any)
        return value if wanted is Any else convert(value, wanted, name)

    def _usage(self) -> str:
        return f"it takes {self._signature or inspect.Signature()}"


@functools.lru_cache(maxsize=1024)
def parameters_of(fn: Callable[..., Any], name: str | None = None) -> Parameters:
    """Return the parameters of a function, looked up once."""
    return Parameters(fn, name=name, is_declared=False)


def _check_names(given: Mapping[str, Any]) -> None:
    """Refuse names that could not be recorded: a function with **kwargs takes any."""
    for name in given:
        if not name.isascii():
            names.encodable(name, "name of an argument")


def name_of(fn: Callable[..., Any]) -> str:
    """Return the name of a function's steps; a lambda has no name of its own.

    >>> name_of(functools.partial(print, "x"))
    'print'
    """
    inner: Any = fn
    while isinstance(inner, functools.partial):
        inner = inner.func
    name = getattr(inner, "__name__", None) or type(inner).__name__
    if name == "<lambda>":
        raise InvalidValue("a lambda has no name to be remembered by", hint='give it one: name="draft"')
    return name


def json_schema(wanted: Any) -> dict[str, Any]:
    """A type as JSON Schema; what has none may be anything."""
    pydantic: Any = sys.modules.get("pydantic")
    if pydantic is not None and mentions_pydantic(wanted, pydantic):
        return pydantic.TypeAdapter(wanted).json_schema()
    return codec.schema(wanted)


def _signature(fn: Callable[..., Any], skip: int) -> inspect.Signature | None:
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):
        return None
    return signature.replace(parameters=list(signature.parameters.values())[skip:])


def _plain_names(signature: inspect.Signature | None) -> tuple[str, ...]:
    """The names that arguments without a name go to, in order."""
    if signature is None:
        return ()
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple(name for name, one in signature.parameters.items() if one.kind in plain)


def _is_async(fn: Any) -> bool:
    while isinstance(fn, functools.partial):
        fn = fn.func
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004


def _is_plain(one: inspect.Parameter) -> bool:
    return one.kind not in (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)


def _is_required(one: inspect.Parameter) -> bool:
    return _is_plain(one) and one.default is inspect.Parameter.empty


def _mentions_set(wanted: Any) -> bool:
    kind = typing.get_origin(wanted) or wanted
    if isinstance(kind, type) and issubclass(kind, set | frozenset | collections.abc.Set):
        return True
    return any(_mentions_set(part) for part in typing.get_args(wanted))
