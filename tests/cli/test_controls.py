"""Text in a store that would steer a terminal, were it printed as it is: titles, cleared screens, hidden words."""

import json
import os
import pty
import re
import shutil
import subprocess
from itertools import product

import pytest
from click.testing import CliRunner

import holdfast
from holdfast import Budget, agent, events as ev, tool
from holdfast.cli.main import COMMANDS, cli
from holdfast.core import codec
from tests.cli import cli_agents
from tests.cli.conftest import worked_in
from tests.cli.test_terminal import COMMAND, ENVIRONMENT

NASTY = "x\x1b]0;owned\x07\x1b[2J\x9b8m\x7f\u202eevil\u2066\u200f\u200b\ufeff\b\rover"
STEERING = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
REWRITES = re.compile(r"\r\x1b\[K|\r\n|\x1b\[H\x1b\[2J")
"""What our own screen writes: the last line again, the end of a line, and a watched list again."""


@tool(name=f"pay {NASTY}", effect="once", risk="money")
def pay(amount: str) -> str:
    return NASTY


@tool(name=f"lose {NASTY}", effect="once")
def lose(amount: str) -> str:
    raise ConnectionError(NASTY)


@agent(name=f"all {NASTY}", stages=[NASTY])
def all_kinds(task, given):
    task.stage(NASTY)
    task.plan([NASTY])
    task.fact(NASTY, NASTY, source=NASTY)
    task.note(NASTY, {NASTY: NASTY})
    task.flag(NASTY)
    task.question(NASTY)
    task.decide(NASTY, NASTY, why=NASTY, options=[NASTY])
    task.artifact(NASTY, type=NASTY, summary=NASTY)
    task.message({"role": "user", "content": NASTY})
    task.log(NASTY)
    setattr(task.state, NASTY, NASTY)
    task.step(str.upper, NASTY, name=NASTY)
    task.checkpoint(NASTY)
    return {NASTY: NASTY}


@agent(name=f"fails {NASTY}")
def fails(task):
    def broken():
        error = ValueError(NASTY)
        error.add_note(NASTY)
        raise error

    task.step(broken, name=NASTY)


@agent(name=f"asks {NASTY}")
def asks(task):
    task.ask(NASTY, name=NASTY)


@agent(name=f"waits {NASTY}")
def waits(task):
    task.wait(NASTY)


@agent(name=f"approves {NASTY}", required_for_risk_levels=["money"])
def approves(task):
    task.call(pay, amount=NASTY)


@agent(name=f"loses {NASTY}")
def loses(task):
    task.call(lose, amount=NASTY)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("nasty")
    with holdfast.open(folder / "holdfast.db") as app:
        app.run(
            all_kinds, {"given": {NASTY: NASTY}}, id="all", goal=NASTY, user="ana", key=NASTY, budget=Budget(steps=9)
        )
        for id, one in {"bad": fails, "asked": asks, "waits": waits, "pays": approves, "lost": loses}.items():
            app.run(one, id=id)
        app.start("nobody", id="queued", queue=NASTY)
        app.start("a", id="aside")
        app.append("aside", ev.TaskClaimed(holder="h"), ev.TaskSuspended(why="quarantined", note=NASTY))
        app.start("a", id="gone")
        app.cancel("gone", by=NASTY, why=NASTY)
        app.signal("queued", NASTY, NASTY, by=NASTY)
        app.start("a", id="odd")
        odd = codec.Draft(NASTY, 1, b"{}", codec.body_hash(b"{}"))
        app.store.append([codec.Group((codec.Write("odd", (odd,)),))])
        app.export("all", folder / "all.out")
    shutil.copy(cli_agents.__file__, folder / "agents.py")
    return folder


@pytest.fixture
def folder(made, tmp_path, monkeypatch):
    return worked_in(shutil.copytree(made, tmp_path / "here"), monkeypatch, NASTY)


