"""Slips that go unnoticed where nobody looks: options that contradict each other, empty words, the wrong file."""

import json
import os
import time
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

import holdfast
from holdfast import agent, tool
from holdfast.cli.failures.refusal import CONFLICT, FAILED, STORE, USAGE, WAITING
from holdfast.cli.main import cli
from tests.cli.test_cli import call, data, refused
from tests.waiting import until

OTHERS = """
from holdfast import Task, agent

@agent
def other(task: Task) -> dict:
    return {"a": [1, 2], "u": "ü"}

@agent(loop=True, max_turns=2)
def endless(task: Task) -> None:
    task.log("again")

@agent
def listed(task: Task, tags: list[str]) -> int:
    return len(tags)
"""


@pytest.fixture
def others(folder):
    Path("others.py").write_text(OTHERS)
    return folder


# Options


@pytest.mark.parametrize(
    "command",
    [
        "list --for 3s",
        "list --limit -1",
        "audit --limit -1",
        "test agents.py:greet --sample 3",
        "rollback hi --to 2 --steps 1 --yes",
        "rollback hi --steps 0 --yes",
        "run agents.py:greet -p name=Ana -p name=Ben",
        "fork hi --set sate.x=1",
        "fork hi --set x",
        "fork hi --set state.=1",
        "run agents.py:greet -p name",
        "run agents.py:greet -p =Ana",
        "run agents.py:gret -p name=Ana",
        "worker agents.py:gret",
        "list --namespace x~y@",
        "run agents.py:greet -p name=Ana --deadline soon",
        "run agents.py:greet -p name=Ana --user=",
    ],
)
def test_what_cannot_be_meant_is_refused_and_nothing_is_said_before(folder, command, texts):
    call("run", "agents.py:greet", "-p", "name=Ana", "--id", "hi")
    before = data("list")
    code, said = refused(*command.split(), code=USAGE)
    assert said.startswith(f"error[{code}]")
    texts.check(said)
    assert data("list") == before


def test_an_empty_store_is_one_that_was_forgotten(folder, texts):
    texts.check(refused("run", "agents.py:greet", "-p", "name=Ana", "--store", "", code=USAGE)[1])
    assert not Path("holdfast.db").exists()


def test_text_where_a_list_belongs_is_told_how_lists_are_typed(others):
    assert "it must be list" in refused("run", "others.py:listed", "-p", "tags=x", code=USAGE)[1]
    for given in ('tags:=["x"]', 'tags=["x"]'):
        assert call("run", "others.py:listed", "-p", given)[0] == "1\n"


def test_nobody_approves_without_a_name(folder):
    call("run", "agents.py:payer", "--id", "p", code=WAITING)
    refused("approve", "p", "pay", "--by", "", code=USAGE)
    assert data("audit", "--by", "ana") == []
    call("approve", "p", "pay", HOLDFAST_BY="ana")
    assert data("audit", "--by", "ana")[0]["what"] == "approved"


def test_who_approves_twice_is_told_that_it_is_done(folder, texts):
    call("run", "agents.py:payer", "--id", "p", code=WAITING)
    refused("approve", "p", "pay", "--expires", "0s", code=USAGE)
    call("approve", "p", "pay", "--by", "ana")
    told = refused("approve", "p", "pay", code=CONFLICT)[1]
    assert "holdfast show p" in told
    texts.check(told)


# The file, the agent, the end


def test_a_file_that_does_not_declare_the_agent_of_a_task_is_named(others, texts):
    call("run", "agents.py:asker", "--id", "a", code=WAITING)
    code, told = refused("resume", "a", "others.py", code=USAGE)
    assert code == "invalid-value"
    texts.check(told)


def test_what_has_ended_is_not_said_to_be_resumable(folder):
    call("run", "agents.py:asker", "--id", "hi", code=WAITING)
    call("cancel", "hi")
    told = refused("resume", "hi", "agents.py", code=CONFLICT)[1]
    assert "holdfast resume hi" not in told and "holdfast fork hi --at SEQ" in told


def test_a_loop_without_turns_left_is_told_to_get_more(others, texts):
    _, told = call("run", "others.py:endless", "--id", "e", code=FAILED)
    assert "max_turns=" in told and "holdfast resume e others.py:endless" in told
    texts.check(told)


def test_a_result_is_json_unless_it_is_text(others):
    assert json.loads(call("run", "others.py:other")[0]) == {"a": [1, 2], "u": "ü"}


