"""What somebody types who is new here: each slip is noticed, and the message says what to type instead."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from holdfast.cli.failures.refusal import CONFLICT, FAILED, NOT_FOUND, STORE, USAGE, WAITING
from tests.cli import cli_agents
from tests.cli.test_cli import call, refused

PAYMENT = """
import os, signal
from holdfast import Task, agent, tool

@tool(effect="once", redact=["card"])
def charge(order: int, card: str) -> str:
    os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGINT)
    return "ch-1"

@agent
def shop(task: Task, order: int) -> str:
    return task.call(charge, order=order, card="4242")
"""


# Values


def test_a_value_is_json_if_it_is_json_and_text_where_the_agent_takes_text(folder, texts):
    assert call("run", "agents.py:greet", "-p", "name=Ana", "-p", "times=2")[0] == "HELLO ANA HELLO ANA\n"
    assert call("run", "agents.py:greet", "-p", "name=42", "-p", "times:=1")[0] == "HELLO 42\n"
    assert call("run", "agents.py:greet", "-p", 'name="42"')[0] == "HELLO 42\n"
    wrong = ("run", "agents.py:greet", "-p", "name=Ana", "-p", "times=twice", "--store", "new.db")
    code, told = refused(*wrong, code=USAGE)
    assert code == "invalid-input" and not Path("new.db").exists()
    texts.check(told)
    assert refused("test", "agents.py:greet", "-p", "name=Ana", "-p", "times=[2]", code=USAGE)[0] == "invalid-input"
    assert refused("run", "agents.py:greet", "-p", "name=Ana", "-p", "times:=two", code=USAGE)[0] == "invalid-value"


HUGE = "9" * 20


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (f"show a --at {HUGE}", "seq-out-of-range"),
        (f"diff a 1 {HUGE}", "seq-out-of-range"),
        (f"fork a --at {HUGE}", "seq-out-of-range"),
        (f"rollback a --to {HUGE} --yes", "seq-out-of-range"),
        (f"gc --keep {HUGE} --yes", "invalid-value"),
        ("log a --for 3s", "invalid-value"),
    ],
)
def test_a_number_that_no_store_can_hold_is_refused_as_one_that_is_not_there(folder, command, error):
    call("run", "agents.py:greet", "-p", "name=Ana", "--id", "a")
    code, told = refused(*command.split(), code=NOT_FOUND if error == "seq-out-of-range" else USAGE)
    assert code == error and "Traceback" not in told
    call("log", "a", "--after", HUGE)
    call("audit", "--limit", HUGE)


def test_whoever_resumes_without_a_file_is_told_what_to_type(folder):
    call("run", "agents.py:asker", "--id", "q", code=WAITING)
    call("answer", "q", "seat#1", "x")
    _, told = refused("resume", "@last", code=USAGE)
    assert "holdfast resume q FILE" in told


def test_json_in_place_of_its_file_is_told_where_it_belongs(folder, texts):
    _, told = refused("run", "agents.py:greet", "--input", '{"name": "Ana"}', code=USAGE)
    assert "-p name=JSON" in told and "--input -" in told and "Errno" not in told
    _, told = refused("run", "agents.py:greet", "--input", "nofile.json", code=USAGE)
    texts.check(told)


def test_without_a_file_one_is_asked_for(folder, texts):
    for command in ("run", "worker"):
        _, told = refused(command, code=USAGE)
        assert f"holdfast {command} agents.py" in told
        texts.check(told)


def test_an_age_has_its_article(folder, texts):
    with holdfast.open("holdfast.db"):
        pass
    texts.check(refused("gc", "--older-than", "3parsecs", code=USAGE)[1])


# Tasks


def test_an_id_that_is_nearly_one_is_named(folder, texts):
    call("run", "agents.py:greet", "-p", "name=Ana", "--id", "greet-ana")
    for command in (["show"], ["log"], ["cancel"], ["resume"]):
        code, told = refused(*command, "greet-anna", code=NOT_FOUND)
        assert code == "task-not-found", command
        texts.check(told)
    texts.check(refused("show", "quite-another", code=NOT_FOUND)[1])


def test_a_task_that_has_ended_is_not_said_to_go_on(folder, texts):
    call("run", "agents.py:asker", "--id", "g", code=WAITING)
    call("cancel", "g")
    code, told = refused("resume", "g", "agents.py", code=CONFLICT)
    assert code == "task-finished"
    texts.check(told)


def test_an_id_with_marks_on_its_letters_gets_one_without(folder):
    code, told = refused("run", "agents.py:greet", "-p", "name=Ana", "--id", "zürich/nönö x", code=USAGE)
    assert code == "invalid-id" and "'zurich/nono-x'" in told
    assert "agents.py" not in told and "greet in holdfast.db" not in told


def test_a_task_that_missed_its_deadline_is_resumed_with_a_new_one(folder, texts):
    _, told = refused("run", "agents.py:slowly", "--deadline", "30", code=USAGE)
    texts.check(told)
    _, err = call("run", "agents.py:slowly", "-p", "steps:=3", "--id", "s", "--deadline", "0.01s", code=FAILED)
    assert "holdfast resume s agents.py:slowly --deadline 10m" in err
    call("resume", "s", "agents.py", code=FAILED)
    call("resume", "s", "agents.py", "--deadline", "1m")
    code, told = refused("resume", "s", "agents.py", "--deadline", "1m", code=USAGE)
    assert code == "usage"
    texts.check(told)


# Doubts


def test_both_answers_at_once_settle_nothing(folder, texts):
    with holdfast.open("holdfast.db") as app:
        seq = app.run(cli_agents.doubter, id="d").seq
    for answers in (["--happened", "--did-not-happen"], ["--did-not-happen", "--happened"]):
        code, told = refused("settle", "d", "wobble#1", *answers, code=USAGE)
        assert code == "usage"
        texts.check(told)
    texts.check(refused("settle", "d", "wobble#1", code=USAGE)[1])
    with holdfast.open("holdfast.db") as app:
        assert (app.get("d").seq, app.get("d").waiting.kind) == (seq, "doubt")
    texts.check(refused("settle", "d", "wobble#2", "--happened", code=CONFLICT)[1])
    texts.check(refused("approve", "d", "wobble#1", code=CONFLICT)[1])


def test_whoever_stops_a_call_at_once_is_told_that_it_is_in_doubt_and_no_secret(folder, texts):
    Path("shop.py").write_text(PAYMENT)
    before = signal.getsignal(signal.SIGINT)
    _, err = call("run", "shop.py", "-p", "order:=7", "--id", "o7", code=130)
    assert signal.getsignal(signal.SIGINT) is before
    texts.check(err)
    out, _ = call("log", "o7")
    assert "card=<secret>" in out and "4242" not in out


# Stores


def test_a_store_is_not_copied_onto_itself(folder, texts):
    call("run", "agents.py:greet", "-p", "name=Ana", "--id", "g")
    for url in ("holdfast.db", "./holdfast.db", "sqlite:///holdfast.db", f"sqlite:///{folder}/holdfast.db"):
        texts.check(refused("copy", url, code=USAGE)[1])
    call("copy", "other.db")


def test_a_task_that_went_on_in_both_stores_is_named_when_they_are_copied(folder, texts):
    call("run", "agents.py:asker", "--id", "ask", code=WAITING)
    call("copy", "other.db")
    for store in ("holdfast.db", "other.db"):
        call("answer", "ask", "seat#1", f"in {store}", "--store", store)
    code, told = refused("copy", "other.db", code=CONFLICT)
    assert code == "task-exists"
    texts.check(told)


def test_a_backup_beside_the_old_wal_is_told_how_to_be_put_in_place(folder, texts):
    call("run", "agents.py:greet", "-p", "name=Ana", "--id", "g")
    call("backup", "monday.db")
    with holdfast.open("holdfast.db") as app:
        for n in range(30):
            app.run(cli_agents.greet, {"name": "Ana"}, id=f"g{n}")
        shutil.copy("holdfast.db-wal", "kept")
    for left in Path().glob("holdfast.db-*"):
        left.unlink()
    shutil.copy("kept", "holdfast.db-wal")
    shutil.copy("monday.db", "holdfast.db")
    code, told = refused("list", code=STORE)
    assert code == "log-corrupt"
    texts.check(told)


def test_one_remedy_is_said_once(folder):
    told = refused("list", "--store", "mysql://x", code=USAGE)[1].splitlines()
    assert sum("sqlite:///" in line for line in told) == 1
    told = refused("run", "agents.py:greet", "-p", "name=A", "--id", "-x", code=USAGE)[1]
    assert told.count("letters, digits") == 1


# Waiting for a command


LOADED = """
import sys
from holdfast.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit:
    print(*sorted(sys.modules), file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("arguments", "heavy"),
    [
        (["--version"], {"apsw", "asyncio", "holdfast.core.codec", "logging", "msgspec", "shutil", "tempfile"}),
        (["list"], {"asyncio", "importlib.resources", "jsonpatch", "logging", "psycopg", "shutil", "zipfile"}),
    ],
)
def test_a_command_that_only_looks_loads_nothing_heavy(folder, arguments, heavy):
    with holdfast.open("holdfast.db") as app:
        app.run(cli_agents.doubter, id="d")
    given = [sys.executable, "-c", LOADED, *arguments]
    done = subprocess.run(given, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout and not heavy & set(done.stderr.splitlines()[-1].split())
