"""Serving the page on this machine: where it listens, the link that opens it, and the file by which others find it."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import signal
import socket
import urllib.error
import urllib.request
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

import uvicorn
from msgspec import Struct

from holdfast import App
from holdfast.core.errors import HoldfastError, InvalidValue, WebOpen
from holdfast.engine.reading import values
from holdfast.web.access.gate import Gate, Person, Scope, is_loopback, own_hosts
from holdfast.web.access.sessions import LEAST_TOKEN_LENGTH, Sessions
from holdfast.web.asgi import API, PageApp, Receive, Send
from holdfast.web.namespaces import NamespacesApp
from holdfast.web.requests.site import Known, Settings, Site

PORT = 7433
TRIED_PORTS = 20
TOKEN = "HOLDFAST_UI_TOKEN"
ASK_SECONDS = 2.0


PATIENCE = {"wait_seconds": "2", "statement_seconds": "5"}
"""How long a page waits for a server. A worker waits half a minute; a person wants to see the reason sooner."""


class PageAddress(Struct, frozen=True):
    """Where a page is, and the key that lets its owner ask for links."""

    url: str
    key: str
    pid: int


def check_host(host: str, token: str, *, behind_proxy: bool) -> None:
    """Refuse to listen where others could reach the page, unless they must log in and the way is encrypted.

    A token that can be guessed is refused everywhere: programs of other people may run on this machine.
    """
    if token and len(token) < LEAST_TOKEN_LENGTH:
        raise WebOpen(
            f"{TOKEN} has {len(token)} characters, which others could guess",
            hint=f"use {LEAST_TOKEN_LENGTH} or more: openssl rand -hex 24",
        )
    if is_loopback(host):
        return
    if not token:
        raise WebOpen(
            f"{host} can be reached from other machines, and there is no token to log in with",
            hint=f"export {TOKEN}=…, or leave --host out to serve this machine only",
        )
    if not behind_proxy:
        raise WebOpen(
            f"{host} can be reached from other machines, and this server does not encrypt",
            hint="put a proxy with TLS before it and add --behind-proxy, or leave --host out",
        )


def page_url(url: str) -> str:
    """The address of a store as a page asks it: with less patience, unless the address says how much."""
    if not values.is_server(url) or "://" not in url:
        return url
    more = "&".join(f"{name}={value}" for name, value in PATIENCE.items() if f"{name}=" not in url)
    return f"{url}{'&' if '?' in url else '?'}{more}" if more else url


def listen(host: str, port: int | None) -> socket.socket:
    """Listen on a port; without one, on 7433 or the next that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    last: OSError | OverflowError | None = None
    for one in range(PORT, PORT + TRIED_PORTS) if port is None else (port,):
        listening = socket.socket(family)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host.strip("[]"), one))
            listening.listen(128)
            return listening
        except (OSError, OverflowError) as error:
            listening.close()
            last = error
    raise InvalidValue(f"can't listen on {host}: {last}", hint="use another port: --port 0 is any free one")


@contextmanager
def listening(host: str, port: int | None) -> Generator[list[socket.socket], None, None]:
    """Listen as long as the block lasts: on 127.0.0.1 and on ::1, or on the address that was given."""
    with ExitStack() as stack:
        found = [stack.enter_context(listen(host, port))]
        beside = listen_beside(found[0])
        if beside is not None:
            found.append(stack.enter_context(beside))
        yield found


def listen_beside(listening: socket.socket) -> socket.socket | None:
    """Listen on ::1 as well, on the port of 127.0.0.1: `localhost` may mean either. None where that can't be."""
    host, port = listening.getsockname()[:2]
    if host != "127.0.0.1":
        return None
    try:
        beside = socket.socket(socket.AF_INET6)
    except OSError:  # this machine has no IPv6
        return None
    try:
        beside.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        beside.bind(("::1", port))
        beside.listen(128)
    except OSError:
        beside.close()
        return None
    return beside


def page_app(
    app: App,
    settings: Settings,
    host: str,
    port: int,
    *,
    token: str = "",
    names: tuple[str, ...] = (),
    known: Known = Known(),  # noqa: B008
    tenants: Callable[[str], App] | None = None,
) -> PageApp | NamespacesApp:
    """The page of this machine: people log in by a link, and act under one name.

    With `tenants`, which opens the app of a namespace, it is a page over all of them.
    """
    rights = ("look",) if settings.read_only else ("look", "answer", "steer", "admin")
    sessions = Sessions(Person(settings.by, rights), fixed=token)
    gate = Gate(sessions, None, own_hosts(host, port, names))
    site = Site(app, settings, sessions, known)
    return PageApp(site, gate) if tenants is None else NamespacesApp(site, gate, tenants)


