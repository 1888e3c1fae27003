"""The page as an ASGI app: a table of routes, the gate before each of them, and how answers and errors are written.

A path is split before it is decoded, and each part is decoded once: an id may hold any character, `/` too.
"""

from __future__ import annotations

import gzip
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import aclosing
from itertools import islice
from typing import Any, NamedTuple, cast
from urllib.parse import parse_qs, quote, unquote

from anyio import CapacityLimiter, to_thread
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from holdfast import App, __version__
from holdfast.core import errors
from holdfast.core.errors import HoldfastError, WebOpen
from holdfast.core.errors.commands import in_commands
from holdfast.engine.reading import values
from holdfast.web import page
from holdfast.web.access.gate import Authorize, Denied, Gate, Person, Right, Scope
from holdfast.web.acting import acts, bulk
from holdfast.web.feed import Feeds
from holdfast.web.reading import contents, inbox, places, tasks
from holdfast.web.requests.shapes import (
    AnswerAct,
    ApprovalAct,
    BudgetAct,
    BulkAct,
    CodeBody,
    Described,
    Download,
    ForkAct,
    Handler,
    PageAnswer,
    PageCall,
    PatchAct,
    PlainAct,
    ReconcileAct,
    ResumeAct,
    RollbackAct,
    SettleAct,
    SignalAct,
    StartAct,
    openapi,
)
from holdfast.web.requests.site import Settings, Site

API = "/api/v1"
VERSION = "holdfast-page"
"""The header that names the page's files: a tab that has others says that the server was updated."""

MOST_BODY_BYTES = 1024 * 1024
READERS = 8
PACKED_FROM_BYTES = 16 * 1024
"""Smaller answers are not worth the time."""

PACKING_LEVEL = 3
PARTS_AT_ONCE = 500
"""How many parts of a file are read at a time."""

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
ANYONE = Person("", ())
Patterns = list[tuple["PageRoute", list[str]]]


class PageRoute(NamedTuple):
    """A route: its method and path, the right it needs, and who answers it; a shell and a stream have no handler."""

    method: str
    path: str
    right: Right
    handler: Handler | None = None
    body: type[Any] | None = None


def _describe(call: PageCall) -> PageAnswer:
    """This description."""
    told = [
        Described(one.method, one.path.removeprefix(API), one.right, _about(one), one.body)
        for one in ROUTES
        if one.path.startswith(API)
    ]
    return PageAnswer(openapi(told, __version__))


def _health(call: PageCall) -> PageAnswer:
    """Whether the page is up. It says nothing of the store."""
    return PageAnswer({"ok": True})


