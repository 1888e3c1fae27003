"""A signed webhook: one HTTPS request for each new entry of the inbox. Nothing is sent unless a program asks for it.

An address that others can choose must not reach what only this machine can: the name is looked up once, the address is
checked in every form it may be written in, and the connection goes to that very address. Redirects are not followed.
A request tells which task waits, for what, and the command that helps; never prompts, arguments or results.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import http.client
import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from holdfast.core import codec, limits, retries
from holdfast.core.codec import Secret
from holdfast.core.durations import Duration, seconds
from holdfast.core.errors import HoldfastError, InvalidValue
from holdfast.core.retries import Retry
from holdfast.engine.notices.watch import Notice
from holdfast.engine.reading.steps import iso

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class NotDelivered(HoldfastError):
    """A webhook did not take a notice. The entry stays in the inbox."""

    code = "not-delivered"

    def __init__(
        self, why: str, *, status: int | None = None, permanent: bool = False, retry_after: Any = None
    ) -> None:
        super().__init__(why, hint="the entry is in the inbox: holdfast inbox", status=status)
        self.permanent = permanent
        self.retry_after = retry_after


def is_public(address: Address) -> bool:
    """Return whether an address is one of the public internet, also the IPv4 address that an IPv6 address stands for.

    >>> [is_public(ipaddress.ip_address(one)) for one in ("93.184.215.14", "10.0.0.1", "::ffff:127.0.0.1", "fe80::1")]
    [True, False, False, False]
    """
    inside = _inside(address)
    if inside is not None:
        return is_public(inside)
    odd = address.is_multicast or address.is_reserved or address.is_unspecified or address.is_link_local
    return address.is_global and not (odd or address.is_private or address.is_loopback)


def _inside(address: Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address that an IPv6 address carries: mapped, compatible, 6to4, Teredo or NAT64."""
    if isinstance(address, ipaddress.IPv4Address):
        return None
    teredo = address.teredo
    known = address.ipv4_mapped or address.sixtofour or (None if teredo is None else teredo[1])
    if known is not None:
        return known
    low = ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return low if any(address in net for net in _CARRIERS) and int(address) > 1 else None


_CARRIERS = tuple(map(ipaddress.IPv6Network, ("::/96", "64:ff9b::/96", "64:ff9b:1::/48")))


