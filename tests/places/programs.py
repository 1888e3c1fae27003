"""Programs that tests of the places start and kill, with everything these start themselves."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path


class Deaths:
    """When processes were killed: not later than they died."""

    def __init__(self, folder):
        self.folder = folder
        """Each process notes here, in a file with the name by which logs know it, its pid."""
        folder.mkdir()
        self.pids = {}
        """When each was killed, in µs."""

    def note(self, pid):
        """A process and all below it are about to be killed."""
        at = time.time_ns() // 1000
        self.pids |= dict.fromkeys([pid, *children(pid)], at)

    def know(self, app):
        """Note the processes of workers, which their store knows."""
        for one in app.workers():
            (self.folder / one.holder).write_text(str(one.serving.pid), "utf-8")

    def of(self, holder):
        """When the process of a task's holder was killed. One that lost its task otherwise has failed the test."""
        pid = int((self.folder / holder).read_text("utf-8"))
        assert pid in self.pids, f"{holder}, process {pid}, lost its task, and no test killed it"
        return self.pids[pid]


class Program:
    """A process of ours with all that it starts, in a group of its own: killed and started again together."""

    def __init__(self, *command, log, deaths, **environment):
        self._command = [sys.executable, *command]
        self._environment = {**os.environ, **environment}
        self._log = log
        self._deaths = deaths
        self.start()

    def start(self):
        with self._log.open("a") as log:
            self._begins = log.tell()
            self.process = subprocess.Popen(
                self._command, env=self._environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL, process_group=0
            )

    def is_ready(self):
        """Whether it has written, since it was last started, that it is ready."""
        assert self.process.poll() is None, self._log.read_text("utf-8", "replace")
        return b"ready." in self._log.read_bytes()[self._begins :]

    def kill(self):
        if self.process.poll() is None:
            self._deaths.note(self.process.pid)
        self._signal(signal.SIGKILL)
        self.process.wait()

    def restart(self):
        self.kill()
        self.start()

    def stop(self, seconds=30):
        """Ask it to end, and wait for that."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(seconds)
        finally:
            self._signal(signal.SIGKILL)

    def _signal(self, number):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


def children(pid):
    """Every process below one."""
    found, parents = [], {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    for one, parent in parents.items():
        while parent and parent != pid:
            parent = parents.get(parent, 0)
        if parent == pid:
            found.append(one)
    return found
