"""What a handler is given and may answer with, the bodies of acts, and the description of the API made of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeVar

from msgspec import UNSET, Struct, UnsetType

from holdfast import App
from holdfast.core.errors import InvalidValue
from holdfast.engine.reading import values
from holdfast.web.access.gate import Person, Right
from holdfast.web.requests.site import Site

T = TypeVar("T")

MOST_ROWS = 500
MOST_EVENTS = 5_000
MOST_DEEP = 64


class PageCall(Struct, frozen=True):
    """A request that may be answered: by whom, where, and what it asks for."""

    site: Site
    person: Person
    at: Mapping[str, str]
    query: Mapping[str, list[str]]
    body: bytes = b""
    key: str = ""
    """The request's Idempotency-Key: an act with the same key is done once."""
    path: str = ""
    """The path of its route."""

    @property
    def asked(self) -> str:
        """What it asks for, in short: two requests of one key must ask for the same."""
        return values.fingerprint([self.path, sorted(self.at.items()), self.body.decode("utf-8", "replace")])

    @property
    def app(self) -> App:
        """The store."""
        return self.site.app

    def text(self, name: str, default: str = "") -> str:
        """Return a parameter of the query; the last one, if it is there twice."""
        return self.query.get(name, [default])[-1]

    def number(self, name: str, default: int | None = None, *, least: int = 0, most: int = values.MAX_SEQ) -> int:
        """Return a parameter that is a whole number."""
        given = self.text(name)
        if not given and default is not None:
            return default
        if not given.isascii() or not given.isdigit() or len(given) > 19 or not least <= int(given) <= most:
            raise InvalidValue(f"{name}={given!r} is not a number from {least} to {most}", hint="give a whole number")
        return int(given)

    def read(self, shape: type[T]) -> T:
        """Return the body as what an act takes; what does not fit is refused."""
        if is_deeper(self.body, MOST_DEEP):
            raise InvalidValue(f"the body is nested deeper than {MOST_DEEP}", hint="give flatter JSON")
        try:
            return values.load(self.body, shape)
        except (ValueError, RecursionError) as error:
            raise InvalidValue(f"the body does not fit: {error}", hint="see /api/v1/openapi.json") from None


def is_deeper(body: bytes, most: int) -> bool:
    """Return whether JSON has more than so many objects and lists inside each other. Those in strings don't count."""
    depth = 0
    for one in _BRACKETS_OR_TEXT.findall(body):
        depth += 1 if one in b"[{" else -1 if one in b"]}" else 0
        if depth > most:
            return True
    return False


_BRACKETS_OR_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]')


class PageAnswer(Struct, frozen=True):
    """What a handler returns: a document, and what identifies it, for If-None-Match."""

    body: Any
    etag: str = ""
    status: int = 200


class Download(Struct, frozen=True):
    """What a handler returns instead of JSON: bytes to be saved, never shown by the browser."""

    body: Iterable[bytes]
    name: str
    kind: str = "text/plain; charset=utf-8"


Handler = Callable[[PageCall], PageAnswer | Download]


# Bodies of acts


class Act(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What every act takes: why it is done, and the seq that was seen, if it is to be refused after another."""

    why: str = ""
    expect: int | None = None


class AnswerAct(Act, frozen=True):
    """Answer a question: by its key, with a value."""

    question: str
    value: Any


class ApprovalAct(Act, frozen=True):
    """Approve or reject a call. `bound` is the digest of what the person saw."""

    call: str
    bound: str
    expires: str | None = None


class ReconcileAct(Act, frozen=True):
    """Ask the destination of a call in doubt once more."""

    call: str


class StartAct(Act, frozen=True):
    """Start a task of an agent that this page knows; workers take it."""

    agent: str
    input: dict[str, Any] = {}
    id: str | None = None
    user: str | None = None
    thread: str | None = None
    queue: str = "default"
    deadline: str | None = None


class SettleAct(Act, frozen=True):
    """Record whether a call in doubt happened, and its result."""

    call: str
    happened: bool
    result: Any = None


class BudgetAct(Act, frozen=True):
    """Allow a task more."""

    limits: dict[str, int | float | str]


class PlainAct(Act, frozen=True):
    """Cancel or resume a task."""


class ResumeAct(PlainAct, frozen=True):
    """Make a task pending for workers. `deadline`: a new one, from now. `anyway`: though its log has lost events."""

    deadline: str | None = None
    anyway: bool = False


class RollbackAct(Act, frozen=True):
    """Take a task back: to a seq or a checkpoint, or by steps."""

    to: int | str | None = None
    steps: int = 1


class SignalAct(Act, frozen=True):
    """Send a signal."""

    name: str
    value: Any = None


class PatchAct(Act, frozen=True):
    """Change what a task knows."""

    patch: dict[str, Any]


class ForkAct(Act, frozen=True):
    """Begin a new task whose past is this one's."""

    at: int | None = None
    id: str | None = None
    patch: dict[str, Any] | UnsetType = UNSET
    effects: Literal["ask", "live", "recorded"] = "ask"


class BulkAct(Act, frozen=True):
    """Cancel or resume every task that matches a filter. `expected` is how many were shown."""

    verb: Literal["cancel", "resume"]
    q: str
    expected: int
    ids: list[str] = []
    """Instead of a filter: these tasks."""


class CodeBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A code of a link, or the key that lies beside the store."""

    code: str


# The description of the API


class Described(Struct, frozen=True):
    """A route as it is described."""

    method: str
    path: str
    right: Right
    about: str
    body: type[Any] | None = None


def openapi(routes: Iterable[Described], version: str) -> dict[str, Any]:
    """Describe the API (OpenAPI 3.1) from the table of routes and the shapes of bodies."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        names = [part[1:-1] for part in route.path.split("/") if part.startswith("{")]
        parameters: list[dict[str, Any]] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names
        ]
        told: dict[str, Any] = {
            "summary": route.about,
            "responses": {
                "200": {"description": "What was asked for."},
                "default": {"$ref": "#/components/responses/problem"},
            },
            "security": [] if route.right == "public" else [{"session": [route.right]}],
        }
        if route.body is not None:
            content = {"application/json": {"schema": values.schema(route.body)}}
            told["requestBody"] = {"required": True, "content": content}
            if route.right != "public":
                parameters.append(
                    {"name": "Idempotency-Key", "in": "header", "required": True, "schema": {"type": "string"}}
                )
        paths.setdefault(route.path, {})[route.method.lower()] = told | (
            {"parameters": parameters} if parameters else {}
        )
    problem = {
        "description": "What went wrong (RFC 9457).",
        "content": {"application/problem+json": {"schema": {"type": "object"}}},
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Holdfast", "version": version},
        "paths": paths,
        "components": {
            "securitySchemes": {"session": {"type": "http", "scheme": "bearer"}},
            "responses": {"problem": problem},
        },
    }
