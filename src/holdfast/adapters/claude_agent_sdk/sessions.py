"""HoldfastSessionStore: transcripts of the Claude Agent SDK in a Holdfast store."""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any, cast
from urllib.parse import quote, unquote

from claude_agent_sdk import (
    SessionKey,
    SessionListSubkeysKey,
    SessionStore,
    SessionStoreEntry,
    SessionStoreListEntry,
    SessionSummaryEntry,
    fold_session_summary,
)
from pydantic_core import PydanticSerializationError, from_json, to_json

from holdfast import App, Conflict, InvalidValue, NotSerializable, Record, RecordWrite

SPACE = "claude-agent-sdk"
"""The space of records: `main/<project>/<session>` and `sub/<project>/<session>/<path>` have a record for each entry,
`summary/<project>/<session>` has what the SDK sums up of a session, the newest last."""

MOST_KNOWN = 256
"""Of how many transcripts the ids of entries are kept in memory."""

SUMMARIES_KEPT = 32


class HoldfastSessionStore(SessionStore):
    """Mirror transcripts into a Holdfast store: `ClaudeAgentOptions(session_store=HoldfastSessionStore(app))`.

    A session can then be resumed on another machine. A batch of entries is appended whole or not at all; an entry with
    a uuid is appended once, however often its batch is sent.
    """

    def __init__(self, app: App) -> None:
        if not isinstance(app, App):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidValue(f"{app!r} is not an app", hint="give HoldfastSessionStore(holdfast.open(…))")
        self._records = app.records(SPACE)
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._lock = threading.Lock()

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Append entries to a transcript, all or none; those that are there by their uuid are left out."""
        if entries:
            await asyncio.to_thread(self._append, key, entries)

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """Return the entries of a transcript; None if it was never written."""
        found = await asyncio.to_thread(self._records.read, _transcript(key))
        return [from_json(one.data) for one in found] or None

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """Return the sessions of a project, and when each was last written."""
        found = await asyncio.to_thread(lambda: list(self._latest(f"main/{_quoted(project_key)}/")))
        return [{"session_id": _last(one.key), "mtime": one.at_us // 1000} for one in found]

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """Return what the SDK has summed up of the sessions of a project."""
        found = await asyncio.to_thread(lambda: list(self._latest(f"summary/{_quoted(project_key)}/")))
        return [_summary(one) for one in found]

    async def delete(self, key: SessionKey) -> None:
        """Delete a session with the transcripts of its subagents, or, with a subpath, only that one."""
        await asyncio.to_thread(self._delete, key)

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """Return the subpaths of a session's subagents."""
        return await asyncio.to_thread(lambda: [_last(one) for one in self._subkeys(key)])

    def _append(self, key: SessionKey, entries: Sequence[SessionStoreEntry]) -> None:
        name = _transcript(key)
        while True:
            with self._lock:
                known = self._refreshed(name)
                new = [one for one in entries if one.get("uuid") not in known.uuids]
                head = known.head
            if not new:
                return
            write = RecordWrite(key=name, data=[_packed(one) for one in new], expect=head)
            try:
                self._records.write([write, *self._summary(key, new)])
            except Conflict:  # another process was faster: look at what it wrote
                continue
            if name.startswith("main/"):
                self._trim(_key("summary", key))
            return

    def _summary(self, key: SessionKey, new: list[SessionStoreEntry]) -> Iterator[RecordWrite]:
        """The write of a session's summary, folded on by new entries. Subagents do not count."""
        if "subpath" in key:
            return
        found = self._records.read(_key("summary", key), last=1)
        folded = fold_session_summary(_summary(found[0]) if found else None, key, new)
        yield RecordWrite(key=_key("summary", key), data=to_json(folded["data"]))

    def _trim(self, key: str) -> None:
        if self._records.head(key) % SUMMARIES_KEPT == 0:
            self._records.trim(key, keep=1)

    def _refreshed(self, name: str) -> _Known:
        """What is known of a transcript, brought up to date with one question to the store."""
        known = self._known.pop(name, None) or _Known()
        changes = self._records.changes(name, known.cursor)
        if changes.restarted:
            known = _Known()
        found = (from_json(one.data).get("uuid") for one in changes.records)
        known.uuids.update(uuid for uuid in found if uuid is not None)
        known.cursor, known.head = changes.cursor, changes.head
        self._known[name] = known
        while len(self._known) > MOST_KNOWN:
            self._known.popitem(last=False)
        return known

    def _delete(self, key: SessionKey) -> None:
        names = [_transcript(key)]
        if "subpath" not in key:
            names += [_key("summary", key), *self._subkeys(cast("SessionListSubkeysKey", key))]
        for name in names:
            self._records.drop(name, why="deleted")

    def _subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        prefix, found = f"{_key('sub', key)}/", list[str]()
        while page := self._records.keys(prefix, after=found[-1] if found else None):
            found += page
        return found

    def _latest(self, prefix: str) -> Iterator[Record]:
        last: str | None = None
        while page := self._records.latest(prefix, after=last):
            yield from page
            last = page[-1].key


class _Known:
    """What this process knows of a transcript: the ids of its entries, and how far it has read."""

    def __init__(self) -> None:
        self.uuids: set[str] = set()
        self.cursor: str | None = None
        self.head = 0


def _summary(record: Record) -> SessionSummaryEntry:
    """A summary as the SDK takes it. Its time is that of the write, by the clock that lists of sessions have too."""
    data: dict[str, Any] = from_json(record.data)
    return {"session_id": _last(record.key), "mtime": record.at_us // 1000, "data": data}


def _packed(entry: SessionStoreEntry) -> bytes:
    try:
        return to_json(entry)
    except PydanticSerializationError as error:
        raise NotSerializable("an entry of the transcript", f"is not JSON: {error}") from None


def _transcript(key: SessionKey) -> str:
    if "subpath" not in key:
        return _key("main", key)
    if not key["subpath"]:
        raise InvalidValue("the subpath of a session is empty", hint="leave it out for the main transcript")
    return f"{_key('sub', key)}/{_quoted(key['subpath'])}"


def _key(kind: str, key: SessionKey | SessionListSubkeysKey) -> str:
    return f"{kind}/{_quoted(key['project_key'])}/{_quoted(key['session_id'])}"


def _last(key: str) -> str:
    return unquote(key.rpartition("/")[2], errors="surrogatepass")


def _quoted(part: str) -> str:
    return quote(part, safe="", errors="surrogatepass")
