"""Every command as people and programs use it: what it prints, what it ends with, what it refuses."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import holdfast
from holdfast import agent
from holdfast.cli.failures.refusal import CONFLICT, FAILED, NOT_FOUND, STORE, UNREAD, USAGE, WAITING, refusing
from holdfast.cli.main import COMMANDS, cli
from holdfast.cli.show.catalog import READING
from holdfast.testing.clock import FakeClock

ROOT = Path(__file__).parents[2]


def call(*arguments, code=0, input=None, **environment):
    """Run a command here; gives what it printed on stdout and on stderr."""
    done = CliRunner().invoke(cli, [str(one) for one in arguments], input=input, env=environment)
    assert done.exit_code == code, (arguments, done.exit_code, done.stdout, done.stderr, done.exception)
    assert "Traceback" not in done.stderr
    return done.stdout, done.stderr


def data(*arguments, code=0, **given):
    """Run a command with --json; gives the document."""
    out, _ = call(*arguments, "--json", code=code, **given)
    return json.loads(out)


def refused(*arguments, code, input=None):
    """Run a command that says no, both ways; gives its error's code and what people read."""
    out, told = call(*arguments, code=code, input=input)
    assert (out == "" and told.startswith(("error[", "store:"))) or "error[" in told, (out, told)
    _, as_json = call(*arguments, "--json", code=code, input=input)
    error = json.loads(as_json.strip().splitlines()[-1])["error"]
    assert error["message"] and error["hint"] and isinstance(error.get("details", {}), dict)
    assert f"error[{error['code']}]" in told and "help: " in told
    if arguments[0] in READING:
        assert "Nothing was written." not in told, "a command that never writes need not say so"
    else:
        assert re.search(r"nothing was|was not (touched|made)|on record|not known|is safe", told, re.I), told
    assert "app." not in told
    return error["code"], told


def app_here():
    return holdfast.open("holdfast.db")


# Working


def test_a_task_is_run_and_its_result_is_all_that_stdout_has(folder, texts):
    out, err = call("run", "agents.py:greet", "-p", "name=Ana", "-p", "times:=2", "--id", "hi")
    assert out == "HELLO ANA HELLO ANA\n"
    assert "this is no data" in err
    texts.check(err)
    again, err = call("run", "agents.py:greet", "-p", "name=Ana", "-p", "times:=2", "--id", "hi")
    assert again == out and "this is no data" not in err


def test_an_async_agent_a_file_of_input_and_stdin_do_as_well(folder):
    (folder / "input.json").write_text('{"name": "Ben"}')
    assert call("run", "agents.py:later", "--input", "input.json")[0] == "BEN\n"
    assert call("run", "agents.py:later", "--input", "-", input='{"name": "Cy"}')[0] == "CY\n"
    out, err = call("run", "agents.py:later", "--input", "input.json", "-p", "name=Dee", "--quiet")
    assert out == "DEE\n" and len(err.splitlines()) == 1


def test_a_program_gets_the_whole_state_or_the_events_as_they_come(folder):
    done = data("run", "agents.py:greet", "-p", "name=Ana", "--id", "hi")
    assert (done["id"], done["status"], done["result"], done["stage"]) == ("hi", "completed", "HELLO ANA", "done")
    assert done["store"] == "holdfast.db" and done["waiting_on"] == []
    out, _ = call("run", "agents.py:greet", "-p", "name=Ben", "--id", "ho", "--jsonl")
    events = [json.loads(line) for line in out.splitlines()]
    assert [one["seq"] for one in events] == list(range(1, len(events) + 1))
    assert events[-1]["kind"] == "task_completed" and events[0]["event"]["agent"] == "greet"


def test_a_failed_task_ends_with_1_and_says_where_and_how_to_go_on(folder, texts):
    out, err = call("run", "agents.py:failer", "--id", "f", code=FAILED)
    assert out == "" and "ValueError: no such city" in err
    assert re.search(r"agents\.py:\d+ .*failer: raise ValueError", err)
    assert "holdfast resume f agents.py:failer" in err
    texts.check(err)
    assert data("run", "agents.py:failer", "--id", "g", code=FAILED)["failure"]["type"] == "ValueError"
    _, err = call("resume", "f", "agents.py", code=FAILED)
    texts.check(err)
    out, _ = call("log", "f")
    texts.check(out)


def test_retries_are_told(folder, texts):
    _, err = call("run", "agents.py:flaky", "--id", "f")
    texts.check(err)


def test_agents_come_from_pyproject_too_and_never_from_the_store(folder, texts):
    code, told = refused("run", code=USAGE)
    assert code == "invalid-value" and "pyproject.toml" in told and not (folder / "holdfast.db").exists()
    (folder / "pyproject.toml").write_text('[tool.holdfast]\nagents = ["agents.py"]\n')
    texts.check(refused("run", code=USAGE)[1])
    assert call("run", ":greet", "-p", "name=Ana")[0] == "HELLO ANA\n"
    _, err = call("run", ":asker", "--id", "a", code=WAITING)
    assert "holdfast resume a\n" in err
    call("answer", "a", "seat", "aisle")
    assert call("resume", "a")[0] == "answered aisle\n"
    (folder / "deep").mkdir()
    os.chdir(folder / "deep")
    assert call("run", ":greet", "-p", "name=Ana")[0] == "HELLO ANA\n"
    (folder / "pyproject.toml").write_text("[tool.holdfast]\nagents = 7\n")
    texts.check(refused("run", ":greet", code=USAGE)[1])
    (folder / "pyproject.toml").write_text("[tool")
    texts.check(refused("run", ":greet", code=USAGE)[1])


