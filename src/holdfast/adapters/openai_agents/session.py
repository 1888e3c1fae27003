"""HoldfastSession: a conversation of the OpenAI Agents SDK in a Holdfast store."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from agents import SessionSettings, TResponseInputItem
from pydantic_core import from_json, to_json

from holdfast import App, Conflict, InvalidValue, RecordWrite

SPACE = "openai-agents"
"""The space of records that sessions are kept in: `items/<id>` has a record for each item."""


class HoldfastSession:
    """Keep a conversation in a Holdfast store: `Runner.run(agent, "hello", session=HoldfastSession(app, "ana"))`.

    Items come back exactly as they were added. A list of them is added whole or not at all.
    """

    def __init__(self, app: App, thread_id: str, *, session_settings: SessionSettings | None = None) -> None:
        if not isinstance(app, App):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidValue(f"{app!r} is not an app", hint="give HoldfastSession(holdfast.open(…), thread_id)")
        self.session_id = thread_id
        self.session_settings: SessionSettings | None = session_settings
        self._records = app.records(SPACE)
        self._key = f"items/{thread_id}"
        self._records.head(self._key)  # refuses an id that can't be a key, now

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the conversation from the oldest item on, or its newest `limit` items."""
        most = self.session_settings.limit if limit is None and self.session_settings is not None else limit
        return await asyncio.to_thread(self._items, most)

    async def add_items(self, items: Sequence[TResponseInputItem]) -> None:
        """Add items, all of them or none. They are durable when this returns."""
        if items:
            await asyncio.to_thread(self._records.append, self._key, [to_json(one) for one in items])

    async def pop_item(self) -> TResponseInputItem | None:
        """Take the newest item away and return it; None if there is none."""
        popped = await asyncio.to_thread(self._records.pop, self._key)
        return None if popped is None else from_json(popped.data)

    async def clear_session(self) -> None:
        """Take all items away."""
        await asyncio.to_thread(self._records.drop, self._key, why="cleared")

    def _items(self, most: int | None) -> list[TResponseInputItem]:
        if most is None:
            return [from_json(one.data) for one in self._records.read(self._key)]
        newest = self._records.read(self._key, last=max(most, 0))
        return [from_json(one.data) for one in reversed(newest)]

    def add_once(self, items: Sequence[Any], run: str) -> None:
        """Add the items of a run, once however often it is called for that run."""
        done = RecordWrite(key=f"added/{len(run)}/{run}/{self.session_id}", data=b"added", expect=0)
        writes = [RecordWrite(key=self._key, data=to_json(one)) for one in items]
        try:
            self._records.write([done, *writes])
        except Conflict:  # they were added before
            return