class Webhook:
    """Where notices are sent: `holdfast.open(…, webhook=Webhook("https://hooks.example.com/holdfast", secret))`."""

    def __init__(
        self,
        url: str,
        secret: str | Secret,
        *,
        timeout: Duration = limits.WEBHOOK_SECONDS,
        retry: Retry | None = None,
        certificates: str | None = None,
        _allowed: Callable[[Address], bool] = is_public,
    ) -> None:
        """`secret` signs each request: 16 characters or more, known to the receiver. `timeout`: how long one may take.

        `retry` says how often a notice is tried, 5 times by default. `certificates` is a file of authorities to trust
        instead of the system's. `_allowed` is for tests: what may be connected to.
        """
        self.host, self.port, self.path = _checked(url)
        literal = _literal(self.host)
        if literal is not None and not _allowed(literal):
            raise InvalidValue(
                f"the webhook's url names {literal}, which is not an address of the public internet",
                hint="write https://host/path, with a host that others reach",
            )
        self._secret = _checked_secret(secret)
        self.seconds = seconds(timeout, "timeout")
        if not 0 < self.seconds <= limits.MAX_WEBHOOK_SECONDS:
            most = f"{limits.MAX_WEBHOOK_SECONDS:g}"
            raise InvalidValue(
                f"timeout={timeout!r} of a webhook", hint=f"give a time of more than 0 and up to {most} s"
            )
        self.retry = Retry(attempts=5) if retry is None else retry
        if not isinstance(self.retry, Retry) or self.retry.attempts > limits.MAX_WEBHOOK_ATTEMPTS:  # pyright: ignore[reportUnnecessaryIsInstance]
            hint = f"give Retry(attempts=…) of at most {limits.MAX_WEBHOOK_ATTEMPTS}"
            raise InvalidValue(f"retry={retry!r} of a webhook", hint=hint)
        self._context = _trusting(certificates)
        self._allowed = _allowed

    def __repr__(self) -> str:
        return f"<webhook at {self.host}>"

    def deliver(self, notice: Notice, stopping: threading.Event, *, attempts: int | None = None) -> None:
        """Send a notice; try again while that may help. NotDelivered if it was not taken."""
        most = self.retry.attempts if attempts is None else attempts
        for attempt in range(1, most + 1):
            try:
                self.send(notice)
                break
            except NotDelivered as refused:
                if refused.permanent or attempt == most:
                    raise
                asked = min(retries.seconds_asked(refused.retry_after, time.time()), limits.MAX_WEBHOOK_SECONDS)
                if stopping.wait(max(self.retry.delay(attempt), asked)):
                    raise

    def send(self, notice: Notice) -> None:
        """Send a notice once, within the time there is; NotDelivered if it was not taken."""
        request = _Request(self, notice)
        thread = threading.Thread(target=request.make, name="holdfast-webhook", daemon=True)
        thread.start()
        thread.join(self.seconds)
        request.give_up(f"{self.host} took longer than {self.seconds:g} s")
        if request.failed is not None:
            raise request.failed

    def signed(self, body: bytes, at: int) -> dict[str, str]:
        """The headers of a request: what it is, when it was made, and the signature of both."""
        return {
            "Content-Type": "application/json",
            "User-Agent": "holdfast",
            TIMESTAMP: str(at),
            SIGNATURE: f"v1={signature(self._secret, body, at)}",
        }

    def addresses(self) -> list[str]:
        """Look the name up, once. If any of its addresses is not allowed, none is."""
        try:
            found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise NotDelivered(f"{self.host} was not found: {error}") from None
        named = [str(one[4][0]) for one in found]
        for one in named:
            if not self._allowed(ipaddress.ip_address(one.partition("%")[0])):
                told = f"{self.host} is at {one}, which is not an address of the public internet; nothing was sent"
                raise NotDelivered(told, permanent=True)
        return named

    def proven(self, link: socket.socket) -> ssl.SSLSocket:
        """Encrypt a connection, and have the server prove that it has the name."""
        return self._context.wrap_socket(link, server_hostname=self.host)


class _Request:
    """One request in a thread of its own: whatever hangs, the waiting thread continues in time."""

    def __init__(self, hook: Webhook, notice: Notice) -> None:
        self._hook = hook
        self._body = codec.dump(told(notice))
        self._lock = threading.Lock()
        self._link: socket.socket | None = None
        self._over = False
        self.failed: NotDelivered | None = None

    def make(self) -> None:
        """Look up, connect, send, and read what came of it."""
        try:
            with self._connected(time.monotonic() + self._hook.seconds) as link, self._hook.proven(link) as proven:
                self._post(proven)
        except NotDelivered as error:
            self._end(error)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._end(NotDelivered(f"{self._hook.host} could not be reached: {error or type(error).__name__}"))
        else:
            self._end(None)

    def _post(self, link: ssl.SSLSocket) -> None:
        hook = self._hook
        host = f"[{hook.host}]" if ":" in hook.host else hook.host
        connection = http.client.HTTPConnection(hook.host, hook.port)
        connection.sock = link
        headers = {"Host": host if hook.port == 443 else f"{host}:{hook.port}", "Connection": "close"}
        connection.request("POST", hook.path, self._body, headers | hook.signed(self._body, int(time.time())))
        with contextlib.closing(connection.getresponse()) as response:
            _refuse(hook.host, response.status, response.getheader("Retry-After"))

    def _connected(self, until: float) -> socket.socket:
        """Connect to the very addresses that were checked, one after the other."""
        last: OSError | None = None
        for address in self._hook.addresses():
            try:
                link = socket.create_connection((address, self._hook.port), max(0.001, until - time.monotonic()))
            except OSError as error:
                last = error
                continue
            with self._lock:
                self._link = link
                if self._over:
                    link.close()
            return link
        raise last or OSError("it has no address")

    def _end(self, error: NotDelivered | None) -> None:
        with self._lock:
            if not self._over:
                self._over, self.failed = True, error

    def give_up(self, why: str) -> None:
        """End it, if it has not ended by itself."""
        with self._lock:
            if self._over:
                return
            self._over, self.failed = True, NotDelivered(why)
            if self._link is not None:
                with contextlib.suppress(OSError):
                    self._link.shutdown(socket.SHUT_RDWR)