@pytest.mark.parametrize(
    "target",
    [
        "nothing.py",
        "agents.py",
        "agents.py:nobody",
        "empty.py",
        "broken.py",
        "odd.py",
        "ends.py",
    ],
)
def test_a_file_that_will_not_do_is_refused_before_a_store_is_made(folder, target, texts):
    files = {"empty": "", "broken": "x = 1\ny = 1 / 0\n", "odd": "def f(:\n", "ends": "import sys\nsys.exit(3)\n"}
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    texts.check(refused("run", target, code=USAGE)[1])
    assert not (folder / "holdfast.db").exists()


@pytest.mark.parametrize(
    "given",
    [
        ["-p", "nonsense"],
        ["-p", "=x"],
        ["-p", "name:=nope"],
        ["-p", "name=x", "-p", "times=x"],
        [],
        ["-p", "name=x", "-p", "other=x"],
        ["--input", "missing.json"],
        ["--input", "list.json"],
        ["-p", "name=x", "--id", "not an id"],
        ["-p", "name=x", "--hold", "long"],
    ],
)
def test_input_that_will_not_do_is_refused_and_nothing_is_written(folder, given, texts):
    (folder / "list.json").write_text("[1]")
    texts.check(refused("run", "agents.py:greet", *given, code=USAGE)[1])
    if (folder / "holdfast.db").exists():
        with app_here() as app:
            assert app.list() == []


def test_an_id_with_other_input_or_of_another_agent_is_refused(folder, texts):
    call("run", "agents.py:greet", "-p", "name=Ana", "--id", "hi")
    code, told = refused("run", "agents.py:greet", "-p", "name=Ben", "--id", "hi", code=CONFLICT)
    assert code == "input-conflict" and "{'name': 'Ana'}" in told
    texts.check(told)
    texts.check(refused("run", "agents.py:flaky", "--id", "hi", code=USAGE)[1])


def test_a_mock_task_touches_nothing(folder):
    _, err = call("run", "agents.py:payer", "--mock", "--id", "p", code=WAITING)
    assert "payer (mock)" in err
    call("approve", "p", "pay")
    assert call("resume", "p", "agents.py")[0] == "receipt-0\n" and not (folder / "payments").exists()


def test_an_agent_is_tried_in_a_store_that_is_thrown_away(folder, texts):
    out, err = call("test", "agents.py:greet", "-p", "name=Ana", "--mock")
    assert out.count("  ok  ") == 3 and "this is no data" in err
    texts.check(out)
    assert not (folder / "holdfast.db").exists()
    found = data("test", "agents.py:failer", code=FAILED)
    assert not found["passed"] and found["failure"] == "ValueError: no such city"
    found = data("test", "agents.py:greet", "-p", "name=Ana", "--crash", "--sample", "3")
    assert found["passed"] and found["crash"]["survived"] == 3 and found["crash"]["told"]
    assert refused("test", "agents.py:greet", code=USAGE)[0] == "invalid-input"


def test_a_task_is_resumed_only_where_there_is_something_to_resume(folder, texts):
    call("run", "agents.py:greet", "-p", "name=Ana", "--id", "hi")
    out, told = call("resume", "hi", "agents.py")
    assert out == "HELLO ANA\n" and "goes on" not in told, "a completed task is given back"
    assert refused("resume", "nobody", "agents.py", code=NOT_FOUND)[0] == "task-not-found"
    code, told = refused("resume", "hi", code=USAGE)
    assert code == "invalid-value" and "holdfast resume hi FILE" in told
    call("run", "agents.py:asker", "--id", "a", code=WAITING)
    assert data("resume", "a", "agents.py:asker", code=WAITING)["waiting_on"][0]["key"] == "seat#1"
    told = refused("resume", "a", "agents.py:greet", code=USAGE)[1]
    assert "holdfast resume a agents.py:asker\n" in told
    texts.check(told)


# People


def test_a_question_is_answered_as_the_command_says(folder, texts):
    _, err = call("run", "agents.py:asker", "--id", "a", code=WAITING)
    assert "  holdfast answer a seat#1 VALUE --by ana\n" in err
    texts.check(err)
    (entry,) = data("inbox")
    assert (entry["task"], entry["kind"], entry["key"], entry["prompt"]) == ("a", "question", "seat#1", "Which seat?")
    assert entry["commands"] == ["holdfast answer a seat#1 VALUE --by ana"]
    assert "Which seat?" in call("inbox")[0]
    texts.check(call("inbox", "--doubts")[1])
    assert data("answer", "a", "seat", "aisle", "--why", "long legs")["status"] == "pending"
    assert refused("answer", "a", "seat", "aisle", code=CONFLICT)[0] == "invalid-event"
    assert refused("answer", "nobody", "seat", "aisle", code=NOT_FOUND)[0] == "task-not-found"
    assert refused("answer", "a", "seat", ":=nope", code=USAGE)[0] == "invalid-value"
    assert call("resume", "a", "agents.py")[0] == "answered aisle\n"
    assert refused("answer", "a", "seat", "aisle", code=CONFLICT)[0] == "task-finished"