ROUTES = (
    *(
        PageRoute("GET", path, "public")
        for path in ("/", "/tasks/{id}", "/compare/{a}/{b}", "/inbox", "/workers", "/audit")
    ),
    PageRoute("GET", "/inbox/{task}/{kind}/{key}", "public"),
    *(PageRoute("GET", path, "public") for path in ("/users", "/users/{id}", "/threads", "/threads/{id}")),
    PageRoute("GET", "/static/{version}/{name}", "public"),
    PageRoute("GET", "/healthz", "public", _health),
    PageRoute("POST", f"{API}/session", "public", acts.session, CodeBody),
    PageRoute("POST", f"{API}/link", "public", acts.link, CodeBody),
    PageRoute("GET", f"{API}/openapi.json", "look", _describe),
    PageRoute("GET", f"{API}/about", "look", tasks.about),
    PageRoute("GET", f"{API}/agents", "look", tasks.agents),
    PageRoute("GET", f"{API}/tasks", "look", tasks.tasks),
    PageRoute("GET", f"{API}/tasks/counts", "look", tasks.counts),
    PageRoute("GET", f"{API}/rates", "look", places.rates),
    PageRoute("GET", f"{API}/strips", "look", tasks.strips),
    PageRoute("GET", f"{API}/search", "look", places.search),
    PageRoute("GET", f"{API}/words", "look", places.words),
    PageRoute("GET", f"{API}/money", "look", places.money),
    PageRoute("GET", f"{API}/users", "look", places.users),
    PageRoute("GET", f"{API}/users/{{id}}", "look", places.user),
    PageRoute("GET", f"{API}/threads", "look", places.threads),
    PageRoute("GET", f"{API}/threads/{{id}}", "look", places.thread),
    PageRoute("GET", f"{API}/stream", "look"),
    PageRoute("GET", f"{API}/tasks/{{id}}", "look", tasks.task),
    PageRoute("GET", f"{API}/tasks/{{id}}/rows", "look", tasks.rows),
    PageRoute("GET", f"{API}/tasks/{{id}}/steps", "look", tasks.steps),
    PageRoute("GET", f"{API}/tasks/{{id}}/steps/{{key}}", "look", contents.step),
    PageRoute("GET", f"{API}/tasks/{{id}}/state", "look", tasks.state),
    PageRoute("GET", f"{API}/tasks/{{id}}/deltas", "look", tasks.deltas),
    PageRoute("GET", f"{API}/tasks/{{id}}/events/{{seq}}", "look", contents.event),
    PageRoute("GET", f"{API}/tasks/{{id}}/digests", "look", contents.digests),
    PageRoute("GET", f"{API}/tasks/{{id}}/messages", "look", contents.messages),
    PageRoute("GET", f"{API}/tasks/{{id}}/decisions", "look", contents.decisions),
    PageRoute("GET", f"{API}/tasks/{{id}}/artifacts", "look", contents.artifacts),
    PageRoute("GET", f"{API}/tasks/{{id}}/same-failure", "look", contents.same_failure),
    PageRoute("GET", f"{API}/blobs/{{task}}/{{seq}}/{{pointer}}", "look", contents.blob),
    PageRoute("GET", f"{API}/tasks/{{id}}/verify", "look", tasks.verify),
    PageRoute("GET", f"{API}/tasks/{{id}}/export", "look", tasks.export),
    PageRoute("GET", f"{API}/tasks/{{id}}/stream", "look"),
    PageRoute("GET", f"{API}/compare", "look", tasks.compare),
    PageRoute("GET", f"{API}/inbox", "look", inbox.entries),
    PageRoute("GET", f"{API}/workers", "look", places.workers),
    PageRoute("GET", f"{API}/queues", "look", places.queues),
    PageRoute("GET", f"{API}/inbox/{{task}}/{{call}}", "look", inbox.known),
    PageRoute("GET", f"{API}/audit", "look", places.audit),
    PageRoute("GET", f"{API}/audit/export", "look", places.audit_export),
    PageRoute("POST", f"{API}/bulk", "admin", bulk.begin, BulkAct),
    PageRoute("GET", f"{API}/bulk", "admin", bulk.count),
    PageRoute("GET", f"{API}/bulk/{{job}}", "admin", bulk.progress),
    PageRoute("POST", f"{API}/tasks", "steer", acts.start, StartAct),
    PageRoute("POST", f"{API}/demo", "steer", acts.demo, PlainAct),
    PageRoute("POST", f"{API}/tasks/{{id}}/reconcile", "answer", acts.reconcile, ReconcileAct),
    PageRoute("POST", f"{API}/tasks/{{id}}/answer", "answer", acts.answer, AnswerAct),
    PageRoute("POST", f"{API}/tasks/{{id}}/approve", "answer", acts.approve, ApprovalAct),
    PageRoute("POST", f"{API}/tasks/{{id}}/reject", "answer", acts.reject, ApprovalAct),
    PageRoute("POST", f"{API}/tasks/{{id}}/settle", "answer", acts.settle, SettleAct),
    PageRoute("POST", f"{API}/tasks/{{id}}/budget", "steer", acts.budget, BudgetAct),
    PageRoute("POST", f"{API}/tasks/{{id}}/resume", "steer", acts.resume, ResumeAct),
    PageRoute("POST", f"{API}/tasks/{{id}}/cancel", "steer", acts.cancel, PlainAct),
    PageRoute("POST", f"{API}/tasks/{{id}}/rollback", "steer", acts.rollback, RollbackAct),
    PageRoute("POST", f"{API}/tasks/{{id}}/signal", "steer", acts.signal, SignalAct),
    PageRoute("POST", f"{API}/tasks/{{id}}/patch", "steer", acts.patch, PatchAct),
    PageRoute("POST", f"{API}/tasks/{{id}}/fork", "steer", acts.fork, ForkAct),
)
"""Every route there is. What is not here is not found; each row says which right it needs."""

_FILES = "/static/"


def _about(route: PageRoute) -> str:
    told = None if route.handler is None else route.handler.__doc__
    return (told or "A stream of what is new (Server-Sent Events).").partition("\n")[0]


def asgi(app: App, *, authorize: Authorize, settings: Settings | None = None) -> PageApp:
    """Serve the page of a store inside a program of yours: `api.mount("/holdfast", asgi(app, authorize=who))`.

    `authorize(scope)` returns who asks, a `Person`, or None. It is required: all who reach your program reach this.
    """
    if not callable(authorize):
        raise WebOpen(
            "asgi() needs authorize=: without it, everyone who reaches your program could act on tasks",
            hint="give a function that returns a holdfast.web.Person, or None to refuse",
        )
    site = Site(app, settings or Settings(login="host", namespace=app.namespace), None)
    return PageApp(site, Gate(None, authorize, None))


