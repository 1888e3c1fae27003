"""`holdfast demo --ui`: the page beside the demo, in a process of its own, so that a kill is watched as it happens."""

from __future__ import annotations

import select
import signal
import subprocess
import sys
import threading
import time
import webbrowser
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module

from holdfast.core.errors import HoldfastError

START_SECONDS = 20.0
STOP_SECONDS = 10.0
SEEN_SECONDS = 3.0
"""How long a dead process is looked at before another one continues."""


class WatchedPage:
    """A page that is up, and opens at the demo's task once there is one."""

    def __init__(self, process: subprocess.Popen[str], link: str, *, opens: bool) -> None:
        self._process, self._link, self._opens = process, link, opens
        self._is_open = False

    def link(self, task: str) -> str:
        """The address of a task, which logs in once."""
        url, _, code = self._link.partition("/#")
        return f"{url}/tasks/{task}#{code}"

    def show(self, task: str) -> bool:
        """Open the browser at a task, the first time; return whether it was."""
        if self._is_open:
            return False
        self._is_open = True
        if self._opens:
            threading.Thread(target=webbrowser.open, args=(self.link(task),), daemon=True).start()
        return True

    def pause(self) -> None:
        """Let a person see that the process is dead."""
        time.sleep(SEEN_SECONDS)

    def wait(self) -> None:
        """Stay up until Ctrl-C, or until the page ends."""
        self._process.wait()


@contextmanager
def watched(path: str, *, opens: bool) -> Generator[WatchedPage, None, None]:
    """Serve the page of a store meanwhile. Refused, before anything is done, if what it needs is not installed."""
    import_module("holdfast.web")  # which raises MissingExtra
    command = [sys.executable, "-P", "-m", "holdfast", "ui", "--store", path, "--no-open"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        ready = select.select([process.stdout], [], [], START_SECONDS)[0]
        link = process.stdout.readline().strip() if ready else ""
        if not link.startswith("http"):
            why = f"the page did not start in {START_SECONDS:.0f} s" if not ready else "the page could not be started"
            raise HoldfastError(why, hint=f"see what it says: holdfast ui --store {path}")
        yield WatchedPage(process, link, opens=opens)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()
