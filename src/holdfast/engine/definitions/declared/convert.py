"""A JSON value as the type that a function declares.

msgspec converts what it knows, pydantic its own models. What neither can do alone is put together here from its parts:
unions of several classes, enums of mixed values, and whatever contains them.
"""

from __future__ import annotations

import collections.abc
import enum
import functools
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import msgspec

from holdfast.core import codec
from holdfast.core.errors import InvalidInput

_UNIONS = (typing.Union, types.UnionType)
_LISTS = (list, collections.abc.Sequence, collections.abc.Iterable, collections.abc.Collection)
_DICTS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)


def convert(value: Any, wanted: Any, path: str) -> Any:
    """Return a JSON value as the declared type; InvalidInput names the place where it does not fit."""
    pydantic: Any = sys.modules.get("pydantic")
    if pydantic is not None and mentions_pydantic(wanted, pydantic):
        return _by_pydantic(value, wanted, path)
    try:
        return msgspec.convert(value, wanted, strict=True, from_attributes=False, dec_hook=_custom)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"{path} does not fit: {error}", hint=f"it must be {shown(wanted)}") from None
    except TypeError:
        return _from_parts(value, wanted, path)


def _custom(wanted: Any, value: Any) -> Any:
    """Convert a part whose type msgspec doesn't know."""
    return _from_parts(value, wanted, shown(wanted)) if not _is_model(wanted) else convert(value, wanted, "")


def shown(wanted: Any) -> str:
    """Return the name of a type, as people write it."""
    return getattr(wanted, "__name__", str(wanted))


# Pydantic


def _is_model(wanted: Any) -> bool:
    pydantic: Any = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(wanted, type) and issubclass(wanted, pydantic.BaseModel)


def mentions_pydantic(wanted: Any, pydantic: Any) -> bool:
    """Return whether a type is a model of pydantic, or made of one by brackets: `list[Model]`."""
    if isinstance(wanted, type) and issubclass(wanted, pydantic.BaseModel):
        return True
    return any(mentions_pydantic(part, pydantic) for part in typing.get_args(wanted))


def _by_pydantic(value: Any, wanted: Any, path: str) -> Any:
    """Read back what `model_dump` wrote: by the names of fields, though input may use their aliases."""
    import pydantic

    try:
        return _validator(wanted)(codec.dump(value))
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        where = "".join(f"[{part!r}]" for part in first["loc"])
        raise InvalidInput(f"{path}{where} does not fit: {first['msg']}", hint=f"it must be {wanted}") from None


def _validator(wanted: Any) -> Callable[[bytes], Any]:
    try:
        return _known_validator(wanted)
    except TypeError:  # a type that can't be hashed
        return _known_validator.__wrapped__(wanted)


@functools.lru_cache(maxsize=256)
def _known_validator(wanted: Any) -> Callable[[bytes], Any]:
    import pydantic

    validate = pydantic.TypeAdapter(wanted).validate_json
    if tuple(int(part) for part in pydantic.VERSION.split(".")[:2]) < (2, 11):
        return functools.partial(validate, strict=False)  # it reads by aliases only
    return functools.partial(validate, strict=False, by_alias=True, by_name=True)


# By parts


def _from_parts(value: Any, wanted: Any, path: str) -> Any:
    """Convert by the parts of a type; what has no known parts is what JSON made of it."""
    inner = getattr(wanted, "__supertype__", None) or getattr(wanted, "__value__", None)  # NewType, type aliases
    origin, parts = typing.get_origin(wanted), typing.get_args(wanted)
    if inner is not None or origin is typing.Annotated:
        return convert(value, inner if inner is not None else parts[0], path)
    if origin in _UNIONS:
        return _one_of(value, parts, path)
    if origin in _LISTS and isinstance(value, list):
        return [convert(one, parts[0], f"{path}[{at}]") for at, one in enumerate(cast("list[Any]", value))]
    if origin in _DICTS and isinstance(value, dict):
        pairs = cast("dict[str, Any]", value).items()
        return {convert(k, parts[0], path): convert(one, parts[1], f"{path}[{k!r}]") for k, one in pairs}
    if origin is tuple and isinstance(value, list):
        return _tuple(cast("list[Any]", value), parts, path)
    kind = cast("Any", origin if isinstance(origin, type) else wanted)
    return _instance(value, kind, path) if isinstance(kind, type) else value


def _one_of(value: Any, parts: Sequence[Any], path: str) -> Any:
    """Convert to the first type of a union that keeps everything, else to the first that fits."""
    if value is None and type(None) in parts:
        return None
    fitting: list[Any] = []
    for one in parts:
        try:
            found = convert(value, one, path)
        except InvalidInput:
            continue
        if codec.same_json(codec.as_json(found), value):
            return found
        fitting.append(found)
    if fitting:
        return fitting[0]
    raise InvalidInput(
        f"{path} does not fit: it is none of {', '.join(map(shown, parts))}", hint="it must be one of them"
    )


def _tuple(value: list[Any], parts: Sequence[Any], path: str) -> tuple[Any, ...]:
    wanted = [parts[0]] * len(value) if parts[-1:] == (...,) else list(parts)
    if len(wanted) != len(value):
        raise InvalidInput(f"{path} does not fit: it has {len(value)} items", hint=f"it must have {len(wanted)}")
    return tuple(convert(one, part, f"{path}[{at}]") for at, (one, part) in enumerate(zip(value, wanted, strict=True)))


def _instance(value: Any, kind: Any, path: str) -> Any:
    if issubclass(kind, enum.Enum):
        for member in kind:
            if codec.same_json(codec.as_json(member.value), value):
                return member
        raise InvalidInput(
            f"{path} does not fit: {value!r} is not a {kind.__name__}", hint=f"it must be {kind.__name__}"
        )
    fields = _fields(kind)
    if fields is None or not isinstance(value, dict):
        return value
    given = cast("dict[str, Any]", value)
    converted = {name: convert(given[name], one, f"{path}[{name!r}]") for name, one in fields.items() if name in given}
    if typing.is_typeddict(kind):
        missing = sorted(kind.__required_keys__ - given.keys())
        if missing:
            raise InvalidInput(f"{path} does not fit: {missing[0]!r} is missing", hint=f"it must be {kind.__name__}")
        return converted
    try:
        return kind(**converted)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{path} can't be made a {kind.__name__} again: {error}", hint="return a dict") from None


def _fields(kind: Any) -> Mapping[str, Any] | None:
    """Return the types of a class's fields; None if it is neither a dataclass nor a TypedDict."""
    if hasattr(kind, "__dataclass_fields__"):
        import dataclasses  # which is loaded where there is such a class

        hints = typing.get_type_hints(kind, include_extras=True)
        return {one.name: hints.get(one.name, Any) for one in dataclasses.fields(kind) if one.init}
    return typing.get_type_hints(kind, include_extras=True) if typing.is_typeddict(kind) else None
