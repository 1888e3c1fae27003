"""The task that a framework works in, and how its steps are counted."""

from __future__ import annotations

from collections import Counter

from holdfast import AsyncTask
from holdfast.adapters.names import step_key


class FrameworkRun:
    """A task, and how often a framework has come to each kind of step in it."""

    def __init__(self, task: AsyncTask) -> None:
        self.task = task
        self._counts: Counter[str] = Counter()

    def next_key(self, name: str) -> str:
        """Return the key of the next step of that name, counted over the task, whatever asyncio task it is in."""
        self._counts[name] += 1
        return step_key(name, str(self._counts[name]))
