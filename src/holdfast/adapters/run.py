"""The task that a framework works in, and how its steps are counted."""

from __future__ import annotations

from collections import Counter

from holdfast import AsyncTask
from holdfast.adapters.names import step_key


class FrameworkRun:
    """A task, and how often a framework has come to each kind of step in it.

    A run inside of a tool call has counts of its own, since several may be under way at the same time: its keys begin
    with the id of that call.
    """

    def __init__(self, task: AsyncTask, within: str = "") -> None:
        self.task = task
        self._within = within
        self._counts: Counter[str] = Counter()
        self._inner: dict[str, FrameworkRun] = {}

    def next_key(self, name: str) -> str:
        """Return the key of the next step of that name, counted over the run, whatever asyncio task it is in."""
        self._counts[name] += 1
        return self.key(name, str(self._counts[name]))

    def key(self, kind: str, id: str) -> str:
        """Return the key of a step or a call that has an id."""
        return step_key(kind, f"{self._within}{id}")

    def inside(self, call: str) -> FrameworkRun:
        """Return the run inside of a tool call: the same each time it is asked for."""
        return self._inner.setdefault(call, FrameworkRun(self.task, f"{self._within}{call}."))
