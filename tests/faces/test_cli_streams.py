"""Streams of a command: stdout is for data alone, whatever an agent does; none that is closed or full loses work."""

import json
import os
import subprocess
import sys

import pytest

import holdfast
from tests.faces.test_cli_terminal import COMMAND, ENVIRONMENT, Terminal

AGENTS = """
import os, subprocess, sys
from holdfast import agent

print("printed by the file")
os.system("echo said by a program of the file")

def work(number):
    print("printed by a step", flush=True)
    subprocess.run(["echo", "said by a program of a step"])
    sys.stdout.buffer.write("bytes of a stép\\n".encode())
    os.write(1, b"written past Python\\n")
    return number

@agent
def loud(task):
    return task.step(work, 7)

@agent
def prints(task):
    return task.step(lambda: print("printed") or 7, name="work")

@agent
def leaves(task, code: int = 3):
    task.step(int, name="first")
    if not os.path.exists("mended"):
        sys.exit(code)
    return "done"

@agent
def fails(task, gone: str = ""):
    if gone:
        os.rmdir(gone)
    raise ValueError("no such city")

@agent
def asks(task):
    return task.step(lambda: input("your name? "), name="name")
"""
LOUD = (
    *("printed by the file", "said by a program of the file", "printed by a step"),
    *("said by a program of a step", "bytes of a stép", "written past Python"),
)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "agents.py").write_text(AGENTS)
    return tmp_path


def run(folder, *arguments, **given):
    given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL, **given}
    return subprocess.run(
        [*COMMAND, *arguments], **{"cwd": folder, "env": ENVIRONMENT, "text": True, "timeout": 60, **given}
    )


@pytest.mark.parametrize("how", [[], ["--json"], ["--jsonl"], ["--quiet"]])
def test_stdout_has_the_result_alone_whatever_an_agent_prints(folder, how):
    ended = run(folder, "run", "agents.py:loud", *how)
    assert ended.returncode == 0, ended.stderr
    assert all(ended.stderr.count(one) == 1 for one in LOUD), ended.stderr
    match how:
        case ["--json"]:
            assert json.loads(ended.stdout)["result"] == 7
        case ["--jsonl"]:
            kinds = [json.loads(line)["kind"] for line in ended.stdout.splitlines()]
            assert kinds[0] == "task_created" and kinds[-1] == "task_completed"
        case _:
            assert ended.stdout == "7\n"


def test_stdout_has_the_verdict_alone_when_an_agent_is_tried(folder):
    ended = run(folder, "test", "agents.py:loud", "--json")
    assert json.loads(ended.stdout)["passed"] is True and LOUD[-1] in ended.stderr


def test_stdout_has_the_events_of_a_worker_alone(folder):
    script = "import agents, holdfast\nwith holdfast.open('holdfast.db') as app: app.start(agents.loud, id='loud')"
    subprocess.run([sys.executable, "-c", script], cwd=folder, env=ENVIRONMENT, stdout=subprocess.DEVNULL, check=True)
    ended = run(folder, "worker", "agents.py", "--drain", "--jsonl")
    assert ended.returncode == 0, ended.stderr
    told = [json.loads(line)["event"] for line in ended.stdout.splitlines()]
    assert told[-1] == "stopped" and all(one in ended.stderr for one in LOUD)


@pytest.mark.parametrize("how", [[], ["--json"], ["--jsonl"]])
@pytest.mark.parametrize("code", [0, 3])
def test_an_agent_that_exits_is_told_and_can_go_on(folder, how, code):
    ended = run(folder, "run", "agents.py:leaves", "-p", f"code:={code}", "--id", "l", *how)
    assert ended.returncode == 1 and "Traceback" not in ended.stderr
    assert f"its agent raised SystemExit: {code}" in ended.stderr
    assert "to go on: holdfast resume l agents.py" in ended.stderr
    if how == ["--json"]:
        assert json.loads(ended.stdout)["ended_by"] == f"SystemExit: {code}"
    (folder / "mended").touch()
    again = run(folder, "resume", "l", "agents.py")
    assert (again.returncode, again.stdout) == (0, "done\n")


def test_an_agent_that_exits_does_not_pass(folder):
    ended = run(folder, "test", "agents.py:leaves", "-p", "code:=0")
    assert ended.returncode == 1 and ended.stdout == "" and "SystemExit: 0" in ended.stderr


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (1, 2), (0, 1, 2)], ids=str)
@pytest.mark.parametrize("how", [[], ["--jsonl"]])
def test_a_stream_that_is_closed_harms_neither_the_store_nor_the_work(folder, closed, how):
    def close():
        for number in closed:
            os.close(number)

    ended = run(folder, "run", "agents.py:loud", "--id", "loud", *how, preexec_fn=close)
    assert ended.returncode == 0, ended.stderr
    with holdfast.open(folder / "holdfast.db") as app:
        assert app.get("loud").result == 7 and app.verify().ok
    for command in (["list"], ["show", "loud"], ["verify"]):
        assert run(folder, *command, preexec_fn=close).returncode == 0


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
@pytest.mark.parametrize("how", [[], ["--json"], ["--jsonl"]])
def test_a_full_disk_behind_a_stream_fails_no_step(folder, stream, how):
    with open("/dev/full", "w") as full:
        ended = run(folder, "run", "agents.py:prints", "--id", "p", *how, **{stream: full})
    with holdfast.open(folder / "holdfast.db") as app:
        assert app.get("p").result == 7 and app.get("p").steps["work#1"].attempts == 1
    assert ended.returncode == (1 if stream == "stdout" else 0)
    assert "Traceback" not in (ended.stderr or "")
    if stream == "stdout":
        assert "No space left" in ended.stderr


def test_a_folder_that_is_gone_is_no_reason_not_to_tell_how_it_failed(folder):
    here = folder / "here"
    here.mkdir()
    ended = run(here, "run", "../agents.py:fails", "-p", f"gone={here}", "--store", str(folder / "holdfast.db"))
    assert ended.returncode == 1 and "ValueError: no such city" in ended.stderr and "Traceback" not in ended.stderr


def test_what_a_step_asks_at_a_terminal_is_seen_and_answered(folder):
    screen = Terminal(folder, "run", "agents.py:asks")
    screen.until(r"your name\? $").type("ana\n")
    assert screen.ended() == 0 and screen.text.rstrip().endswith("ana")