def test_a_call_is_approved_or_rejected_as_the_command_says(folder):
    for id, verb in (("p", "approve"), ("q", "reject")):
        _, err = call("run", "agents.py:payer", "--id", id, code=WAITING)
        assert f"  holdfast approve {id} pay#1 --bound " in err and "cents=4400" in err
        typed = re.search(rf"  holdfast ({verb} {id} \S+ --bound \w+ --by ana)", err)[1].replace("'", "").split()
        assert data(*typed)["status"] == "pending"
        assert refused(*typed, code=CONFLICT)[0] == "invalid-event"
        assert refused(verb, "nobody", "pay#1", code=NOT_FOUND)[0] == "task-not-found"
    assert call("resume", "p", "agents.py")[0] == "receipt-1\n"
    _, err = call("resume", "q", "agents.py", code=FAILED)
    assert "ApprovalDenied" in err and (folder / "payments").read_text() == "4400\n"
    assert refused("approve", "p", "pay#1", "--expires", "soon", code=USAGE)[0] == "invalid-value"


def test_a_doubt_is_settled_by_a_person(folder):
    for id, said, ends in (("d", ["--happened", "--result", '"sent"'], 0), ("e", ["--did-not-happen"], WAITING)):
        _, err = call("run", "agents.py:doubter", "--id", id, code=WAITING)
        assert f"holdfast settle {id} wobble#1 --did-not-happen --by ana" in err
        assert [one["kind"] for one in data("inbox", "--doubts") if one["task"] == id] == ["doubt"]
        assert data("settle", id, "wobble#1", *said)["status"] == "pending"
        assert data("settle", id, "wobble#1", *said)["status"] == "pending", "it can be corrected"
        out, _ = call("resume", id, "agents.py", code=ends)
        assert out == ("sent\n" if not ends else "")
    assert refused("settle", "d", "wobble#1", "--happened", code=CONFLICT)[0] == "invalid-event"
    assert refused("settle", "nobody", "wobble#1", "--happened", code=NOT_FOUND)[0] == "task-not-found"
    assert refused("settle", "d", "wobble#1", code=USAGE)[0] == "usage"
    assert refused("settle", "d", "wobble#1", "--did-not-happen", "--result", "1", code=USAGE)[0] == "usage"
    assert refused("settle", "d", "wobble#1", "--happened", "--result", ":=nope", code=USAGE)[0] == "invalid-value"


def test_a_signal_a_cancellation_and_a_raised_budget(folder, texts):
    _, err = call("run", "agents.py:listener", "--id", "l", code=WAITING)
    assert "holdfast signal l paid VALUE" in err
    assert data("signal", "l", "paid", ':={"cents": 7}')["status"] == "pending"
    assert call("resume", "l", "agents.py")[0] == "paid 7\n"
    assert refused("signal", "l", "paid", code=CONFLICT)[0] == "task-finished"
    assert refused("signal", "nobody", "paid", code=NOT_FOUND)[0] == "task-not-found"
    call("run", "agents.py:asker", "--id", "a", code=WAITING)
    assert data("cancel", "a", "--why", "no more")["status"] == "cancelled"
    assert refused("cancel", "a", code=CONFLICT)[0] == "task-finished"
    assert refused("cancel", "nobody", code=NOT_FOUND)[0] == "task-not-found"
    _, err = call("run", "agents.py:thrifty", "--id", "t", code=WAITING)
    assert "  holdfast budget t steps=4 --by ana\n" in err
    texts.check(err)
    assert data("budget", "t")["limits"] == {"steps": 2}
    texts.check(call("budget", "t")[0])
    assert data("budget", "t", "steps=4")["status"] == "pending"
    assert call("resume", "t", "agents.py")[0] == "4\n"
    for wrong in ("steps", "steps=x", "luck=3", "steps=1"):
        assert refused("budget", "t", wrong, code=USAGE)[0] == "invalid-value"
    assert refused("budget", "nobody", code=NOT_FOUND)[0] == "task-not-found"


# Looking


@pytest.fixture
def told(folder):
    """A store with one finished task, one failed and one that waits."""
    call("run", "agents.py:greet", "-p", "name=Ana", "--id", "hi", "--user", "ana", "--quiet")
    call("run", "agents.py:failer", "--id", "bad", "--quiet", code=FAILED)
    call("run", "agents.py:payer", "--id", "pay", "--quiet", code=WAITING)
    return folder


def test_tasks_are_listed_by_what_they_are(told, texts):
    rows = data("list")
    assert [row["id"] for row in rows] == ["pay", "bad", "hi"] and rows[0]["waiting"] == "person"
    assert [row["id"] for row in data("list", "--status", "failed")] == ["bad"]
    assert [row["id"] for row in data("list", "--agent", "greet", "--stage", "done", "--user", "ana")] == ["hi"]
    assert [row["id"] for row in data("list", "--limit", "1", "--after", "pay")] == ["bad"]
    out, _ = call("list", "--jsonl")
    assert [json.loads(line)["id"] for line in out.splitlines()] == ["pay", "bad", "hi"]
    head, *lines = call("list")[0].splitlines()
    assert head.split() == ["ID", "STATUS", "AGENT", "STAGE", "USER", "CHANGED"]
    assert lines[0].split()[:2] == ["pay", "waiting"] and "person" in lines[0]
    out, err = call("list", "--agent", "nobody")
    assert out == ""
    texts.check(err)
    assert refused("list", "--status", "odd", code=USAGE)[0] == "invalid-value"
    assert refused("list", "--limit", "0", code=USAGE)[0] == "invalid-value"


def test_a_watched_list_is_printed_again_only_when_it_changes(told):
    out, _ = call("list", "--watch", "--for", "300ms", "--json")
    assert len(out.splitlines()) == 1


