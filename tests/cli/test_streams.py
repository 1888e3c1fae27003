"""Streams of a command: stdout is for data alone, whatever an agent does; none that is closed or full loses work."""

import json
import os
import re
import shlex
import subprocess
import sys

import pytest

import holdfast
from tests.cli.test_terminal import COMMAND, ENVIRONMENT, Terminal

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
def steers(task):
    task.step(__import__("time").sleep, 0.4, name="s\\x1b]0;PWN\\x07\\x1b[2J")
    task.wait("go")

@agent
def waits(task, name: str):
    return task.wait(name)

def print_much():
    for _ in range(200_000):
        sys.stdout.write(".")
    print()
    for percent in range(101):
        print(f"{percent}%", end="\\r", flush=True)
    print()
    sys.stdout.reconfigure(line_buffering=True)

@agent
def dots(task):
    task.step(print_much)
    return "ok"

@agent
def echo(task, v: str):
    return v

def twice(number):
    return 2 * number

def pool():
    import concurrent.futures, multiprocessing
    with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return sum(pool.map(twice, [1, 2]))

@agent
def pooled(task):
    return task.step(pool)

@agent
def interrupted(task):
    task.step(lambda: os.kill(os.getpid(), 2), name="first")
    task.step(int, name="second")

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
    assert f"SystemExit: {code}" in ended.stderr and "holdfast resume l agents.py" in ended.stderr
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


# Words that steer


def test_no_name_steers_a_terminal(folder):
    screen = Terminal(folder, "run", "agents.py:steers", "--id", "s")
    assert screen.ended() == 6
    assert "\x1b]0;" not in screen.text and "PWN" in screen.text
    told = run(folder, "signal", "s", "go\x1b]0;x\a", "v")
    assert "\x1b" not in told.stdout + told.stderr


