"""A real cluster for tests: three machines on 127.0.0.1, each a PostgreSQL under Patroni and a member of etcd.

`python -m tests.patroni_cluster` prints what is missing here. Patroni is in a virtual environment of its own, named by
HOLDFAST_PATRONI (`make test-failover` makes it); etcd is Debian's package (tests/debian.py). Everything lies in one
temporary folder and ends with the tests. As root, which PostgreSQL refuses to be, it is another user.
"""

import contextlib
import ctypes
import json
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from tests import debian
from tests.postgres_server import DISK, binaries, other_user

TTL = 20
"""Seconds after which a silent leader is replaced: the least that Patroni allows."""
_UP_SECONDS = 120
_STEADY_SECONDS = 2
SIGTERM_AT_PARENTS_DEATH = (1, signal.SIGTERM)  # PR_SET_PDEATHSIG; Patroni then ends its PostgreSQL too
_PARAMETERS = {"max_connections": 200, "wal_log_hints": "on", "dynamic_shared_memory_type": "mmap", "fsync": "off"}
DCS = {
    "ttl": TTL,
    "loop_wait": 1,
    "retry_timeout": 3,
    "synchronous_mode": True,
    "synchronous_mode_strict": True,
    "maximum_lag_on_failover": 1048576,
    "postgresql": {"use_pg_rewind": True, "use_slots": True, "parameters": _PARAMETERS},
}
"""What all machines go by; a page of the docs shows it."""


class Missing(Exception):
    """Something that a cluster is made of is not here, and how to get it."""


class Parts:
    """The programs of a cluster, and the user that may run them."""

    def __init__(self):
        found = binaries()
        if found is None or not all((Path(found) / one).exists() for one in ("pg_basebackup", "pg_rewind")):
            raise Missing("there is no PostgreSQL with pg_basebackup and pg_rewind: apt-get install postgresql")
        self.postgres = Path(found)
        try:
            self.etcd = debian.find("etcd", "etcd-server", "usr/bin/etcd")
        except debian.Unavailable as why:
            raise Missing(f"there is no etcd: {why}")
        given = os.environ.get("HOLDFAST_PATRONI")
        if not given or not (Path(given) / "bin" / "python").exists():
            raise Missing("there is no Patroni: make test-failover")
        self.patroni = Path(given).absolute()
        self.user = other_user() if os.geteuid() == 0 else None

    def as_user(self):
        """How a process of the cluster is started."""
        return {"user": self.user, "group": pwd.getpwnam(self.user).pw_gid, "extra_groups": []} if self.user else {}

    def readable(self, place):
        """Have the programs where that user may run them: copied, if this checkout is closed to it."""
        for name in ("postgres", "etcd", "patroni"):
            tried = {"postgres": "postgres", "etcd": "", "patroni": "bin/python"}[name]
            program = getattr(self, name) / tried if tried else getattr(self, name)
            if not self._runs(program):
                source = getattr(self, name)
                target = place / f"programs-{name}"
                copied = shutil.copytree(source, target, symlinks=True) if source.is_dir() else _copied(source, target)
                setattr(self, name, Path(copied))
                if not self._runs(Path(copied) / tried if tried else Path(copied)):
                    raise Missing(
                        f"user {self.user} can't run {program}: make test-failover PATRONI_PYTHON=/usr/bin/python3"
                    )

    def _runs(self, program):
        try:
            asked = subprocess.run([program, "--version"], capture_output=True, cwd="/", **self.as_user())
        except OSError:
            return False
        return asked.returncode == 0


def _copied(file, folder):
    folder.mkdir()
    return shutil.copy(file, folder / file.name)