TIMESTAMP, SIGNATURE = "Holdfast-Timestamp", "Holdfast-Signature"


def signature(secret: str, body: bytes, at: int) -> str:
    """The HMAC-SHA256, in hexadecimal, of `timestamp.body`: what a receiver compares.

    >>> signature("0123456789abcdef", b"{}", 1_700_000_000)[:16]
    'e4f8e2ecae2295b2'
    """
    return hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()


def told(notice: Notice) -> dict[str, Any]:
    """Return the body of a request: which task waits, for what, since when, and the command that helps."""
    item = notice.item
    return {
        "id": notice.id,
        "type": "inbox",
        "task": item.task,
        "agent": item.agent,
        "kind": item.kind,
        "key": item.key,
        "tool": item.tool,
        "since": iso(item.since_us),
        "until": None if item.until_us is None else iso(item.until_us),
        "command": item.command,
    }


def _refuse(host: str, status: int, retry_after: str | None) -> None:
    """Read an answer: only 2xx means that the notice was taken."""
    if 200 <= status < 300:
        return
    if 300 <= status < 400:
        raise NotDelivered(f"{host} answered {status}: redirects are not followed", status=status, permanent=True)
    permanent = 400 <= status < 500 and status not in (408, 425, 429)
    raise NotDelivered(f"{host} answered {status}", status=status, permanent=permanent, retry_after=retry_after)


def _checked(url: str) -> tuple[str, int, str]:
    """The host, the port and the path of an address, if it is one that notices may be sent to."""
    wrong = ""
    try:
        parts = urlsplit(url)
        port = 443 if parts.port is None else parts.port
    except (ValueError, AttributeError, TypeError):
        raise InvalidValue("the webhook's url is not understood", hint="write https://host/path") from None
    if parts.scheme != "https":
        wrong = "is not https"
    elif not parts.hostname:
        wrong = "has no host"
    elif parts.username is not None or parts.password is not None:
        wrong = "holds a user name or a password"
    elif port == 0:
        wrong = "has the port 0"
    elif parts.fragment or any(not 32 < ord(one) < 127 for one in url):
        wrong = "holds what can't be sent"
    if wrong:  # the url itself is not shown: it may hold a token
        raise InvalidValue(f"the webhook's url {wrong}", hint="write https://host/path")
    return parts.hostname or "", port, (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


def _literal(host: str) -> Address | None:
    """The address that a host is, in any of the forms that sockets take; None if it is a name."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host.partition("%")[0])
    with contextlib.suppress(OSError):
        return ipaddress.IPv4Address(socket.inet_aton(host))  # 127.1, 0x7f.1 and 2130706433 are the same
    return None


def _checked_secret(secret: Any) -> str:
    value = codec.reveal(secret)
    if not isinstance(value, str) or len(value.strip()) < limits.WEBHOOK_SECRET_LENGTH:
        raise InvalidValue(
            "a webhook needs a secret to sign with",
            hint=f"give {limits.WEBHOOK_SECRET_LENGTH} characters or more: secrets.token_hex() makes one",
        )
    return value


def _trusting(certificates: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=certificates)
    except (OSError, TypeError) as error:
        raise InvalidValue(
            f"certificates={certificates!r} can't be read: {error}", hint="give a file of PEM certificates"
        ) from None