@pytest.mark.parametrize("name", ["--yes", "a\nb", "it's", "-", "café\t€ go"], ids=repr)
def test_what_is_suggested_for_an_odd_name_is_what_it_takes(folder, name):
    told = run(folder, "run", "agents.py:waits", "-p", f"name={name}", "--id", "w")
    (suggested,) = [line for line in told.stderr.splitlines() if line.startswith("  holdfast signal ")]
    typed = suggested.strip().replace("holdfast", shlex.join(COMMAND), 1).replace("VALUE", "yes")
    done = subprocess.run(["bash", "-c", typed], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, (typed, done.stderr)
    assert run(folder, "resume", "w", "agents.py").stdout == "yes\n"


# Lines that do not end, and other ways to print


def test_printing_without_an_end_costs_the_same_each_time(folder):
    ended = run(folder, "run", "agents.py:dots")
    assert ended.returncode == 0 and ended.stdout == "ok\n"
    assert "." * 200_000 in ended.stderr and "100%" in ended.stderr and "\r" not in ended.stderr


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_programs_read_utf_8_whatever_the_locale_says(folder, encoding):
    environment = ENVIRONMENT | {"PYTHONIOENCODING": encoding}

    def read(*arguments):
        ended = run(folder, *arguments, env=environment, encoding="utf-8")
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    assert read("run", "agents.py:echo", "-p", "v=héllo €", "--id", "e") == "héllo €\n"
    assert json.loads(read("show", "e", "--json"))["result"] == "héllo €"
    (folder / "e.jsonl").write_text(read("export", "e", "-"), "utf-8")
    assert "1 log" in read("import", "e.jsonl", "--store", "other.db")
    assert (
        json.loads(read("run", "agents.py:echo", "-p", "v=ü", "--jsonl").splitlines()[-1])["kind"] == "task_completed"
    )


def test_a_pool_of_processes_finds_the_functions_of_the_file(folder):
    ended = run(folder, "run", "agents.py:pooled")
    assert (ended.returncode, ended.stdout) == (0, "6\n"), ended.stderr


# What to type next


def test_what_to_type_names_the_store_that_was_meant(folder):
    store = ["--store", "other.db"]
    run(folder, "run", "agents.py:waits", "-p", "name=go", "--id", "w", *store)
    for command in (
        ["show", "w", "--at", "99"],
        ["rollback", "w", "--yes"],
        ["run", "agents.py:waits", "-p", "name=x", "--id", "w"],
    ):
        refused = run(folder, *command, *store)
        suggested = re.findall(r"holdfast (?!explain)[a-z]+ [^;\n]*?(?=   |;|$)", refused.stderr, re.M)
        assert suggested and all("--store other.db" in one for one in suggested), refused.stderr
    environment = ENVIRONMENT | {"HOLDFAST_URL": "other.db"}
    told = run(
        folder, "run", "agents.py:waits", "-p", "name=go", "--id", "x", "--store", "holdfast.db", env=environment
    )
    assert "holdfast resume x agents.py:waits --store holdfast.db" in told.stderr


def test_what_was_in_memory_is_not_said_to_go_on(folder, texts):
    told = run(folder, "run", "agents.py:waits", "-p", "name=go", "--id", "w", "--store", "memory:")
    assert told.returncode == 6 and "holdfast resume" not in told.stderr
    texts.check(told.stderr)


@pytest.mark.parametrize("options", [["--deadline", "nope"], ["--hold", "nope"], ["--id", "b ad"], ["--user", ""]])
def test_a_wrong_option_makes_no_store(folder, options):
    refused = run(folder, "run", "agents.py:prints", *options)
    assert refused.returncode == 2 and "prints in" not in refused.stderr
    assert not (folder / "holdfast.db").exists()


def test_what_is_nested_without_end_or_no_text_is_refused(folder, texts):
    (folder / "deep.json").write_text("[" * 100_000)
    (folder / "deep.jsonl").write_text('{"log":' + "[" * 100_000)
    for command in (["run", "agents.py:echo", "--input", "deep.json"], ["import", "deep.jsonl"]):
        assert "error[invalid-value]" in run(folder, *command).stderr
    given = {"input": b"\xff\xfe", "stdin": None, "text": False}
    texts.check(run(folder, "run", "agents.py:echo", "--input", "-", **given).stderr.decode())


def test_help_that_cannot_be_written_leaves_no_traceback(folder):
    with open("/dev/full", "w") as full:
        for arguments in (["--help"], ["--version"]):
            ended = run(folder, *arguments, stdout=full)
            assert ended.returncode == 1 and "Traceback" not in ended.stderr and "No space left" in ended.stderr


def test_whoever_interrupts_is_told_what_was_done(folder):
    ended = Terminal(folder, "run", "agents.py:interrupted", "--json", stdout=subprocess.PIPE)
    assert ended.ended() == 130
    with ended.process.stdout as out:
        assert json.loads(out.read())["ended_by"] == "Ctrl-C"


def test_agents_of_several_files_may_share_a_name_there(folder, texts):
    for place in ("x", "y"):
        (folder / place).mkdir()
        agent = f'@agent(name="{place}-main")\ndef main(task):\n    return "{place}"\n'
        (folder / place / "agents.py").write_text(
            f'from holdfast import Queue, agent\njobs = Queue("{place}jobs")\n{agent}'
        )
    (folder / "pyproject.toml").write_text('[tool.holdfast]\nagents = ["x/agents.py", "y/agents.py"]\n')
    assert run(folder, "run", ":x-main").stdout == "x\n" and run(folder, "run", ":y-main").stdout == "y\n"
    served = run(folder, "worker", "--drain").stderr
    assert "x-main, y-main" in served.replace("main, y-main", "x-main, y-main", 1) and "xjobs, yjobs" in served
    (folder / "y" / "agents.py").write_text((folder / "x" / "agents.py").read_text())
    texts.check(run(folder, "run", ":x-main").stderr)


def declared(folder, **files):
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(exist_ok=True)
        path.with_suffix(".py").write_text(f"from holdfast import Queue, agent\n{text}\n")
    listed = [str((folder / name.replace("__", "/")).with_suffix(".py")) for name in files]
    (folder / "pyproject.toml").write_text(f"[tool.holdfast]\nagents = {json.dumps(listed)}\n")


def test_the_same_queue_in_two_files_is_one(folder):
    same = 'mail = Queue("mail")\n@agent\ndef {0}(task): return "{0}"'
    declared(folder, one=same.format("first"), two=same.format("second"))
    assert "mail, default" in run(folder, "worker", "--drain").stderr


def test_versions_of_an_agent_may_live_in_two_files(folder):
    text = '@agent(version="{0}")\ndef order(task): return "{0}"'
    declared(folder, one=text.format("1"), two=text.format("2"))
    served = run(folder, "worker", "--drain").stderr
    assert run(folder, "run", ":order").stdout == "1\n" and "error" not in served


def test_a_file_imports_its_own_neighbour(folder):
    (folder / "y").mkdir()
    (folder / "y" / "shared.py").write_text('WHERE = "y"\n')
    declared(
        folder,
        x__shared='WHERE = "x"\n@agent\ndef first(task): return WHERE',
        y__other="from shared import WHERE\n@agent\ndef second(task): return WHERE",
    )
    assert [run(folder, "run", f":{name}").stdout for name in ("first", "second")] == ["x\n", "y\n"]


def test_a_module_that_refuses_to_be_looked_at_is_left_alone(folder):
    odd = """
import sys, types
class Lazy(types.ModuleType):
    def __getattr__(self, name):
        raise ImportError(name)
sys.modules["lazy"] = Lazy("lazy")
@agent
def {0}(task): return "{0}"
"""
    declared(folder, one=odd.format("first"), two=odd.format("second"))
    assert run(folder, "run", ":second").stdout == "second\n"


def test_what_a_shell_asks_for_ends_well(folder):
    for asked in ("bash_source", "zsh_source", "fish_source"):
        ended = run(folder, env=ENVIRONMENT | {"_HOLDFAST_COMPLETE": asked})
        assert ended.returncode == 0 and "_HOLDFAST_COMPLETE" in ended.stdout
    given = {"_HOLDFAST_COMPLETE": "bash_complete", "COMP_WORDS": "holdfast show --store '' ", "COMP_CWORD": "4"}
    ended = run(folder, env=ENVIRONMENT | given)
    assert ended.returncode == 0 and ended.stderr == ""


def test_hints_name_the_store_whatever_it_is_called(folder):
    (folder / "ID").mkdir()
    run(folder, "run", "agents.py:prints", "--id", "k1", "--store", "ID/x.db")
    refused = run(folder, "cancel", "k1", "--store", "ID/x.db", "--json")
    assert "holdfast fork --store ID/x.db k1 --at SEQ" in json.loads(refused.stderr)["error"]["hint"]