def test_whoever_reads_events_of_an_ended_task_gets_its_end(folder):
    first = call("run", "agents.py:greet", "-p", "name=Ana", "--id", "hi", "--jsonl")[0]
    again = call("run", "agents.py:greet", "-p", "name=Ana", "--id", "hi", "--jsonl")[0]
    assert first.splitlines()[-1:] == again.splitlines() and json.loads(again)["kind"] == "task_completed"


def test_with_nothing_to_remove_nobody_is_asked(folder, texts):
    call("run", "agents.py:asker", "--id", "a", code=WAITING)
    texts.check(call("gc", "--keep", "0")[0])
    assert data("gc", "--keep", "0")["tasks"] == 0
    texts.check(call("audit", "--tool", "nobody")[1])


# Places


def test_a_device_is_no_store_and_nothing_is_made_beside_it(folder, texts):
    os.mkfifo("pipe")
    for command in (["list"], ["doctor"], ["run", "agents.py:greet", "-p", "name=Ana"]):
        texts.check(refused(*command, "--store", "pipe", code=STORE)[1])
    assert not list(Path().glob("pipe?*"))


def test_a_backup_that_cannot_be_made_is_told_like_every_other_error(folder, texts):
    call("run", "agents.py:greet", "-p", "name=Ana", "--id", "hi")
    code, told = refused("backup", "no/such/place.db", code=USAGE)
    assert code == "invalid-value"
    texts.check(told)


def test_the_interrupted_can_be_listed(folder, texts):
    with holdfast.open("holdfast.db") as app:
        app.start(asleep, id="s")
    pid = os.fork()
    if not pid:
        with holdfast.open("holdfast.db") as app:
            app.run(asleep, id="s")
        os._exit(0)
    until(lambda: Path("asleep").exists())
    assert data("list", "--status", "interrupted") == []
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    assert [row["id"] for row in data("list", "--status", "interrupted")] == ["s"]
    assert data("list", "--status", "interrupted", "--agent", "other") == []
    refused("list", "--status", "interrupted", "--limit", "0", code=USAGE)
    texts.check(refused("list", "--status", "interupted", code=USAGE)[1])


@agent
def asleep(task):
    def sleep():
        Path("asleep").touch()
        time.sleep(60)

    task.step(sleep)


# What is under way


def test_a_call_under_way_is_not_said_to_be_in_doubt(tmp_path, texts):
    told = []

    @tool(effect="once")
    def pay() -> str:
        with pytest.raises(holdfast.InvalidEvent) as refusal:
            app.rollback("t")
        told.append(refusal.value)
        return "paid"

    @agent
    def shop(task):
        task.step(int, name="first")
        return task.call(pay)

    with holdfast.open(tmp_path / "a.db") as app:
        assert app.run(shop, id="t").result == "paid"
    texts.check(told[0])


def test_a_step_that_announces_itself_late_began_when_it_began(tmp_path):
    @agent
    def slow(task):
        task.step(time.sleep, 1.6, name="think")

    with holdfast.open(tmp_path / "a.db") as app:
        done = app.run(slow, id="t")
        (started,) = [one for one in app.events("t") if one.kind == "step_started"]
    step = done.steps["think#1"]
    assert (step.ended_at - step.started_at).total_seconds() >= 1.6
    assert (started.at - step.started_at).total_seconds() > 0.5, "it was announced late"


# Completion


def completed(*words, incomplete=""):
    items = ShellComplete(cli, {}, "holdfast", "_X").get_completions(list(words), incomplete)
    return [item.type if item.type != "plain" else item.value for item in items]


@pytest.mark.parametrize(
    "words", [["run"], ["show", "--store"], ["resume", "a"], ["import"], ["backup"], ["copy"], ["run", "--input"]]
)
def test_where_a_file_belongs_the_shell_completes_files(folder, words):
    assert completed(*words, incomplete="ag") == ["file"]


def test_codes_and_what_a_task_waits_for_are_completed(folder):
    call("run", "agents.py:payer", "--id", "p", code=WAITING)
    call("run", "agents.py:asker", "--id", "a", code=WAITING)
    assert completed("explain", incomplete="step-c") == ["step-changed"]
    assert completed("approve", "p") == completed("reject", "p", incomplete="pa") == ["pay#1"]
    assert completed("answer", "a") == completed("answer", "@last") == ["seat#1"]
    assert completed("settle", "a") == completed("approve", "nobody") == []
    assert completed("verify", incomplete="p") == ["p"]