def test_a_task_is_shown_as_it_is_and_as_it_was(told):
    state = data("show", "hi")
    assert state["result"] == "HELLO ANA" and state["facts"]["name"]["value"] == "Ana" and not state["interrupted"]
    out, _ = call("show", "hi")
    for text in ("HELLO ANA", "tone = loud", "name = Ana  (input)", "how often? 1, as asked", "shout#1", "greeted at"):
        assert text in out, out
    with app_here() as app:
        step = app.step("hi", "shout#1")
    assert data("show", "hi", "--at", step.before)["steps"] == {}
    assert list(data("show", "hi", "--at", step.after)["steps"]) == ["shout#1"]
    assert "holdfast approve pay pay#1 --bound " in call("show", "pay")[0]
    assert "ValueError: no such city" in call("show", "bad")[0]
    assert refused("show", "nobody", code=NOT_FOUND)[0] == "task-not-found"
    assert refused("show", "hi", "--at", "999", code=NOT_FOUND)[0] == "seq-out-of-range"
    assert data("show", "@last")["id"] == "pay"


def test_the_newest_task_is_nobodys_child(told):
    call("run", "agents.py:parent", "--id", "mother", code=WAITING)
    assert data("list", "--limit", "1")[0]["parent"] == "mother"
    assert data("show", "@last")["id"] == "mother"
    (entry,) = [one for one in data("inbox") if one["agent"] == "child"]
    call("answer", entry["task"], entry["key"], "yes")
    assert call("resume", "mother", "agents.py")[0] == "yes\n"


def test_the_log_tells_steps_decisions_waits_and_cost(told, texts):
    events = data("log", "hi")
    assert [one["seq"] for one in events] == list(range(1, events[-1]["seq"] + 1))
    (step,) = [one for one in events if one["verb"] == "done"]
    assert (step["about"], step["tokens"], step["cost"], step["value"]) == ("shout#1", 15, "0.004000", "HELLO ANA")
    out, _ = call("log", "hi")
    texts.check(out)
    texts.check(call("log", "hi", "--full")[0])
    texts.check(call("log", "pay")[0])
    lines = call("log", "hi", "--follow", "--jsonl", "--after", 3)[0].splitlines()
    assert [json.loads(line)["seq"] for line in lines] == [one["seq"] for one in events[3:]]
    assert call("log", "pay", "--follow", "--for", "100ms")[0]
    assert refused("log", "nobody", code=NOT_FOUND)[0] == "task-not-found"
    assert refused("log", "nobody", "--follow", code=NOT_FOUND)[0] == "task-not-found"


def test_moments_and_tasks_are_compared(told, texts):
    with app_here() as app:
        step = app.step("hi", "shout#1")
        seq = app.get("hi").seq
    found = data("diff", "hi", step.before, step.after)
    assert (found["a"], found["b"]) == (step.before, step.after)
    assert any(one["path"] == "/steps/shout#1" for one in found["patch"])
    out, err = call("diff", "hi", step.after)
    assert re.search(r"^~ /status  running → completed$", out, re.M) and str(seq) in err
    call("fork", "hi", "--at", step.after, "--id", "fork", "--set", 'state.tone="soft"')
    other = data("diff", "hi", "fork")
    assert other["other"] == "fork" and any(one["path"] == "/state/tone" for one in other["patch"])
    assert re.search(r"/state/tone  loud → soft", call("diff", "hi", "fork")[0])
    out, err = call("diff", "hi", "hi")
    assert out == ""
    texts.check(err)
    assert refused("diff", "hi", "nobody", code=NOT_FOUND)[0] == "task-not-found"
    assert refused("diff", "hi", "1", "999", code=NOT_FOUND)[0] == "seq-out-of-range"
    assert refused("diff", "hi", "bad", "3", code=USAGE)[0] == "usage"


def test_a_fork_goes_its_own_way(told, texts):
    call("approve", "pay", "pay")
    call("resume", "pay", "agents.py", "--quiet")
    with app_here() as app:
        before = app.step("pay", "pay#1").before
    out, err = call("fork", "pay", "--at", before, "--id", "again")
    assert out == "again\n" and "holdfast resume again FILE" in err
    texts.check(err)
    call("resume", "again", "agents.py", code=WAITING)
    found = data("fork", "pay", "--at", before, "--id", "replayed", "--effects", "recorded")
    assert (found["from"], found["effects"], found["status"]) == ("pay", "recorded", "pending")
    assert call("resume", "replayed", "agents.py")[0] == "receipt-1\n"
    assert (told / "payments").read_text() == "4400\n"
    assert refused("fork", "nobody", code=NOT_FOUND)[0] == "task-not-found"
    assert refused("fork", "pay", "--at", "99", code=NOT_FOUND)[0] == "seq-out-of-range"
    assert refused("fork", "pay", "--id", "hi", code=CONFLICT)[0] == "task-exists"
    for wrong in ("tone", "state.=1", "tone:=nope"):
        assert refused("fork", "pay", "--set", wrong, code=USAGE)[0] == "invalid-value"
    assert refused("fork", "pay", "--effects", "odd", code=USAGE)[0] == "usage"


