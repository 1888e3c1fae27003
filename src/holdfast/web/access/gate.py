"""Who may: every request passes here before its handler, and what is not allowed is refused.

The gate is given the route that was found, so the two can't disagree about which path is meant. See decision 0080.
"""

from __future__ import annotations

import ipaddress
from collections import deque
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, Literal

from msgspec import Struct

from holdfast.web.access.sessions import Sessions

Right = Literal["public", "look", "answer", "steer", "admin"]
Scope = MutableMapping[str, Any]

RIGHTS: tuple[Right, ...] = ("look", "answer", "steer", "admin")
"""`look`: read. `answer`: questions, approvals, calls in doubt. `steer`: resume, cancel, budgets. `admin`: all else."""

MOST_ACTS_A_SECOND = 20
_READS = ("GET", "HEAD")
_SINGLE = (b"host", b"origin", b"authorization", b"content-type", b"content-length", b"sec-fetch-site")


class Person(Struct, frozen=True):
    """Who acts on the page: the name that is recorded, and what they may do."""

    id: str
    rights: tuple[str, ...] = ("look", "answer", "steer")

    def may(self, right: str) -> bool:
        """Whether they have a right."""
        return right in self.rights


Authorize = Callable[[Scope], Person | None]


class Denied(Exception):
    """A request that is refused: its status, a code for programs, what is wrong and what to do."""

    def __init__(self, status: int, code: str, detail: str, hint: str = "", **details: Any) -> None:
        super().__init__(detail)
        self.status, self.code, self.detail, self.hint, self.details = status, code, detail, hint, details


class Gate:
    """Decides about requests. Without `authorize`, people have sessions; without `hosts`, the outer server knows."""

    def __init__(self, sessions: Sessions | None, authorize: Authorize | None, hosts: frozenset[str] | None) -> None:
        self._sessions, self._authorize, self._hosts = sessions, authorize, hosts
        self._acts: dict[str, deque[float]] = {}

    def person(self, scope: Scope, right: Right, *, is_shell: bool, now: float) -> Person | None:
        """Return who asks; None where anyone may. Raises Denied for everything that is not allowed."""
        headers = _headers(scope)
        self._check_host(headers)
        self._check_origin(headers, str(scope.get("scheme", "http")))
        _check_fetch(headers, scope["method"], is_shell=is_shell)
        if scope["method"] not in _READS:
            _check_type(headers)
        if right == "public":
            return None
        person = self._known(scope, headers)
        if not person.may(right):
            hint = "The same command on the command line needs the same rights in the store."
            raise Denied(403, "not-allowed", f"{person.id or 'This person'} has no right to {right} here.", hint)
        if right != "look":
            self._check_rate(person, now)
        return person

    def _check_host(self, headers: Mapping[bytes, str]) -> None:
        host = headers.get(b"host", "")
        if self._hosts is not None and host.lower() not in self._hosts:
            raise Denied(421, "wrong-host", "This page is not served under that host name.", "Use the link it printed.")

    def _check_origin(self, headers: Mapping[bytes, str], scheme: str) -> None:
        """An origin must be this server's own. What browsers send from elsewhere, `null` too, is refused."""
        origin = headers.get(b"origin")
        if origin is None:
            return
        own = headers.get(b"host", "").lower()
        if origin.lower() not in (f"http://{own}", f"https://{own}"):
            raise Denied(403, "foreign-origin", "The request comes from another page.")

    def _known(self, scope: Scope, headers: Mapping[bytes, str]) -> Person:
        if self._authorize is not None:
            found = self._authorize(scope)
        else:
            scheme, _, token = headers.get(b"authorization", "").partition(" ")
            known = self._sessions is not None and scheme.lower() == "bearer"
            found = self._sessions.person(token.strip()) if known and self._sessions is not None else None
        if found is None:
            hint = "Open the link that holdfast ui printed, or print a new one: holdfast ui --link"
            raise Denied(401, "no-session", "There is no session, or it has ended.", hint)
        return found

    def _check_rate(self, person: Person, now: float) -> None:
        acts = self._acts.setdefault(person.id, deque(maxlen=MOST_ACTS_A_SECOND))
        if len(acts) == MOST_ACTS_A_SECOND and now - acts[0] < 1:
            raise Denied(429, "too-many-acts", f"More than {MOST_ACTS_A_SECOND} acts in a second.", "Wait a moment.")
        acts.append(now)


def _headers(scope: Scope) -> dict[bytes, str]:
    """Headers by name. One that decides something may be there once only."""
    found: dict[bytes, str] = {}
    for name, value in scope.get("headers", ()):
        if name in found and name in _SINGLE:
            raise Denied(400, "doubled-header", f"The header {name.decode('latin-1')} is there twice.")
        found.setdefault(name, value.decode("latin-1"))
    return found


def _check_fetch(headers: Mapping[bytes, str], method: str, *, is_shell: bool) -> None:
    """What a browser says of where a request comes from: this page or the person, else only a visit to the shell."""
    site = headers.get(b"sec-fetch-site")
    if site in (None, "same-origin", "none"):
        return
    visits = headers.get(b"sec-fetch-mode") == "navigate" and headers.get(b"sec-fetch-dest") == "document"
    if not (is_shell and visits and method in _READS):
        raise Denied(403, "foreign-site", "The request comes from another site.")


def _check_type(headers: Mapping[bytes, str]) -> None:
    """What a form, or a page elsewhere, can send without asking is not JSON."""
    kind = headers.get(b"content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Denied(415, "not-json", "The body must be application/json.")


def own_hosts(host: str, port: int, more: tuple[str, ...] = ()) -> frozenset[str]:
    """The names under which a page may be asked for, each with its port."""
    names = {"127.0.0.1", "localhost", "[::1]"} if is_loopback(host) else set[str]()
    if host not in ("0.0.0.0", "::"):
        names.add(f"[{host}]" if ":" in host else host.lower())
    return frozenset({f"{name}:{port}" for name in names} | {name.lower() for name in more})


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine only. A name counts as one only if it is localhost."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
