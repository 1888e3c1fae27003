"""Loads agents: from a file that you name, or from those of pyproject.toml. Never by a name found in a store."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from importlib import util
from pathlib import Path
from shlex import quote
from types import ModuleType
from typing import Any, NamedTuple, TypeVar, cast

from holdfast import Agent, Queue, Schedule, Tool
from holdfast.cli.show.screen import Screen
from holdfast.core.errors import InvalidValue
from holdfast.engine.reading.values import BLOCK_QUEUE, Summary

T = TypeVar("T", Agent, Queue, Schedule, Tool)

PROJECT = "pyproject.toml"


def agent_named(target: str | None) -> tuple[Agent, list[Agent]]:
    """The agent that `FILE:name`, `FILE` or `:name` means, and all that are declared beside it."""
    path, name = split(target or "")
    known = load(path) if path else declared()
    if not known:
        raise InvalidValue(_none_in(path), hint=_HOW if not path else "declare one: @agent")
    alone = not name and len(known) == 1
    return next(iter(known.values())) if alone else _one_of(known, name, path), list(known.values())


def _none_in(path: str) -> str:
    told = f"{path!r} declares no agent" if path else f"no file was named, and no {PROJECT} here lists one"
    return f"{told}; nothing was written"


_HOW = f'list your files in {PROJECT}, [tool.holdfast] agents = ["agents.py"]; or name one: holdfast run agents.py'


def nearest(name: str, known: Iterable[str]) -> str:
    """The name that may have been meant.

    >>> nearest("pol", ["order", "poll"]), nearest("", ["order", "poll"])
    ('poll', 'order')
    """
    import difflib

    return next(iter(difflib.get_close_matches(name, known, 1, 0.3)), min(known))


def agents_for(target: str | None) -> tuple[Agent | None, list[Agent]]:
    """The agent that was named, if one was, and all that are known: the file's, or those of pyproject.toml."""
    if target is None:
        return None, list(declared().values())
    path, name = split(target)
    if name or not path:
        return agent_named(target)
    return None, list(load(path).values())


def agent_of(
    id: str, task: Summary | None, target: str | None, given: Agent | None, known: list[Agent]
) -> Agent | None:
    """The agent to resume a task with; refuses one, or a file, that is not that of the task."""
    if task is None or target is None or task.queue == BLOCK_QUEUE:
        return given
    if (given is None and any(one.name == task.agent for one in known)) or (given and given.name == task.agent):
        return given
    path, _ = split(target)
    right = next((one for one in known if one.name == task.agent), None)
    names = ", ".join(sorted(one.name for one in known)) or "none"
    named = f"; {given.name!r} was named" if given else ""
    raise InvalidValue(
        f"task {id!r} belongs to the agent {task.agent!r}, and {path or PROJECT} declares {names}{named}; "
        "nothing was written",
        hint=f"holdfast resume {id} {quote(f'{path}:{right.name}')}" if right else "name the file it is declared in",
    )


def refuse_unknown(id: str, task: Summary, known: list[Agent], options: str) -> None:
    """Refuse to resume a task whose agent is not at hand, or that lives in a program's own code."""
    if task.queue == BLOCK_QUEUE:
        raise InvalidValue(
            f"task {id!r} can't be resumed from here: a program made it in its own code; nothing was written",
            hint="run that program again: it continues the task",
        )
    if not any(one.name == task.agent for one in known):
        raise InvalidValue(
            f"the agent {task.agent!r} of task {id!r} is not known here; nothing was written",
            hint=f"name the file it is in: holdfast resume {' '.join(filter(None, (options, quote(id))))} FILE",
        )


def split(target: str) -> tuple[str, str]:
    """A file and perhaps an agent in it.

    >>> split("agents.py:travel"), split(":travel"), split("agents.py")
    (('agents.py', 'travel'), ('', 'travel'), ('agents.py', ''))
    """
    if os.path.exists(target):
        return target, ""
    path, colon, name = target.rpartition(":")
    return (path, name) if colon else (target, "")