class PageApp:
    """An ASGI 3 app. It needs no lifespan, and keeps nothing outside of itself."""

    def __init__(self, site: Site, gate: Gate, routes: Iterable[PageRoute] | None = None) -> None:
        self.site = site
        self._gate = gate
        self._patterns = _PATTERNS if routes is None else _patterns(routes)
        self._readers: CapacityLimiter | None = None
        self._feeds = Feeds(site)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        try:
            answer = await self._answered(scope, Request(scope, receive))
        except Denied as denied:
            answer = _problem(denied.status, denied.code, denied.detail, denied.hint, denied.details)
        except HoldfastError as error:
            answer = _problem(status_of(error), error.code, error.message, error.hint, error.details)
        except OverflowError as error:
            answer = _problem(400, "invalid-value", f"a number is larger than any there can be: {error}", "", {})
        except Exception as error:
            answer = _problem(
                500, "unexpected", f"{type(error).__name__} in the page", "holdfast ui --debug shows it", {}
            )
            if self.site.settings.debug:
                raise
        answer.headers[VERSION] = page.version_of_files()
        for name, value in page.HEADERS.items():
            answer.headers.setdefault(name, value)
        await answer(scope, receive, send)

    async def _answered(self, scope: Scope, request: Request) -> Response:
        base, parts = _parts(scope)
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        route, at, others = _found(self._patterns, method, parts)
        is_shell = route is not None and route.handler is None and not route.path.startswith((API, _FILES))
        right = "look" if route is None else route.right
        person = self._gate.person(scope, right, is_shell=is_shell, now=time.monotonic())
        if route is None:
            if others:
                raise Denied(405, "not-allowed", "There is no such method here.")
            raise Denied(404, "not-found", "There is nothing here.", "See /api/v1/openapi.json")
        if route.path.startswith(_FILES):
            return _asset(at, packs=_takes_gzip(request))
        if is_shell:
            body = page.shell(base, self.site.settings.login, __version__)
            return Response(body, media_type="text/html; charset=utf-8", headers={"cache-control": "no-cache"})
        call = await self._call(scope, request, person or ANYONE, at, route.path)
        if route.handler is None:
            return self._stream(request, call)
        return await self._handled(route.handler, call, request)

    async def _call(self, scope: Scope, request: Request, person: Person, at: dict[str, str], path: str) -> PageCall:
        query = parse_qs(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True, max_num_fields=200)
        body = b"" if scope["method"] in ("GET", "HEAD") else await _body(request)
        key = request.headers.get("idempotency-key", "")[:200]
        return PageCall(self.site, person, at, query, body, key, path)

    async def _handled(self, handler: Handler, call: PageCall, request: Request) -> Response:
        if self._readers is None:
            self._readers = CapacityLimiter(READERS)
        found = await to_thread.run_sync(handler, call, limiter=self._readers)
        if isinstance(found, Download):
            shown = {"content-disposition": f'attachment; filename="{found.name}"', "cache-control": "no-store"}
            left = iter(found.body)
            first = await to_thread.run_sync(_some, left, limiter=self._readers)  # an error comes before it begins
            return StreamingResponse(_read(first, left), media_type=found.kind, headers=shown)
        headers = {"cache-control": "no-store"}
        if found.etag:
            headers = {"cache-control": "no-cache", "etag": f'"{quote(found.etag)}"'}
            if request.headers.get("if-none-match") == headers["etag"]:
                return Response(status_code=304, headers=headers)
        body = values.dump(found.body)
        if len(body) >= PACKED_FROM_BYTES and _takes_gzip(request):
            body = await to_thread.run_sync(_packed, body)
            headers["content-encoding"] = "gzip"
        return Response(body, found.status, headers, "application/json")

    def _stream(self, request: Request, call: PageCall) -> Response:
        who = request.headers.get("authorization", call.person.id)
        self._feeds.check(who)
        last = request.headers.get("last-event-id", "")
        if "id" in call.at:
            after = int(last) if last.isascii() and last.isdigit() and len(last) < 19 else call.number("after", 0)
            parts = self._feeds.task(who, call.at["id"], after)
        else:
            parts = self._feeds.tasks(who, last or call.text("after"))
        shown = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return _EventStream(parts, media_type="text/event-stream", headers=shown)