def lasting_port():
    """Return a port that no outgoing connection is given while its machine is down."""
    while True:
        port = random.randrange(15_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class Machine:
    """One of three: what runs on it, and how it is lost."""

    def __init__(self, cluster, name):
        self.name, self._cluster, self.place = name, cluster, cluster.place / name
        self.place.mkdir()
        self.port, self.rest, self.clients, self.peers = (lasting_port() for _ in range(4))
        self.data = self.place / "data"
        self._etcd = self._patroni = None

    # Starting

    def start(self):
        """Start what does not run."""
        self.start_etcd()
        self.start_patroni()

    def start_etcd(self):
        if self._etcd is None or self._etcd.poll() is not None:
            members = ",".join(f"{one.name}=http://127.0.0.1:{one.peers}" for one in self._cluster.machines)
            client, peer = f"http://127.0.0.1:{self.clients}", f"http://127.0.0.1:{self.peers}"
            options = {
                "name": self.name,
                "data-dir": self.place / "etcd",
                "listen-client-urls": client,
                "advertise-client-urls": client,
                "listen-peer-urls": peer,
                "initial-advertise-peer-urls": peer,
                "initial-cluster": members,
                "initial-cluster-state": "new",
                "heartbeat-interval": 200,
                "election-timeout": 2000,
            }
            given = [part for name, value in options.items() for part in (f"--{name}", str(value))]
            self._etcd = self._launch("etcd", [self._cluster.parts.etcd, *given])

    def start_patroni(self):
        if self._patroni is None or self._patroni.poll() is not None:
            config = self.place / "patroni.json"
            config.write_text(json.dumps(self._config()))
            python = self._cluster.parts.patroni / "bin" / "python"
            self._patroni = self._launch("patroni", [python, "-m", "patroni", config])

    def _launch(self, name, command):
        libc = ctypes.CDLL(None)
        with open(self.place / f"{name}.log", "ab") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.place,
                preexec_fn=lambda: libc.prctl(*SIGTERM_AT_PARENTS_DEATH),
                env={**os.environ, "HOME": str(self.place), "PGCONNECT_TIMEOUT": "3"},
                **self._cluster.parts.as_user(),
            )

    def _config(self):
        users = {"username": "postgres", "password": "none"}
        return {
            "scope": "holdfast",
            "name": self.name,
            "log": {"level": "INFO"},
            "restapi": {"listen": f"127.0.0.1:{self.rest}", "connect_address": f"127.0.0.1:{self.rest}"},
            "etcd3": {"hosts": [f"127.0.0.1:{one.clients}" for one in self._cluster.machines]},
            "bootstrap": {
                "dcs": DCS,
                "initdb": [{"encoding": "UTF8"}, {"locale": "C"}, "data-checksums", {"auth": "trust"}, "no-sync"],
            },
            "postgresql": {
                "listen": f"127.0.0.1:{self.port}",
                "connect_address": f"127.0.0.1:{self.port}",
                "data_dir": str(self.data),
                "bin_dir": str(self._cluster.parts.postgres),
                "authentication": {"superuser": users, "replication": users, "rewind": users},
                "parameters": {"unix_socket_directories": str(self.place)},
                "pg_hba": [
                    "local all all trust",
                    "host all all 127.0.0.1/32 trust",
                    "host replication all 127.0.0.1/32 trust",
                ],
                "pgpass": str(self.place / "pgpass"),
            },
        }

    # Losing

    def kill(self):
        """As if the machine had lost its power: Patroni, PostgreSQL with all its processes, and etcd, at once."""
        self.kill_patroni()
        self.kill_etcd()

    def kill_patroni(self):
        """Kill Patroni and its PostgreSQL; the machine's member of etcd lives."""
        self._patroni.kill()
        self.kill_postmaster()
        self._patroni.wait()

    def kill_postmaster(self):
        """Kill PostgreSQL alone, with all its processes: Patroni notices, and starts it again or hands over."""
        postmaster = self.postmaster()
        if postmaster is not None:
            for pid in (postmaster, *_children(postmaster)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def kill_etcd(self):
        self._etcd.kill()
        self._etcd.wait()

    def postmaster(self):
        """Return the pid of this machine's postmaster, if it runs."""
        try:
            pid = int((self.data / "postmaster.pid").read_text().split()[0])
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except (OSError, ValueError, IndexError):
            return None
        return pid if os.fsencode(self.data) in command else None

    def stop(self):
        """End everything at once; nothing of it is needed any more."""
        for process in filter(None, (self._patroni, self._etcd)):
            process.kill()
        self.kill_postmaster()
        for process in filter(None, (self._patroni, self._etcd)):
            process.wait()

    def followers(self, *, synchronous=False):
        """Return the names of the standbys that follow this machine now, as its PostgreSQL sees them."""
        import psycopg

        found = "select application_name, sync_state from pg_stat_replication where state = 'streaming'"
        try:
            with psycopg.connect(f"host=127.0.0.1 port={self.port} user=postgres connect_timeout=3") as link:
                rows = link.execute(found).fetchall()
        except psycopg.OperationalError:
            return set()
        return {name for name, state in rows if state == "sync" or not synchronous}

    def is_voting(self):
        """Return whether the machine's member of etcd has joined the others."""
        try:
            return bool(_asked(f"http://127.0.0.1:{self.clients}/v3/maintenance/status", b"{}").get("leader"))
        except (OSError, ValueError):
            return False

    def log(self):
        """Return the last lines that Patroni and etcd wrote."""
        logs = [f"--- {self.name}"]
        for name in ("patroni", "etcd"):
            with contextlib.suppress(OSError):
                logs += (self.place / f"{name}.log").read_text(errors="replace").splitlines()[-25:]
        return "\n".join(logs)


class Cluster:
    """Three machines, one of which leads. Its standbys are synchronous: what was acknowledged is on two machines."""

    def __init__(self):
        self.parts = Parts()
        self.place = Path(tempfile.mkdtemp(prefix="holdfast-patroni-", dir=DISK))
        self.place.chmod(0o755)
        try:
            self.parts.readable(self.place)
            self.machines = []
            for name in ("one", "two", "three"):
                self.machines.append(Machine(self, name))
            if self.parts.user:
                for one in self.machines:
                    os.chown(one.place, pwd.getpwnam(self.parts.user).pw_uid, -1)
            for one in self.machines:
                one.start_etcd()
            for one in self.machines:
                one.start_patroni()
            self.wait_until_whole()
        except BaseException:
            self.stop()
            raise

    @property
    def hosts(self):
        return ",".join(f"127.0.0.1:{one.port}" for one in self.machines)

    def url(self, database="postgres", **options):
        """Return the address that names all three machines: libpq looks for the one that leads."""
        given = "&".join(f"{name}={value}" for name, value in {"wait_seconds": 120, **options}.items())
        return f"postgresql://postgres@{self.hosts}/{database}?{given}"

    def members(self):
        """Return each machine's role as Patroni sees it, from whichever of them answers; nothing if none does."""
        for one in self.machines:
            with contextlib.suppress(OSError, ValueError):
                return {member["name"]: member for member in _asked(f"http://127.0.0.1:{one.rest}/cluster")["members"]}
        return {}

    def leader(self):
        """Return the machine that leads, or None."""
        leads = [
            name
            for name, member in self.members().items()
            if member["role"] == "leader" and member["state"] == "running"
        ]
        return next((one for one in self.machines if one.name in leads), None)

    def standbys(self):
        """Return the others, the synchronous one first."""
        roles = {name: member["role"] for name, member in self.members().items()}
        others = [one for one in self.machines if roles.get(one.name) != "leader"]
        return sorted(others, key=lambda one: roles.get(one.name) != "sync_standby")

    def wait_until_whole(self):
        """Wait until one machine leads, takes writes, and two others follow it, one of them synchronously, and stay so.

        A leader that is lost before that can't be replaced: nobody else has everything that it acknowledged.
        """
        until, since = time.monotonic() + _UP_SECONDS, None
        while since is None or time.monotonic() - since < _STEADY_SECONDS:
            since = (since or time.monotonic()) if self.is_whole() else None
            if time.monotonic() > until:
                raise AssertionError(f"the cluster does not come up: {self.members()}\n{self.logs()}")
            time.sleep(0.2)

    def logs(self):
        return "\n".join(one.log() for one in self.machines)

    def is_whole(self):
        """Return whether etcd, Patroni and the leading PostgreSQL agree on that."""
        members = self.members()
        leaders = [name for name, one in members.items() if one["role"] == "leader"]
        chosen = [name for name, one in members.items() if one["role"] == "sync_standby"]
        if not (len(leaders) == 1 and chosen and all(one.is_voting() for one in self.machines)):
            return False
        (leader,) = (one for one in self.machines if one.name in leaders)
        return set(chosen) <= leader.followers(synchronous=True) and len(leader.followers()) == 2

    def switch_over(self):
        """Have the synchronous standby lead, as an administrator does it."""
        leader, standby = self.leader(), self.standbys()[0]
        wanted = json.dumps({"leader": leader.name, "candidate": standby.name}).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{leader.rest}/switchover", data=wanted, method="POST")
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.read().decode()

    def etcd_leader(self):
        """Return the machine whose member of etcd leads."""
        for one in self.machines:
            with contextlib.suppress(OSError, ValueError):
                status = _asked(f"http://127.0.0.1:{one.clients}/v3/maintenance/status", b"{}")
                if status.get("leader") == status["header"]["member_id"]:
                    return one
        return None

    def stop(self):
        for one in getattr(self, "machines", ()):
            one.stop()
        shutil.rmtree(self.place, ignore_errors=True)


def _asked(address, body=None):
    with urllib.request.urlopen(urllib.request.Request(address, data=body), timeout=2) as answer:
        return json.load(answer)


def _children(parent):
    """Return the processes that a process has started."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError, IndexError):
            if entry.name.isdigit() and int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(entry.name))
    return found


if __name__ == "__main__":
    try:
        Parts()
    except Missing as missing:
        sys.exit(str(missing))
