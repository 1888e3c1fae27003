"""Which watched tasks and threads have changed, whichever process changed them. One loop for all subscriptions.

This is the only place that looks for changes: a change feed of the app can replace `_look` and the loop around it.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable

from holdfast.core.errors import HoldfastError, InvalidValue
from holdfast.mcp.reading import uris
from holdfast.mcp.reading.scope import Scope

INTERVAL_SECONDS = 0.5
"""How often watched tasks are looked at."""

MOST_CPU = 0.01
"""The most of a core that looking may take. With many subscriptions it is looked less often."""

MOST_SECONDS = 5.0
"""The longest that is waited between looks, however many subscriptions there are."""

Subject = tuple[str, str]
"""What changes: "task" or "thread", and its id. Several URIs may show one subject."""

LISTED: Subject = ("list", "")
"""The list of tasks: it changes when one is started."""


class ChangeFeed:
    """Watches what is subscribed to, and tells of each URI whose task or thread has moved on."""

    def __init__(self, scope: Scope, interval: float = INTERVAL_SECONDS) -> None:
        self._scope, self._interval = scope, interval
        self._watched: Counter[str] = Counter()
        self._subjects: dict[str, Subject] = {}
        self._seen: dict[Subject, object] = {}
        self._wanted = asyncio.Event()

    def __len__(self) -> int:
        return len(self._watched)

    async def watch(self, uri: str) -> bool:
        """Begin to watch a URI; False if it is not served. What changes after this returns is told of."""
        try:
            subject = await asyncio.to_thread(self._subject, uri)
        except HoldfastError:
            return False
        self._subjects[uri] = subject
        self._watched[uri] += 1
        if subject not in self._seen:
            self._seen.setdefault(subject, await asyncio.to_thread(self._position, subject))
        self._wanted.set()
        return True

    def leave(self, uri: str) -> None:
        """Stop watching a URI, once for each `watch`."""
        self._watched[uri] -= 1
        if self._watched[uri] > 0:
            return
        del self._watched[uri]
        subject = self._subjects.pop(uri, None)
        if subject is not None and subject not in self._subjects.values():
            self._seen.pop(subject, None)
        if not self._watched:
            self._wanted.clear()

    async def run(self, tell: Callable[[list[str]], Awaitable[None]]) -> None:
        """Tell of changed URIs, until cancelled. Nothing is read while nothing is watched."""
        pause = self._interval
        while True:
            await self._wanted.wait()
            await asyncio.sleep(pause)
            moved, spent = await asyncio.to_thread(self._look)
            pause = min(max(self._interval, spent / MOST_CPU), MOST_SECONDS)
            for subject, position in moved.items():
                if subject in self._seen:
                    self._seen[subject] = position
            if moved:
                await tell([uri for uri, subject in tuple(self._subjects.items()) if subject in moved])

    def _look(self) -> tuple[dict[Subject, object], float]:
        """The subjects that have moved on, and where they are now; and how much CPU time it took to find out."""
        moved: dict[Subject, object] = {}
        begun = time.thread_time()
        for subject in tuple(self._seen):
            try:
                position = self._position(subject)
            except HoldfastError:
                continue  # a store that does not answer now is asked again; what it has to tell is not lost
            if position != self._seen.get(subject):
                moved[subject] = position
        return moved, time.thread_time() - begun

    def _position(self, subject: Subject) -> object:
        kind, id = subject
        if kind == "list":
            return next((row.id for row in self._scope.rows()), None)
        return self._scope.app.thread(id).seq if kind == "thread" else self._scope.app.head(id)

    def _subject(self, uri: str) -> Subject:
        if uri == LISTED[0]:
            return LISTED
        address = uris.parse(uri)
        if address.kind in ("at", "user"):
            raise InvalidValue(f"{uri!r} can't be watched", hint=f"subscribe to {uris.TASK}")
        if address.kind == "thread":
            self._scope.thread_tasks(address.ids[0])
            return "thread", address.ids[0]
        row = self._scope.row(address.ids[1])
        return "task", row.id
