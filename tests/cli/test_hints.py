"""Every command that the command line tells people to type works when it is pasted into a shell."""

import json
import os
import re
import shutil
import subprocess
import sys
import threading

import pytest
from click.testing import CliRunner

import holdfast
from holdfast import agent
from holdfast.cli.failures.refusal import CONFLICT, NOT_FOUND, STORE, USAGE
from holdfast.cli.main import cli
from tests.cli import cli_agents
from tests.cli.conftest import worked_in

YOURS = {"FILE": "agents.py", "VALUE": "aisle", "WHY": "because", "SEQ": "2", "TIME": "10m"}
"""What people put in the place of words in capitals."""

MORE = """

def recall(call):
    pass


@tool(effect="once", compensate=recall)
def charge() -> str:
    return "charged"


@tool(effect="once", definite=[ValueError])
def ship() -> str:
    raise ValueError("no truck")


@agent
def undoes(task: Task) -> str:
    return charge() + ship()


@agent(example={"name": "Ana"}, check=lambda done: done.result == "HELLO ANA")
def polite(task: Task, name: str) -> str:
    return task.step(shout, f"hello {name}", name="shout")
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A store with a task in every state that has a hint."""
    folder = tmp_path_factory.mktemp("hints")
    with open(cli_agents.__file__, encoding="utf-8") as file:
        (folder / "agents.py").write_text(file.read() + MORE, "utf-8")
    with holdfast.open(folder / "holdfast.db") as app:
        for one, id in ((cli_agents.failer, "bad"), (cli_agents.asker, "odd#1~2"), (cli_agents.payer, "pays")):
            app.run(one, id=id)
        for one, id in ((cli_agents.doubter, "lost"), (cli_agents.thrifty, "poor"), (cli_agents.listener, "ears")):
            app.run(one, id=id)
        app.run(cli_agents.parent, id="family")
        app.start(cli_agents.flaky, id="later")
        app.run(cli_agents.greet, {"name": "Ana"}, id="hi")
    shutil.copy(folder / "holdfast.db", folder / "other.db")
    return folder


@pytest.fixture
def folder(made, tmp_path, monkeypatch):
    return worked_in(shutil.copytree(made, tmp_path / "here"), monkeypatch)


def typed(*words, **environment):
    return CliRunner().invoke(cli, list(words), env=environment)


def pasted(hint):
    """The words a shell makes of a hint, with yours in the place of words in capitals."""
    for word, value in YOURS.items():
        hint = re.sub(rf"\b{word}\b", value, hint)
    given = {"capture_output": True, "text": True, "check": True}
    program, *words = subprocess.run(["bash", "-c", f"printf '%s\\0' {hint}"], **given).stdout.split("\0")[:-1]
    assert program == "holdfast"
    return words


def hints(text):
    """The commands of a text: from `holdfast` to the end of the line, or to what explains it."""
    found = re.findall(r"holdfast [a-z]+(?:(?!   ) .*?)?(?=   |; |, then|,? which |$)", text, re.M)
    return [hint.rstrip(".,") for hint in found if " | " not in hint]


PRINTED = [
    *("show bad", "show pays", "show lost", "show poor", "show ears", "show family", "show later", "show hi"),
    *("inbox", "list", "reopen bad", "approve pays pay", "settle lost wobble#1 --happened", "budget poor"),
    *("run agents.py:undoes --id gone", "run agents.py:failer --id fails", "run agents.py:asker --id asks"),
    *("run agents.py:payer --id wants", "run agents.py:doubter --id doubts", "run agents.py:thrifty --id spends"),
    *("fork bad", "rollback bad --yes", "workers", "reject pays pay"),
]
QUIET = ("show bad", "show hi", "budget poor", "run agents.py:undoes --id gone", "rollback bad --yes")
"""Commands that have nothing to tell people to type."""


