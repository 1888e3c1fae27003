"""A real PgBouncer for tests: one for each pytest process, before its PostgreSQL server, ended with it.

It is Debian's package (tests/debian.py). Where that cannot be had, such tests are skipped.
"""

import ctypes
import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest

from tests import debian
from tests.postgres_server import SIGINT_AT_PARENTS_DEATH, free_port, listens, other_user
from tests.waiting import until


class Pgbouncer:
    """A pooler before a server."""

    def __init__(self, program, port, *, mode="transaction", size=8):
        self._place = Path(tempfile.mkdtemp(prefix="holdfast-pgbouncer-"))
        self.port = free_port()
        user = other_user() if os.geteuid() == 0 else None
        unpacked = debian.unpacked("pgbouncer")
        if unpacked in program.parents:  # the other user may not be let into this checkout
            program = shutil.copytree(unpacked, self._place / "unpacked") / program.relative_to(unpacked)
        (self._place / "users.txt").write_text('"postgres" ""\n')
        (self._place / "pgbouncer.ini").write_text(
            f"[databases]\n* = host=127.0.0.1 port={port}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"
            f"listen_port = {self.port}\nauth_type = trust\nauth_file = {self._place}/users.txt\nunix_socket_dir =\n"
            f"pool_mode = {mode}\ndefault_pool_size = {size}\nmax_client_conn = 200\nlogfile = {self._place}/log\n"
        )
        self._who = {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []} if user else {}
        if user:
            os.chown(self._place, pwd.getpwnam(user).pw_uid, -1)
        self._program = program
        self.start()

    def start(self):
        libc = ctypes.CDLL(None)
        self._process = subprocess.Popen(
            [self._program, "-q", self._place / "pgbouncer.ini"],
            preexec_fn=lambda: libc.prctl(*SIGINT_AT_PARENTS_DEATH),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=debian.environment(self._place),
            **self._who,
        )
        self._wait()

    def _wait(self):
        until(lambda: self._process.poll() is not None or listens(self.port), 10, "pgbouncer does not start")
        assert self._process.poll() is None, "pgbouncer does not start"

    def kill(self):
        self._process.kill()
        self._process.wait()

    def stop(self):
        self.kill()
        shutil.rmtree(self._place, ignore_errors=True)


def before(port, **how):
    """Start a pooler before a server. Where there is none, the test is skipped."""
    try:
        program = debian.find("pgbouncer", "pgbouncer", "usr/sbin/pgbouncer")
    except debian.Unavailable as why:
        pytest.skip(f"there is no pgbouncer: {why}")
    return Pgbouncer(program, port, **how)


@pytest.fixture(scope="session")
def pgbouncer(postgres_databases):
    """A pooler before the server of this session."""
    pooler = before(urlsplit(postgres_databases._url).port or 5432)
    yield pooler
    pooler.stop()


@pytest.fixture
def pooled_url(pgbouncer, postgres_url):
    """The address of the same database through the pooler."""
    parts = urlsplit(postgres_url)
    behind = parts._replace(netloc=f"{parts.netloc.rpartition(':')[0]}:{pgbouncer.port}").geturl()
    return f"{behind}?pooled=transaction&direct={quote(postgres_url, safe='')}"