def test_a_rollback_asks_first_and_keeps_the_history(told, texts):
    texts.check(refused("rollback", "hi", code=USAGE)[1])
    found = data("rollback", "hi", "--to", "greeted", "--yes", "--why", "too loud")
    assert found["status"] == "running" or found["status"] == "pending"
    assert call("run", "agents.py:greet", "-p", "name=Ana", "--id", "hi", "--user", "ana")[0] == "HELLO ANA\n"
    assert "too loud" in call("log", "hi")[0]
    assert refused("rollback", "hi", "--to", "nowhere", "--yes", code=USAGE)[0] == "invalid-value"
    assert refused("rollback", "hi", "--steps", "2", "--versions", "1", "--yes", code=USAGE)[0] == "usage"
    assert data("rollback", "hi", "--versions", "99", "--yes")["status"] == "pending"
    assert refused("rollback", "hi", "--versions", "1", "--yes", code=CONFLICT)[0] == "invalid-event"
    assert refused("rollback", "nobody", "--yes", code=NOT_FOUND)[0] == "task-not-found"


def test_the_audit_finds_calls_people_and_decisions(told):
    call("approve", "pay", "pay", "--by", "ben", "--why", "fine")
    call("resume", "pay", "agents.py", "--quiet")
    assert [one["what"] for one in data("audit", "--tool", "pay")] == ["done", "announced", "approved", "approval?"]
    (act,) = data("audit", "--by", "ben")
    assert (act["task"], act["what"], act["tool"]) == ("pay", "approved", "pay")
    (choice,) = data("audit", "--decision", "how OFTEN")
    assert choice["task"] == "hi" and choice["value"] == "1, as asked"
    assert data("audit", "--until", "1h") == [] and len(data("audit", "--since", "1h", "--limit", "2")) == 2
    assert {one["task"] for one in data("audit", "--task", "pay")} == {"pay"}
    assert len(call("audit", "--jsonl")[0].splitlines()) == len(data("audit"))
    assert "approved" in call("audit", "--by", "ben")[0]
    assert data("audit", "--since", "2001-01-01T00:00") and not data("audit", "--until", "2001-01-01")
    assert refused("audit", "--task", "nobody", code=NOT_FOUND)[0] == "task-not-found"
    assert refused("audit", "--since", "recently", code=USAGE)[0] == "invalid-value"


# The store


def test_a_damaged_log_is_named_and_ends_with_1(told, texts):
    found = data("verify")
    assert found["ok"] and found["logs"] >= 3 and found["problems"] == []
    texts.check(call("verify", "hi")[0])
    assert refused("verify", "nobody", code=NOT_FOUND)[0] == "task-not-found"
    import apsw

    db = apsw.Connection("holdfast.db")
    for (name,) in db.execute("select name from sqlite_master where type = 'trigger'").fetchall():
        db.execute(f'drop trigger "{name}"')
    soft = "cast(replace(cast(body as text), 'loud', 'soft') as blob)"
    db.execute(f"update events set body = {soft} where cast(body as text) like '%loud%'")
    db.close()
    found = data("verify", code=FAILED)
    assert not found["ok"] and found["problems"][0]["task"] == "hi"
    out, _ = call("verify", code=FAILED)
    texts.check(out)


def test_a_task_leaves_as_a_file_and_comes_back_the_same(told):
    found = data("export", "hi", "hi.jsonl")
    assert found["bytes"] == os.path.getsize("hi.jsonl") and found["lines"] == len(
        Path("hi.jsonl").read_text().splitlines()
    )
    assert call("export", "hi", "-")[0] == Path("hi.jsonl").read_text()
    assert data("import", "hi.jsonl", "--store", "other.db")["logs"] == 1
    assert data("import", "-", "--store", "other.db", input=Path("hi.jsonl").read_text())["skipped"] == 1
    assert data("show", "hi", "--store", "other.db")["digest"] == data("show", "hi")["digest"]
    assert refused("export", "hi", "hi.jsonl", code=USAGE)[0] == "invalid-value"
    assert refused("export", "hi", "no/such/place", code=USAGE)[0] == "invalid-value"
    assert refused("export", "nobody", "new.jsonl", code=NOT_FOUND)[0] == "task-not-found"
    assert not Path("new.jsonl").exists() and not list(told.glob("*.partial"))
    Path("hi.jsonl").write_text(Path("hi.jsonl").read_text().replace("loud", "soft"))
    assert refused("import", "hi.jsonl", "--store", "third.db", code=USAGE)[0] == "invalid-value"
    Path("hi.jsonl").write_text("nonsense\n")
    assert refused("import", "hi.jsonl", code=USAGE)[0] == "invalid-value"
    assert refused("import", "missing.jsonl", code=USAGE)[0] == "invalid-value"


def test_old_tasks_are_removed_after_asking(told, texts):
    assert refused("gc", code=USAGE)[0] == "usage"
    assert refused("gc", "--keep", "-1", code=USAGE)[0] == "invalid-value"
    assert refused("gc", "--older-than", "old", "--yes", code=USAGE)[0] == "invalid-value"
    assert sorted(data("gc", "--keep", "0", "--dry-run")["ids"]) == ["bad", "hi"]
    assert sorted(call("gc", "--keep", "0", "--dry-run")[0].split()) == ["bad", "hi"]
    texts.check(refused("gc", "--keep", "0", code=USAGE)[1])
    assert len(data("list")) == 3
    assert data("gc", "--keep", "0", "--older-than", "1d", "--yes")["tasks"] == 0
    assert data("gc", "--keep", "0", "--snapshots-older-than", "0s", "--yes")["tasks"] == 2
    assert [row["id"] for row in data("list")] == ["pay"]
    assert refused("show", "hi", code=NOT_FOUND)[0] == "task-collected"


