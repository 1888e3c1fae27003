"""What is known of a state's model: a dataclass, a msgspec Struct or a model of pydantic.

Values are JSON in the log and of the model's types in an agent's hands. A state is filled field by field, so a model is
asked about what is there: every field that is set must fit, and as soon as none is missing, the whole must.
"""

from __future__ import annotations

import dataclasses
import re
import sys
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, cast

import msgspec

from holdfast.core import codec
from holdfast.core.errors import InvalidState, InvalidValue

VERBS = ("all", "append", "get", "increment", "model", "set", "update")
"""What a state can do; a field of the same name could not be read."""


class Field(NamedTuple):
    """One field of a model: its type, and what gives its value while it is not set; None if it must be set."""

    name: str
    type: Any
    default: Callable[[], Any] | None


class StateModel:
    """A dataclass or a Struct."""

    def __init__(self, cls: type) -> None:
        self.cls = cls
        self.name = cls.__name__
        self.fields = {field.name: field for field in self._declared()}
        self._looks_at_all = hasattr(cls, "__post_init__")

    def _declared(self) -> list[Field]:
        try:
            found = _fields(self.cls)
        except (NameError, TypeError) as error:
            raise InvalidValue(
                f"the types of {self.name} cannot be found: {error}", hint="define what it names in its module"
            ) from None
        for field in found:
            _refuse_unreadable(field, self.name)
        return found

    def missing(self, plain: Mapping[str, Any]) -> list[str]:
        """The fields that must be set and are not."""
        return [name for name, field in self.fields.items() if field.default is None and name not in plain]

    def refuse_unknown(self, names: Iterable[str]) -> None:
        """Refuse a name that is not a field."""
        for name in names:
            if name not in self.fields:
                raise self.unknown(name)

    def unknown(self, name: object) -> InvalidState:
        """The error about a name that is not a field."""
        import difflib  # only a mistake needs it

        close = difflib.get_close_matches(str(name), self.fields, n=1)
        meant = f"did you mean {close[0]!r}? " if close else ""
        hint = f"{meant}its fields are {', '.join(self.fields)}"
        return InvalidState(f"state.{name}", f"is not a field of {self.name}", hint=hint, field=name)

    def fits(self, plain: Mapping[str, Any], touched: Iterable[str]) -> None:
        """Refuse JSON values that the model does not take; only those `touched` need a look, if that is enough."""
        for name in touched:
            if name in plain:
                self.value(plain, name)
        if self._looks_at_all and not self.missing(plain):
            self.whole(plain)

    def takes_item(self, name: str, item: Any) -> bool:
        """Return whether an item fits whatever the list holds already. If not, the whole list must be looked at."""
        wanted = self.fields[name].type
        if self._looks_at_all or typing.get_origin(wanted) is not list:
            return False
        try:
            _converted([item], wanted, name)
        except InvalidState:
            return False
        return True

    def value(self, plain: Mapping[str, Any], name: str) -> Any:
        """A field as the model has it. KeyError if it is neither set nor has a default."""
        field = self.fields[name]
        if name in plain:
            return _converted(plain[name], field.type, f"state.{name}")
        if field.default is None:
            raise KeyError(name)
        return field.default()

    def made_of(self, bag: Mapping[str, Any], name: str) -> Any:
        """Return the parts that a field's value is made of: it is the same as long as they are."""
        return bag.get(name)

    def whole(self, plain: Mapping[str, Any]) -> Any:
        """An instance of the model."""
        self.refuse_unknown(plain)
        self.refuse_missing(plain)
        values = {name: self.value(plain, name) for name in plain}
        try:
            return self.cls(**values)
        except (TypeError, ValueError) as error:
            raise InvalidState(
                "state", f"does not fit {self.name}: {error}", hint=f"{self.name} refuses these values together"
            ) from error

    def refuse_missing(self, plain: Mapping[str, Any]) -> None:
        """Refuse a state that is not filled yet."""
        missing = self.missing(plain)
        if missing:
            raise InvalidState(
                f"state.{missing[0]}",
                f"is missing: {self.name} is not complete without {', '.join(missing)}",
                hint="set it first, or give the field a default",
                missing=missing,
            )


