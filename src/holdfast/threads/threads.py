"""`Threads(app, agents)`: what programs written for hosted assistants call, each verb a few calls of App."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar

from holdfast import Agent, App, InvalidValue, TaskNotFound, Thread, ThreadNotFound
from holdfast.threads.shapes import (
    Page,
    Run,
    RunStep,
    StoredMessage,
    StoredThread,
    message_shape,
    run_shape,
    step_shape,
    thread_shape,
)

T = TypeVar("T")
PAGE = 20
"""How many a list gives if nothing is asked for."""


class Threads:
    """Threads, messages and runs of an app, under the names that hosted assistants use.

    `agents` are the assistants: a run names one of them. They are worked on by workers (`app.worker(agents)`), or where
    `runs.create_and_wait` is called. Every verb waits for the store: in async code, await it in a thread,
    `await asyncio.to_thread(threads.runs.retrieve, id, thread_id=…)`.
    """

    def __init__(self, app: App, agents: Sequence[Agent] = ()) -> None:
        if not isinstance(app, App):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidValue(f"{app!r} is not an app", hint="Threads(holdfast.open(url), [agent, …])")
        if not isinstance(agents, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidValue(f"agents={agents!r} is not a list of agents", hint="Threads(app, [agent, …])")
        self._app = app
        self._agents: dict[str, Agent] = {}
        for one in agents:
            if not isinstance(one, Agent):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise InvalidValue(f"{one!r} is not an agent", hint="declare it with @agent")
            self._agents[one.name] = one
        self.messages = MessageCalls(self)
        self.runs = RunCalls(self)

    def create(
        self,
        *,
        messages: Sequence[Mapping[str, Any]] = (),
        metadata: Mapping[str, Any] | None = None,
        expire: str | float | None = None,
        id: str | None = None,
    ) -> StoredThread:
        """Begin a thread, with its first messages if there are any, all in one write.

        `id`: its id, so that a repeated call finds the thread it made. Default: a new one.
        """
        return thread_shape(self._app.thread(id).create(metadata=metadata, expire=expire, messages=messages))

    def retrieve(self, thread_id: str) -> StoredThread:
        """Return a thread; ThreadNotFound if there is none."""
        return thread_shape(self.thread(thread_id))

    def update(self, thread_id: str, *, metadata: Mapping[str, Any]) -> StoredThread:
        """Change the metadata of a thread, by name; None deletes one."""
        return thread_shape(self.thread(thread_id).update(metadata=metadata))

    def list(self, *, after: str | None = None, limit: int = PAGE) -> Page[StoredThread]:
        """Return threads in the order of their ids."""
        return _page([thread_shape(one) for one in self._app.threads(after=after, limit=_one_more(limit))], limit)

    def delete(self, thread_id: str) -> bool:
        """Remove a thread with its messages; its id can be used again."""
        return self.thread(thread_id).delete()

    def thread(self, thread_id: str) -> Thread:
        """Return the thread itself, as `app.thread` gives it; ThreadNotFound if there is none."""
        thread = self._app.thread(thread_id)
        if not thread.exists:
            raise ThreadNotFound(thread_id)
        return thread

    def agent(self, assistant_id: str | Agent) -> Agent:
        """Return an agent by its name."""
        name = assistant_id.name if isinstance(assistant_id, Agent) else assistant_id
        found = self._agents.get(name) if isinstance(name, str) else None  # pyright: ignore[reportUnnecessaryIsInstance]
        if found is None:
            known = ", ".join(map(repr, sorted(self._agents))) or "none"
            raise InvalidValue(f"there is no assistant {name!r}; known: {known}", hint="Threads(app, [agent, …])")
        return found

    @property
    def app(self) -> App:
        """The app whose threads these are."""
        return self._app


class MessageCalls:
    """The messages of threads: `threads.messages`."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads

    def create(self, thread_id: str, *, role: str, content: Any, **fields: Any) -> StoredMessage:
        """Add a message to a thread; `fields` are others of its form, such as `name`."""
        thread = self._threads.thread(thread_id)
        (id,) = thread.add([{"role": role, "content": content, **fields}])
        return self.retrieve(id, thread_id=thread_id)

    def list(
        self,
        thread_id: str,
        *,
        limit: int = PAGE,
        order: Literal["asc", "desc"] = "desc",
        after: str | None = None,
        before: str | None = None,
    ) -> Page[StoredMessage]:
        """Return messages, the newest first unless `order` is "asc"; `after` and `before` are ids, in that order."""
        if order not in ("asc", "desc"):
            raise InvalidValue(f"order={order!r} is not known", hint='use "asc" or "desc"')
        newest, thread = order == "desc", self._threads.thread(thread_id)
        first, last = (before, after) if newest else (after, before)
        found = thread.page(after=first, before=last, limit=_one_more(limit), newest_first=newest)
        return _page([message_shape(thread_id, one) for one in found], limit)

    def retrieve(self, message_id: str, *, thread_id: str) -> StoredMessage:
        """Return one message."""
        found = self._threads.thread(thread_id).find(message_id)
        if found is None:
            raise InvalidValue(
                f"thread {thread_id!r} has no message {message_id!r}",
                hint="threads.messages.list(…) shows its messages",
            )
        return message_shape(thread_id, found)