def test_what_would_go_is_what_goes_also_where_there_are_forks(told):
    call("fork", "hi", "--id", "kept")
    call("fork", "bad", "--id", "gone")
    call("cancel", "gone")
    would = data("gc", "--keep", "0", "--dry-run")["ids"]
    assert sorted(would) == ["bad", "gone"]
    assert data("gc", "--keep", "0", "--yes") == {
        **dict.fromkeys(("expired_records", "expired_tasks", "expired_threads", "expired_users"), 0),
        "tasks": 2,
        "snapshots": 0,
        "kept_for_forks": 1,
    }
    assert sorted(row["id"] for row in data("list")) == ["hi", "kept", "pay"]


def test_a_schema_is_looked_at_before_it_is_touched(folder, texts):
    would = data("migrate", "--dry-run")
    assert would["from"] == 0 and would["to"] == len(would["steps"]) and not (folder / "holdfast.db").exists()
    assert "create table" in call("migrate", "--dump-sql")[0].lower()
    assert [one["version"] for one in data("migrate", "--dump-sql")] == list(range(1, would["to"] + 1))
    assert data("migrate")["steps"] == would["steps"] and data("migrate")["steps"] == []
    texts.check(call("migrate", "--dry-run")[0])
    assert call("migrate", "--dump-sql")[0] == ""
    (folder / "notes.db").write_text("poems " * 1000)
    assert refused("migrate", "--store", "notes.db", code=STORE)[0] == "not-a-store"
    assert refused("migrate", "--store", "memory:", code=USAGE)[0] == "invalid-url"
    import apsw

    db = apsw.Connection("holdfast.db")
    db.pragma("user_version", 99)
    db.close()
    for command in ("migrate", "list"):
        assert refused(command, code=STORE)[0] == "store-too-new"


def test_a_store_is_copied_backed_up_counted_and_looked_after(told):
    assert data("backup", "copy.db")["bytes"] == os.path.getsize("copy.db")
    assert refused("backup", "copy.db", code=USAGE)[0] == "invalid-value"
    assert data("copy", "other.db")["logs"] == data("verify")["logs"]
    assert data("copy", "other.db")["skipped"] == data("verify")["logs"]
    assert refused("copy", "no/such/place.db", code=STORE)[0] == "not-a-store"
    stats = data("stats")
    assert stats["tasks"] == 3 and stats["by_status"] == {"completed": 1, "failed": 1, "waiting": 1}
    assert "1 completed, 1 failed, 1 waiting" in call("stats")[0]
    found = {one["what"]: one["level"] for one in data("doctor")}
    assert found["integrity"] == found["schema"] == found["sqlite"] == "ok"
    os.chmod("holdfast.db", 0o644)
    out, _ = call("doctor")
    assert re.search(r"^warn  rights .*644", out, re.M) and "chmod 600 holdfast.db" in out


def test_the_doctor_says_what_is_wrong_with_a_file_and_its_times(folder, texts):
    ahead = FakeClock(int((time.time() + 3600) * 1_000_000))
    with holdfast.open(folder / "holdfast.db", clock=ahead) as app:
        app.start("later", id="t")
    (folder / "holdfast.db").chmod(0o644)
    found = {one["what"]: one for one in data("doctor")}
    assert found["rights"]["level"] == "warn" and "chmod 600" in found["rights"]["remedy"]
    assert found["clock"]["level"] == "warn"
    texts.check(found["clock"]["said"])
    assert call("doctor")[0].count("warn") >= 2


def test_nobody_who_reads_is_no_error_to_complain_of(folder):
    """As with `holdfast list | head -1`: the reader leaves first."""
    with holdfast.open(folder / "holdfast.db") as app:
        for number in range(300):
            app.start("a" * 100, id=f"{number}-{'x' * 100}")
    command = [sys.executable, "-m", "holdfast", "list", "--limit", "300", "--json"]
    reads, writes = os.pipe()
    os.close(reads)
    try:
        done = subprocess.run(command, cwd=folder, stdout=writes, stderr=subprocess.PIPE, text=True, timeout=60)
    finally:
        os.close(writes)
    assert done.stderr == "" and done.returncode == UNREAD


def test_a_budget_in_seconds_and_none_at_all(folder, texts):
    @agent(budget=holdfast.Budget(wall_time="20s"))
    def limited(task):
        return task.ask("go on?")

    with holdfast.open(folder / "holdfast.db") as app:
        app.start("free", id="free")
        app.run(limited, id="limited")
    texts.check(call("budget", "free")[1])
    call("budget", "limited", "wall_time=30")
    with holdfast.open(folder / "holdfast.db") as app:
        assert app.get("limited").budget.limits["wall_time"] == 30


def test_an_agent_that_fails_its_test_says_why(folder, texts):
    (folder / "broken.py").write_text(
        "from holdfast import agent\n\n\n@agent\ndef broken(task):\n    raise ValueError('no such city')\n"
    )
    out, _ = call("test", "broken.py", code=FAILED)
    assert "no such city" in out
    texts.check(out)


def test_a_task_that_waits_says_for_what_and_what_to_type(folder, texts):
    @agent
    def asker(task):
        return task.wait("go")

    @agent
    def parent(task):
        return task.spawn(asker)

    @agent
    def sleeper(task):
        task.sleep(7200)

    with holdfast.open(folder / "holdfast.db") as app:
        app.run(parent, id="p")
        app.run(sleeper, id="s", hold=0)
    texts.check(call("show", "p")[0])
    out, _ = call("show", "p/asker#1")
    assert "holdfast signal p/asker#1 go VALUE" in out
    texts.check(out)
    texts.check(call("show", "s")[0])


