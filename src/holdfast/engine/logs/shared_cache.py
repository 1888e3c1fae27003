"""The tier that servers share: states and wake-ups by way of Redis.

States are written by a thread of its own, off everybody's way, and dropped if they come too fast. They are signed, they
expire, and they count only if the log confirms them. Losing Redis loses nothing and stops nothing.
"""

from __future__ import annotations

import hashlib
import hmac
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence

from msgspec import Struct

from holdfast.core import codec, limits
from holdfast.core.codec import Head
from holdfast.core.errors import HoldfastError
from holdfast.core.state.shapes import FOLD_VERSION, State
from holdfast.engine.logs.cache import Bounded, CacheCounts, Ground, Kept, Sizes
from holdfast.engine.logs.redis import RedisAddress, RedisConnection
from holdfast.store.protocol import Generation, Store


class SharedCache:
    """States that servers share, and wake-ups."""

    def __init__(self, where: RedisAddress, store: Store) -> None:
        self.counts = CacheCounts()
        self._store = store
        self._link = RedisConnection(where, self.counts)
        self._expire_ms = int(where.expire * 1000)
        self._identity = store.identity()
        self._known: Bounded[int] = Bounded(limits.CACHE_ENTRIES, limits.CACHE_ENTRIES)
        self._courier = Sender(self._carry)
        self._ears: list[RedisListener] = []
        self._born = Generation.now

    # States

    def get(self, name: str) -> Kept | None:
        """Return another server's copy of a log, if it is ours and whole; the log still has to confirm it."""
        if self._born != Generation.now:
            return None
        most = limits.CACHE_SHARED_BYTES + 1024
        found = self._link.ask(lambda redis: redis.getrange(self._key(name), 0, most), b"")
        kept = unseal(name, found, self._identity.key) if isinstance(found, bytes) and found else None
        if kept is None:
            self._known.drop(name)
            self.counts.shared_misses += 1
            return None
        self._known.put(name, kept.head.seq, 1)
        return kept

    def share(self, name: str, kept: Kept) -> None:
        """Share a state with other servers, some time soon, if the log has grown by enough since they last got one."""
        if kept.head.seq - (self._known.get(name) or 0) >= limits.CACHE_SHARE_EVENTS and self._born == Generation.now:
            self.counts.unshared += self._courier.take(name, kept)

    def drop(self, name: str) -> None:
        """Forget a state that the log does not confirm."""
        self._known.drop(name)
        self.counts.shared_dropped += 1
        self._link.ask(lambda redis: redis.delete(self._key(name)), 0)

    def forget(self, names: Sequence[str]) -> None:
        """Delete what was erased. If that is not possible now, it expires, unused: the log shows the erasure."""
        for name in names:
            self._known.drop(name)
            self._courier.withdraw(name)
        for first in range(0, len(names), limits.PAGE_SIZE):
            keys = [self._key(name) for name in names[first : first + limits.PAGE_SIZE]]
            if self._link.ask(lambda redis, keys=keys: redis.delete(*keys), None) is None:
                left = self._expire_ms // 1000
                _warn("what was erased may stay in the cache %s, unused, for up to %d s", self._link.shown, left)
                return

    def _key(self, name: str) -> str:
        return f"holdfast:{self._identity.id}:{place(name, self._identity.key)}"

    def _carry(self, wakes: Sequence[str], name: str, kept: Kept | None) -> None:
        """Bring wake-ups and a state to the server. In the courier's thread."""
        for queue in wakes:
            self._link.ask(lambda redis, queue=queue: redis.publish(self._channel, queue), 0)
        data = None if kept is None else seal(name, kept, self._identity.key)
        if kept is None or data is None:
            return
        if not self._link.ask(lambda redis: redis.set(self._key(name), data, px=self._expire_ms), False):
            self.counts.unshared += 1
            return
        self._link.said()
        self.counts.shared += 1
        self._known.put(name, kept.head.seq, 1)
        # An erasure or removal deleted the key before or after we wrote it. If before, it shows now.
        if not self._holds(name, kept):
            self.drop(name)

    def _holds(self, name: str, kept: Kept) -> bool:
        try:
            found = self._store.since(name, kept.head.seq, past=kept.ground.past, limit=1)
        except HoldfastError:
            return False
        return found.erased == kept.ground.erased and bool(found.rows) and found.rows[0].digest == kept.head.digest

    # Wake-ups

    @property
    def _channel(self) -> str:
        return f"holdfast:{self._identity.id}:wake"

    def wake(self, queue: str) -> None:
        """Tell other servers that there is something to do. It may not arrive: listeners also look by themselves."""
        if self._born == Generation.now:
            self._courier.wake(queue)

    def on_wake(self, fn: Callable[[str], None]) -> Callable[[], None]:
        """Call `fn`, in a thread of its own, with the name of a queue that a server wakes; gives how to stop that."""
        ear = RedisListener(self._link, self._channel, fn)
        self._ears.append(ear)
        return ear.close

    def close(self) -> None:
        """Bring what is on its way, if that takes no time, and hang up."""
        if self._born != Generation.now:
            return
        for ear in self._ears:
            ear.close()
        self._courier.close()
        self._link.close()


