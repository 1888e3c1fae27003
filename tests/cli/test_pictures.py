"""How things look at 80 and at 120 columns, off a terminal, and with names that would steer one.

`HOLDFAST_WRITE_PICTURES=1 pytest tests/cli/test_pictures.py` writes the pictures anew.
"""

import doctest
import os
import re
import shutil
import sys
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, strategies as st

import holdfast
from holdfast import AsyncTask, Task, agent
from holdfast.cli import environment as place
from holdfast.cli.failures import refusal
from holdfast.cli.input import agents, suggestions, values as given_
from holdfast.cli.main import cli
from holdfast.cli.show import (
    formatting,
    live,
    screen,
    style,
    table as table_,
)
from holdfast.cli.show.live import Replay, bar
from holdfast.cli.show.screen import Progress, Screen, progress_line
from holdfast.cli.show.style import Style, bare, clean, cut
from holdfast.cli.show.table import table
from holdfast.testing.clock import FakeClock
from tests.cli import cli_agents
from tests.cli.conftest import worked_in

PICTURES = Path(__file__).with_name("pictures")
SHOWN = [
    *("list", "list --status failed", "show hello", "show pay", "show bad", "log hello", "log pay --full", "inbox"),
    *("diff hello 2 6", "audit", "stats", "explain step-changed", "show nobody", "budget thrifty"),
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A store whose times never change."""
    worked_in(tmp_path, monkeypatch)
    monkeypatch.delenv("TERM", raising=False)
    shutil.copy(cli_agents.__file__, tmp_path / "agents.py")
    with holdfast.open("holdfast.db", clock=FakeClock(tick_us=1_000), key_space="pictures") as app:
        long = {"name": "Ana Maria of the long name that goes on and on, as names sometimes do in tests like these"}
        app.run(cli_agents.greet, long, id="hello", user="ana")
        app.run(cli_agents.failer, id="bad")
        app.run(cli_agents.payer, id="pay")
        app.run(cli_agents.asker, id="ask-about-the-seat-in-the-plane-to-oslo-next-week")
        app.run(cli_agents.thrifty, id="thrifty")
    return tmp_path


def printed(command, **environment):
    done = CliRunner().invoke(cli, command.split(), env=environment)
    return f"$ holdfast {command}\n{done.output}"


def steady(text):
    """Without what differs from one day, process and place to another."""
    text = re.sub(r"process \d+", "process 77", text)
    text = re.sub(r"\b\d{4} d (ago|…)", r"1098 d \1", text)
    text = re.sub(r"size +\S+ kB|tables .*", lambda found: found[0].split()[0] + " …", text)
    text = re.sub(r"(?m)^( +)/.*agents\.py:\d+", r"\1agents.py:7", text)  # a path may have spaces in it
    return re.sub(r"[^ \n]*agents\.py:\d+", "agents.py:7", text)


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_every_picture_is_as_it_was(folder, columns):
    environment = {"FORCE_COLOR": "1", "NO_COLOR": "1", "COLUMNS": str(columns)}
    text = steady("\n".join(printed(command, **environment) for command in SHOWN))
    picture = PICTURES / f"{columns}.txt"
    if os.environ.get("HOLDFAST_WRITE_PICTURES"):
        picture.write_text(text, "utf-8")
    assert text == picture.read_text("utf-8")
    assert "\x1b" not in text


@pytest.mark.parametrize("columns", [60, 80, 120, 200])
@pytest.mark.parametrize("command", ["list", "log hello", "log pay --full", "audit", "diff hello 2 6", "show hello"])
def test_nothing_is_wider_than_the_terminal(folder, command, columns):
    text = printed(command, FORCE_COLOR="1", COLUMNS=str(columns))
    assert max(len(bare(line)) for line in text.splitlines()[1:]) <= columns


def test_off_a_terminal_nothing_is_cut_and_nothing_is_coloured(folder):
    for command in ("list", "log hello", "show hello", "inbox"):
        text = printed(command, COLUMNS="40")
        assert "\x1b" not in text and "─" not in text and "✓" not in text
    assert "sometimes do in tests like these" in printed("show hello")
    assert "ask-about-the-seat-in-the-plane-to-oslo-next-week" in printed("list", COLUMNS="40")


def test_what_somebody_put_into_a_task_cannot_steer_a_terminal(folder):
    evil = "\x1b]0;owned\x07\x1b[2J\r\nsecond line\u202e"

    @agent
    def odd(task: Task, text: str) -> str:
        task.state.text = text
        task.fact(text, text, source=text)
        task.flag(text)
        task.decide(text, text, why=text)
        return task.ask(text, name=text)

    @agent
    def worse(task: Task) -> str:
        raise ValueError(evil)

    with holdfast.open("holdfast.db") as app:
        app.run(odd, {"text": evil}, id="odd")
        app.run(worse, id="worse")
    for command in (
        "list",
        "show odd",
        "show worse",
        "log worse",
        "log odd --full",
        "inbox",
        "audit --task odd",
        "diff odd 1 6",
    ):
        text = printed(command)
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text), command
        assert not re.search("^second line", text, re.M)


def test_a_whole_replay_is_one_line(folder):
    @agent
    async def many(task: AsyncTask) -> int:
        for number in range(41):
            await task.step(int, number, name="count")
        return await task.ask("go on?", name="go")

    with holdfast.open("holdfast.db", clock=FakeClock(tick_us=100)) as app:
        app.run(many, id="many")
        seq = app.answer("many", "go", 7).seq
        app.run(many, id="many")
        replay = Replay(app, "many")
        found = list(app.events("many", after=seq))
        (replayed,) = filter(None, (replay.take(record, found) for record in found))
    assert 40 <= replayed.steps < 50 and replayed.took_us >= 0


# Pieces


@pytest.mark.parametrize(
    "module",
    [agents, given_, live, style, place, screen, refusal, table_, suggestions, formatting],
    ids=lambda one: one.__name__,
)
def test_the_examples_in_the_code_are_true(module):
    found = doctest.testmod(module)
    assert found.attempted and not found.failed


texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Cf", "Zl", "Zp"]), max_size=60)


@given(st.lists(st.lists(texts, min_size=3, max_size=3), max_size=6), st.integers(40, 200))
def test_a_table_fits_and_has_a_line_for_every_row(rows, width):
    look = Style(terminal=True, colour=True, width=width)
    lines = list(table(["ONE", "TWO", "THREE"], rows, look))
    assert len(lines) >= len(rows)
    if lines and "─" in lines[min(1, len(lines) - 1)]:  # in columns: one line a row, two if its name has its own
        assert all(len(bare(line)) <= width for line in lines if bare(line) not in [row[0] for row in rows])
        assert len(rows) + 2 <= len(lines) <= 2 * len(rows) + 2
    names = [row[0] for row in rows if row[0].strip()]
    assert all(any(name.rstrip() in bare(line) for line in lines) for name in names), "a name is never cut"
    whole = list(table(["ONE", "TWO", "THREE"], rows, Style()))
    for row, line in zip(rows, whole[1:], strict=True):
        assert all(cell.strip() in line for cell in row)


@given(st.text(max_size=80), st.integers(1, 40))
def test_what_is_cut_fits_and_what_is_clean_has_no_controls(text, width):
    assert len(cut(text, width)) <= width and (cut(text, width) == text) == (len(text) <= width)
    assert not re.search(r"[\x00-\x1f\x7f-\x9f]", clean(text)) and len(clean(text)) == len(text)


@given(st.floats(0, 1e9), st.floats(0.001, 1e9))
def test_a_bar_is_always_as_long(used, most):
    drawn = bar("tokens", used, most, Style(terminal=True, width=80))
    assert drawn.count("█") + drawn.count("░") == 10 and "%" in drawn


class Lines:
    def __init__(self):
        self.text = ""

    def write(self, text):
        self.text += text

    def flush(self):
        pass


def test_long_work_shows_count_rate_and_estimate_and_short_work_nothing():
    for view, wanted in ((Style(True, False, 80), "\r\x1b[K"), (Style(), "\n")):
        stream = Lines()
        with Progress("verified", "log", screen=Screen(stream, view), patience=0) as progress:
            progress(500, 2000)
        assert re.match(r"verified 500 of 2,000 logs · [\d,]+/s · .* left", stream.text) and wanted in stream.text
        stream = Lines()
        with Progress("verified", "log", screen=Screen(stream, view)) as progress:
            progress(500, 2000)
        assert stream.text == ""
    assert progress_line("removed", "task", 10, 0, 0.0) == "removed 10 tasks · 0/s"


def test_what_agents_print_stands_above_the_live_line():
    stream = Lines()
    screen = Screen(stream, Style(True, False, 40))
    screen.status("working 1 s")
    with screen.prints():
        print("hello")
        print("half a ", end="")
        print("line", end="")
    screen.close()
    assert stream.text == ("working 1 s\r\x1b[Khello\nworking 1 s\r\x1b[Khalf a line\nworking 1 s\r\x1b[K")


def test_what_agents_print_without_an_end_is_shown_when_it_is_flushed():
    stream = Lines()
    screen = Screen(stream, Style(True, False, 40))
    screen.status("working 1 s")
    with screen.prints():
        print("your name? ", end="", flush=True)
        screen.status("working 2 s")
        print("hello")
        screen.status("working 3 s")
        print("1 of", end="", flush=True)
        screen.line("done  draft#1")
        print(" 3")
        print("10%", end="\r", flush=True)
        print("20%", flush=True)
    text = "working 1 s\r\x1b[Kyour name? hello\nworking 3 s\r\x1b[K1 of\ndone  draft#1\n 3\n10%\r\x1b[K20%\n"
    assert stream.text == text


def test_off_a_terminal_nothing_is_rewritten_and_no_line_is_begun():
    stream = Lines()
    screen = Screen(stream, Style())
    with screen.prints():
        for number in range(3):
            print(f"{number}0%", end="\r", flush=True)
        screen.line("done  draft#1")
        print()
        sys.stdout.buffer.write("é\r\n".encode()[:1])
        sys.stdout.buffer.write("é\r\n".encode()[1:])
    assert stream.text == "done  draft#1\n20%\né\n"


def test_threads_that_print_at_once_print_everything_once():
    stream = Lines()
    screen = Screen(stream, Style())

    def chat(name):
        for number in range(300):
            print(f"{name} {number}")

    with screen.prints():
        threads = [threading.Thread(target=chat, args=(name,)) for name in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    wanted = "".join(f"{name} {number}\n" for name in "abcd" for number in range(300))
    assert sorted(stream.text) == sorted(wanted)