def test_settings_say_where_they_come_from(folder):
    found = data("config", HOLDFAST_URL="other.db")
    assert found["store"]["value"].startswith("other.db ") and found["store"]["source"] == "HOLDFAST_URL"
    assert found["by"] == {"value": "ana", "source": "HOLDFAST_BY"}
    found = data("config", "--store", "postgresql://app:geheim@db/agents")
    assert found["store"]["value"] == "postgresql://app:***@db/agents"
    assert "holdfast.db (" in call("config")[0]
    (folder / "pyproject.toml").write_text("[tool")
    assert refused("config", code=USAGE)[0] == "invalid-value"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_get_what_completes_commands(folder, shell):
    out, err = call("completion", shell)
    assert "_HOLDFAST_COMPLETE" in out and "holdfast completion" in err
    assert data("completion", shell)["script"].strip() == out.strip()


def test_commands_and_ids_are_completed(told):
    def completed(words, number):
        given = {"COMP_WORDS": words, "COMP_CWORD": str(number), "_HOLDFAST_COMPLETE": "bash_complete"}
        return CliRunner().invoke(cli, [], prog_name="holdfast", env=given).stdout.split()

    assert completed("holdfast ver", 1) == ["plain,verify"]
    assert completed("holdfast show ", 2) == ["plain,@last", "plain,pay", "plain,bad", "plain,hi"]
    assert refused("completion", "tcsh", code=USAGE)[0] == "usage"


# All of them


def test_a_command_that_only_looks_makes_no_store(folder):
    for command in ("list", "stats", "inbox", "verify", "doctor", "audit", "show @last", "log x", "gc --keep 0 --yes"):
        code, told = refused(*command.split(), code=STORE)
        assert code == "not-a-store" and "holdfast.db" in told and "(the default)" in told
    assert os.listdir(folder) == ["agents.py"] or "holdfast.db" not in os.listdir(folder)


def test_the_store_is_the_one_that_was_named_last_not_least(folder):
    call("run", "agents.py:greet", "-p", "name=Ana", "--id", "a", "--store", "one.db", HOLDFAST_URL="two.db")
    _, err = call("run", "agents.py:greet", "-p", "name=Ana", "--id", "b", HOLDFAST_URL="two.db")
    assert "two.db (HOLDFAST_URL)" in err
    assert [row["id"] for row in data("list", "--store", "one.db")] == ["a"]
    assert [row["id"] for row in data("list", HOLDFAST_URL="two.db")] == ["b"]
    _, err = call("run", "agents.py:asker", "--id", "q", "--store", "one.db", code=WAITING)
    assert "holdfast answer q seat#1 VALUE --by ana --store one.db" in err
    assert refused("list", "--store", "nope://x", code=USAGE)[0] == "invalid-url"


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_help_with_an_example_that_it_understands(name):
    import shlex

    top = click.Context(cli, info_name="holdfast", **cli.context_settings)
    command = cli.get_command(top, name)
    assert command.name == name
    first, *_ = command.help.splitlines()
    assert first == COMMANDS[name], "the list of commands and the command say the same"
    example = re.search(r"Example: (.+)$", command.help, re.M)[1]
    typed = re.search(r"holdfast (.+?)(?:\)\"?)?$", example)[1]
    words = shlex.split(typed)
    assert words[0] == name
    command.make_context(name, words[1:], parent=top)
    assert "--json" in command.get_help(click.Context(command, parent=top))


def test_what_is_not_understood_is_told_like_every_other_error(folder, texts):
    texts.check(refused("lits", code=USAGE)[1])
    code, told = refused("list", "--limt", "3", code=USAGE)
    assert code == "usage" and "--limit" in told
    texts.check(told)
    assert refused("answer", "a", code=USAGE)[0] == "usage"


def test_an_error_nobody_expected_is_a_line_and_with_debug_a_traceback(told, monkeypatch):
    Path("hi.jsonl").mkdir()
    code, _ = refused("import", "hi.jsonl", code=USAGE)
    assert code == "invalid-value"
    done = CliRunner().invoke(cli, ["show", "nobody", "--debug"])
    assert done.exit_code == NOT_FOUND and "Traceback" in done.stderr and "error[task-not-found]" in done.stderr


@pytest.mark.parametrize(
    ("error", "code", "name"),
    [
        (holdfast.LeaseLost("task 's' was claimed by 77-ab"), CONFLICT, "lease-lost"),
        (RuntimeError("odd"), FAILED, "unexpected"),
        (holdfast.StorePoisoned("an I/O error", hint="open it again"), STORE, "store-poisoned"),
    ],
)
def test_whatever_stops_a_command_has_a_code(capsys, error, code, name):
    for as_json in (False, True):
        with pytest.raises(click.exceptions.Exit) as ended, refusing(as_json=as_json):
            raise error
        assert ended.value.exit_code == code
        told = capsys.readouterr().err
        assert json.loads(told)["error"]["code"] == name if as_json else f"error[{name}]: " in told


def test_what_a_file_prints_when_it_is_loaded_is_no_data(folder):
    (folder / "own_agents.py").write_text((folder / "agents.py").read_text("utf-8"))
    (folder / "loud.py").write_text("print('loaded')\nfrom own_agents import later\n")
    assert call("run", "loud.py", "-p", "name=x")[0] == "X\n"


