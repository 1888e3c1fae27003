"""A real PgBouncer for tests: one for each pytest process, before its PostgreSQL server, ended with it.

The program is the one on PATH, or in Debian's place. Else Debian's package is downloaded, once, and unpacked into
.cache of this checkout: that needs no root, and nothing is installed. Where that fails, such tests are skipped.
"""

import contextlib
import ctypes
import os
import pwd
import re
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest

from tests.postgres_server import SIGINT_AT_PARENTS_DEATH, free_port, other_user

CACHE = Path(__file__).resolve().parents[1] / ".cache"
UNPACKED = CACHE / "pgbouncer"
_APT = ["apt-get", "-o", "Acquire::Retries=1", "-o", "Acquire::http::Timeout=15", "-o", "APT::Sandbox::User="]


class Unavailable(Exception):
    """There is no PgBouncer here, and it could not be downloaded."""


class Pgbouncer:
    """A pooler before a server."""

    def __init__(self, program, port, *, mode="transaction", size=8):
        self._place = Path(tempfile.mkdtemp(prefix="holdfast-pgbouncer-"))
        self.port = free_port()
        user = other_user() if os.geteuid() == 0 else None
        if UNPACKED in program.parents:  # the other user may not be let into this checkout
            program = shutil.copytree(UNPACKED, self._place / "unpacked") / program.relative_to(UNPACKED)
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
            env=_environment(self._place),
            **self._who,
        )
        self._wait()

    def _wait(self):
        until = time.monotonic() + 10
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            assert time.monotonic() < until and self._process.poll() is None, "pgbouncer does not start"
            time.sleep(0.02)

    def kill(self):
        self._process.kill()
        self._process.wait()

    def stop(self):
        self.kill()
        shutil.rmtree(self._place, ignore_errors=True)


def find():
    """Return the program's path, after downloading it if need be."""
    installed = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if installed:
        return Path(installed)
    if not UNPACKED.exists():
        _download()
    return UNPACKED / "usr/sbin/pgbouncer"


def _download():
    """Unpack Debian's package and the libraries it depends on. Of two processes that do so at once, the first wins."""
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        raise Unavailable("it is not on PATH, and there is no apt-get to download it with")
    CACHE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="pgbouncer-", dir=CACHE) as place:
        try:
            _download_packages(Path(place))
        except subprocess.SubprocessError as error:
            raise Unavailable(f"it is not on PATH, and its package could not be downloaded: {error}")
        with contextlib.suppress(OSError):
            os.rename(Path(place) / "unpacked", UNPACKED)


def _download_packages(place):
    try:
        _run(place, *_APT, "download", "pgbouncer")
    except subprocess.CalledProcessError:
        if os.geteuid() != 0:  # only root may fetch the lists of packages
            raise
        _run(place, *_APT, "update")
        _run(place, *_APT, "download", "pgbouncer")
    (package,) = place.glob("pgbouncer_*.deb")
    depends = _run(place, "dpkg-deb", "--field", package, "Depends")
    _run(place, *_APT, "download", *re.findall(r"\blib(?!c6\b)[^\s,|]+", depends))  # libc must be the machine's own
    for one in place.glob("*.deb"):
        _run(place, "dpkg-deb", "--extract", one, place / "unpacked")


def _run(place, *command):
    return subprocess.run(command, cwd=place, capture_output=True, text=True, check=True, timeout=120).stdout


def _environment(place):
    """Return the environment in which the program finds the libraries that were unpacked with it."""
    libraries = sorted({str(library.parent) for library in place.rglob("lib*.so.*")})
    return {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(libraries)} if libraries else None


def before(port, **how):
    """Start a pooler before a server. Where there is none, the test is skipped."""
    try:
        program = find()
    except Unavailable as why:
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