def load(*paths: str) -> dict[str, Agent]:
    """The agents of files, by the names they have there. A file is executed as a module of its own."""
    return _of_kind(executed(paths), Agent)


def executed(paths: Sequence[str]) -> list[tuple[str, dict[str, object]]]:
    """Files with everything they give a name to. Each is executed, unless another one has imported it."""
    for path in paths:
        if not os.path.isfile(path):
            raise InvalidValue(f"there is no file {path!r}; nothing was written", hint=_meant(path))
    places = [Path(path).resolve() for path in paths]
    together = (
        len({environment.parent for environment in places}) == 1
    )  # else one's module could hide another's neighbour
    return [(path, _names_in(environment, plain=together)) for path, environment in zip(paths, places, strict=True)]


def _meant(path: str) -> str:
    """Return the file that may have been meant: the same name with .py, an agent of pyproject.toml, or a file here."""
    import difflib

    if os.path.isfile(f"{path}.py"):
        return f"add its ending: {path}.py"
    folder = os.path.dirname(path)
    here = [os.path.join(folder, one) for one in sorted(os.listdir(folder or os.curdir)) if one.endswith(".py")]
    close = difflib.get_close_matches(path, here, 1)
    if close:
        return f"did you mean {close[0]}?"
    colon = f"; an agent of {PROJECT} is written with a colon: :{path}" if path.isidentifier() else ""
    named = f"Python files here: {', '.join(here[:MOST_NAMED])}" if here else "give the file your agent is in"
    return f"{named}{colon}"


MOST_NAMED = 5
"""Number of files that are named in place of a missing one."""


def _names_in(environment: Path, *, plain: bool) -> dict[str, object]:
    others: list[Any] = [one for name, one in list(sys.modules.items()) if name not in _EXECUTED]
    found = [one for one in others if isinstance(one, ModuleType) and vars(one).get("__file__") == str(environment)]
    return cast("dict[str, object]", vars(found[0] if found else _executed(environment, plain=plain)))


_EXECUTED: set[str] = set()
"""Names of modules that were loaded as files."""


def _of_kind(files: Sequence[tuple[str, dict[str, object]]], kind: type[T]) -> dict[str, T]:
    """Return the declarations of one kind, once each, by their name in the file, or their own if two files share it."""
    found: dict[str, T] = {}
    places: dict[tuple[str, Any], str] = {}
    for path, names in files:
        for name, one in names.items():
            if not isinstance(one, kind) or one in found.values():
                continue
            version = getattr(one, "version", "")
            if places.setdefault((one.name, version), path) != path:
                raise InvalidValue(
                    f"{places[one.name, version]} and {path} both declare {one.name!r}, each in its own way",
                    hint="declare it in one of them and import it in the other, or give one another name",
                )
            label = next(label for label in (name, one.name, f"{one.name}@{version}") if label not in found)
            found[label] = one
    return found


def tools_of(target: str) -> dict[str, Tool]:
    """The tools of the file that a target names, by their names in the log, and those that its agents declare."""
    path, _ = split(target)
    files = executed([path] if path else _declared_paths())
    given = (one for agent in _of_kind(files, Agent).values() for one in agent.tools)
    declared = (cast("Tool", one) for one in given if isinstance(one, Tool))
    return {one.name: one for one in (*declared, *_of_kind(files, Tool).values())}


class FoundAgents(NamedTuple):
    """What a worker finds in files: agents by their names there, queues, schedules."""

    agents: dict[str, Agent]
    queues: list[Queue]
    schedules: list[Schedule]


def served(target: str | None) -> FoundAgents:
    """Return the agents of `FILE`, `FILE:agent,agent` or `:agent`, or of every file in pyproject.toml.

    Schedules of agents that were not named are left out.
    """
    path, chosen = split(target or "")
    files = executed([path] if path else _declared_paths())
    known = _of_kind(files, Agent)
    if not known:
        hint = "declare one: @agent" if path else _HOW.replace("holdfast run", "holdfast worker")
        raise InvalidValue(_none_in(path), hint=hint)
    agents = {name: _one_of(known, name, path) for name in chosen.split(",")} if chosen else known
    schedules = [one for one in _of_kind(files, Schedule).values() if one.agent in agents.values()]
    return FoundAgents(agents, list(_of_kind(files, Queue).values()), schedules)