class PydanticModel(StateModel):
    """A model of pydantic. A second one, in which nothing is required, judges a state that is not filled yet."""

    def __init__(self, cls: type) -> None:
        self._pydantic: Any = sys.modules["pydantic"]
        super().__init__(cls)
        self._partial = _partial(cls, self._pydantic)

    def _declared(self) -> list[Field]:
        return _fields(self.cls)

    def takes_item(self, name: str, item: Any) -> bool:
        """Return whether an item fits whatever the list holds already: its validators may look at the whole."""
        return False

    def fits(self, plain: Mapping[str, Any], touched: Iterable[str]) -> None:
        """Refuse JSON values that the model does not take: validators may look at all of them."""
        self._read(plain)

    def value(self, plain: Mapping[str, Any], name: str) -> Any:
        """A field as the model has it. KeyError if it is neither set nor has a default."""
        if name not in plain and self.fields[name].default is None:
            raise KeyError(name)
        return getattr(self._read(plain), name)

    def made_of(self, bag: Mapping[str, Any], name: str) -> Any:
        """Return the parts that a field's value is made of: validators may look at all of the state."""
        return tuple(bag.items())

    def whole(self, plain: Mapping[str, Any]) -> Any:
        """An instance of the model."""
        self.refuse_unknown(plain)
        self.refuse_missing(plain)
        return self._read(plain)

    def _read(self, plain: Mapping[str, Any]) -> Any:
        known = {name: value for name, value in plain.items() if name in self.fields}
        cls: Any = self._partial if self.missing(known) else self.cls
        try:
            return cls.model_validate_json(codec.text(known), **_options(self._pydantic))
        except self._pydantic.ValidationError as error:
            raise _pydantic_refusal(error, "state", self.name) from None


def model_of(cls: Any) -> StateModel:
    """Return the description of a model; refuse what is not a model."""
    model = _kind_of(cls)(cls)
    for name in model.fields:
        if name in VERBS or name.startswith("_"):
            raise InvalidValue(
                f"the field {name!r} of {model.name} cannot be read as task.state.{name}",
                hint=f"name it otherwise: {', '.join(VERBS)} and names that begin with _ are taken",
            )
    return model


def _kind_of(cls: Any) -> type[StateModel]:
    if not isinstance(cls, type):
        raise _no_model(cls)
    given, pydantic = cast("type[Any]", cls), cast("Any", sys.modules.get("pydantic"))
    if pydantic is not None and issubclass(given, pydantic.BaseModel):
        return PydanticModel
    if hasattr(given, "__pydantic_validator__"):
        raise InvalidValue(f"state={given.__name__} is a dataclass of pydantic", hint="use pydantic.BaseModel")
    if issubclass(given, msgspec.Struct) or dataclasses.is_dataclass(given):
        return StateModel
    raise _no_model(given)


def _no_model(given: Any) -> InvalidValue:
    shown = getattr(given, "__name__", repr(given))
    return InvalidValue(f"state={shown} is not a model", hint="give a dataclass, a msgspec.Struct or a pydantic model")


def _fields(cls: Any) -> list[Field]:
    pydantic: Any = sys.modules.get("pydantic")
    if pydantic is not None and issubclass(cls, pydantic.BaseModel):
        return [
            Field(name, one.annotation, None if one.is_required() else _nothing)
            for name, one in cls.model_fields.items()
        ]
    if issubclass(cls, msgspec.Struct):
        given = [(one.name, one.type, one.default, one.default_factory) for one in msgspec.structs.fields(cls)]
        return [_field(*one, msgspec.NODEFAULT) for one in given]
    types = typing.get_type_hints(cls, include_extras=True)
    plain = [one for one in dataclasses.fields(cls) if one.init]
    return [_field(one.name, types[one.name], one.default, one.default_factory, dataclasses.MISSING) for one in plain]


def _refuse_unreadable(field: Field, model: str) -> None:
    """Refuse a type that no value from the log could ever become."""
    try:
        _converted(None, field.type, field.name)
    except InvalidState:
        return
    except TypeError as error:
        raise InvalidValue(
            f"{field.name!r} of {model} has a type that cannot be read: {error}", hint="use types that JSON can become"
        ) from None