TASKS = ("all", "bad", "asked", "waits", "pays", "lost", "queued", "aside", "gone", "odd")
LOOKING = [
    *(["list"], ["list", "--agent", f"all {NASTY}"], ["list", "--stage", NASTY], ["inbox"], ["stats"], ["workers"]),
    *(["traces", "tail", "--seconds", "10ms"], ["traces", "export", "all", "--endpoint", f"ftp://{NASTY}"]),
    *(["mcp", "config", "claude", "--as", NASTY], ["mcp", "config", NASTY], ["mcp", "--as", NASTY]),
    *(["audit"], ["audit", "--by", NASTY], ["verify"], ["doctor"], ["config"], ["gc", "--keep", "0", "--dry-run"]),
    *([verb, id] for verb, id in product(("show", "log", "budget"), TASKS)),
    *(["log", "--full", id] for id in TASKS),
    *(
        ["diff", "all", "1"],
        ["diff", "all", "bad"],
        ["diff", "all", NASTY],
        ["show", NASTY],
        ["export", "odd", "o.out"],
    ),
    *(["step", "all", NASTY], ["explain", NASTY], [NASTY], ["list", "--status", NASTY], ["list", NASTY]),
]
SAYING = [
    *(["answer", "asked", NASTY, NASTY], ["signal", "waits", NASTY, NASTY], ["approve", "pays", f"pay {NASTY}"]),
    *(["reject", "pays", f"pay {NASTY}", "--why", NASTY], ["settle", "lost", f"lose {NASTY}#1", "--did-not-happen"]),
    ["reopen", "bad", "--why", NASTY],
    *(["cancel", "asked", "--why", NASTY], ["budget", "all", "steps=99"], ["budget", "all", f"{NASTY}=9"]),
    *(["answer", "asked", "nothing", NASTY], ["approve", "asked", NASTY], ["settle", "all", NASTY, "--happened"]),
    *(
        ["rollback", "all", "--to", NASTY, "--yes"],
        ["fork", "all", "--id", NASTY],
        ["fork", "bad", "--set", f"a={NASTY}"],
    ),
    *(
        ["resume", "all", "agents.py"],
        ["resume", "asked", "agents.py"],
        ["run", "agents.py:greet", "-p", f"name={NASTY}"],
    ),
    *(["run", "agents.py:greet", "-p", f"{NASTY}=1"], ["run", NASTY], ["import", NASTY], ["import", "all.out"]),
    *(
        ["backup", NASTY],
        ["copy", f"{NASTY}/x.db"],
        ["export", "all", f"{NASTY}/x"],
        ["worker", "agents.py", "--drain"],
        ["ui", "--no-open", "--port", "0", "--for", "10ms", "--by", NASTY],
    ),
    *(
        ["gc", "--keep", "0", "--yes"],
        ["migrate"],
        ["migrate-states", "agents.py"],
        ["test", "agents.py:greet", "-p", f"name={NASTY}"],
    ),
    *(["list", "--store", f"{NASTY}.db"], ["list", "--store", f"mysql://{NASTY}"], ["list", "--namespace", NASTY]),
]


def without_ours(text):
    return COLOURS.sub("", REWRITES.sub("\n", text))


def test_every_command_is_tried():
    tried = {line[0] for line in (*LOOKING, *SAYING)} | {"export"}
    assert {*COMMANDS} - tried <= {"demo", "completion"}, "add a line"


@pytest.mark.parametrize("colour", ["", "1"], ids=["plain", "coloured"])
@pytest.mark.parametrize("lines", [LOOKING, SAYING], ids=["looking", "saying"])
def test_no_command_prints_what_steers_a_terminal(folder, monkeypatch, lines, colour):
    monkeypatch.setenv("FORCE_COLOR", colour)
    wrong = {}
    for line in lines:
        done = CliRunner().invoke(cli, line)
        found = STEERING.search(without_ours(done.output + done.stderr))
        if found is not None or "Traceback" in done.stderr:
            wrong[ascii(line)] = ascii(done.output + done.stderr)[-400:]
    assert not wrong


def at_a_terminal(folder, *arguments):
    """What a command writes to a terminal, and the terminal alone."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, *arguments], cwd=folder, env=ENVIRONMENT, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    text = b""
    while True:
        try:
            more = os.read(ours, 65_536)
        except OSError:
            break
        if not more:
            break
        text += more
    os.close(ours)
    assert process.wait(30) == 0
    return text.decode()


def test_an_export_to_a_terminal_is_escaped_and_one_to_a_program_is_not(folder):
    shown = at_a_terminal(folder, "export", "all", "-")
    assert not STEERING.search(without_ours(shown)) and "\\u009b" in shown
    lines = shown.split("\r\n")[:-1]
    with holdfast.open("holdfast.db") as app:
        written = b"".join(app.export_lines("all"))
    assert [json.loads(line) for line in lines] == [json.loads(line) for line in written.splitlines()]
    piped = subprocess.run(
        [*COMMAND, "export", "all", "-"], cwd=folder, env=ENVIRONMENT, capture_output=True, check=True
    )
    assert piped.stdout == written and "\x9b".encode() in written, "which can be imported"


@pytest.mark.parametrize("line", [["show", "all", "--json"], ["log", "all", "--jsonl"], ["inbox", "--json"]])
def test_json_at_a_terminal_is_the_same_document(folder, line):
    shown = at_a_terminal(folder, *line)
    assert not STEERING.search(without_ours(shown))
    piped = subprocess.run([*COMMAND, *line], cwd=folder, env=ENVIRONMENT, capture_output=True, check=True)
    documents = [json.loads(one) for one in shown.split("\r\n")[:-1]]
    assert documents == [json.loads(one) for one in piped.stdout.decode().split("\n")[:-1]]


def test_an_error_at_a_terminal_is_tamed_too(folder):
    ours, theirs = pty.openpty()
    line = [*COMMAND, "approve", "asked", NASTY.replace("\0", ""), "--json"]
    subprocess.run(line, cwd=folder, env=ENVIRONMENT, stdin=theirs, stdout=theirs, stderr=theirs, check=False)
    os.close(theirs)
    assert not STEERING.search(without_ours(os.read(ours, 65_536).decode()))
    os.close(ours)
