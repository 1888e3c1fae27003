"""Arguments checked against a JSON Schema: tools that another program declares, such as an MCP server."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

from msgspec import UNSET, Raw, UnsetType

from holdfast.core import codec
from holdfast.core.errors import InvalidInput, InvalidValue
from holdfast.engine.definitions.declared.convert import convert
from holdfast.engine.definitions.signature import Parameters, json_schema

_TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, Mapping),
    "array": lambda value: isinstance(value, list | tuple),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "integer": lambda value: (
        not isinstance(value, bool) and (isinstance(value, int) or (isinstance(value, float) and value.is_integer()))
    ),
}


class SchemaParameters(Parameters):
    """The parameters that a JSON Schema declares. The function is given them by name, as `**arguments`."""

    def __init__(self, fn: Callable[..., Any], schema: Mapping[str, Any], *, name: str | None = None) -> None:
        super().__init__(fn, name=name)
        self._schema = _an_object(schema, self.name)
        self._properties = cast("Mapping[str, Any]", self._schema.get("properties", {}))
        self._required = tuple(cast("Sequence[str]", self._schema.get("required", ())))

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments by name; one without a name goes to the property that is declared at its place."""
        if len(args) > len(self._properties):
            raise InvalidInput(f"{self.name} takes {len(self._properties)} arguments", hint=self._usage())
        return {**dict(zip(self._properties, args, strict=False)), **kwargs}

    def check(self, input: Mapping[str, Any]) -> dict[str, Any]:
        """Refuse what the schema refuses."""
        _check(input, self._schema, self._schema, self.name, self._usage())
        return dict(input)

    @property
    def names(self) -> set[str] | None:
        """The names it takes; None if it takes any."""
        is_open = self._schema.get("additionalProperties", True) is not False
        return None if is_open else set(self._properties)

    def schema(self) -> dict[str, Any]:
        """The schema as it was given."""
        return dict(self._schema)

    def _usage(self) -> str:
        names = [name if name in self._required else f"{name} (optional)" for name in self._properties]
        return f"it takes {', '.join(names) or 'nothing'}"


def _an_object(schema: Any, name: str) -> Mapping[str, Any]:
    """Refuse what is not the schema of an object: arguments have names."""
    if not isinstance(schema, Mapping) or cast("Mapping[str, Any]", schema).get("type", "object") != "object":
        raise InvalidValue(
            f"schema= of {name!r} does not describe an object", hint='give {"type": "object", "properties": {…}}'
        )
    codec.pack(schema, f"schema= of {name!r}")
    plain = codec.load(codec.dump(schema), dict[str, Any])
    _refuse_malformed(plain, f"schema= of {name!r}")
    return plain


_SCHEMAS = ("additionalProperties", "not", "contains", "propertyNames", "additionalItems")
_LISTS_OF_SCHEMAS = ("allOf", "anyOf", "oneOf", "prefixItems")
_SCHEMAS_BY_NAME = ("properties", "patternProperties", "$defs", "definitions")
_NUMBERS = (
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    *("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"),
)
_KINDS: dict[str, tuple[str, str]] = {
    **dict.fromkeys(_NUMBERS, ("number", "a number")),
    **dict.fromkeys((*_LISTS_OF_SCHEMAS, "enum", "required"), ("array", "a list")),
    **dict.fromkeys(_SCHEMAS_BY_NAME, ("object", "an object")),
    "pattern": ("string", "text"),
}


def _refuse_malformed(schema: Any, path: str) -> None:
    """Refuse a schema whose keywords have values of the wrong kind: it would fail at the first call."""
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        raise InvalidValue(f"{path} is {_shown(schema)}, not a schema", hint="give an object, true or false")
    rules = cast("dict[str, Any]", schema)
    for name, rule in rules.items():
        kind, words = _KINDS.get(name, ("", ""))
        if kind and not _TYPES[kind](rule):
            raise InvalidValue(f"{path}[{name!r}] is {_shown(rule)}, not {words}", hint="correct the schema")
    if "pattern" in rules:
        _compiled(rules["pattern"], path)
    for pattern in rules.get("patternProperties", {}):
        _compiled(pattern, path)
    for place, inner in _inner_schemas(rules):
        _refuse_malformed(inner, f"{path}{place}")


