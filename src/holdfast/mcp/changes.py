"""Which watched tasks and threads have changed, whichever process changed them. One loop for all subscriptions.

Only this module looks for changes.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Literal

from holdfast.core.errors import HoldfastError, InvalidValue
from holdfast.mcp.reading import uris
from holdfast.mcp.reading.scope import Scope

INTERVAL_SECONDS = 0.5
"""How often watched tasks are looked at."""

Subject = tuple[Literal["tasks", "threads", "list"], str]
"""What changes: one of the tasks or threads, by its id, or the list. Several URIs may show one subject."""

LISTED: Subject = ("list", "")
"""The list of tasks: it changes when one is started."""


class ChangeFeed:
    """Watches what is subscribed to, and tells of each URI whose task or thread has moved on."""

    def __init__(self, scope: Scope, interval: float = INTERVAL_SECONDS) -> None:
        self._scope, self._interval = scope, interval
        self._subjects: dict[str, Subject] = {}
        self._uris: dict[Subject, Counter[str]] = {}
        self._seen: dict[Subject, object] = {}
        self._wanted = asyncio.Event()

    def __len__(self) -> int:
        return len(self._subjects)

    async def watch(self, wanted: Iterable[str]) -> list[str]:
        """Begin to watch some URIs; gives those that are served. What changes after this returns is reported."""
        subjects, seen = await asyncio.to_thread(self._found, dict.fromkeys(wanted))
        for uri, subject in subjects.items():
            self._subjects[uri] = subject
            self._uris.setdefault(subject, Counter())[uri] += 1
            self._seen.setdefault(subject, seen[subject])
        if self._seen:
            self._wanted.set()
        return list(subjects)

    def leave(self, watched: Iterable[str]) -> None:
        """Stop watching some URIs, each once for each `watch`."""
        for uri in watched:
            subject = self._subjects[uri]
            left = self._uris[subject]
            left[uri] -= 1
            if not left[uri]:
                del left[uri], self._subjects[uri]
            if not left:
                del self._uris[subject], self._seen[subject]
        if not self._seen:
            self._wanted.clear()

    async def run(self, tell: Callable[[list[str]], Awaitable[None]]) -> None:
        """Tell of changed URIs, until cancelled. Nothing is read while nothing is watched."""
        while True:
            await self._wanted.wait()
            await asyncio.sleep(self._interval)
            try:
                found = await asyncio.to_thread(self._positions, tuple(self._seen))
            except HoldfastError:
                continue  # a store that does not answer now is asked again; what it has to tell is not lost
            moved = [one for one, place in found.items() if one in self._seen and place != self._seen[one]]
            self._seen |= {one: found[one] for one in moved}
            if moved:
                await tell([uri for one in moved for uri in self._uris[one]])

    def _found(self, wanted: Iterable[str]) -> tuple[dict[str, Subject], dict[Subject, object]]:
        """What URIs show, of those that are served, and how far that has come."""
        subjects: dict[str, Subject] = {}
        for uri in wanted:
            try:
                subjects[uri] = self._subject(uri)
            except HoldfastError:
                continue
        return subjects, self._positions(set(subjects.values()))

    def _subject(self, uri: str) -> Subject:
        if uri == LISTED[0]:
            return LISTED
        address = uris.parse(uri)
        if address.kind in ("at", "user"):
            raise InvalidValue(f"{uri!r} can't be watched", hint=f"subscribe to {uris.TASK}")
        if address.kind == "thread":
            self._scope.thread_tasks(address.ids[0])
            return "threads", address.ids[0]
        row = self._scope.row(address.ids[1])
        return "tasks", row.id

    def _positions(self, subjects: Collection[Subject]) -> dict[Subject, object]:
        """How far each has come: one question for all tasks, one for all threads, one for the list."""
        app, found = self._scope.app, dict[Subject, object]()
        tasks = [id for kind, id in subjects if kind == "tasks"]
        threads = [id for kind, id in subjects if kind == "threads"]
        found |= {("tasks", id): seq for id, seq in app.heads(tasks).items()} if tasks else {}
        found |= {("threads", id): seq for id, seq in app.heads(threads, of="threads").items()} if threads else {}
        if LISTED in subjects:
            found[LISTED] = next((row.id for row in self._scope.rows()), None)
        return found
