"""Processes of an older version beside a schema of a newer one: those that run go on, those that start are refused.

The older version is this one. The newer schema is what a later migration may do, and no more: add a table, an index,
and a column with a default.
"""

import os
import subprocess
import sys
from contextlib import contextmanager

import apsw
import pytest

import holdfast
from holdfast import StoreTooNew, Task, agent

AGENTS = """
from holdfast import Task, agent, step

@step
def double(n: int) -> int:
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


@contextmanager
def worker(folder, url):
    """A worker of the older version; it is up when this begins, and is stopped by SIGTERM."""
    (folder / "agents.py").write_text(AGENTS)
    command = [sys.executable, "-m", "holdfast", "worker", "agents.py", "--store", url]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    given = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "env": environment}
    with subprocess.Popen(command, cwd=folder, **given) as process:
        try:
            yield process
        finally:
            process.terminate()
            told, _ = process.communicate(timeout=60)
    assert process.returncode == 0, told


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