def test_starting_takes_few_modules():
    """A command is not to be waited for: what a start loads is counted, since clocks are not to be trusted."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])}
    script = "import sys; before = set(sys.modules); import holdfast.cli.main as m; sys.argv = ['holdfast', {!r}]\n"
    script += "try: m.main()\nexcept SystemExit: print(*sorted(set(sys.modules) - before), file=sys.stderr)"
    for asked, most in (("--version", 75), ("--help", 75), ("explain", 90)):
        code = script.format(asked)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
        loaded = done.stderr.split()
        heavy = {
            "asyncio",
            "apsw",
            "logging",
            "jsonpatch",
            "holdfast.engine.app",
            "holdfast.core.state.fold",
            "difflib",
        }
        assert not heavy & set(loaded), sorted(heavy & set(loaded))
        others = [name for name in loaded if not name.startswith("holdfast")]
        assert len(others) <= most, f"{asked}: {len(others)} modules: {others}"


def test_the_inbox_says_what_a_call_raised_and_how_to_declare_its_tool(tmp_path, monkeypatch, texts):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_BY", "ana")
    Path("agents.py").write_text(
        "from holdfast import agent, tool\n"
        "@tool(effect='once')\n"
        "def send(to: str) -> str:\n"
        "    raise ConnectionResetError('lost')\n"
        "@agent\n"
        "def letter(task):\n"
        "    return task.call(send, to='sam')\n"
    )
    run = [sys.executable, "-m", "holdfast"]
    assert subprocess.run([*run, "run", "agents.py", "--id", "l"], capture_output=True, check=False).returncode == 6
    shown = subprocess.run([*run, "inbox"], capture_output=True, text=True, check=True).stdout
    texts.check(shown)


def late_and_poor(folder):
    (folder / "late.py").write_text(
        "import time\n"
        "from holdfast import Budget, agent, tool\n"
        "@agent(budget=Budget(wall_time='300ms'))\n"
        "def poor(task):\n"
        "    return task.step(time.sleep, 20, name='search')\n"
        "@tool(effect='once')\n"
        "def pay() -> str:\n"
        "    time.sleep(2)\n"
        "@agent(deadline='300ms')\n"
        "def payer(task):\n"
        "    return task.call(pay)\n"
        "@tool(effect='once', unique='order-{n}')\n"
        "def order(n: int) -> str:\n"
        "    raise ConnectionResetError('lost')\n"
        "@agent\n"
        "def buyer(task):\n"
        "    return task.call(order, n=1)\n"
    )


def test_a_task_that_used_up_its_budget_says_to_raise_it_before_it_is_resumed(folder):
    late_and_poor(folder)
    _, told = call("run", "late.py:poor", "--id", "p", "--quiet", code=FAILED)
    assert re.search(r"has used 0\.\d+ s of 0\.3 s wall time", told), told
    first = "holdfast budget p wall_time=0.6 --by ana"
    assert f"first raise the limit: {first}\n" in told and "to try again: holdfast resume p late.py:poor" in told
    out, told = call(*first.split()[1:])
    assert "the task is failed" in out and "to resume it: holdfast resume p FILE" in told
    with holdfast.open(folder / "holdfast.db") as app:
        assert app.get("p").budget.limits["wall_time"] == 0.6


def test_a_call_in_doubt_at_a_deadline_says_what_comes_of_the_task(folder):
    late_and_poor(folder)
    _, told = call("run", "late.py:payer", "--id", "p", "--quiet", code=WAITING)
    assert "holdfast settle p" in told
    assert "its deadline has passed, so it fails when that is settled" in told and "--deadline TIME" in told
    call("settle", "p", "pay#1", "--did-not-happen")
    call("resume", "p", "late.py:payer", "--quiet", code=FAILED)


def test_a_list_says_the_same_of_calls_in_doubt_as_the_inbox(folder):
    late_and_poor(folder)
    for id in ("first", "second"):
        call("run", "late.py:buyer", "--id", id, "--quiet", code=WAITING)

    def listed(id):
        return next(line for line in call("list")[0].splitlines() if line.startswith(id))

    assert "waiting, call in doubt" in listed("first") and "waiting, blocked by another task" in listed("second")
    call("settle", "first", "order#1", "--happened", "--result", '"ok"')
    assert "in doubt" not in listed("second") and "blocked" not in listed("second")
    assert "second" not in call("inbox")[0]


@pytest.mark.parametrize("wrong", [("--deadline", "soon"), ("--hold", "soon")])
def test_resume_reads_its_options_before_it_says_that_it_goes_on(folder, wrong):
    call("run", "agents.py:asker", "--id", "t", "--quiet", code=WAITING)
    _, told = call("resume", "t", "agents.py:asker", *wrong, code=USAGE)
    assert "is not a length of time" in told and "goes on" not in told


def test_states_of_an_earlier_version_are_listed_and_migrated(folder, texts):
    written = Path("agents.py").read_text("utf-8")
    Path("agents.py").write_text(written.replace("state_version=2", "state_version=1"), "utf-8")
    call("run", "agents.py:seated", "--id", "seat", code=WAITING)
    Path("agents.py").write_text(f"{written}\n\n@seated.upcast(1, 2)\ndef keep(state):\n    return state\n", "utf-8")
    assert [one["id"] for one in data("list", "--state-version-below", "2")] == ["seat"]
    texts.check("".join(call("migrate-states", "agents.py:seated")))
    assert data("list", "--state-version-below", "2") == []
    assert data("migrate-states", "agents.py")["seated"] == {"version": 2, "migrated": [], "busy": [], "failed": {}}
    assert refused("list", "--state-version-below", "0", code=USAGE)[0] == "invalid-value"
    texts.check(refused("migrate-states", "agents.py:greet", code=USAGE)[1])
