"""docs/api.md: every public name with its signature and docstring. Written by `python -m tools.reference docs`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any, get_args

import holdfast
from holdfast import mcp, testing
from holdfast.core.events import Effect
from holdfast.core.messages import Form
from holdfast.engine.definitions.agent import Agent, CheckpointStrategy, OnChange
from holdfast.engine.definitions.tool import OnDoubt, Tool
from holdfast.engine.people.thread import Thread
from holdfast.engine.people.user import User
from holdfast.engine.verbs.block import Block

_WIDTH = 100
_INTRO = """# Python reference

Everything below is importable from `holdfast`, unless it says otherwise. Values are JSON, or what becomes JSON:
dataclasses, msgspec Structs and pydantic models go in, plain values come out. A `Duration` is a number of seconds, text
such as `"90s"`, `"10m"`, `"2h"`, `"7d"`, or a `timedelta`.

Errors have a page of their own: [errors.md](errors.md), and so has the ready loop, `holdfast.llm`: [loop.md](loop.md).
Events, for those who read logs, are `holdfast.events`: [log.md](log.md).

This page is made of the code: `python -m tools.reference docs`.
"""

_DECLARING = ("Retry", "Budget", "Price", "Machine", "Secret")
_CALLS = (
    "sending",
    "current_call",
    "report_usage",
    "streaming",
    "Call",
    "Happened",
    "DidNotHappen",
    "Unknown",
    "NotDone",
    "Connection",
)
_RECORDS = ("Record", "RecordWrite", "RecordChanges")
_DATA = ("StatePatch", "Usage", "Failure", "pack", "Chunk", "ChunksDropped", "ChunksCut")
_CHOICES: dict[str, Any] = {
    "CheckpointStrategy": CheckpointStrategy,
    "OnChange": OnChange,
    "OnDoubt": OnDoubt,
    "Effect": Effect,
    "Form": Form,
}
"""Names for a choice of texts, which are shown as the texts."""

_WAITING = (
    *("step", "stream", "call", "call_tools", "map", "ask", "approve", "wait", "sleep", "spawn", "summarise"),
    "checkpoint",
)


def api_page() -> str:
    """docs/api.md."""
    parts = [_INTRO, "## Declaring\n"]
    parts += [*_options("agent", Agent), *_options("tool", Tool)]
    for name in _DECLARING:
        parts += _thing(name, getattr(holdfast, name))
    parts += ["## Opening a store\n", *_thing("open", holdfast.open), *_thing("doctor", holdfast.doctor)]
    parts += _members("App", holdfast.App)
    parts += _verbs()
    parts += _members("TaskState", holdfast.TaskState)
    parts += _members("User", User, "`app.user(id)`.")
    parts += _members("Thread", Thread, "`app.thread(id)`.")
    parts += _members("Records", holdfast.Records, "`app.records(space)`. Guide: [records](how-to/records.md).")
    for name in _RECORDS:
        parts += _thing(name, getattr(holdfast, name))
    parts.append("## Inside tools\n")
    for name in _CALLS:
        parts += _thing(name, getattr(holdfast, name))
    parts.append("## Data\n")
    for name in (*_DATA, *_others()):
        parts += _thing(name, getattr(holdfast, name))
    parts += [*_mcp(), *_testing(), *_errors()]
    return "\n".join(parts)


def _others() -> Iterator[str]:
    """Public names that stand nowhere else, so that none is forgotten."""
    told = {*_DECLARING, *_CALLS, *_DATA, *_RECORDS, "Records", "agent", "tool", "open", "doctor", "events"}
    told |= {"Agent", "App", "AsyncTask", "Task", "TaskState", "Tool"}
    for name in holdfast.__all__:
        value = getattr(holdfast, name)
        error = inspect.isclass(value) and issubclass(value, BaseException)
        if name not in told and not error and not name.startswith("__"):
            yield name


def _options(name: str, made: type) -> Iterator[str]:
    """What @agent and @tool take, and what they make."""
    yield f"### {name}\n"
    yield from _doc(getattr(holdfast, name))
    yield _code(_signature(f"@{name}", made.__init__, skip=2, result=False))
    yield from _doc(made.__init__)
    inner = ("unique_key", "takes", "refuse_unlabelled")
    members = [(key, value) for key, value in vars(made).items() if not key.startswith("_") and key not in inner]
    listed = [f"- `.{key}`: {inspect.getdoc(value)}" for key, value in members if inspect.getdoc(value)]
    yield f"What it makes, `{made.__name__}`: {inspect.getdoc(made)}\n"
    yield "\n".join(listed) + "\n"


def _verbs() -> Iterator[str]:
    """The verbs, once for both kinds of task."""
    yield "## Task and AsyncTask\n"
    yield f"`Task`: {inspect.getdoc(holdfast.Task)}\n"
    yield f"`AsyncTask`: {inspect.getdoc(holdfast.AsyncTask)}\n"
    members = {name: value for name, value in vars(holdfast.Task).items() if not name.startswith("_")}
    yield "### Waiting verbs\n"
    yield f"Awaited in an `async def` agent: {', '.join(f'`{name}`' for name in _WAITING)}.\n"
    for name in _WAITING:
        yield from _member("task", name, members.pop(name))
    yield "### Only in an async agent\n"
    for name, value in vars(holdfast.AsyncTask).items():
        if not name.startswith("_"):
            yield from _member("task", name, value)
    yield "### Immediate verbs, and what a task is\n"
    yield "`task.state` is the state bag: attributes, `get`, `increment`, `append`, `all`; see [state.md](state.md).\n"
    for name, value in members.items():
        yield from _member("task", name, value)
    yield "### In a block\n"
    yield f"{inspect.getdoc(Block)} It has all verbs of a `Task`, and:\n"
    for name in ("turns", "finish"):
        yield from _member("task", name, vars(Block)[name])


def _mcp() -> Iterator[str]:
    yield "## holdfast.mcp\n"
    yield "Needs the extra `mcp`. Guide: [share tasks over MCP](how-to/mcp.md).\n"
    for name in mcp.__all__:
        yield from _thing(f"mcp.{name}", getattr(mcp, name))


def _testing() -> Iterator[str]:
    yield "## holdfast.testing\n"
    yield "Guides: [testing.md](testing.md), [crash-testing.md](crash-testing.md).\n"
    for name in testing.__all__:
        yield from _thing(name, getattr(testing, name))


def _errors() -> Iterator[str]:
    """Every error by name; what each means stands in errors.md."""
    yield "## Errors\n"
    found = [getattr(holdfast, name) for name in holdfast.__all__]
    errors = [one for one in found if inspect.isclass(one) and issubclass(one, holdfast.HoldfastError)]
    yield f"{len(errors)} errors, one tree under `HoldfastError`; each has `code`, `message`, `hint` and `details`.\n"
    yield "\n".join(f"- [`{one.__name__}`](errors/{one.code}.md): {inspect.getdoc(one)}" for one in errors) + "\n"
    yield "These are not errors, and not `Exception` either, so that `except Exception` does not swallow them:\n"
    raised = [one for one in found if inspect.isclass(one) and issubclass(one, BaseException)]
    control = [one for one in raised if not issubclass(one, Exception)]
    yield "\n".join(f"- `{one.__name__}`: {inspect.getdoc(one)}" for one in control) + "\n"
    yield "A warning, which Python's `warnings` module filters:\n"
    warned = [one for one in found if inspect.isclass(one) and issubclass(one, Warning)]
    yield "\n".join(f"- `{one.__name__}`: {inspect.getdoc(one)}" for one in warned) + "\n"


def _members(name: str, owner: type, intro: str = "") -> Iterator[str]:
    """A class: what it is, then its public methods and properties in the order of the source."""
    yield f"## {name}\n"
    yield from [f"{intro}\n"] if intro else []
    yield from _doc(owner)
    plain = [(key, value) for key, value in vars(owner).items() if not key.startswith("_")]
    shown = [(key, value) for key, value in plain if isinstance(value, property)]
    if shown:
        yield "\n".join(f"- `.{key}`: {_property(value)}" for key, value in shown) + "\n"
    for key, value in plain:
        if not isinstance(value, property):
            yield from _member({"App": "app", "TaskState": "state"}.get(name, name.lower()), key, value)


def _property(value: property) -> str:
    text = (inspect.getdoc(value) or "").replace("\n", " ")
    kind = _annotation(inspect.signature(value.fget).return_annotation) if value.fget else ""
    return f"`{kind}`. {text}".rstrip()


def _member(owner: str, name: str, value: Any) -> Iterator[str]:
    if isinstance(value, property):
        yield f"#### {owner}.{name}\n"
        yield f"{_property(value)}\n"
        return
    if isinstance(value, classmethod):
        owner, value = "TaskState", value.__func__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    yield f"#### {owner}.{name}\n"
    yield _code(_signature(f"{owner}.{name}", value, skip=1))
    yield from _doc(value)


def _thing(name: str, value: Any) -> Iterator[str]:
    """A function or a class that is made by calling it."""
    yield f"### {name}\n"
    is_plain_error = inspect.isclass(value) and issubclass(value, Exception) and "__init__" not in vars(value)
    if callable(value) and not getattr(value, "_is_protocol", False) and not is_plain_error:
        yield _code(_signature(name, value))
    yield from _doc(value)


def _code(text: str) -> str:
    return f"```text\n{text}\n```\n"


def _signature(name: str, value: Callable[..., Any], *, skip: int = 0, result: bool = True) -> str:
    """A signature as one would read it, a parameter a line if it is long."""
    signature = inspect.signature(value)
    given = [_parameter(one) for one in signature.parameters.values()][skip:]
    if skip < 2:
        kinds = [one.kind for one in signature.parameters.values()][skip:]
        keyword, variable = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_POSITIONAL
        if keyword in kinds and variable not in kinds:
            given.insert(kinds.index(keyword), "*")
        if inspect.Parameter.POSITIONAL_ONLY in kinds:
            given.insert(sum(kind is inspect.Parameter.POSITIONAL_ONLY for kind in kinds), "/")
    back = signature.return_annotation
    gives = (
        "" if not result or back is inspect.Signature.empty or inspect.isclass(value) else f" -> {_annotation(back)}"
    )
    line = f"{'await ' if inspect.iscoroutinefunction(value) else ''}{name}({', '.join(given)}){gives}"
    if len(line) <= _WIDTH:
        return line
    lines = ",\n    ".join(given)
    return f"{line.partition('(')[0]}(\n    {lines},\n){gives}"


def _parameter(one: inspect.Parameter) -> str:
    star = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}.get(one.kind, "")
    kind = "" if one.annotation is inspect.Parameter.empty else f": {_annotation(one.annotation)}"
    if one.default is inspect.Parameter.empty:
        return f"{star}{one.name}{kind}"
    return f"{one.name}{kind}{' = ' if kind else '='}{_default(one.default)}"


def _annotation(given: Any) -> str:
    text = given if isinstance(given, str) else inspect.formatannotation(given)
    for name, choice in _CHOICES.items():
        text = re.sub(rf"\b{name}\b", " | ".join(f'"{one}"' for one in get_args(choice)), text)
    text = re.sub(r"(?:holdfast|contracts|timeline|ev|msgspec|os|collections)\.(?:\w+\.)*(?=[A-Z])", "", text)
    text = re.sub(r"Literal\[(.+?)\]", lambda found: found[1].replace("'", '"').replace(", ", " | "), text)
    return text.replace("typing.", "")


def _default(value: Any) -> str:
    if inspect.isclass(value) or callable(value):
        return getattr(value, "__name__", "…")
    text = f'"{value}"' if isinstance(value, str) else repr(value)
    return text if len(text) <= 40 and "<" not in text and text != "UNSET" else "…"


def _doc(value: Any) -> Iterator[str]:
    """A docstring as Markdown: its examples become blocks."""
    text = inspect.getdoc(value) or ""
    for paragraph in text.split("\n\n"):
        if paragraph.startswith(">>>"):
            yield f"```pycon\n{paragraph}\n```\n"
        elif paragraph.strip():
            yield f"{paragraph}\n"
