"""What one server may show and do, and in whose name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from holdfast import App, TaskState
from holdfast.core.errors import InvalidValue, TaskNotFound
from holdfast.engine.reading.values import MAX_PAGE_SIZE, Summary

CLIENT_LENGTH = 64
"""The most of a client's name that is recorded."""

ELICITED = " (elicited)"
"""What is added to the name of an actor whose host answered a form. It can't be known who filled it in."""


@dataclass(frozen=True, kw_only=True)
class Scope:
    """The tasks a server serves and what its clients may do to them.

    `agents`: only tasks of these are served; None: all. `trust_elicitation`: forms may also decide about calls of risk
    `external_action`. `users`: whether what is remembered of people is served.
    """

    app: App
    writes: bool = False
    decisions: bool = False
    trust_elicitation: bool = False
    actor: str = "mcp"
    agents: frozenset[str] | None = None
    users: bool = False

    def serves(self, agent: str) -> bool:
        """Return whether tasks of an agent are served."""
        return self.agents is None or agent in self.agents

    def by(self, client: str) -> str:
        """The name under which changes of a client are recorded."""
        shown = "".join(letter if letter.isprintable() and letter != "/" else "_" for letter in client[:CLIENT_LENGTH])
        return f"mcp:{shown or 'unknown'}/{self.actor}"

    def row(self, task: str) -> Summary:
        """The row of a task. One that is not served does not exist."""
        row = self.app.row(task)
        if row is None or not self.serves(row.agent):
            raise TaskNotFound(task)
        return row

    def task(self, task: str, at: int | None = None) -> TaskState:
        """A task as it is now, or was."""
        self.row(task)
        return self.app.get(task) if at is None else self.app.at(task, at)

    def rows(
        self, *, after: str | None = None, status: str | None = None, agent: str | None = None, stage: str | None = None
    ) -> Iterator[Summary]:
        """The tasks that are served, newest first."""
        if after is not None and self.app.row(after) is None:
            raise InvalidValue(f"cursor {after!r} names no task", hint="list again from the beginning")
        only = agent or (next(iter(self.agents)) if self.agents is not None and len(self.agents) == 1 else None)
        while page := self.app.list(status=status, agent=only, stage=stage, after=after, limit=MAX_PAGE_SIZE // 10):
            yield from (row for row in page if self.serves(row.agent))
            after = page[-1].id

    def thread_tasks(self, thread: str) -> list[str]:
        """The tasks that took part in a thread. If one of them is not served, neither is the thread."""
        tasks = self.app.thread(thread).tasks
        if self.agents is not None:
            for task in tasks:
                self.row(task)
        return tasks
