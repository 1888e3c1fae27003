"""Commands whose reader has had enough: they end quietly, and the work of an agent goes on."""

import os
import subprocess

import pytest

import holdfast
from holdfast.cli.failures.refusal import UNREAD
from tests.cli.test_terminal import COMMAND, ENVIRONMENT

AGENTS = """
import time
from holdfast import agent

def work(number):
    print("working on", number)
    time.sleep(0.05)
    return number

@agent
def chatty(task):
    return sum(task.step(work, number, name="work") for number in range(5))

@agent
def verbose(task):
    for number in range(2_000):
        task.note(f"note {number}", "text " * 20)
    task.wait("go")
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "agents.py").write_text(AGENTS)
    return tmp_path


def unread(folder, *arguments, stdout=False, stderr=False):
    """A command of which somebody has closed what it writes to: before it began, so that there is no race."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        given = {"stdout": writing if stdout else subprocess.PIPE, "stderr": writing if stderr else subprocess.PIPE}
        return subprocess.run([*COMMAND, *arguments], cwd=folder, env=ENVIRONMENT, text=True, timeout=60, **given)
    finally:
        os.close(writing)


def first_line(folder, *arguments):
    """What `holdfast … | head -1` shows, what it says on stderr, and how it ends."""
    given = {"cwd": folder, "env": ENVIRONMENT, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([*COMMAND, *arguments], **given) as process:
        line = process.stdout.readline()
        process.stdout.close()
        said = process.stderr.read()
        return line, said, process.wait(60)


@pytest.mark.parametrize("how", [["--full"], ["--jsonl"], ["--full", "--follow"], ["--jsonl", "--follow"]])
def test_a_long_log_of_which_only_the_first_line_is_read_ends_quietly(folder, how):
    assert unread(folder, "run", "agents.py:verbose", "--id", "v").returncode == 6
    line, said, code = first_line(folder, "log", "v", *how)
    assert ("task_created" if "--jsonl" in how else "seq") in line and said == "" and code == UNREAD


@pytest.mark.parametrize("command", [["list"], ["list", "--json"], ["show", "v"], ["stats"], ["config"], ["--help"]])
def test_commands_that_nobody_reads_end_and_say_nothing(folder, command):
    unread(folder, "run", "agents.py:chatty", "--id", "v")
    ended = unread(folder, *command, stdout=True)
    assert ended.returncode == UNREAD and "Traceback" not in ended.stderr and "error[" not in ended.stderr


@pytest.mark.parametrize("how", [[], ["--json"], ["--jsonl"]])
def test_an_agent_works_on_when_nobody_reads_what_it_prints(folder, how):
    ended = unread(folder, "run", "agents.py:chatty", "--id", "c", *how, stdout=True, stderr=True)
    assert ended.returncode == UNREAD
    with holdfast.open(folder / "holdfast.db") as app:
        assert app.get("c").result == 10 and all(step.attempts == 1 for step in app.get("c").steps.values())


def test_a_result_comes_on_stdout_although_nobody_reads_the_progress(folder):
    ended = unread(folder, "run", "agents.py:chatty", "--id", "c", stderr=True)
    assert ended.stdout == "10\n" and ended.returncode == 0


def test_events_that_nobody_reads_any_more_leave_no_traceback(folder):
    line, said, code = first_line(folder, "run", "agents.py:chatty", "--id", "c", "--jsonl")
    assert "task_created" in line and "Traceback" not in said and code == UNREAD
    with holdfast.open(folder / "holdfast.db") as app:
        assert app.get("c").result == 10
