"""Run tasks in Celery: a Celery task that works on the ids it gets, and a pump that sends the ids of due tasks.

    # shop.py
    app = Celery("shop", broker="redis://localhost")
    work = on_celery.task(app, lambda: holdfast.open("postgresql://…", agents=[recap]))

    celery --app shop worker --pool threads --concurrency 100 --prefetch-multiplier 1
    on_celery.pump(holdfast.open("postgresql://…", agents=[recap]), work).run()          # in a process of its own

A message holds the id of a task and nothing else. The pump sends it again until a process has taken the task, so it
does not matter what becomes of a message: killed workers, a broker without its memory, a visibility time-out.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Unpack

from holdfast import App, MissingExtra, StoreError, TaskCollected, TaskNotFound
from holdfast.core.errors import InvalidValue
from holdfast.dispatch import Pump, Which, at_least_one

if find_spec("celery") is None:
    raise MissingExtra(
        "celery is not installed", hint="from a checkout: pip install 'path/to/holdfast[celery,postgres]'"
    )

_signals: Any = import_module("celery.signals")  # it has no types

NAME = "holdfast.work"
"""What the Celery task is called in messages."""

WAITING_MESSAGES = 100
"""How many messages may wait in the broker's queue before the pump sends no more."""


def task(celery: Any, open: Callable[[], App], *, name: str = NAME, **options: Any) -> Any:
    """Declare the Celery task that works on a task of Holdfast: its argument is an id, its result the status.

    `open` opens the store, with agents. It is called once in each process, when the first message comes. `name` is the
    task's name in messages. Default: holdfast.work. Other options are Celery's: `queue`, `priority` …
    """
    if not callable(open):
        raise InvalidValue(f"open={open!r} is not a function", hint="give one: lambda: holdfast.open(…, agents=[…])")
    opened = _Opened(open)
    _signals.worker_process_init.connect(opened.early, weak=False)

    @celery.task(**{"name": name, "ignore_result": True, "acks_late": False, **options})
    def work(id: str) -> str:
        try:
            return opened.app().work(id).status
        except (TaskNotFound, TaskCollected):
            return "removed"

    return work


def pump(app: App, task: Any, *, waiting: int = WAITING_MESSAGES, **which: Unpack[Which]) -> Pump:
    """Return a pump of due tasks to a Celery task that `on_celery.task` declared: `pump(app, work).run()`.

    Nothing is sent while `waiting` messages wait in the broker's queue. Default 100. The rest is as for `dispatch.due`.
    """
    if not hasattr(task, "apply_async"):
        raise InvalidValue(f"{task!r} is not a task of Celery", hint="give what on_celery.task(celery, open) returned")
    at_least_one(waiting, "waiting")

    def send(ids: list[str]) -> None:
        with task.app.producer_pool.acquire(block=True) as producer:
            for id in ids:
                task.apply_async((id,), producer=producer, retry=False)

    def room() -> int:
        with task.app.connection_for_write() as connection:
            return waiting - _length(connection, _queue(task))

    return Pump(app, send, room=room, **which)


def _queue(task: Any) -> str:
    """Return the queue that messages of a task go to, by what it was declared with and by the routes of its app."""
    declared = {name: getattr(task, name, None) for name in ("queue", "exchange", "routing_key")}
    given = {name: value for name, value in declared.items() if value is not None}
    return task.app.amqp.router.route(given, task.name, ("an-id",), {}, task)["queue"].name


def _length(connection: Any, queue: str) -> int:
    """Return how many messages wait in a queue; one that is not there yet has none."""
    with contextlib.suppress(*connection.channel_errors):
        return connection.default_channel.queue_declare(queue, passive=True).message_count
    return 0


class _Opened:
    """The app of each process: children of a fork open their own."""

    def __init__(self, open: Callable[[], App]) -> None:
        self._open = open
        self._lock = threading.Lock()
        self._app: tuple[int, App] | None = None

    def early(self, **_: Any) -> None:
        """Open in a child of a worker before its first message comes; if that fails, the message will tell."""

        def open_quietly() -> None:
            with contextlib.suppress(StoreError):
                self.app()

        threading.Thread(target=open_quietly, name="holdfast-open", daemon=True).start()

    def app(self) -> App:
        with self._lock:
            if self._app is None or self._app[0] != os.getpid():
                self._app = os.getpid(), self._open()
            return self._app[1]
