"""Processes of an older version beside a schema of a newer one: those that run go on, those that start are refused.

First the older version is this one, and the newer schema is what a later migration may do, and no more: add a table, an
index, and a column with a default. Then the older versions are real: those before each of the last migrations, from the
history of this repository.
"""

import os
import shutil
import signal
import subprocess
import sys
import tarfile
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

import apsw
import pytest

import holdfast
from holdfast import StoreReadOnly, StoreTooNew, Task, agent
from holdfast.store.migrations import migrations
from holdfast.testing.auditor import audit
from tests.conftest import ALL
from tests.waiting import until

ROOT = Path(__file__).parents[2]

AGENTS = """
from holdfast import Task, agent, step

import time

@step
def double(n: int) -> int:
    time.sleep(0.3 if n > 100 else 0)
    return 2 * n

@agent
def doubler(task: Task, n: int) -> int:
    return double(n) + (task.wait("more") if n == 7 else 0)
"""
LATER = [
    "alter table {s}tasks add column colour text not null default 'blue'",
    "create table {s}palette (colour text primary key, seen bigint not null default 0)",
    "create index {s2}tasks_by_colour on {s}tasks (colour)",
]


@agent
def doubler(task: Task, n: int) -> int:
    raise AssertionError("the worker's process has it")


def migrate(url, store):
    """Do to a store what a later version would."""
    if store == "sqlite":
        connection = apsw.Connection(url)
        connection.set_busy_timeout(10_000)
        with connection:
            for statement in LATER:
                connection.execute(statement.format(s="", s2=""))
            connection.pragma("user_version", 99)
        connection.close()
        return
    import psycopg

    with psycopg.connect(url.partition("?")[0]) as connection:
        found = "select table_schema from information_schema.tables where table_name = 'migrations'"
        schema = connection.execute(found).fetchone()[0]
        for statement in LATER:
            connection.execute(statement.format(s=f'"{schema}".', s2=""))
        connection.execute(
            f"insert into \"{schema}\".migrations (version, name, checksum, at) values (99, 'x', 'x', 0)"
        )


def environment(source=None):
    """The environment of a process of another version, if its source is named."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    return plain if source is None else {**plain, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}


@contextmanager
def worker(folder, url, source=None):
    """A worker of a version; it is stopped by SIGTERM, unless it was killed."""
    (folder / "agents.py").write_text(AGENTS)
    command = [sys.executable, "-m", "holdfast", "worker", "agents.py", "--store", url, "--concurrency", "2"]
    given = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "env": environment(source)}
    with subprocess.Popen(command, cwd=folder, **given) as process:
        try:
            yield process
        finally:
            process.terminate()
            told, _ = process.communicate(timeout=60)
    assert process.returncode in (0, -signal.SIGKILL), told


@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
def test_an_older_worker_goes_on_beside_a_newer_schema_and_none_can_start(url, tmp_path):
    store = "postgres" if url.startswith("postgres") else "sqlite"
    with holdfast.open(url) as app, worker(tmp_path, url):
        assert app.wait(app.start(doubler, {"n": 1}, id="before").id, timeout=60).result == 2
        app.start(doubler, {"n": 7}, id="across")
        for change in app.watch(seconds=60):
            if change.id == "across" and change.status == "waiting":
                break
        migrate(url, store)
        assert app.wait(app.start(doubler, {"n": 2}, id="after").id, timeout=60).result == 4
        app.signal("across", "more", 1)
        assert app.wait("across", timeout=60).result == 15
        assert app.verify().ok and app.counts().by_status["completed"] == 3
        with pytest.raises(StoreTooNew) as refused:
            holdfast.open(url)
        assert refused.value.details["version"] == 99 and "upgrade" in refused.value.hint
        command = [sys.executable, "-m", "holdfast", "list", "--store", url]
        told = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert told.returncode == 5 and "error[store-too-new]" in told.stderr and "upgrade holdfast" in told.stderr


# Real older versions


def before(dialect, version):
    """Return the last state of the main branch before a migration came to it."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("older versions are in the history of the repository: run this in a clone of it")
    (file,) = (ROOT / "src/holdfast/store/sql" / dialect).glob(f"{version:04}_*.sql")
    asked = ["git", "log", "--first-parent", "-m", "--diff-filter=A", "--format=%H", "--", str(file)]
    added = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    found = (
        subprocess.run(["git", "rev-parse", f"{added[-1]}^"], cwd=ROOT, capture_output=True, text=True)
        if added
        else None
    )
    if found is None or found.returncode != 0:
        pytest.skip(f"the history is too short to hold the version before {file.name}: git fetch --unshallow")
    return found.stdout.strip()