class PageServer:
    """A page that listens. It ends with Ctrl-C or SIGTERM, or after so many seconds; streams are closed then."""

    def __init__(
        self,
        made: PageApp | NamespacesApp,
        listening: list[socket.socket],
        url: str,
        seconds: float | None = None,
        *,
        behind_proxy: bool = False,
    ) -> None:
        self.url = url
        self._listening, self._seconds = listening, seconds
        config = uvicorn.Config(
            Prefixed(made) if behind_proxy else made,
            log_level="warning",
            timeout_graceful_shutdown=1,
            lifespan="off",
            access_log=False,
        )
        self._server = uvicorn.Server(config)

    def serve(self, ready: Callable[[], None]) -> None:
        """Serve until it is ended. `ready` is called when requests are answered."""
        # The server hands a signal on once it has ended. As an exception it lets what comes after it be done.
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            with suppress(KeyboardInterrupt):
                asyncio.run(self._run(ready))
        finally:
            signal.signal(signal.SIGTERM, before)

    async def _run(self, ready: Callable[[], None]) -> None:
        serving = asyncio.create_task(self._server.serve(sockets=self._listening))
        serving.add_done_callback(_look)
        while not self._server.started and not serving.done():
            await asyncio.sleep(0.01)
        if self._server.started:
            ready()
        if self._seconds is not None:
            await asyncio.wait([serving], timeout=self._seconds)
            self._server.should_exit = True
        await serving


def _look(ended: asyncio.Task[None]) -> None:
    """Look at how the server ended, or asyncio reports a signal that the loop has handed on already."""
    if not ended.cancelled():
        ended.exception()


class Prefixed:
    """A page as people see it through a proxy that takes the first part of the path away (X-Forwarded-Prefix)."""

    def __init__(self, made: PageApp | NamespacesApp) -> None:
        self._made = made

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        given = dict(scope.get("headers", ())).get(b"x-forwarded-prefix", b"").decode("latin-1").rstrip("/")
        if _PREFIX.fullmatch(given):
            raw = scope.get("raw_path") or quote(scope["path"]).encode()
            moved = {"path": given + scope["path"], "raw_path": given.encode() + raw}
            scope = {**scope, "root_path": given + scope.get("root_path", ""), **moved}
        await self._made(scope, receive, send)


_PREFIX = re.compile(r"(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+")


def shown_url(host: str, port: int) -> str:
    """The address of a page, as people open it."""
    if host in ("0.0.0.0", "localhost"):
        return f"http://127.0.0.1:{port}"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


# How others find it


def address_file(store: str, namespace: str) -> Path:
    """The file that says where the page of a store is: beside a store that is a file, else in your cache."""
    path = values.path_of(store)
    suffix = f"-{quote(namespace, safe='')}" if namespace else ""
    if path is not None:
        return Path(f"{path}-page{suffix}")
    named = hashlib.sha256(f"{store}\0{namespace}".encode()).hexdigest()[:16]
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "holdfast" / f"page-{named}"


def publish(file: Path, address: PageAddress) -> None:
    """Write where the page is, for its owner only."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    made = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(made, "wb") as out:
        out.write(values.dump(address))


def withdraw(file: Path, address: PageAddress) -> None:
    """Remove it, unless another page has taken its place."""
    if published(file) == address:
        file.unlink(missing_ok=True)


def published(file: Path) -> PageAddress | None:
    """Return the address of a store's page; None if there is no file with it, or it can't be read."""
    try:
        return values.load(file.read_bytes(), PageAddress)
    except (OSError, ValueError):
        return None


def new_link(file: Path) -> str:
    """Ask a page that is running for a new link."""
    address = published(file)
    if address is None:
        raise InvalidValue("no page of this store is running", hint="start one: holdfast ui")
    asked = urllib.request.Request(
        f"{address.url}{API}/link", values.dump({"code": address.key}), {"content-type": "application/json"}
    )
    try:
        with _opener().open(asked, timeout=ASK_SECONDS) as answer:
            return link(address.url, values.parse(answer.read().decode())["code"])
    except (OSError, ValueError, urllib.error.URLError) as error:
        why = f"the page at {address.url} does not answer: {error}"
        raise HoldfastError(why, hint="start a new one: holdfast ui") from None


def task_link(store: str, namespace: str, id: str) -> str | None:
    """The address of a task on the page of its store, of the workers without an id; None if no page is up."""
    address = published(address_file(store, namespace))
    if address is None:
        return None
    with suppress(OSError, ValueError), _opener().open(f"{address.url}/healthz", timeout=ASK_SECONDS):
        return f"{address.url}/tasks/{quote(id, safe='')}" if id else f"{address.url}/workers"
    return None


def _opener() -> urllib.request.OpenerDirector:
    """Ask this machine, and never a proxy of the environment."""
    return urllib.request.build_opener(urllib.request.ProxyHandler({}))


def link(url: str, code: str) -> str:
    """The link that logs in. The code stands in the fragment: browsers send it nowhere."""
    return f"{url}/#code={code}"
