"""URIs of what is served: `state://agents/{agent}/tasks/{task}` and what lies below it. Ids are percent-encoded."""

from __future__ import annotations

from typing import Literal, NamedTuple
from urllib.parse import parse_qsl, quote, unquote

from holdfast.core.errors import InvalidValue

SCHEME = "state://"
TASK = SCHEME + "agents/{agent}/tasks/{task}"
TEMPLATES = {
    TASK + "{?path,offset}": ("task", "A task as it is now: state, plan, facts, artifacts, what it waits for."),
    TASK + "/at/{seq}": ("task-at", "A task as it was just after an event."),
    TASK + "/log{?after,limit}": ("log", "A task's events in order, oldest first."),
    TASK + "/artifacts/{id}{?path,offset}": ("artifact", "Something the agent made, with its data."),
    SCHEME + "threads/{thread}{?after,limit}": ("thread", "A conversation that spans tasks."),
}
"""Each template, its name and what it gives."""

USER_TEMPLATES = {SCHEME + "users/{user}": ("user", "What is remembered of a person.")}

Kind = Literal["task", "at", "log", "artifact", "thread", "user"]
_SHAPES: dict[tuple[str, ...], Kind] = {
    ("agents", "", "tasks", ""): "task",
    ("agents", "", "tasks", "", "log"): "log",
    ("agents", "", "tasks", "", "at", ""): "at",
    ("agents", "", "tasks", "", "artifacts", ""): "artifact",
    ("threads", ""): "thread",
    ("users", ""): "user",
}
"""The parts of each address; an empty one stands for an id."""

_QUERIES: dict[Kind, tuple[str, ...]] = {
    "task": ("path", "offset"),
    "artifact": ("path", "offset"),
    "log": ("after", "limit"),
    "thread": ("after", "limit"),
}
_NUMBERS = ("after", "limit", "offset")


class Address(NamedTuple):
    """What a URI names: its kind, the ids in it, in order, and its query."""

    kind: Kind
    ids: tuple[str, ...]
    query: dict[str, str]

    def number(self, name: str, default: int) -> int:
        """A number of the query, or the default."""
        return whole_number(self.query.get(name, str(default)), name)


def task_uri(agent: str, task: str, *below: str) -> str:
    """The URI of a task, or of what lies below it.

    >>> task_uri("recap", "job/1", "at", "7")
    'state://agents/recap/tasks/job%2F1/at/7'
    """
    return SCHEME + "/".join(quote(part, safe="") for part in ("agents", agent, "tasks", task, *below))


def thread_uri(thread: str) -> str:
    """The URI of a thread."""
    return f"{SCHEME}threads/{quote(thread, safe='')}"


def user_uri(user: str) -> str:
    """The URI of a user."""
    return f"{SCHEME}users/{quote(user, safe='')}"


def parse(uri: str) -> Address:
    """Read a URI; what is not one of ours is refused."""
    if not uri.startswith(SCHEME):
        raise InvalidValue(f"{uri!r} is not a resource of Holdfast", hint=f"use {TASK}")
    path, _, asked = uri.removeprefix(SCHEME).partition("?")
    parts = path.split("/")
    for shape, kind in _SHAPES.items():
        if len(shape) == len(parts) and all(want in ("", part) for want, part in zip(shape, parts, strict=True)):
            ids = tuple(unquote(part) for want, part in zip(shape, parts, strict=True) if not want)
            if all(ids):
                return Address(kind, ids, _query(kind, asked, uri))
    raise InvalidValue(f"{uri!r} is not a resource of Holdfast", hint=f"use {TASK}; resources/templates/list has all")


def _query(kind: Kind, asked: str, uri: str) -> dict[str, str]:
    query = dict(parse_qsl(asked, keep_blank_values=True))
    for name, value in query.items():
        if name not in _QUERIES.get(kind, ()):
            raise InvalidValue(f"{uri!r} takes no {name!r}", hint="resources/templates/list has what each one takes")
        if name in _NUMBERS:
            whole_number(value, name)
    return query


def whole_number(text: str, name: str) -> int:
    """A number from a URI: digits only, and not so many that reading them takes time."""
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise InvalidValue(f"{name}={text!r} is not a whole number", hint="give 0 or more")
    return int(text)
