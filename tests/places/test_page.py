"""The page on dispatchers: its files are written, its commands run, with real servers."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from tests.docs.typist import blocks
from tests.places.storm import wait
from tests.places.temporal_server import TemporalServer

pytest.importorskip("celery", reason="make test-places")
pytestmark = pytest.mark.sample
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "dispatchers.md"
SECONDS = 120


@pytest.fixture
def folder(tmp_path, postgres_url, monkeypatch):
    """The files of the page, in a folder of their own, and the address of the store."""
    for block in blocks(PAGE):
        if block.title:
            (tmp_path / block.title).write_text(block.text, "utf-8")
    monkeypatch.setenv("DATABASE_URL", postgres_url)
    monkeypatch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_ADDRESS", "local")  # not a cluster that happens to run on this machine
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    return tmp_path


def commands(name):
    """The lines of the block of commands that mentions a file."""
    (found,) = [block.text for block in blocks(PAGE) if block.language == "sh" and name in block.text]
    return [shlex.split(line) for line in found.splitlines()]


def all_are_done(folder, lines):
    """Start the programs, then the tasks, and wait until all tasks are completed."""
    with (folder / "said.log").open("w") as log:
        given = {"cwd": folder, "stdout": log, "stderr": log, "stdin": subprocess.DEVNULL, "process_group": 0}
        running = [subprocess.Popen(line, **given) for line in lines]
        try:
            done = subprocess.run(
                [sys.executable, "start.py"], cwd=folder, capture_output=True, text=True, timeout=SECONDS
            )
            assert done.stdout == "NOTE 7\n", done.stderr + (folder / "said.log").read_text()
            with holdfast.open(os.environ["DATABASE_URL"]) as app:
                wait(lambda: app.counts().by_status == {"completed": 20})
        finally:
            for one in running:
                os.killpg(one.pid, 9)
                one.wait()


def test_every_block_is_a_file_a_command_or_executed_by_the_tests_of_the_docs():
    languages = {(block.language, bool(block.title)) for block in blocks(PAGE)}
    assert languages == {("python", True), ("python", False), ("sh", False)}
    assert len(re.findall(r"^```\w", PAGE.read_text("utf-8"), re.M)) == len(blocks(PAGE))


def test_celery(folder, redis_server, monkeypatch):
    monkeypatch.setenv("BROKER", redis_server.url())
    all_are_done(folder, commands("celery_shop"))


def test_temporal(folder, tmp_path, monkeypatch):
    server = TemporalServer(tmp_path)
    monkeypatch.setenv("TEMPORAL", server.address)
    try:
        all_are_done(folder, commands("temporal_shop"))
    finally:
        server.kill()


def test_ray(folder):
    """The program is run as it stands, with tasks to work on: it ends by itself, and all of them are completed."""
    starting = subprocess.Popen(
        [sys.executable, "start.py"], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        with holdfast.open(os.environ["DATABASE_URL"]) as app:
            wait(lambda: len(app.list()) == 20, SECONDS)
            given = {"cwd": folder, "capture_output": True, "text": True, "timeout": SECONDS}
            done = subprocess.run([sys.executable, "ray_shop.py"], **given)
            assert done.returncode == 0, done.stderr
            assert app.counts().by_status == {"completed": 20}
            assert app.workers() == []
        said, trouble = starting.communicate(timeout=SECONDS)
        assert said == "NOTE 7\n", trouble
    finally:
        starting.kill()
        starting.wait()
    crew = re.findall(r"^\S+ working \d+ (\d+)$", done.stdout, re.M)
    assert len(crew) == 3 and sum(map(int, crew)) == 20, done.stdout
    assert "holdfast_ray_worker_busy{" in done.stdout