class Sender:
    """A thread that brings states and wake-ups to the server, the newest state of a log only."""

    def __init__(self, carry: Callable[[Sequence[str], str, Kept | None], None]) -> None:
        self._carry = carry
        self._ready = threading.Condition()
        self._states: OrderedDict[str, Kept] = OrderedDict()
        self._wakes: dict[str, None] = {}
        self._thread: threading.Thread | None = None
        self._closing = False

    def take(self, name: str, kept: Kept) -> int:
        """Bring a state some time soon; gives how many others were dropped for it."""
        with self._ready:
            self._states[name] = kept
            dropped = len(self._states) > limits.CACHE_QUEUE
            if dropped:
                self._states.popitem(last=False)
            self._begin()
            return dropped

    def wake(self, queue: str) -> None:
        """Bring a wake-up; several for one queue are one."""
        with self._ready:
            if len(self._wakes) < limits.CACHE_QUEUE:
                self._wakes[queue] = None
            self._begin()

    def withdraw(self, name: str) -> None:
        """Do not bring a state any more."""
        with self._ready:
            self._states.pop(name, None)

    def close(self) -> None:
        """Bring the rest, for a moment."""
        with self._ready:
            self._closing = True
            thread = self._thread
            self._ready.notify()
        if thread is not None:
            thread.join(limits.CACHE_CLOSE_SECONDS)

    def _begin(self) -> None:
        if self._thread is None and not self._closing:
            self._thread = threading.Thread(target=self._go, name="holdfast-cache", daemon=True)
            self._thread.start()
        self._ready.notify()

    def _go(self) -> None:
        while True:
            with self._ready:
                while not self._states and not self._wakes:
                    if self._closing:
                        return
                    self._ready.wait()
                wakes, self._wakes = list(self._wakes), {}
                name, kept = self._states.popitem(last=False) if self._states else ("", None)
            self._carry(wakes, name, kept)


class RedisListener:
    """A thread that listens for wake-ups, and begins again when the server was away."""

    def __init__(self, link: RedisConnection, channel: str, fn: Callable[[str], None]) -> None:
        self._link = link
        self._channel = channel
        self._fn = fn
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._go, name="holdfast-wake", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening. Closing twice is fine."""
        self._closed.set()
        if self._thread is not threading.current_thread():
            self._thread.join(limits.CACHE_CLOSE_SECONDS)

    def _go(self) -> None:
        while not self._closed.is_set():
            try:
                self._listen()
            except self._link.errors as error:
                self._link.failed(error)
                self._closed.wait(limits.CACHE_PAUSE_SECONDS)

    def _listen(self) -> None:
        with self._link.listen() as heard:
            heard.subscribe(self._channel)
            while not self._closed.is_set():
                message = heard.get_message(timeout=limits.CACHE_LISTEN_SECONDS)
                if message is not None:
                    self._tell(message["data"].decode("utf-8", "replace"))

    def _tell(self, queue: str) -> None:
        try:
            self._fn(queue)
        except Exception as error:  # noqa: BLE001 — it is the listener's, and other listeners stay
            _warn("a listener for wake-ups failed: %r", error)


def _warn(text: str, *values: object) -> None:
    import logging

    logging.getLogger("holdfast").warning(text, *values)


_SIGNATURE = 32


_LENGTH = 4


class _Header(Struct, frozen=True):
    """What the body is a state of, and by which fold."""

    log: str
    fold: int
    seq: int
    digest: str
    ground: Ground
    sizes: Sizes


def seal(name: str, kept: Kept, key: bytes) -> bytes | None:
    """A state as bytes; None if they would be too many."""
    header = codec.dump(_Header(name, FOLD_VERSION, kept.head.seq, kept.head.digest.hex(), kept.ground, kept.sizes))
    body = codec.deflate(codec.dump(kept.state))
    data = len(header).to_bytes(_LENGTH, "big") + header + body
    return None if len(data) > limits.CACHE_SHARED_BYTES else _sign(data, key) + data


def unseal(name: str, sealed: bytes, key: bytes) -> Kept | None:
    """The state that was sealed for this log; None if it was not, or not by us, or for another fold."""
    signature, data = sealed[:_SIGNATURE], sealed[_SIGNATURE:]
    if not hmac.compare_digest(signature, _sign(data, key)):
        return None
    end = _LENGTH + int.from_bytes(data[:_LENGTH], "big")
    try:
        header = codec.load(data[_LENGTH:end], _Header)
        if header.log != name or header.fold != FOLD_VERSION:
            return None
        state = codec.load(codec.inflate(data[end:]), State)
        return Kept(Head(header.seq, bytes.fromhex(header.digest)), state, header.sizes, header.ground)
    except ValueError:  # the same fold by its number, and yet of another shape
        return None


def place(name: str, key: bytes) -> str:
    """Under which name a log is kept: names may identify a person, so they stay here."""
    return hashlib.blake2b(name.encode(), key=key, digest_size=16).hexdigest()


def _sign(data: bytes, key: bytes) -> bytes:
    return hashlib.blake2b(data, key=key, digest_size=_SIGNATURE).digest()
