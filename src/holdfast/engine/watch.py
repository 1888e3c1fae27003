"""A step that runs for more than a second announces itself, so that others can see where the task is."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from holdfast.core import limits


class Watch:
    """One thread that looks after all running steps of a process, and sleeps while there are none."""

    def __init__(self) -> None:
        self._running: dict[object, tuple[float, Callable[[], None]]] = {}
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._guard = threading.Lock()
        self._closed = False

    def begin(self, announce: Callable[[], None]) -> object:
        """A step begins; `announce` is called if it takes long. Gives what `end` wants."""
        token = announce
        self._running[token] = (time.monotonic(), announce)
        if not self._wake.is_set():
            self._wake.set()
        if self._thread is None:
            self._start()
        return token

    def end(self, token: object) -> None:
        """The step has ended."""
        self._running.pop(token, None)

    def close(self) -> None:
        """Look no more."""
        self._closed = True
        self._wake.set()

    def _start(self) -> None:
        with self._guard:
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="holdfast-watch", daemon=True)
                self._thread.start()

    def _serve(self) -> None:
        while not self._closed:
            self._wake.wait()
            time.sleep(limits.ANNOUNCE_SECONDS / 4)
            now = time.monotonic()
            for token, (began, announce) in list(self._running.items()):
                if now - began >= limits.ANNOUNCE_SECONDS and self._running.pop(token, None) is not None:
                    announce()
            if not self._running:
                self._wake.clear()
                if self._running:  # one began just before the flag went down
                    self._wake.set()