def older(dialect):
    """Return the numbers of the last migrations: what came before each is an older version."""
    newest = len(migrations(dialect))
    return range(newest, newest - (3 if ALL else 1), -1)


VERSIONS = [(dialect, version) for dialect in ("postgres", "sqlite") for version in older(dialect)]


@pytest.fixture
def source(dialect, version, tmp_path):
    """The source of the version before a migration."""
    packed = subprocess.run(
        ["git", "archive", before(dialect, version), "src/holdfast"], cwd=ROOT, capture_output=True, check=True
    )
    with tarfile.open(fileobj=BytesIO(packed.stdout)) as archive:
        archive.extractall(tmp_path / "older", filter="data")
    return tmp_path / "older" / "src"


@pytest.fixture
def place(dialect, tmp_path, request):
    """Where there is no store yet."""
    if dialect == "sqlite":
        yield str(tmp_path / "store.db")
        return
    databases = request.getfixturevalue("postgres_databases")
    url = databases.new(empty=True)
    yield url
    databases.drop(url)


def ask(source, folder, *command):
    """What the command line of an older version says, and its exit code."""
    told = subprocess.run(
        [sys.executable, "-m", "holdfast", *command],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        env=environment(source),
    )
    return told.returncode, told.stdout + told.stderr


def start(source, folder, place, id, n):
    """Start a task with the code of an older version; whether that was possible."""
    work = f"app.start(agents.doubler, {{'n': {n}}}, id={id!r})"
    program = f"import holdfast, agents\nwith holdfast.open({place!r}) as app: {work}"
    command = [sys.executable, "-c", program]
    return subprocess.run(command, cwd=folder, capture_output=True, timeout=60, env=environment(source)).returncode == 0


def schema_of(place, dialect):
    """Return the version of a store's schema, without opening it."""
    if dialect == "sqlite":
        connection = apsw.Connection(place)
        return connection.pragma("user_version")
    import psycopg

    with psycopg.connect(place) as connection:
        return connection.execute("select max(version) from holdfast.migrations").fetchone()[0]


def claimed_by(app, *ids):
    """Return the workers that claimed tasks."""
    return {one.event.holder for id in ids for one in app.events(id) if one.kind == "task_claimed"}


@pytest.mark.parametrize(("dialect", "version"), VERSIONS)
def test_a_worker_of_an_older_version_works_beside_a_newer_schema_and_beside_newer_workers(
    dialect, version, source, place, tmp_path
):
    folder = tmp_path / "work"
    folder.mkdir()
    with worker(folder, place, source) as old:
        until(lambda: dialect == "postgres" or Path(place).exists(), why="the older worker makes no store")
        until(
            lambda: start(source, folder, place, "before", 1),
            why="the older version starts nothing",
        )
        assert start(source, folder, place, "across", 7)
        until(lambda: "waiting" in ask(source, folder, "list", "--store", place)[1], why="it does not wait")
        assert schema_of(place, dialect) == version - 1
        with holdfast.open(place) as app:
            assert schema_of(place, dialect) == len(migrations(dialect)), "the newer version migrates as it opens"
            assert app.wait(app.start(doubler, {"n": 2}, id="after").id, timeout=60).result == 4
            app.signal("across", "more", 1)
            assert app.wait("across", timeout=60).result == 15
            assert len(claimed_by(app, "before", "across", "after")) == 1, "the older worker did all of it"
            assert ask(source, folder, "list", "--store", place)[0] == 5, (
                "and no other process of its version can begin"
            )
            with worker(folder, place):
                until(lambda: len(app.workers()) == 2, why="the newer worker does not begin")
                ids = [app.start(doubler, {"n": 200 + n}, id=f"both-{n}").id for n in range(12)]
                assert [app.wait(id, timeout=60).result for id in ids] == [2 * (200 + n) for n in range(12)]
                assert len(claimed_by(app, *ids)) == 2, "each version took some"
                ids = [app.start(doubler, {"n": 300 + n}, id=f"moved-{n}").id for n in range(8)]
                until(lambda: app.list(status="running"), why="nothing begins")
                old.kill()
                assert [app.wait(id, timeout=60).result for id in ids] == [2 * (300 + n) for n in range(8)]
            with worker(folder, place, source) as again:
                assert again.wait(60) == 5
                told = again.stdout.read()
                assert "error[store-too-new]" in told and "upgrade holdfast" in told
                again.returncode = 0  # as it should
            assert app.verify().ok
    assert audit(place) == []