@pytest.mark.parametrize("line", PRINTED)
def test_what_a_command_tells_people_to_type_can_be_pasted(folder, line):
    done = typed(*line.split())
    assert "Traceback" not in done.output and done.exit_code in (0, 1, 6), done.output
    told = hints(done.output)
    assert told or line in QUIET, done.output
    saved = folder.parent / "saved"
    shutil.copytree(folder, saved)
    for hint in told:
        if hint.startswith("holdfast worker"):
            hint += " --drain"  # or it would work until it is stopped
        again = typed(*pasted(hint))
        sys.modules.pop("agents", None)
        assert again.exit_code not in (USAGE, NOT_FOUND, STORE), f"{hint}: {again.output}"
        shutil.rmtree(folder)
        shutil.copytree(saved, folder)
        os.chdir(folder)


WRONG = [
    *("show nope", "show bad --at 99", "reopen hi", "answer hi x y", "approve hi x", "signal hi x 1", "resume bad"),
    *("cancel hi", "settle lost nope --did-not-happen", "list --store missing.db", "run", "worker", "fork bad --at 99"),
    *("run agents.py:greet --name Ana", "run agents.py:greet name=Ana", "run agents.py:greet -p name=Ben --id hi"),
    *("fly", "show", "diff bad 1 99", "explain nope", "migrate-states agents.py:greet", "rollback later --yes"),
]


@pytest.mark.parametrize("line", WRONG)
def test_the_one_command_of_an_error_can_be_pasted(folder, line):
    done = typed(*line.split())
    assert done.exit_code > 0 and "Traceback" not in done.output, done.output
    last = done.stderr.splitlines()[-1]
    assert last.startswith("help: holdfast "), done.stderr
    words = pasted(last.removeprefix("help: "))
    again = typed(*words, *(["--drain"] if words[0] == "worker" else []))
    sys.modules.pop("agents", None)
    assert again.exit_code not in (USAGE, NOT_FOUND, STORE) or words[:2] == ["run", "agents.py"], again.output


def test_a_wait_that_is_printed_in_python_names_the_call_and_the_next_command(folder):
    with holdfast.open("other.db") as app:
        told = {id: str(app.get(id).waiting) for id in ("pays", "odd#1~2", "ears", "lost", "poor", "family")}
    assert told["pays"].startswith("approval requested: pay(cents=4400)\n  holdfast approve pays 'pay#1' --bound ")
    assert told["odd#1~2"].startswith("question: seat: Which seat?\n") and "--by ana" in told["odd#1~2"]
    assert "waits for the signal 'paid'" in told["ears"] and "did wobble(to=ana) happen?" in told["lost"]
    assert "2 of 2 steps" in told["poor"] and "waits for its child family/child#1" in told["family"]
    for id, text in told.items():
        (hint,) = hints(text)
        assert "--store other.db" in hint
        assert typed(*pasted(hint)).exit_code == 0, (id, hint)


def test_a_compensated_task_is_not_to_be_tried_again(folder):
    done = typed("run", "agents.py:undoes", "--id", "gone")
    assert done.exit_code == 1 and "compensated" in done.stderr and "to try again" not in done.stderr
    assert "another --id" in done.stderr


def test_a_reopened_task_has_a_hint_for_workers_and_one_for_this_shell(folder):
    told = typed("reopen", "bad").stderr
    assert "start a worker for it: holdfast worker FILE" in told and "holdfast resume bad FILE" in told


def test_a_missing_store_names_the_ones_beside_it(folder):
    (folder / "notes.db").write_text("not a store")
    told = typed("list", "--store", "agents.db").stderr
    assert "there is no store at 'agents.db'" in told and "--store other.db" in told and "notes.db" not in told
    for path in ("holdfast.db", "other.db"):
        (folder / path).unlink()
    assert "`holdfast run` creates one" in typed("list").stderr
    assert "`holdfast run` creates one" in typed("list", "--store", "no/such/folder/x.db").stderr


def test_hints_are_found_in_what_is_printed():
    text = "approval requested: pay(cents=1)\n  holdfast approve a pay#1 --by ana\nthen: holdfast resume a FILE\n"
    assert hints(text) == ["holdfast approve a pay#1 --by ana", "holdfast resume a FILE"]
    assert hints("holdfast list   shows the tasks") == ["holdfast list"]
    assert pasted("holdfast answer 'it is' seat VALUE") == ["answer", "it is", "seat", "aisle"]


# What is printed is what happened