def _inner_schemas(rules: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    items = rules.get("items", True)
    listed = {name: rules.get(name, ()) for name in _LISTS_OF_SCHEMAS}
    listed["items"] = items if isinstance(items, list) else [items]
    for name, some in listed.items():
        yield from ((f"[{name!r}][{index}]", one) for index, one in enumerate(cast("Sequence[Any]", some)))
    for name in _SCHEMAS_BY_NAME:
        yield from ((f"[{name!r}][{key!r}]", one) for key, one in rules.get(name, {}).items())
    yield from ((f"[{name!r}]", rules[name]) for name in _SCHEMAS if name in rules)


def _compiled(pattern: str, path: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise InvalidValue(
            f"{path} has the pattern {pattern!r}, which can't be read: {error}", hint="correct the pattern"
        ) from None


class AnswerType:
    """The type of an answer: its schema, as it is recorded with the question, and answers read as this type."""

    def __init__(self, wanted: Any) -> None:
        """`wanted` is None for any JSON."""
        self._wanted = wanted
        self.schema: Raw | UnsetType = UNSET
        if wanted is not None:
            self.schema = codec.pack(_described(wanted), "the type of an answer")

    def read(self, value: Any) -> Any:
        """An answer from the log as its type. None means that no answer came."""
        return value if self._wanted is None or value is None else convert(value, self._wanted, "the answer")


def _described(wanted: Any) -> dict[str, Any]:
    if isinstance(wanted, str | int | float | list | dict | bytes):
        hint = 'give a type: answer=bool, answer=Literal["window", "aisle"]'
        raise InvalidValue(f"answer={wanted!r} is not a type", hint=hint)
    return json_schema(wanted)


def refuse_unfit(value: Any, schema: Any, what: str) -> None:
    """Refuse a value that does not fit a schema; InvalidValue names the place and the schema."""
    root: Mapping[str, Any] = cast("Mapping[str, Any]", schema) if isinstance(schema, Mapping) else {}
    problem = _problem(value, schema, root, what)
    if problem:
        raise InvalidValue(problem, hint=f"it must fit {codec.text(schema)}")


def _check(value: Any, schema: Any, root: Mapping[str, Any], path: str, usage: str) -> None:
    """Refuse a value that does not fit a schema; InvalidInput names the place."""
    problem = _problem(value, schema, root, path)
    if problem:
        raise InvalidInput(problem, hint=usage)


def _problem(value: Any, schema: Any, root: Mapping[str, Any], path: str) -> str:
    """Return the first mismatch and its place; empty if all fits. An unknown keyword allows anything."""
    if isinstance(schema, bool):
        return "" if schema else f"{path} is not allowed"
    rules = _followed(schema, root)
    if (types := rules.get("type")) is not None:
        wanted = [types] if isinstance(types, str) else types
        if not any(_TYPES.get(one, lambda _: True)(value) for one in wanted):
            return f"{path} is {_shown(value)}, not {' or '.join(wanted)}"
    if "enum" in rules and not any(codec.same_json(value, one) for one in rules["enum"]):
        return f"{path} is {_shown(value)}, not one of {', '.join(map(_shown, rules['enum']))}"
    if "const" in rules and not codec.same_json(value, rules["const"]):
        return f"{path} is {_shown(value)}, not {_shown(rules['const'])}"
    for check in (_combined, _of_object, _of_array, _of_text, _of_number):
        if problem := check(value, rules, root, path):
            return problem
    return ""


def _followed(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """A schema that refers to another one, inside the same document, is that other one."""
    reference = schema.get("$ref")
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return schema
    found: Any = root
    for part in reference[2:].split("/"):
        inside: Mapping[str, Any] = cast("Mapping[str, Any]", found) if isinstance(found, Mapping) else {}
        found = inside.get(part.replace("~1", "/").replace("~0", "~"), {})
    rest = {name: rule for name, rule in schema.items() if name != "$ref"}
    return {**cast("Mapping[str, Any]", found), **rest} if isinstance(found, Mapping) else rest


def _combined(value: Any, rules: Mapping[str, Any], root: Mapping[str, Any], path: str) -> str:
    for one in rules.get("allOf", ()):
        if problem := _problem(value, one, root, path):
            return problem
    for keyword in ("anyOf", "oneOf"):
        problems = [_problem(value, one, root, path) for one in rules.get(keyword, ())]
        if problems and all(problems):
            return problems[0]
        if keyword == "oneOf" and problems.count("") > 1:
            return f"{path} fits more than one of {len(problems)} schemas"
    return f"{path} is what it must not be" if "not" in rules and not _problem(value, rules["not"], root, path) else ""


def _of_object(value: Any, rules: Mapping[str, Any], root: Mapping[str, Any], path: str) -> str:
    if not isinstance(value, Mapping):
        return ""
    given, properties = cast("Mapping[str, Any]", value), rules.get("properties", {})
    missing = next((name for name in rules.get("required", ()) if name not in given), None)
    if missing is not None:
        return f"{path} needs {missing!r}"
    for name, one in given.items():
        by_pattern = [some for pattern, some in rules.get("patternProperties", {}).items() if re.search(pattern, name)]
        own = [properties[name], *by_pattern] if name in properties else by_pattern
        others = rules.get("additionalProperties", True)
        if not own and others is False:
            return f"{path} has no parameter {name!r}"
        for schema in own or [others]:
            if problem := _problem(one, schema, root, f"{path}[{name!r}]"):
                return problem
    return ""


def _of_array(value: Any, rules: Mapping[str, Any], root: Mapping[str, Any], path: str) -> str:
    if not isinstance(value, list | tuple):
        return ""
    items = cast("list[Any]", value)
    if not rules.get("minItems", 0) <= len(items) <= rules.get("maxItems", len(items)):
        return f"{path} has {len(items)} items"
    each = rules.get("items", True)
    first = cast("list[Any]", each) if isinstance(each, list) else rules.get("prefixItems", [])
    rest = rules.get("additionalItems", True) if isinstance(each, list) else each
    for index, one in enumerate(items):
        if problem := _problem(one, first[index] if index < len(first) else rest, root, f"{path}[{index}]"):
            return problem
    return ""


def _of_text(value: Any, rules: Mapping[str, Any], root: Mapping[str, Any], path: str) -> str:
    if not isinstance(value, str):
        return ""
    if not rules.get("minLength", 0) <= len(value) <= rules.get("maxLength", len(value)):
        return f"{path} has {len(value)} characters"
    pattern = rules.get("pattern")
    return f"{path} is {_shown(value)}, not like {pattern}" if pattern and not re.search(pattern, value) else ""


def _of_number(value: Any, rules: Mapping[str, Any], root: Mapping[str, Any], path: str) -> str:
    if not _TYPES["number"](value):
        return ""
    above, below = rules.get("exclusiveMinimum"), rules.get("exclusiveMaximum")
    too_low = value < rules.get("minimum", value) or (above is not None and value <= above)
    too_high = value > rules.get("maximum", value) or (below is not None and value >= below)
    return f"{path} is {value}, which is out of range" if too_low or too_high else ""


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return str(value)
    text = codec.text(value) if value is None or isinstance(value, str | int | bool) else type(value).__name__
    return text if len(text) < 60 else f"{text[:57]}…"
