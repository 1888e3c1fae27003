"""The demo, as a newcomer sees it."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import holdfast
from holdfast.cli.demo import agent
from holdfast.cli.demo.world import HEADER, DemoWorld
from tests.waiting import until

STEPS = [
    *("read_order", "check_stock", "ask_carriers", "draft_invoice", "reserve_goods"),
    *("charge_card", "write_email", "send_email", "file_order"),
]
FILES = {f"holdfast-demo.db{suffix}" for suffix in ("", "-guard", "-shm", "-wal", "-world")}
COMMAND = [sys.executable, "-m", "holdfast", "demo"]
PLAIN = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "TERM")}


def demo(folder, *options, **environment):
    done = subprocess.run(
        [*COMMAND, *options], cwd=folder, capture_output=True, text=True, timeout=60, env=PLAIN | environment
    )
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """A demo that has run in a folder whose name has a space: the folder, and what was printed."""
    folder = tmp_path_factory.mktemp("a demo")
    began = time.monotonic()
    done = demo(folder)
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - began < (60 if "COVERAGE_PROCESS_CONFIG" in os.environ else 10)
    return folder, done.stdout


def test_a_process_is_killed_after_the_charge_and_nothing_is_done_twice(shown, texts):
    folder, text = shown
    told = text.partition("The log of order-7")[0]
    before, killed, after = told.partition("SIGKILL (return code -9)")
    assert killed
    assert re.findall(r"^ +(\d)  (\w+)", before, re.M) == [(str(n + 1), name) for n, name in enumerate(STEPS[:6])]
    assert list(dict.fromkeys(re.findall(r"^ +\d  (\w+)", after, re.M))) == STEPS[5:]
    texts.check(vague(told))
    world = DemoWorld(str(folder / "holdfast-demo.db-world"))
    assert [world.count(what) for what in ("reserve", "charge", "email")] == [1, 1, 1]
    assert set(os.listdir(folder)) == FILES


def test_the_timeline_is_the_log(shown, texts):
    folder, text = shown
    lines = text.partition("The log of order-7")[2].splitlines()
    rows = [found for line in lines if (found := re.match(r" +(\d+) +\d+\.\d{3}  (.{12})", line))]
    with holdfast.open(folder / "holdfast-demo.db") as app:
        verbs = [one.verb for one in app.describe("order-7")]
        assert [row[2].strip() for row in rows] == verbs
        assert [int(row[1]) for row in rows] == [one.seq for one in app.events("order-7")]
        assert [step.name for step in app.steps("order-7")] == STEPS
        assert {step.status for step in app.steps("order-7")} == {"completed"}
        assert {step.attempts for step in app.steps("order-7")} == {1}
        assert app.verify().ok
    (fate,) = [number for number, line in enumerate(lines) if "killed" in line and "process" in line]
    assert "announced   charge_card#1" in lines[fate - 1]
    assert "claimed" in lines[fate + 1]
    assert re.search(r"settled     charge_card#1 +by reconcile +it happened: \"charge-", text)
    texts.check(next(line for line in lines if line.startswith(f"{len(rows)} events")))


def test_every_line_fits_and_has_no_colour_off_a_terminal(shown):
    assert "\x1b" not in shown[1]
    short = shown[1].replace(f"'{sys.executable}'", ".venv/bin/python").replace(sys.executable, ".venv/bin/python")
    short = short.replace(f"'{agent.__file__}'", "demo_agent.py").replace(agent.__file__, "demo_agent.py")
    for line in short.splitlines():
        assert len(line) <= 100, line


def test_the_three_next_things_work_as_they_are_printed(shown):
    folder, text = shown
    printed = text.partition("Next, try:")[2]
    read, again, look, _ = re.findall(r"^  (\S.*)", printed, re.M)
    before = (folder / "holdfast-demo.db-world").read_bytes()
    for command, found in ((read, "def handle_order("), (again, "order-7 is completed: filed"), (look, "file_order#1")):
        done = subprocess.run(command, shell=True, cwd=folder, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 and found in done.stdout, done
    assert (folder / "holdfast-demo.db-world").read_bytes() == before
    moment = re.search(r"--at \d+", printed)[0]
    done = subprocess.run(f"{look} {moment}", shell=True, cwd=folder, capture_output=True, text=True, timeout=60)
    assert re.search(r"charge_card#1 +running", done.stdout) and "write_email" not in done.stdout


def test_the_facts_are_there_for_programs_and_the_demo_can_be_run_again(tmp_path):
    for _ in range(2):
        done = demo(tmp_path, "--json", "--store", "it's mine.db")
        assert done.returncode == 0, done.stderr
        facts = json.loads(done.stdout)
        assert [step["name"] for step in facts["steps"]] == STEPS
        assert [step["number"] for step in facts["steps"]] == list(range(1, 10))
        assert [process["returncode"] for process in facts["processes"]] == [-signal.SIGKILL, 0]
        assert facts["kills"] == 1 and facts["replayed"]["steps"] == 5
        assert facts["settled"] == {"charge_card#1": "reconcile"}
        assert facts["sent"] == {"charges": 1, "emails": 1} and facts["once"] and facts["intact"]
        assert facts["status"] == "completed" and facts["seconds"] < 10
    assert DemoWorld(str(tmp_path / "it's mine.db-world")).count("charge") == 1


@pytest.mark.parametrize(("environment", "coloured"), [({"TERM": "xterm"}, True), ({"NO_COLOR": "1"}, False)])
def test_only_a_terminal_that_wants_colour_gets_it(tmp_path, environment, coloured):
    ours, theirs = pty.openpty()
    with subprocess.Popen(COMMAND, cwd=tmp_path, stdout=theirs, stderr=theirs, env=PLAIN | environment) as process:
        os.close(theirs)
        printed = b""
        try:
            while more := os.read(ours, 65536):
                printed += more
        except OSError:
            pass  # a terminal says so when nobody is left at its other end
    os.close(ours)
    assert process.returncode == 0
    assert (b"\x1b[" in printed) is coloured


def test_a_charge_too_many_is_found(tmp_path, texts):
    """The demo believes what the world has seen, not what the log says."""
    world = DemoWorld(str(tmp_path / "holdfast-demo.db-world"))
    with subprocess.Popen(COMMAND, cwd=tmp_path, stdout=subprocess.PIPE, text=True, env=PLAIN) as process:
        until(lambda: world.count("charge") or process.poll() is not None)
        world.happen("charge", "some other key", "44 EUR from card 4242")
        printed, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    texts.check(next(line for line in printed.splitlines() if "e-mail" in line and "·" in line))


def test_ctrl_c_leaves_nobody_behind(tmp_path):
    with subprocess.Popen(COMMAND, cwd=tmp_path, stdout=subprocess.PIPE, text=True, env=PLAIN) as process:
        for line in process.stdout:
            if match := re.match(r"Process (\d+) works on it", line):
                process.send_signal(signal.SIGINT)
                break
        process.communicate(timeout=60)
    assert process.returncode == 130
    with pytest.raises(ProcessLookupError):
        os.kill(int(match[1]), 0)
    assert demo(tmp_path).returncode == 0


def test_two_demos_do_not_share_a_file(tmp_path, texts):
    with subprocess.Popen(COMMAND, cwd=tmp_path, stdout=subprocess.PIPE, text=True, env=PLAIN) as first:
        first.stdout.readline()
        first.send_signal(signal.SIGSTOP)  # it keeps its lock, however long the other takes
        second = demo(tmp_path)
        first.send_signal(signal.SIGCONT)
        first.communicate(timeout=60)
    assert first.returncode == 0
    assert second.returncode == 5 and second.stderr.startswith("error[store-busy]: ")
    texts.check(second.stderr)


def test_the_demo_touches_no_file_but_its_own(tmp_path, texts):
    with holdfast.open(tmp_path / "mine.db") as app:
        app.start("precious", id="t")
    (tmp_path / "notes.db").write_text("")
    (tmp_path / "new.db-world").write_text("poems")
    with holdfast.open(tmp_path / "both.db") as app:
        app.start("precious", id="t")
    (tmp_path / "both.db-world").write_text(HEADER)
    before = set(os.listdir(tmp_path))
    for name in ("mine.db", "notes.db", "new.db", "both.db", "."):
        done = demo(tmp_path, "--store", name)
        assert done.returncode == 2
        assert re.fullmatch(r"error\[invalid-value\]: .*\n  .*\nhelp: .*--store .*\n", done.stderr)
        texts.check(done.stderr)
    assert set(os.listdir(tmp_path)) == before
    assert (tmp_path / "notes.db").read_text() == "" and (tmp_path / "new.db-world").read_text() == "poems"
    for name in ("mine.db", "both.db"):
        with holdfast.open(tmp_path / name) as app:
            assert app.get("t").status == "pending"


@pytest.mark.parametrize(
    ("place", "code", "exit_code"),
    [
        ("no/such/place.db", "not-a-store", 5),
        ("/proc/demo.db", "store-read-only", 5),
        ("memory:", "invalid-value", 2),
        ("", "invalid-value", 2),
    ],
)
def test_a_place_that_cannot_be_used_is_one_clear_line_and_a_remedy(tmp_path, place, code, exit_code):
    done = demo(tmp_path, "--store", place)
    assert done.returncode == exit_code and not done.stdout
    assert re.fullmatch(rf"error\[{code}\]: .+\n(  .+\n)*help: .+\n(      .+\n)*", done.stderr)
    told = json.loads(demo(tmp_path, "--store", place, "--json").stderr)["error"]
    assert told["code"] == code and told["message"] and told["hint"]
    assert not os.listdir(tmp_path)


def test_the_command_says_its_version_and_helps():
    for options, text in ((["--version"], "holdfast 0."), (["--help"], "demo"), (["demo", "--help"], "--json")):
        done = subprocess.run([sys.executable, "-m", "holdfast", *options], capture_output=True, text=True)
        assert done.returncode == 0 and text in done.stdout


def test_the_tour_shows_what_the_demo_prints(shown):
    """Numbers, receipts and processes differ from one time to the next; nothing else does."""
    tour = Path(__file__).parents[2] / "docs" / "tour.md"
    (told,) = re.findall(r"^```text\n(Process .*?)^```", tour.read_text("utf-8"), re.S | re.M)
    printed = [vague(line) for line in shown[1].splitlines()]
    for line in told.splitlines():
        assert vague(line) in printed


def vague(line):
    """A line without what is never the same twice."""
    return re.sub(r" *\d+\.?\d* (ms|s)\b|Process \d+|-[0-9a-f]{4}\b", "~", line)