def test_a_task_that_is_busy_is_not_printed_as_resumed(folder):
    """Another thread of this process has the task."""
    working, end = threading.Event(), threading.Event()

    @agent(name="asker")
    def at_work(task):
        working.set()
        end.wait(30)

    with holdfast.open("holdfast.db") as app:
        thread = threading.Thread(target=app.run, args=(at_work,), kwargs={"id": "long"})
        thread.start()
        working.wait(30)
        busy = typed("resume", "long", "agents.py")
        patient = typed("resume", "long", "agents.py", "--wait", "0.1s")
        end.set()
        thread.join()
    assert busy.exit_code == patient.exit_code == CONFLICT
    assert "resumed" not in busy.stderr + patient.stderr
    assert "help: holdfast resume long agents.py --wait 1m\n" in busy.stderr
    assert "long: waiting for the worker that has it, up to 0.1s\n" in patient.stderr


def test_a_fork_that_is_there_is_named_with_the_place_it_was_made_from(folder):
    first = typed("fork", "hi", "--at", "3", "--id", "other")
    again = typed("fork", "hi", "--id", "other")
    whole = typed("fork", "hi", "--id", "whole", "--json")
    assert "forked from hi at seq 3; " in first.stderr and "already" not in first.stderr
    assert "already forked from hi at seq 3; " in again.stderr
    assert json.loads(whole.stdout)["at"] == json.loads(typed("show", "hi", "--json").stdout)["seq"]


def test_a_limit_that_was_not_there_is_added(folder):
    assert "pays: added the limits: tokens=10 calls=4; " in typed("budget", "pays", "tokens=10", "calls=4").stdout
    raised = typed("budget", "pays", "tokens=20", "turns=3").stdout
    assert "pays: raised the limit: tokens=20; added the limit: turns=3; " in raised


def test_a_rollback_that_a_call_in_doubt_forbids_asks_nothing_first(folder):
    for back in ((), ("--steps", "1"), ("--versions", "1"), ("--to", "1")):
        refused = typed("rollback", "lost", *back)
        assert refused.exit_code == CONFLICT, refused.stderr
        assert "task 'lost' cannot be rolled back while call " in refused.stderr
        assert "Settle the call first." in refused.stderr and "help: holdfast inbox\n" in refused.stderr


def test_a_file_that_is_no_export_is_named_with_its_damage(folder):
    typed("export", "hi", "hi.jsonl")
    lines = (folder / "hi.jsonl").read_text("utf-8").splitlines(keepends=True)
    (folder / "short.jsonl").write_text("".join(lines[:-1]), "utf-8")
    (folder / "cut.jsonl").write_text("".join(lines[:2]) + lines[2][:20], "utf-8")
    (folder / "notes.jsonl").write_text("hello\n", "utf-8")
    for name, why in {
        "short": "The export is not complete: its last line is missing, or lines are.",
        "cut": "Line 3 is not a line of an export:",
        "notes": "It is not an export:",
    }.items():
        refused = typed("import", f"{name}.jsonl", "--store", "copy.db")
        assert refused.exit_code == USAGE
        assert f"'{name}.jsonl' can't be imported\n" in refused.stderr and why in refused.stderr
    assert not (folder / "copy.db").exists()


def test_a_server_that_is_away_is_read_from_without_a_word_about_writing(folder):
    away = ("--store", "postgresql://127.0.0.1:1/agents")
    read, written = typed("list", *away), typed("run", "agents.py:greet", "-p", "name=Ana", *away)
    assert read.exit_code == written.exit_code == STORE
    assert "What was acknowledged before is safe." in read.stderr and "written" not in read.stderr
    assert "What was acknowledged before is safe. Nothing was written." in written.stderr


def test_tasks_are_listed_by_the_version_of_their_agent(folder):
    @agent(version="2")
    def renewed(task):
        return "done"

    with holdfast.open("holdfast.db") as app:
        app.run(renewed, id="new")
        assert [row.id for row in app.list(version="2")] == ["new"]
        assert "new" not in [row.id for row in app.list(version="", limit=None)]
    assert typed("list", "--version", "2", "-q").stdout == "new\n"