@pytest.mark.parametrize(("dialect", "version"), [one for one in VERSIONS if one[0] == "postgres"])
def test_a_newer_process_that_may_not_migrate_is_refused_and_the_older_ones_work_on(
    dialect, version, source, place, tmp_path, texts
):
    """A role with all rights on the tables, and none to change them."""
    import psycopg

    folder, role = tmp_path / "work", f"app_{os.urandom(4).hex()}"
    folder.mkdir()
    (folder / "agents.py").write_text(AGENTS)
    assert start(source, folder, place, "before", 1)
    with psycopg.connect(place, autocommit=True) as owner:
        owner.execute(f"create role {role} login")
        owner.execute(f"grant usage on schema holdfast to {role}")
        owner.execute(f"grant select, insert, update, delete on all tables in schema holdfast to {role}")
    mine = place.replace("postgres@", f"{role}@")
    try:
        with texts.raises(StoreReadOnly):
            holdfast.open(mine)
        assert schema_of(place, dialect) == version - 1, "nothing was changed"
        with worker(folder, mine, source):
            until(
                lambda: "completed" in ask(source, folder, "list", "--store", mine)[1],
                why="the older worker does not work",
            )
        with holdfast.open(place) as app:
            assert app.get("before").result == 2 and schema_of(place, dialect) == len(migrations(dialect))
    finally:
        with psycopg.connect(place, autocommit=True) as owner:
            owner.execute(f"drop owned by {role}")
            owner.execute(f"drop role {role}")


DIES = """
import os, signal, sys
import holdfast
from holdfast import failpoints

def die(name):
    if name == sys.argv[1]:
        os.kill(os.getpid(), signal.SIGKILL)

with failpoints.armed(die):
    holdfast.open(sys.argv[2])
"""


@pytest.mark.parametrize(("dialect", "version"), [one for one in VERSIONS if ALL or one[0] == "sqlite"])
def test_processes_that_die_in_a_migration_leave_the_older_schema_and_of_several_one_migrates(
    dialect, version, source, place, tmp_path
):
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "agents.py").write_text(AGENTS)
    until(lambda: start(source, folder, place, "before", 1), why="the older version starts nothing")
    for point in ("migrate.before", "migrate.commit"):
        died = subprocess.run([sys.executable, "-c", DIES, point, place], env=environment(), timeout=60, check=False)
        assert died.returncode == -signal.SIGKILL
        assert schema_of(place, dialect) == version - 1
        assert ask(source, folder, "list", "--store", place)[0] == 0, "the older version can still begin"
    command = [sys.executable, "-m", "holdfast", "list", "--store", place]
    given = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "env": environment()}
    together = [subprocess.Popen(command, **given) for _ in range(4)]
    assert [(one.communicate(timeout=60)[0].count("before"), one.returncode) for one in together] == [(1, 0)] * 4
    with holdfast.open(place) as app:
        assert schema_of(place, dialect) == len(migrations(dialect)) and app.verify().ok