class _EventStream(StreamingResponse):
    """Frames for as long as the client listens, on any server.

    Some servers say that they follow version 2.4 of ASGI, and raise nothing when a frame goes to a client that has
    left. Below that version the response asks the server whether the client is there.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asking = {**scope, "asgi": {**scope.get("asgi", {}), "spec_version": "2.3"}}
        async with aclosing(cast("AsyncGenerator[bytes, None]", self.body_iterator)):
            await super().__call__(asking, receive, send)


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


async def _read(part: bytes, left: Iterator[bytes]) -> AsyncIterator[bytes]:
    """The parts of a file after the first one, read in a thread a batch at a time."""
    while part:
        yield part
        part = await to_thread.run_sync(_some, left)


def _some(left: Iterator[bytes]) -> bytes:
    return b"".join(islice(left, PARTS_AT_ONCE))


def _packed(body: bytes) -> bytes:
    return gzip.compress(body, PACKING_LEVEL, mtime=0)


async def _body(request: Request) -> bytes:
    """The body of an act, up to a megabyte."""
    found = b""
    async for part in request.stream():
        found += part
        if len(found) > MOST_BODY_BYTES:
            raise Denied(413, "too-large", "The body is larger than a megabyte.")
    return found


# Which route


def _parts(scope: Scope) -> tuple[str, list[str]]:
    """Where the page is mounted, and the parts of the path after that, each decoded once."""
    root = quote(scope.get("root_path", ""))
    raw = scope.get("raw_path") or quote(scope["path"]).encode()
    path = raw.decode("latin-1").partition("?")[0].removeprefix(root)
    return root, [unquote(part, errors="replace") for part in path.removeprefix("/").split("/")]


def _found(patterns: Patterns, method: str, parts: list[str]) -> tuple[PageRoute | None, dict[str, str], bool]:
    """The route of a path, what its names stand for, and whether the path has another method."""
    others = False
    for route, pattern in patterns:
        if len(pattern) != len(parts):
            continue
        at = {want[1:-1]: part for want, part in zip(pattern, parts, strict=True) if want.startswith("{")}
        if all(want.startswith("{") or want == part for want, part in zip(pattern, parts, strict=True)):
            if route.method == method:
                return route, at, False
            others = True
    return None, {}, others


def _patterns(routes: Iterable[PageRoute]) -> Patterns:
    return [(route, route.path.lstrip("/").split("/")) for route in routes]


_PATTERNS = _patterns(ROUTES)


def _takes_gzip(request: Request) -> bool:
    told = request.headers.get("accept-encoding", "").lower().split(",")
    return "gzip" in {one.strip() for one in told}


def _asset(at: dict[str, str], *, packs: bool) -> Response:
    """A file of the front end. Its name holds a hash, so it may be kept for ever; an old page must load anew."""
    found = page.assets().get(at["name"])
    if found is None:
        raise Denied(404, "not-found", "There is no such file.")
    kept = page.FOR_EVER if at["version"] == page.version_of_files() else "no-cache"
    headers = {"content-type": found.kind, "cache-control": kept}
    if found.packed is None:
        return Response(found.body, headers=headers)
    headers["vary"] = "accept-encoding"
    if packs:
        return Response(found.packed, headers={**headers, "content-encoding": "gzip"})
    return Response(found.body, headers=headers)


# Errors

_STATUS: tuple[tuple[type[HoldfastError], int], ...] = (
    (errors.InvalidValue, 400),
    (errors.NotSerializable, 400),
    (errors.TaskNotFound, 404),
    (errors.TaskCollected, 410),
    (errors.StepNotFound, 404),
    (errors.SeqOutOfRange, 404),
    (errors.SelfApproval, 403),
    (errors.StoreReadOnly, 403),
    (errors.StoreError, 503),
    (errors.LogCorrupt, 500),
    (errors.ValueDamaged, 500),
    (errors.UnknownEvent, 500),
)


def status_of(error: HoldfastError) -> int:
    """Return the status of an error. What another writer did first is a conflict."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 409)


def _problem(status: int, code: str, detail: str, hint: str, details: dict[str, Any]) -> Response:
    """An error as RFC 9457 has it, with our code and remedy."""
    plain = {name: value for name, value in details.items() if isinstance(value, str | int | float | bool | None)}
    told = {"type": f"errors/{code}", "code": code, "title": code.replace("-", " "), "status": status}
    words = {"detail": in_commands(detail), "hint": in_commands(hint, details.get("id"))}
    body = values.dump({**told, **words, "details": plain})
    return Response(body, status, {"cache-control": "no-store"}, "application/problem+json")
