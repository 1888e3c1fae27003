"""Logging in on this machine: a link holds a code that works once; the page exchanges it for a token of its own.

Codes and tokens are kept as hashes, in this process only, and end with it. There is no cookie: nothing is sent by the
browser by itself, so nothing can be forged with it, and other ports of the machine receive nothing.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.web.access.gate import Person

CODE_SECONDS = 5 * 60
TOKEN_SECONDS = 12 * 60 * 60
MOST_CODES = 64
MOST_TOKENS = 256
LEAST_TOKEN_LENGTH = 16
"""The least that HOLDFAST_UI_TOKEN must have."""


class Sessions:
    """Codes that were given out, and the tokens they became. Safe from several threads."""

    def __init__(self, person: Person, *, fixed: str = "") -> None:
        """`fixed` is a token that people were given otherwise: it is a session of its own, also after a restart."""
        self._person, self._fixed = person, fixed
        self._lock = threading.Lock()
        self._codes: dict[str, float] = {}
        self._tokens: dict[str, float] = {}
        self.key = secrets.token_urlsafe(32)
        """What lets `holdfast ui --link` ask for a code. It lies beside the store, for its owner only."""

    def code(self) -> str:
        """Make a code that logs in once, within five minutes."""
        made = secrets.token_urlsafe(16)
        with self._lock:
            _forget(self._codes, MOST_CODES - 1)
            self._codes[_hash(made)] = time.monotonic() + CODE_SECONDS
        return made

    def exchange(self, code: str) -> str | None:
        """Use a code up; return a token, or None if the code is none, was used, or is too old."""
        with self._lock:
            if self._is_fixed(code):
                return code
            if self._codes.pop(_hash(code), 0.0) <= time.monotonic():
                return None
            token = secrets.token_urlsafe(32)
            _forget(self._tokens, MOST_TOKENS - 1)
            self._tokens[_hash(token)] = time.monotonic() + TOKEN_SECONDS
            return token

    def person(self, token: str) -> Person | None:
        """Return the person of a token; None if the token is unknown, or has ended."""
        with self._lock:
            until = self._tokens.get(_hash(token), 0.0)
        return self._person if until > time.monotonic() or self._is_fixed(token) else None

    def _is_fixed(self, given: str) -> bool:
        return bool(self._fixed) and hmac.compare_digest(_hash(given), _hash(self._fixed))

    def has_key(self, key: str) -> bool:
        """Whether it is the key that lies beside the store."""
        return hmac.compare_digest(_hash(key), _hash(self.key))


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _forget(kept: dict[str, float], most: int) -> None:
    """Drop what has ended, and the oldest beyond `most`."""
    now = time.monotonic()
    for one in [name for name, until in kept.items() if until <= now]:
        del kept[one]
    for one in list(kept)[: max(0, len(kept) - most)]:
        del kept[one]
