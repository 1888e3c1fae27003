"""HoldfastSession: a conversation of the OpenAI Agents SDK as a thread of a Holdfast store."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from agents import SessionSettings, TResponseInputItem
from agents.memory.session_settings import coerce_session_settings
from pydantic_core import to_jsonable_python

from holdfast import App, Conflict, InvalidValue, StoreBusy, Thread
from holdfast.adapters.names import escaped

MOST_TRIES = 100
"""How often the items of a run are added after whatever others added meanwhile."""

PAGE = 1_000
"""How many items are read at a time."""


class HoldfastSession:
    """Keep a conversation in a Holdfast store: `Runner.run(agent, "hello", session=HoldfastSession(app, "ana"))`.

    It is the thread `app.thread("ana")`. Items come back exactly as they were added, and a list of them is added whole
    or not at all. An id may be any text: what the id of a thread can't have is escaped.
    """

    def __init__(
        self, app: App, thread_id: str, *, session_settings: SessionSettings | dict[str, Any] | None = None
    ) -> None:
        if not isinstance(app, App):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidValue(f"{app!r} is not an app", hint="give HoldfastSession(holdfast.open(…), thread_id)")
        if not isinstance(thread_id, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidValue(f"{thread_id!r} is not the id of a session", hint="give a str")
        self.session_id = thread_id
        self.session_settings: SessionSettings | None = coerce_session_settings(session_settings or SessionSettings())
        self._thread = app.thread(_thread_id(thread_id))

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the conversation from the oldest item on, or its newest `limit` items."""
        if limit is not None and type(limit) is not int:
            raise InvalidValue(f"limit={limit!r} is not a number of items", hint="give an int")
        most = self.session_settings.limit if limit is None and self.session_settings is not None else limit
        return await asyncio.to_thread(self._items, most)

    async def add_items(self, items: Sequence[TResponseInputItem]) -> None:
        """Add items, all of them or none. They are durable when this returns."""
        if items:
            await asyncio.to_thread(self._thread.add, _plain(items), raw=True)

    async def pop_item(self) -> TResponseInputItem | None:
        """Take the newest item away and return it; None if there is none."""
        return await asyncio.to_thread(self._thread.pop)

    async def clear_session(self) -> None:
        """Take all items away."""
        await asyncio.to_thread(self._thread.clear)

    def _items(self, most: int | None) -> list[TResponseInputItem]:
        if most is None:
            return self._thread.messages
        newest: list[Any] = []
        before: str | None = None
        while len(newest) < most:
            page = self._thread.page(before=before, limit=min(PAGE, most - len(newest)), newest_first=True)
            newest += [one.message for one in page]
            if not page:
                break
            before = page[-1].id
        return newest[::-1]

    # For runs that are tasks

    def read(self) -> dict[str, Any]:
        """Return the conversation, and the seq it was read at: what `add_once` looks after."""
        seq = self._thread.seq
        most = None if self.session_settings is None else self.session_settings.limit
        return {"items": self._items(most), "seq": seq}

    def add_once(self, items: Sequence[Any], run: str, seq: int) -> None:
        """Add the items of a run that has read the conversation at `seq`, once however often it is called for it."""
        for _ in range(MOST_TRIES):
            now = self._thread.seq
            if _is_added(self._thread, run, seq):
                return
            try:
                self._thread.add(_plain(items), raw=True, by=run, expect=now)
                return
            except Conflict:
                continue
        raise StoreBusy(
            f"others kept writing to session {self.session_id!r}; nothing was added", hint="run the task again"
        )


def _is_added(thread: Thread, run: str, seq: int) -> bool:
    return any(one.kind == "message_added" and getattr(one.event, "by", "") == run for one in thread.events(after=seq))


def _thread_id(id: str) -> str:
    """The id of the thread: a session's id with what threads do not allow, and `=`, written as bytes in hex."""
    return escaped(id, allowed="_.:/~#+,-", first=True)


def _plain(items: Sequence[Any]) -> list[Any]:
    """Items as dicts, also those that are given as objects of the SDK."""
    return [one if isinstance(one, dict) else to_jsonable_python(one, exclude_none=True) for one in items]
