"""Looking at a store that is damaged, or that may not be written to."""

import ctypes
import json
import os
import signal
import subprocess
import sys

import pytest
from click.testing import CliRunner

import holdfast
from holdfast import agent
from holdfast.cli.failures.refusal import FAILED, STORE, USAGE
from holdfast.cli.main import cli
from tests.cli.test_terminal import COMMAND, ENVIRONMENT

PAGE = 4096


@agent
def asks(task, times: int = 20):
    for number in range(times):
        task.note(f"note {number}", "text " * 50)
    return task.ask("which?", name="which")


@pytest.fixture
def folder(tmp_path):
    with holdfast.open(tmp_path / "holdfast.db") as app:
        app.run(asks, id="done")
        app.answer("done", "which", "this")
        app.run(asks, id="done")
        app.run(asks, id="asks")
    yield tmp_path
    tmp_path.chmod(0o700)


# Damage


def damaged(whole, how):
    match how:
        case "header":
            return bytes(16) + whole[16:]
        case "first page":
            return whole[:100] + b"\xff" * (PAGE - 100) + whole[PAGE:]
        case "half of it":
            return whole[: 2 * PAGE] + b"\xa5" * (len(whole) // 2 - 2 * PAGE) + whole[len(whole) // 2 :]
        case _:
            return whole[: len(whole) // 2]


@pytest.mark.parametrize("how", ["header", "first page", "half of it", "cut off"])
def test_the_doctor_tells_of_damage_beside_everything_else(folder, how, texts):
    file = folder / "holdfast.db"
    file.write_bytes(damaged(file.read_bytes(), how))
    before = file.read_bytes()
    ended = CliRunner().invoke(cli, ["doctor", "--json", "--store", str(file)])
    found = {one["what"]: one for one in json.loads(ended.stdout)}
    assert ended.exit_code == FAILED and ended.stderr == ""
    assert found["integrity"]["level"] == "fail"
    texts.check(found["integrity"]["remedy"])
    assert {found[what]["level"] for what in ("sqlite", "file system", "room", "sync")} <= {"ok", "warn"}
    shown = CliRunner().invoke(cli, ["doctor", "--store", str(file)])
    assert shown.exit_code == FAILED and "fail  integrity" in shown.stdout and "Traceback" not in shown.stderr
    assert file.read_bytes() == before, "it was looked at, and not touched"


def test_the_doctor_refuses_what_is_no_file(folder, texts):
    ended = CliRunner().invoke(cli, ["doctor", "--store", str(folder)])
    assert ended.exit_code == STORE and "error[not-a-store]" in ended.stderr
    texts.check(ended.stderr)


# Without the right to write

_DROP_CAPABILITY, _OVERRIDE_RIGHTS = 24, 1


def bound_by_rights():
    """Root may write anywhere: a process that is started after this may not, like everybody else."""
    if os.geteuid() == 0 and ctypes.CDLL(None).prctl(_DROP_CAPABILITY, _OVERRIDE_RIGHTS, 0, 0, 0) != 0:
        os._exit(99)


def looking(folder, *arguments):
    given = {"cwd": folder, "env": ENVIRONMENT, "capture_output": True, "text": True, "timeout": 60}
    ended = subprocess.run([*COMMAND, *arguments], preexec_fn=bound_by_rights, **given)
    if ended.returncode == 99:
        pytest.skip("root cannot be bound by rights here")
    return ended


def only_to_read(folder, *, directory=True):
    for file in folder.iterdir():
        file.chmod(0o400)
    folder.chmod(0o500 if directory else 0o700)
    return sorted(os.listdir(folder))


LOOKS = [
    *(["list", "--json"], ["show", "done"], ["log", "done"], ["diff", "done", "2", "5"], ["audit"], ["workers"]),
    *(
        ["stats"],
        ["inbox", "--json"],
        ["verify"],
        ["export", "done", "-"],
        ["log", "done", "--follow"],
        ["show", "@last"],
    ),
    *(["budget", "done"], ["copy", "memory:"]),
]

ALL_LOOKS = f"""
import json
from click.testing import CliRunner
from holdfast.cli.main import cli

ended = [CliRunner().invoke(cli, one) for one in {LOOKS!r}]
print(json.dumps([[one.exit_code, one.stdout, one.stderr] for one in ended]))
"""


@pytest.mark.parametrize("directory", [True, False], ids=["directory too", "only the file"])
def test_whoever_may_only_read_sees_the_same(folder, directory, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "COMMAND", [sys.executable, "-c"])
    wanted = looking(folder, ALL_LOOKS)
    before = only_to_read(folder, directory=directory)
    seen = looking(folder, ALL_LOOKS)
    assert seen.returncode == wanted.returncode == 0, seen.stderr
    for command, mine, theirs in zip(LOOKS, json.loads(seen.stdout), json.loads(wanted.stdout), strict=True):
        assert mine == theirs and mine[0] == 0 and "".join(mine[1:]), command
    assert sorted(os.listdir(folder)) == before, "nothing was made beside it"


@pytest.mark.parametrize(
    "command", [["answer", "asks", "which", "x"], ["cancel", "asks"], ["gc", "--keep", "0", "--yes"]]
)
def test_whoever_may_only_read_is_told_so_before_anything_is_written(folder, command, texts):
    only_to_read(folder)
    refused = looking(folder, *command)
    assert refused.returncode == STORE and "error[store-read-only]" in refused.stderr
    texts.check(refused.stderr)


def test_a_task_whose_process_was_killed_is_seen_without_the_right_to_write(folder):
    script = """
import os, signal, holdfast
from holdfast import agent

@agent
def dies(task):
    task.step(int, name="first")
    os.kill(os.getpid(), signal.SIGKILL)

holdfast.open("holdfast.db").run(dies, id="dead")
"""
    killed = subprocess.run([sys.executable, "-c", script], cwd=folder, env=ENVIRONMENT)
    assert killed.returncode == -signal.SIGKILL and (folder / "holdfast.db-wal").exists()
    before = only_to_read(folder)
    rows = json.loads(looking(folder, "list", "--json").stdout)
    assert rows[0]["id"] == "dead" and rows[0]["interrupted"] is True
    assert "first#1" in looking(folder, "log", "dead").stdout
    assert sorted(os.listdir(folder)) == before


def test_what_others_write_meanwhile_is_seen_without_the_right_to_write(folder):
    with holdfast.open(folder / "holdfast.db") as app:
        app.start(asks, id="new")
        only_to_read(folder)
        rows = json.loads(looking(folder, "list", "--json").stdout)
        assert rows[0]["id"] == "new"
        folder.chmod(0o700)


def test_a_log_that_cannot_be_read_with_the_file_is_refused_with_a_remedy(folder, texts):
    with holdfast.open(folder / "holdfast.db") as app:
        app.start(asks, id="new")
        (folder / "copy.db").write_bytes((folder / "holdfast.db").read_bytes())
        (folder / "copy.db-wal").write_bytes((folder / "holdfast.db-wal").read_bytes())
    only_to_read(folder)
    refused = looking(folder, "list", "--store", "copy.db")
    assert refused.returncode == STORE and "Traceback" not in refused.stderr
    texts.check(refused.stderr)


def test_the_doctor_looks_as_far_as_its_rights_go(folder, texts):
    only_to_read(folder)
    ended = looking(folder, "doctor", "--json")
    found = {one["what"]: one for one in json.loads(ended.stdout)}
    assert ended.returncode == FAILED and found["integrity"]["level"] == "ok"
    assert found["sync"]["level"] == "fail"
    texts.check(found["sync"]["remedy"])


# What is brought in


@pytest.mark.parametrize("spoil", [lambda data: data.replace(b"note 3", b"note 4", 1), lambda data: b"import this\n"])
def test_a_bad_export_is_named_and_no_store_is_made_for_it(folder, spoil, texts):
    file, fresh = folder / "asks.jsonl", folder / "fresh.db"
    with holdfast.open(folder / "holdfast.db") as app:
        app.export("asks", file)
    file.chmod(0o600)
    file.write_bytes(spoil(file.read_bytes()))
    ended = CliRunner().invoke(cli, ["import", str(file), "--store", str(fresh)])
    assert ended.exit_code == USAGE and "error[invalid-value]" in ended.stderr
    texts.check(ended.stderr)
    assert not fresh.exists()
