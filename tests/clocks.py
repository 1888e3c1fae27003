"""A clock for tests that need real time, but not before they are ready for it."""

import threading

from holdfast.engine.system.clock import SystemClock


class HeldClock(SystemClock):
    """The machine's clock, which stands still from `hold` to `go`.

    A short deadline is then not over before the body has begun, however busy the machine is.
    """

    def __init__(self):
        self._guard = threading.Lock()
        self._behind_us = 0
        self._held_us = None

    def now_us(self):
        with self._guard:
            return self._now_us()

    def hold(self):
        """Stand still."""
        with self._guard:
            self._held_us = self._now_us()

    def go(self):
        """Go on from where it stood. It may go already."""
        with self._guard:
            if self._held_us is not None:
                self._behind_us = super().now_us() - self._held_us
                self._held_us = None

    def advance(self, seconds):
        """Let so much time pass at once, and go on."""
        self.go()
        with self._guard:
            self._behind_us -= int(seconds * 1_000_000)

    def _now_us(self):
        return super().now_us() - self._behind_us if self._held_us is None else self._held_us
