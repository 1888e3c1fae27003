"""check_upcasts: every state that was ever stored can still be read.

A sample is a small file beside your tests, `{"agent": …, "version": 2, "state": {…}}`. Save one of each version while
that version is the newest; from then on the check reads it with whatever your agent has become.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from holdfast.core import codec
from holdfast.core.errors import HoldfastError, InvalidValue
from holdfast.engine.definitions.agent import Agent
from holdfast.engine.definitions.state_versions import States
from holdfast.engine.reading.task_state import TaskState

__all__ = ["UpcastFailed", "check_upcasts", "save_sample"]

Sample = Mapping[str, Any]


class UpcastFailed(AssertionError):
    """Some samples cannot be read any more. `problems` has them all, each with its sample and the reason."""

    def __init__(self, agent: str, problems: Sequence[str]) -> None:
        self.problems = list(problems)
        super().__init__("\n".join([f"the state of {agent!r} does not read every sample:", *map(_line, problems)]))


def save_sample(task: TaskState, folder: str | os.PathLike[str]) -> Path:
    """Keep a task's state as a sample. The same state is kept once; nothing is ever overwritten."""
    sample = {"agent": task.agent, "version": task.state_version or 1, "state": dict(task.state)}
    text = codec.text(sample)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{_file_name(task.agent)}-v{sample['version']}-{codec.fingerprint(sample)[:12]}.json"
    path.write_text(text + "\n", "utf-8")
    return path


def check_upcasts(agent: Agent, samples: str | os.PathLike[str] | Iterable[Sample]) -> int:
    """Read every stored sample with this agent's model and upcasters; gives how many there were.

    `samples` is a folder of files that `save_sample` wrote, or the samples themselves. UpcastFailed names every sample
    that cannot be read, and every version that has no sample.
    """
    states = agent.states
    if states is None:
        raise InvalidValue(f"agent {agent.name!r} declares no state", hint="write @agent(state=MyModel)")
    found = list(_samples(agent.name, samples))
    problems = [problem for name, sample in found if (problem := _problem(states, name, sample))]
    seen = {sample.get("version") for _, sample in found if isinstance(sample, Mapping)}  # pyright: ignore
    problems += [
        f"version {version} has no sample: save one with save_sample(task, folder)"
        for version in states.versions
        if version and version not in seen
    ]
    if problems:
        raise UpcastFailed(agent.name, problems)
    return len(found)


def _samples(agent: str, given: str | os.PathLike[str] | Iterable[Sample]) -> Iterable[tuple[str, Sample]]:
    if not isinstance(given, str | os.PathLike):
        yield from ((f"sample {number}", sample) for number, sample in enumerate(given, start=1))
        return
    folder = Path(given)
    if not folder.is_dir():
        raise InvalidValue(f"{os.fspath(given)!r} is not a folder", hint="save_sample(task, folder) makes it")
    for path in sorted(folder.glob("*.json")):
        try:
            sample = codec.parse(path.read_text("utf-8"))
        except ValueError as error:
            raise InvalidValue(f"{path.name} is not JSON: {error}", hint="restore it: samples are not edited") from None
        if not isinstance(sample, dict) or cast("dict[str, Any]", sample).get("agent", agent) == agent:
            yield path.name, cast("dict[str, Any]", sample)


def _problem(states: States, name: str, sample: Any) -> str:
    version = sample.get("version") if isinstance(sample, dict) else None  # pyright: ignore
    state: Any = sample.get("state") if isinstance(sample, dict) else None  # pyright: ignore
    if not isinstance(version, int) or not isinstance(state, dict):
        return f'{name} is not a sample: it has no "version" and "state"'
    try:
        states.check(codec.as_json(state), version)
    except HoldfastError as error:
        return f"{name} (version {version}): {error}"
    return ""


def _file_name(agent: str) -> str:
    return "".join(char if char.isalnum() or char in "_-" else "_" for char in agent)


def _line(problem: str) -> str:
    return f"  - {problem}"
