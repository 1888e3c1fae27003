"""The demo in the store of a page: a person presses a button there, and watches an agent die and resume."""

from __future__ import annotations

import subprocess
import sys
import threading

from holdfast.cli.demo import agent as demo_agent
from holdfast.cli.demo.files import fresh_world
from holdfast.cli.demo.page import SEEN_SECONDS

PATIENCE_SECONDS = 60.0
"""How long each of its two processes may take. They work slowly, so that one can watch them."""


class DemoHere:
    """Two processes on one task, one after the other. The first kills itself after it has charged a card."""

    task = demo_agent.TASK

    def __init__(self, store: str) -> None:
        self._store = store
        self._lock, self._over = threading.Lock(), threading.Event()
        self._thread: threading.Thread | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def begin(self) -> str:
        """Let it run, once at a time; return the id of its task."""
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                fresh_world(self._store)
                self._thread = threading.Thread(target=self._run, name="holdfast-demo", daemon=True)
                self._thread.start()
        return self.task

    def end(self) -> None:
        """End what still runs of it: the page ends."""
        self._over.set()
        with self._lock:
            if self._process is not None:
                self._process.kill()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        self._work("--crash")
        if not self._over.wait(SEEN_SECONDS):
            self._work()

    def _work(self, *more: str) -> None:
        with self._lock:
            if self._over.is_set():
                return
            command = [sys.executable, "-P", demo_agent.__file__, self._store, "--slow", *more]
            self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
        try:
            self._process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:  # the task is interrupted then, and the page shows that
            self._process.kill()
            self._process.wait()
