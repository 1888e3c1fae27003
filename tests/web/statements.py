"""How many statements a process sends to SQLite files, whoever sends them; and a page without a socket."""

import asyncio
import contextlib
import gzip
import threading

import apsw

from holdfast.web.access.gate import RIGHTS, Gate, Person
from holdfast.web.asgi import PageApp
from holdfast.web.requests.site import Settings, Site

# What a connection says by itself, and not because something is read.
_SILENT = ("begin", "commit", "rollback", "savepoint", "release", "pragma", "select 1 from sqlite_schema")


class Statements:
    """Those that were sent since the last look."""

    def __init__(self):
        self._lock = threading.Lock()
        self._sent = []

    def note(self, trace):
        text = (trace["sql"] or "").lstrip().lower()
        if trace["trigger"] is False and not text.startswith(("--", *_SILENT)):
            with self._lock:
                self._sent.append(text)

    def taken(self):
        with self._lock:
            sent, self._sent = self._sent, []
        return sent


@contextlib.contextmanager
def counted():
    """Count the statements of each connection that is opened meanwhile."""
    found = Statements()

    def hook(connection):
        connection.trace_v2(apsw.SQLITE_TRACE_STMT, found.note)

    apsw.connection_hooks.append(hook)
    try:
        yield found
    finally:
        apsw.connection_hooks.remove(hook)


class Asking:
    """A page over an app, asked without a socket, in one event loop."""

    def __init__(self, app):
        self.page = PageApp(Site(app, Settings(), None), Gate(None, lambda scope: Person("ana", RIGHTS), None))
        self._loop = asyncio.new_event_loop()

    def get(self, *paths):
        """The bodies of some paths of the API, asked one after the other."""
        return [self._loop.run_until_complete(self._get(path)) for path in paths]

    def weight(self, *paths):
        """How many bytes they have, compressed."""
        return sum(len(gzip.compress(one)) for one in self.get(*paths))

    def close(self):
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    async def _get(self, path):
        where, _, query = f"/api/v1{path}".partition("?")
        scope = {"type": "http", "method": "GET", "path": where, "raw_path": where.encode(), "root_path": ""}
        scope |= {"query_string": query.encode(), "scheme": "http", "http_version": "1.1"}
        scope["headers"] = [(b"host", b"tasks.example")]
        status, parts = [], []

        async def receive():
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message):
            if message["type"] == "http.response.start":
                status.append(message["status"])
            else:
                parts.append(message.get("body", b""))

        await self.page(scope, receive, send)
        body = b"".join(parts)
        assert status == [200], body
        return body


async def listening(feeds, id, tabs, meanwhile):
    """Let so many tabs listen to a task until each has heard of its last event, which `meanwhile` writes."""
    head = await asyncio.to_thread(feeds.site.app.head, id)
    heard = asyncio.Event()
    at_head = 0

    async def one(number):
        nonlocal at_head
        async for part in feeds.task(f"tab-{number}", id, head):
            if b"event: counts" in part:
                at_head += 1
                if at_head == tabs:
                    heard.set()
            if b'"last"' in part:
                return

    running = [asyncio.create_task(one(number)) for number in range(tabs)]
    await asyncio.wait_for(heard.wait(), 20)
    await asyncio.to_thread(meanwhile)
    await asyncio.wait_for(asyncio.gather(*running), 20)
