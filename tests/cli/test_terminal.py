"""The command line at a terminal: a real one, with real processes that are interrupted and killed."""

import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import time
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSWINSZ
from typing import ClassVar

import pytest

import holdfast
from holdfast.cli.failures.refusal import UNREAD
from holdfast.cli.show.style import bare
from tests.cli import cli_agents

ROOT = Path(__file__).parents[2]
PLAIN = {
    name: value
    for name, value in os.environ.items()
    if name not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES") and not name.startswith("HOLDFAST_")
}
ENVIRONMENT = {**PLAIN, "TERM": "xterm", "HOLDFAST_BY": "ana", "PYTHONDONTWRITEBYTECODE": "1"}
ENVIRONMENT["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), PLAIN.get("PYTHONPATH", "")])
COMMAND = [sys.executable, "-m", "holdfast"]


@pytest.fixture
def folder(tmp_path):
    shutil.copy(cli_agents.__file__, tmp_path / "agents.py")
    return tmp_path


@pytest.fixture(autouse=True)
def nobody_is_left_behind():
    yield
    for terminal in Terminal.opened:
        terminal.process.kill()
        terminal.process.wait()
    Terminal.opened.clear()


class Terminal:
    """A command at a terminal of its own, so many columns wide."""

    opened: ClassVar = []

    def __init__(self, folder, *arguments, columns=80, stdout=None, **environment):
        self._ours, theirs = pty.openpty()
        ioctl(theirs, TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        given = {"cwd": folder, "env": ENVIRONMENT | environment, "stdin": theirs, "stderr": theirs}
        self.process = subprocess.Popen([*COMMAND, *arguments], stdout=stdout or theirs, **given)
        os.close(theirs)
        self.text = ""
        Terminal.opened.append(self)

    def until(self, wanted, seconds=30):
        """Read until this appears."""
        late = time.monotonic() + seconds
        while not re.search(wanted, bare(self.text)):
            assert time.monotonic() < late and self._read(), f"{wanted!r} did not come: {self.text}"
        return self

    def type(self, text):
        """Type this."""
        os.write(self._ours, text.encode())

    def ended(self):
        """Read until it ends; gives its exit code."""
        while self._read():
            pass
        code = self.process.wait(30)
        os.close(self._ours)
        return code

    def _read(self):
        if not select.select([self._ours], [], [], 30)[0]:
            return False
        try:
            more = os.read(self._ours, 65536)
        except OSError:  # a terminal says so when nobody is left at its other end
            return False
        self.text += more.decode()
        return bool(more)


def run(folder, *arguments, **environment):
    given = {"cwd": folder, "env": ENVIRONMENT | environment, "capture_output": True, "text": True, "timeout": 60}
    return subprocess.run([*COMMAND, *arguments], **given)


def done_slowly(folder):
    return (folder / "slow").read_text().split()


def test_a_step_that_hangs_is_cut_off_at_the_deadline_and_shown_as_that(folder):
    began = time.monotonic()
    ended = run(folder, "run", "agents.py:stuck", "--id", "s", "--deadline", "1500ms")
    assert ended.returncode == 1 and time.monotonic() - began < 30, "the process ends, too"
    assert "deadline" in ended.stderr and "--deadline 10m" in ended.stderr
    assert re.search(r"stuck#1 +cut off", run(folder, "show", "s").stdout)


def test_a_task_killed_midway_is_shown_as_interrupted_and_the_newest_is_resumed_to_its_end(folder, texts):
    screen = Terminal(folder, "run", "agents.py:slowly", "--id", "s")
    screen.until(r"done.*slow#2").process.send_signal(signal.SIGKILL)
    assert screen.ended() == -signal.SIGKILL
    (row,) = json.loads(run(folder, "list", "--json").stdout)
    assert (row["status"], row["interrupted"]) == ("running", True)
    assert "holdfast resume s FILE" in run(folder, "show", "s").stdout
    [found] = [one for one in json.loads(run(folder, "doctor", "--json").stdout) if one["what"] == "interrupted"]
    texts.check(found["said"])
    screen = Terminal(folder, "resume", "@last", "agents.py")
    assert screen.ended() == 0
    replayed = int(re.search(r"(\d) steps \w+ \d+ ms", screen.text)[1])
    assert replayed >= 2 and "s is completed" in screen.text and "15\r\n" in screen.text
    assert screen.text.count("done") == 6 - replayed
    assert len(done_slowly(folder)) - 6 <= 1, "only the step that was under way is done again"
    with holdfast.open(folder / "holdfast.db") as app:
        assert app.get("s").result == 15 and app.verify().ok


def test_ctrl_c_once_stops_after_the_step_and_says_how_to_go_on(folder, texts):
    screen = Terminal(folder, "run", "agents.py:slowly", "--id", "s")
    screen.until(r"done.*slow#1").process.send_signal(signal.SIGINT)
    assert screen.ended() == 130
    assert "Ctrl-C" in screen.text and "Traceback" not in screen.text
    texts.check(next(line for line in bare(screen.text).splitlines() if "holdfast resume" in line))
    with holdfast.open(folder / "holdfast.db") as app:
        steps = app.get("s").steps
        assert {step.status for step in steps.values()} == {"completed"} and 1 <= len(steps) < 6
    assert run(folder, "resume", "s", "agents.py:slowly").stdout == "15\n"
    assert done_slowly(folder) == ["0", "1", "2", "3", "4", "5"], "no step was cut off, none was done twice"


def test_ctrl_c_stops_an_async_agent_after_its_step_too(folder):
    screen = Terminal(folder, "run", "agents.py:napping", "--id", "n")
    screen.until(r"done.*nap#1").process.send_signal(signal.SIGINT)
    assert screen.ended() == 130 and "holdfast resume n agents.py:napping" in screen.text
    done = run(folder, "resume", "@last", "agents.py")
    assert done.returncode == 0 and done.stdout == "6\n" and re.search(r"\d steps? \w+ \d+ ms", done.stderr)


@pytest.mark.parametrize(("agent", "presses"), [("stuck", 2), ("sleeper", 1)])
def test_ctrl_c_stops_what_takes_long_at_once_and_it_can_be_resumed(folder, agent, presses):
    screen = Terminal(folder, "run", f"agents.py:{agent}", "--id", "s")
    screen.until(r"working \d+\.\d+ s")
    for _ in range(presses):
        screen.process.send_signal(signal.SIGINT)
        screen.until("Ctrl-C")
    began = time.monotonic()
    assert screen.ended() == 130 and time.monotonic() - began < 10
    assert f"holdfast resume s agents.py:{agent}" in screen.text and "Traceback" not in screen.text
    with holdfast.open(folder / "holdfast.db") as app:
        assert app.get("s").status in ("pending", "running", "waiting") and app.verify().ok


def seconds(shown):
    number, unit = shown.split()
    return float(number) / (1000 if unit == "ms" else 1)


def test_the_live_line_names_the_step_its_time_its_attempt_and_what_was_spent(folder):
    screen = Terminal(folder, "run", "agents.py:tries", "--id", "t", columns=120)
    assert screen.ended() == 0
    lines = re.findall(r"working [^\r\x1b]*", bare(screen.text))
    first = [found.groups() for line in lines if (found := re.fullmatch(r"working ([^·]*) · balky#1 (\d[^·]*)", line))]
    late = [seconds(whole) - seconds(step) for whole, step in first]
    assert late and max(late) < 1, "named and counted from its beginning, not from when it announced itself"
    second = r"working [^·]* · balky#1 attempt 2 [^·]* · 1,000 tok · \$0\.25\d*"
    assert any(re.fullmatch(second, line) for line in lines), lines


def test_a_terminal_gets_colours_one_live_line_and_signs(folder):
    screen = Terminal(folder, "run", "agents.py:slowly", "-p", "steps:=3", "--id", "s")
    assert screen.ended() == 0
    assert "\x1b[32m✓ done" in screen.text and "\r\x1b[K" in screen.text
    assert re.search(r"working .*\d+ ms · slow#1 \d+ ms", bare(screen.text)), "also before a step announces itself"
    for line in re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", screen.text).replace("\r", "\n").splitlines():
        assert len(line) <= 80, line


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_a_terminal_that_wants_no_colour_gets_none(folder, environment):
    screen = Terminal(folder, "run", "agents.py:slowly", "-p", "steps:=1", **environment)
    assert screen.ended() == 0 and not re.search(r"\x1b\[[0-9;]*m", screen.text)


def test_a_budget_has_a_bar_and_a_question_says_what_to_type(folder):
    screen = Terminal(folder, "run", "agents.py:thrifty", "--id", "t")
    assert screen.ended() == 6
    assert "  holdfast budget t steps=4 --by ana" in screen.text
    screen = Terminal(folder, "budget", "t")
    assert screen.ended() == 0 and "██████████" in screen.text and "100%" in screen.text


def test_whoever_stops_reading_is_not_complained_to(folder):
    run(folder, "run", "agents.py:slowly", "-p", "steps:=1", "--id", "s")
    given = {"cwd": folder, "env": ENVIRONMENT, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([*COMMAND, "log", "s", "--full"], **given) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode in (0, UNREAD)


def test_before_something_is_taken_away_a_person_is_asked(folder):
    run(folder, "run", "agents.py:slowly", "-p", "steps:=1", "--id", "s")
    for said, code, left in (("n\n", 1, 1), ("y\n", 0, 0)):
        screen = Terminal(folder, "gc", "--keep", "0")
        screen.until(r"holdfast\.db \(.*\?")
        screen.type(said)
        assert screen.ended() == code
        assert len(json.loads(run(folder, "list", "--json").stdout)) == left


def test_a_task_is_followed_from_another_terminal_until_it_ends(folder):
    screen = Terminal(folder, "run", "agents.py:slowly", "-p", "steps:=4", "--id", "s")
    screen.until("done.*slow#1")
    followed = Terminal(folder, "log", "s", "--follow")
    assert followed.ended() == 0 and screen.ended() == 0
    assert re.search(r"completed\s+6", bare(followed.text)) and followed.text.count("done") == 4


def test_a_task_that_somebody_else_has_is_busy(folder):
    work = ("run", "agents.py:slowly", "-p", "steps:=14", "--id", "s")  # long enough for another process to start
    screen = Terminal(folder, *work)
    screen.until("done.*slow#1")
    other = run(folder, *work)
    assert other.returncode == 4 and "error[task-busy]" in other.stderr
    assert "help: holdfast resume s agents.py:slowly --wait 1m" in other.stderr
    waited = run(folder, *work, "--wait", "30s")
    assert waited.returncode == 0 and waited.stdout == "91\n" and screen.ended() == 0
    assert len(done_slowly(folder)) == 14


def test_the_tour_is_true(folder):
    page = (ROOT / "docs" / "tour.md").read_text("utf-8")
    tour = re.search(r"```text\n(\$ python examples/flight_booking.py .+?)```", page, re.S)[1]
    example = str(ROOT / "examples" / "flight_booking.py")
    told = []
    for line in re.findall(r"^\$ (.+?)(?:  +#.*)?$", tour, re.M):
        words = [example if word == "examples/flight_booking.py" else word for word in line.split()]
        if "--bound" in words:  # the digest is another one in every store
            words[words.index("--bound") + 1] = re.findall(r"--bound (\w+)", "\n".join(told))[-1]
        if words[0] == "python":
            subprocess.run([sys.executable, *words[1:]], cwd=folder, env=ENVIRONMENT, check=True, capture_output=True)
        elif words[0] == "holdfast":
            screen = Terminal(folder, *words[1:], columns=100, HOLDFAST_URL="flight_booking.db", HOLDFAST_BY="you")
            assert screen.ended() == 0
            told.append(bare(screen.text).replace("\r", "\n"))
    times = re.compile(r"\d+ ms|\d+\.\d\d s|now|\d+ s ago|--bound \w+")
    for line in re.findall(r"^(?!\$ )(.+)$", tour, re.M):
        assert times.sub("T", line) in times.sub("T", "\n".join(told)), line