class RunCalls:
    """Runs of agents on threads: `threads.runs`."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads

    def create(
        self,
        thread_id: str,
        assistant_id: str | Agent,
        *,
        input: Mapping[str, Any] | None = None,
        id: str | None = None,
        when_busy: Literal["refuse", "queue", "allow"] = "refuse",
        queue: str = "default",
        user: str | None = None,
        expire: str | float | None = None,
    ) -> Run:
        """Start an agent on a thread, for a worker to take; ThreadBusy while another run of it has not ended.

        `when_busy="queue"` has it wait for its turn instead, in a queue with `per_key=1`.
        """
        agent = self._threads.agent(assistant_id)
        self._threads.thread(thread_id)
        task = self._threads.app.start(
            agent, input, id=id, thread=thread_id, user=user, queue=queue, when_busy=when_busy, expire=expire
        )
        return self.retrieve(task.id, thread_id=thread_id)

    def create_and_wait(
        self,
        thread_id: str,
        assistant_id: str | Agent,
        *,
        input: Mapping[str, Any] | None = None,
        id: str | None = None,
        when_busy: Literal["refuse", "queue", "allow"] = "refuse",
        user: str | None = None,
    ) -> Run:
        """Run an agent on a thread here and now, until it ends or waits; no worker is needed."""
        agent = self._threads.agent(assistant_id)
        self._threads.thread(thread_id)
        task = self._threads.app.run(agent, input, id=id, thread=thread_id, user=user, when_busy=when_busy)
        return self.retrieve(task.id, thread_id=thread_id)

    def retrieve(self, run_id: str, *, thread_id: str) -> Run:
        """Return a run as it is now."""
        task = self._threads.app.get(run_id)
        if task.thread != thread_id:
            raise TaskNotFound(run_id)
        return run_shape(task)

    def wait(self, run_id: str, *, thread_id: str, timeout: str | float | None = None) -> Run:
        """Wait until a run has ended, wherever it is worked on, and return it."""
        self.retrieve(run_id, thread_id=thread_id)
        self._threads.app.wait(run_id, timeout=timeout)
        return self.retrieve(run_id, thread_id=thread_id)

    def list(self, thread_id: str, *, limit: int = PAGE, after: str | None = None) -> Page[Run]:
        """Return the runs of a thread, the newest first."""
        self._threads.thread(thread_id)
        rows = self._threads.app.list(thread=thread_id, limit=_one_more(limit), after=after)
        return _page([self.retrieve(row.id, thread_id=thread_id) for row in rows], limit)

    def cancel(self, run_id: str, *, thread_id: str) -> Run:
        """Cancel a run. What it did is undone, as its tools declare."""
        self.retrieve(run_id, thread_id=thread_id)
        self._threads.app.cancel(run_id, why="cancelled through threads")
        return self.retrieve(run_id, thread_id=thread_id)

    def steps(self, run_id: str, *, thread_id: str) -> list[RunStep]:
        """Return the steps of a run, in order, of all its turns."""
        self.retrieve(run_id, thread_id=thread_id)
        return [step_shape(run_id, step) for step in self._threads.app.steps(run_id)]


def _one_more(limit: int) -> int:
    """Return one more than a page has, to see whether another one follows."""
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(f"limit={limit!r} is not a number of rows", hint="give 1 or more")
    return limit + 1


def _page(found: list[Any], limit: int) -> Page[Any]:
    data = found[:limit]
    ids = [one.id for one in data]
    return Page(data, ids[0] if ids else None, ids[-1] if ids else None, len(found) > limit)
