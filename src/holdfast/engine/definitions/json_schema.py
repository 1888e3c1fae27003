"""Arguments checked against a JSON Schema: tools that another program declares, such as an MCP server."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from holdfast.core import codec
from holdfast.core.errors import InvalidInput, InvalidValue
from holdfast.engine.definitions.signature import Parameters

_TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, Mapping),
    "array": lambda value: isinstance(value, list | tuple),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "integer": lambda value: isinstance(value, int | float) and not isinstance(value, bool) and value == int(value),
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
    return codec.load(codec.dump(schema), dict[str, Any])


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
    others = rules.get("additionalProperties", True)
    for name, one in given.items():
        if name not in properties and others is False:
            return f"{path} has no parameter {name!r}"
        if problem := _problem(one, properties.get(name, others), root, f"{path}[{name!r}]"):
            return problem
    return ""


def _of_array(value: Any, rules: Mapping[str, Any], root: Mapping[str, Any], path: str) -> str:
    if not isinstance(value, list | tuple):
        return ""
    items = cast("list[Any]", value)
    if not rules.get("minItems", 0) <= len(items) <= rules.get("maxItems", len(items)):
        return f"{path} has {len(items)} items"
    for index, one in enumerate(items):
        if problem := _problem(one, rules.get("items", True), root, f"{path}[{index}]"):
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
    too_low = value < rules.get("minimum", value) or value <= rules.get("exclusiveMinimum", value - 1)
    too_high = value > rules.get("maximum", value) or value >= rules.get("exclusiveMaximum", value + 1)
    return f"{path} is {value}, which is out of range" if too_low or too_high else ""


def _shown(value: Any) -> str:
    text = codec.text(value) if value is None or isinstance(value, str | int | float | bool) else type(value).__name__
    return text if len(text) < 60 else f"{text[:57]}…"