def _field(name: str, type: Any, default: Any, factory: Any, nothing: Any) -> Field:
    if factory is not nothing:
        return Field(name, type, factory)
    return Field(name, type, None if default is nothing else lambda: default)


def _nothing() -> None:
    return None


def _partial(cls: Any, pydantic: Any) -> type:
    """The same model with nothing required: its validators of fields stay, those of the whole do nothing."""
    space: dict[str, Any] = {"__annotations__": {}, "__module__": cls.__module__, "model_post_init": _do_nothing}
    space["model_config"] = {"validate_default": False}
    for name, one in cls.model_fields.items():
        if one.is_required():
            wanted: Any = one.annotation
            space["__annotations__"][name] = typing.Annotated[(wanted, *one.metadata)] if one.metadata else wanted
            space[name] = None
    for name, one in cls.__pydantic_decorators__.model_validators.items():
        space[name] = pydantic.model_validator(mode=one.info.mode)(_PASSING[one.info.mode])
    return cast("type", type(cls)(cls.__name__, (cls,), space))


def _do_nothing(self: Any, context: Any) -> None:
    """Skip the check of the whole: it is not filled yet."""


def _itself(value: Any) -> Any:
    return value


def _value(cls: Any, value: Any) -> Any:
    return value


def _handled(cls: Any, value: Any, handler: Any) -> Any:
    return handler(value)


_PASSING: dict[str, Any] = {"after": _itself, "before": classmethod(_value), "wrap": classmethod(_handled)}


# JSON values as the types of a model


def _converted(value: Any, wanted: Any, path: str) -> Any:
    pydantic: Any = sys.modules.get("pydantic")
    if pydantic is not None and _mentions(wanted, pydantic):
        try:
            return pydantic.TypeAdapter(wanted).validate_json(codec.text(value), **_options(pydantic))
        except pydantic.ValidationError as error:
            raise _pydantic_refusal(error, path, _shown(wanted)) from None
    try:
        return msgspec.convert(value, wanted, strict=True, str_keys=True)
    except msgspec.ValidationError as error:
        raise _refusal(str(error), path, wanted, value) from None


def _options(pydantic: Any) -> dict[str, Any]:
    """A wrong type is refused, whatever it could be turned into; fields go by their names, as they are stored."""
    knows_names = tuple(map(int, pydantic.VERSION.split(".")[:2])) >= (2, 11)
    return {"strict": True, "by_name": True} if knows_names else {"strict": True}


def _mentions(wanted: Any, pydantic: Any) -> bool:
    if isinstance(wanted, type) and issubclass(wanted, pydantic.BaseModel):
        return True
    return any(_mentions(part, pydantic) for part in typing.get_args(wanted))


_WHERE = re.compile(r" - at `(?:key in )?\$(.*)`$")
_WANTED = re.compile(r"Expected `([^`]*)`(.*?)(?:, got `([^`]*)`)?$")


def _refusal(text: str, path: str, wanted: Any, value: Any) -> InvalidState:
    where = _WHERE.search(text)
    why = text[: where.start()] if where else text
    found = _WANTED.match(why)
    expected = f"{found[1]}{found[2]}" if found else _shown(wanted)
    got = (found[3] if found else None) or (type(value).__name__ if where is None else "another value")
    place = f"{path}{where[1]}" if where else path
    return _does_not_fit(place, why, expected, got)


def _pydantic_refusal(error: Any, path: str, name: str) -> InvalidState:
    first = error.errors(include_url=False)[0]
    place = path + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
    expected = first["msg"] if first["loc"] else name
    return _does_not_fit(place, first["msg"], expected, type(first.get("input")).__name__)


def _does_not_fit(place: str, why: str, expected: str, got: str) -> InvalidState:
    hint = "nothing was written; give a value that fits, or change the model"
    return InvalidState(place, f"does not fit: {why}", hint=hint, expected=expected, got=got)


def _shown(wanted: Any) -> str:
    return getattr(wanted, "__name__", str(wanted))
