"""Where traces and metrics go: an OTLP collector over HTTP, and what becomes of what it does not take.

Nothing here blocks a task: it is called by the background thread alone. What can't be sent now is kept up to a limit;
what goes beyond it is dropped and counted.
"""

from __future__ import annotations

import http.client
import os
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Literal
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from holdfast.core import limits
from holdfast.core.errors import InvalidValue
from holdfast.core.traces.span import Attributes
from holdfast.core.urls import shown
from holdfast.engine.telemetry import encoding

Signal = Literal["traces", "metrics"]

_LATER = (429, 502, 503, 504)
"""Answers after which OTLP says to try again. All others are final."""


class Otlp(Struct, frozen=True, kw_only=True):
    """An OTLP collector, and what is sent to it.

    `endpoint`: its base address. Default: OTEL_EXPORTER_OTLP_ENDPOINT, else http://localhost:4318. `headers` are sent
    with each request, beside those of OTEL_EXPORTER_OTLP_HEADERS. `content`: whether arguments, results, prompts and
    texts of errors are sent too. Default False. `timeout`: how many seconds one request may take. `service`: the name
    of your program. Default: OTEL_SERVICE_NAME, else holdfast.
    """

    endpoint: str = ""
    headers: Mapping[str, str] = {}
    content: bool = False
    timeout: float = limits.OTLP_TIMEOUT_SECONDS
    service: str = ""

    def __post_init__(self) -> None:
        for name, kinds in (("endpoint", str), ("content", bool), ("service", str), ("headers", Mapping)):
            if not isinstance(getattr(self, name), kinds):
                raise InvalidValue(f"{name}={getattr(self, name)!r} is not a {kinds.__name__}", hint="see Otlp")
        if not all(isinstance(one, str) for pair in self.headers.items() for one in pair):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidValue("headers of Otlp are not texts", hint='give headers={"authorization": "Bearer …"}')
        if isinstance(self.timeout, bool) or not isinstance(self.timeout, int | float) or not 0 < self.timeout <= 300:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidValue(f"timeout={self.timeout!r} is not a number of seconds", hint="give 0.1 to 300")
        if self.endpoint:
            _checked(self.endpoint, "endpoint")

    def url(self, signal: Signal) -> str:
        """Return where a signal is sent: an address of its own in the environment is taken as it is."""
        own = os.environ.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT", "")
        if own and not self.endpoint:
            return _checked(own, f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT")
        base = self.endpoint or _checked(
            os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "") or limits.OTLP_ENDPOINT, "OTEL_EXPORTER_OTLP_ENDPOINT"
        )
        return f"{base.rstrip('/')}/v1/{signal}"

    @property
    def shown(self) -> str:
        """Where traces are sent, without a password."""
        return shown(self.url("traces"))

    def resource(self) -> Attributes:
        """Return the attributes of this program: OTEL_RESOURCE_ATTRIBUTES, and its name."""
        told: Attributes = dict(_pairs(os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")))
        name = self.service or os.environ.get("OTEL_SERVICE_NAME", "")
        if name or "service.name" not in told:
            told["service.name"] = name or "holdfast"
        return told

    def all_headers(self) -> dict[str, str]:
        """Return the headers of a request."""
        given = {**_pairs(os.environ.get("OTEL_EXPORTER_OTLP_HEADERS", "")), **self.headers}
        return {**given, "Content-Type": "application/x-protobuf"}


def as_otlp(given: bool | Otlp, name: str) -> Otlp | None:
    """Read `traces=` or `metrics=`; refuse what can't be sent before anything is opened."""
    if isinstance(given, Otlp):
        found = given
    elif isinstance(given, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
        found = Otlp() if given else None
    else:
        raise InvalidValue(f"{name}={given!r} is neither a bool nor an Otlp", hint=f"give {name}=True, or Otlp(…)")
    protocol = os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    if found is not None and protocol != "http/protobuf":
        raise InvalidValue(
            f"OTEL_EXPORTER_OTLP_PROTOCOL={protocol}: Holdfast sends by http/protobuf",
            hint="unset it; a collector takes HTTP at port 4318",
        )
    return found


def _checked(url: str, what: str) -> str:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise InvalidValue(f"{what}={shown(url)!r}: {error}", hint="give http://host:4318") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidValue(f"{what}={shown(url)!r} is not an http address", hint="give http://host:4318")
    return url


def _pairs(text: str) -> dict[str, str]:
    """Read a list as OpenTelemetry writes it: `a=b,c=d`, percent-encoded."""
    found = (one.partition("=") for one in text.split(",") if "=" in one)
    return {unquote(name.strip()): unquote(value.strip()) for name, _, value in found}


class Outbox:
    """Items of one signal on their way to a collector, in batches. Keeps so many; the oldest go first if more come."""

    def __init__(self, to: Otlp, signal: Signal) -> None:
        self.url = to.url(signal)
        self._to, self._resource = to, to.resource()
        if signal == "metrics":  # counters of two processes are two series: collectors tell them apart by this
            self._resource = {"service.instance.id": str(uuid.uuid4()), **self._resource}
        self._items: deque[bytes] = deque()
        self._next = self._pause = 0.0
        self.sent = self.dropped = self._under_way = 0
        self.trouble = ""
        """Why nothing can be sent, while that is so."""

    def __len__(self) -> int:
        return len(self._items) + self._under_way

    @property
    def shown(self) -> str:
        """Its address, without a password."""
        return shown(self.url)

    def clear(self) -> None:
        """Forget what was not sent: what comes now says the same and more."""
        self._items.clear()

    def put(self, items: Iterable[bytes]) -> None:
        """Add encoded items."""
        kept = self._items
        kept.extend(items)
        for _ in range(len(kept) - limits.OTLP_KEPT):
            kept.popleft()
            self.dropped += 1

    def send(self, is_over: Callable[[], bool], seconds: float | None = None) -> None:
        """Send what there is, unless the collector is being left alone after a failure. Takes `seconds` at the most."""
        until = None if seconds is None else time.monotonic() + seconds
        while self._items and (until is not None or time.monotonic() >= self._next) and not is_over():
            left = self._to.timeout if until is None else min(self._to.timeout, until - time.monotonic())
            if left <= 0:
                return
            batch = self._batch()
            self._under_way = len(batch)
            is_delivered = self._delivered(batch, left)
            self._under_way = 0
            if not is_delivered:
                return

    def _batch(self) -> list[bytes]:
        batch, items, size = list[bytes](), self._items, 0
        while items and len(batch) < limits.OTLP_BATCH and size < limits.OTLP_BATCH_BYTES:
            batch.append(items.popleft())
            size += len(batch[-1])
        return batch

    def give_up(self) -> None:
        """Count what was not sent as dropped."""
        self.dropped += len(self._items)
        self._items.clear()

    def _delivered(self, batch: list[bytes], seconds: float) -> bool:
        try:
            status = self._post(encoding.request(self._resource, batch), seconds)
        except (OSError, http.client.HTTPException) as error:
            return self._later(batch, f"{type(error).__name__}: {error}")
        if status in _LATER:
            return self._later(batch, f"it answered {status}")
        self._pause = self._next = 0.0
        if 200 <= status < 300:
            self.sent, self.trouble = self.sent + len(batch), ""
        else:
            self.dropped, self.trouble = self.dropped + len(batch), f"it answered {status}"
        return True

    def _later(self, batch: list[bytes], why: str) -> bool:
        """Keep a batch for another time, before what came since."""
        self.trouble = why
        self._items.extendleft(reversed(batch))
        self._pause = min(limits.OTLP_PAUSE_SECONDS, max(1.0, self._pause * 2))
        self._next = time.monotonic() + self._pause
        return False

    def _post(self, body: bytes, seconds: float) -> int:
        """Send a request; gives the status of the answer."""
        parts = urlsplit(self.url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(parts.hostname or "", parts.port, timeout=seconds)
        try:
            path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            connection.request("POST", path, body, self._to.all_headers())
            answer = connection.getresponse()
            answer.read(limits.OTLP_ANSWER_BYTES)
            return answer.status
        finally:
            connection.close()
