"""Retries: how often to try, how long to wait in between, and what an error says about another attempt.

An error is read by what clients of all kinds put there: an HTTP status, the headers of the response, the class of a
connection that was never made. Nothing is imported for that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import force_setattr

from holdfast.core import limits
from holdfast.core.durations import Duration, seconds
from holdfast.core.errors import InvalidValue, NotDone


class Retry(Struct, frozen=True, omit_defaults=True, gc=False):
    """How often to try, and how long to wait in between: 1 s, 2 s, 4 s …, never after the last attempt.

    `first` and `most` are the shortest and the longest wait, in seconds or as text: "500ms".

    >>> [Retry(5, most=5).delay(attempt) for attempt in (1, 2, 3, 4)]
    [1.0, 2.0, 4.0, 5.0]
    """

    attempts: int = 3
    first: Duration = 1.0
    factor: float = 2.0
    most: Duration = 60.0
    jitter: float = 0.0

    def delay(self, attempt: int, chance: float = 0.5) -> float:
        """Seconds to wait after this attempt. With jitter, a part of it is random (`chance`, 0 to 1)."""
        first, most = cast("float", self.first), cast("float", self.most)  # they were made numbers
        whole = min(most, first * self.factor ** min(attempt - 1, 63))
        return whole * (1 - self.jitter + self.jitter * chance) if self.jitter else whole

    def __post_init__(self) -> None:
        counts = type(self.attempts) is int and self.attempts >= 1
        grows = _is_number(self.factor) and self.factor >= 1
        if not (counts and grows and _is_number(self.jitter) and 0 <= self.jitter <= 1):
            raise InvalidValue(
                f"{self!r} cannot be followed", hint="1 attempt or more, factor 1 or more, jitter 0 to 1"
            )
        force_setattr(self, "first", seconds(self.first, "first"))
        force_setattr(self, "most", seconds(self.most, "most"))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


ONCE_ONLY = Retry(attempts=1)
"""No second try."""


PERMANENT = frozenset((400, 401, 402, 403, 404, 405, 410, 413, 422))
"""HTTP statuses that every other attempt would get too."""

LOST_ON_THE_WAY = frozenset((408, 499, 502, 504))
"""HTTP statuses of requests that may have been carried out: a server in between waited for the answer in vain."""

NOT_CONNECTED = frozenset(
    ("ConnectionRefusedError", "ConnectError", "ConnectTimeout", "ConnectTimeoutError", "NewConnectionError")
    + ("ClientConnectorError", "NameResolutionError", "gaierror")
)
"""Classes of errors that mean that no connection was made, so that nothing was sent."""


def due_us(retry: Retry, attempt: int, now_us: int, error: BaseException | None = None) -> int:
    """Return when the attempt after this one is due: by the policy, and not before the destination asked for it."""
    # Core draws nothing at random: the clock's microseconds stand in for it, and the time is recorded.
    delay = retry.delay(attempt, (now_us % 1009) / 1009)
    asked = 0.0 if error is None else wait_asked_for(error, now_us / 1_000_000)
    return now_us + int(max(delay, asked) * 1_000_000)


def is_refusal(error: BaseException) -> bool:
    """Return whether an error means that a request was refused, or never sent: it did nothing, and cost nothing."""
    for one in _causes(error):
        status = _status(one)
        if isinstance(one, NotDone) or (status is not None and status not in LOST_ON_THE_WAY):
            return True
        if not NOT_CONNECTED.isdisjoint(cls.__name__ for cls in type(one).__mro__):
            return True
    return False


def is_permanent(error: BaseException) -> bool:
    """Return whether another attempt would be refused too."""
    return any(_status(one) in PERMANENT for one in _causes(error))


def wait_asked_for(error: BaseException, now: float) -> float:
    """Return how many seconds the destination asked to wait (`Retry-After`), up to a limit; 0 if it did not.

    >>> wait_asked_for(NotDone(retry_after="2"), 0.0), wait_asked_for(NotDone(retry_after="soon"), 0.0)
    (2.0, 0.0)
    >>> wait_asked_for(NotDone(retry_after="Thu, 01 Jan 1970 00:01:30 GMT"), 60.0)
    30.0
    """
    found = (_asked(one, now) for one in _causes(error))
    asked = next((one for one in found if one is not None), 0.0)
    return min(max(asked, 0.0), limits.MAX_RETRY_AFTER_SECONDS)


def seconds_asked(told: object, now: float) -> float:
    """Read a `Retry-After` header, as seconds from now; 0 if it has none."""
    return max(0.0, _seconds(told, now) or 0.0)


def _asked(error: BaseException, now: float) -> float | None:
    if isinstance(error, NotDone):
        return _seconds(error.retry_after, now)
    headers: Any = getattr(getattr(error, "response", error), "headers", None)
    if not hasattr(headers, "get"):
        return None
    milliseconds = _seconds(_header(headers, "Retry-After-Ms"), now)
    if milliseconds is not None:
        return milliseconds / 1_000
    sent_at = _date(_header(headers, "Date"))  # a date is compared with the destination's clock, if it tells the time
    return _seconds(_header(headers, "Retry-After"), now if sent_at is None else sent_at)


def _header(headers: Any, name: str) -> object:
    """A header, however it is written: clients have mappings of their own, or plain dicts."""
    told = headers.get(name)
    if told is not None or not isinstance(headers, Mapping):
        return told
    written = cast("Mapping[object, object]", headers)
    return next((value for key, value in written.items() if str(key).lower() == name.lower()), None)


def _seconds(told: object, now: float) -> float | None:
    """Read a header's number or date, as seconds from now; None if it is neither."""
    try:
        return float(told)  # pyright: ignore[reportArgumentType] — what can't be a number raises
    except (TypeError, ValueError):
        date = _date(told)
        return None if date is None else date - now


def _date(told: object) -> float | None:
    from email.utils import parsedate_to_datetime  # few errors carry a date, and it costs 10 ms to import

    try:
        return parsedate_to_datetime(told).timestamp() if isinstance(told, str) else None
    except (ValueError, OverflowError):
        return None


def _status(error: BaseException) -> int | None:
    """The HTTP status that an error carries, if it is one of an error."""
    response = getattr(error, "response", None)
    found = (getattr(one, name, None) for one in (error, response) for name in ("status_code", "status", "code"))
    numbers = (int(one) for one in found if isinstance(one, int))  # http.HTTPStatus is one, too
    return next((one for one in numbers if 400 <= one < 600), None)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error and what it was raised from."""
    one: BaseException | None = error
    for _ in range(limits.MAX_CAUSES):
        if one is None:
            return
        yield one
        one = one.__cause__