def _one_of(known: dict[str, Agent], name: str, path: str) -> Agent:
    """The agent of that name, in the file or its own."""
    found = known.get(name) or next((one for one in known.values() if one.name == name), None)
    if found is None:
        wrong = f"has no agent {name!r}; its agents: " if name else "has several agents: "
        raise InvalidValue(
            f"{path or PROJECT} {wrong}{', '.join(sorted(known))}; nothing was written",
            hint=f"name one of them: {path}:{nearest(name, known)}",
        )
    return found


def _executed(path: Path, *, plain: bool) -> Any:
    """A file as a module: what stands beside it can be imported, as with `python FILE`."""
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    name = path.stem  # a pool of processes imports it by that name
    known = sys.modules.get(name)
    taken = name in sys.stdlib_module_names or (known is not None and vars(known).get("__file__") != str(path))
    if taken or not plain:
        name = f"_holdfast_{path.stem}_{len(_EXECUTED)}"
    _EXECUTED.add(name)
    spec = util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InvalidValue(f"{str(path)!r} is not a Python file; nothing was written", hint="give a file named *.py")
    module = util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with Screen().prints():
            spec.loader.exec_module(module)
    except Exception as error:  # whatever the file raises is reported with its line
        raise _broken(path, error) from error
    except SystemExit as error:
        raise InvalidValue(
            f"{path.name} ends the process when it is imported ({error}); nothing was written",
            hint='put what it does as a program under: if __name__ == "__main__"',
        ) from error
    return module


def _broken(path: Path, error: Exception) -> InvalidValue:
    """Describe the error in the user's file, with its line."""
    import traceback

    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if Path(frame.filename) == path]
    line = error.lineno if isinstance(error, SyntaxError) else theirs[-1].lineno if theirs else None
    where = f"{path.name}:{line}" if line else path.name
    return InvalidValue(
        f"{where} cannot be loaded: {type(error).__name__}: {error}; nothing was written",
        hint=f"fix it; python {path.name} shows the whole traceback",
    )


# pyproject.toml


def project() -> Path | None:
    """The nearest pyproject.toml, here or above."""
    try:
        here = Path.cwd()
    except OSError:  # it was removed
        return None
    return next((one / PROJECT for one in (here, *here.parents) if (one / PROJECT).is_file()), None)


def files_declared() -> tuple[Path | None, list[str]]:
    """The project file, and the files of agents it names, as they are written there."""
    found = project()
    if found is None:
        return None, []
    import tomllib

    try:
        whole: dict[str, Any] = tomllib.loads(found.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidValue(f"{found} cannot be read: {error}", hint="fix it, or name the file of the agent") from None
    section: dict[str, Any] = whole.get("tool", {}).get("holdfast", {})
    _refuse_unknown_keys(found, section)
    listed: Any = section.get("agents", [])
    if not isinstance(listed, list) or not all(isinstance(one, str) for one in cast("Sequence[Any]", listed)):
        raise InvalidValue(
            f"agents of [tool.holdfast] in {found} is not a list of files", hint='agents = ["agents.py"]'
        )
    return found, cast("list[str]", listed)


SETTINGS = ("agents",)
"""The keys of [tool.holdfast]."""


def _refuse_unknown_keys(path: Path, section: dict[str, Any]) -> None:
    """Refuse a key that means nothing: it is most often a misspelled one."""
    for key in section:
        if key not in SETTINGS:
            raise InvalidValue(
                f"[tool.holdfast] in {path} has an unknown key {key!r}; nothing was written",
                hint=f"did you mean {nearest(key, SETTINGS)!r}? The keys are: {', '.join(SETTINGS)}",
            )


def declared() -> dict[str, Agent]:
    """The agents of every file that pyproject.toml names."""
    return load(*_declared_paths())


def _declared_paths() -> list[str]:
    found, files = files_declared()
    return [] if found is None else [str(found.parent / file) for file in files]
