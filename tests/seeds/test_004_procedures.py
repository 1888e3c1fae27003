"""The fifth document: a procedure that drafts a recap and sends it once; its state, stages, parameters, tests, logs."""

import json
import os
import signal
import subprocess
import sys

import pytest
from click.testing import CliRunner

import holdfast
from holdfast import (
    Happened,
    InvalidEvent,
    InvalidTemplate,
    StatePatch,
    StepChanged,
    StepFailed,
    Task,
    agent,
    current_call,
    step,
    tool,
)
from holdfast.cli.main import cli
from holdfast.testing import expect

STORES = ("memory", "sqlite", "postgres")
CLOCK = None  # the real one
PROCEDURE = """
import os, signal
from pathlib import Path
from holdfast import DidNotHappen, Happened, Task, agent, step, tool

OUTBOX = Path("outbox.txt")

@step
def draft(name: str) -> str:
    return f"Dear {name}"

def find_sent(call):
    sent = OUTBOX.read_text().splitlines() if OUTBOX.exists() else []
    return Happened("msg-1") if any(line.endswith(call.idempotency_key) for line in sent) else DidNotHappen()

@tool(effect="once", reconcile=find_sent, reconcile_after=0, mock="msg-0")
def send(text: str, *, idempotency_key: str) -> str:
    with OUTBOX.open("a") as box:
        box.write(f"{text} {idempotency_key}\\n")
    if os.environ.get("DIE") == "sent":
        os.kill(os.getpid(), signal.SIGKILL)
    return "msg-1"

@agent(
    stages=["drafting", "sending", "complete"],
    example={"recipient_name": "Ana"},
    check=lambda done: done.stage == "complete" and done.state["message_id"] == "msg-0",
)
def recap(task: Task, recipient_name: str) -> str:
    task.stage("drafting")
    text = draft(recipient_name)
    if os.environ.get("DIE") == "drafted":
        os.kill(os.getpid(), signal.SIGKILL)
    task.stage("sending")
    task.state.increment("send_attempts")
    task.state.message_id = send(text=text)
    task.stage("complete")
    return task.state.message_id
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "recap.py").write_text(PROCEDURE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("HOLDFAST_URL", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    yield tmp_path
    sys.modules.pop("recap", None)


def typed(*words, **environment):
    sys.modules.pop("recap", None)
    done = CliRunner().invoke(cli, list(words), env=environment)
    assert "Traceback" not in done.output
    return done


def killed(folder, die, *words):
    """Type a command in a process that kills itself there."""
    done = subprocess.run([sys.executable, "-m", "holdfast", *words], cwd=folder, env={**os.environ, "DIE": die})
    assert done.returncode == -signal.SIGKILL


def mails(folder):
    return (folder / "outbox.txt").read_text().splitlines() if (folder / "outbox.txt").exists() else []


SENT: list[str] = []


@tool(effect="once", unique="recap-{to}")
def send_unique(to: str) -> str:
    SENT.append(to)
    return f"msg-{len(SENT)}"


@pytest.fixture(autouse=True)
def nothing_sent():
    SENT.clear()


# State


def test_a_state_value_is_set_read_and_asked_for(app):
    """211"""

    @agent
    def values(task: Task) -> list:
        before = "x" in task.state
        task.state.x = 3
        with pytest.raises(AttributeError):
            _ = task.state.y
        return [before, task.state.x, "x" in task.state, task.state.get("y"), task.state.get("y", 7)]

    assert app.run(values).result == [False, 3, True, None, 7]


def test_state_grows_by_one_by_more_and_by_items_and_is_read_whole(app):
    """212"""

    @agent
    def grows(task: Task) -> dict:
        task.state.increment("attempts")
        task.state.increment("attempts", 4)
        task.state.append("sent", "ana")
        task.state.append("sent", "ben")
        return task.state.all()

    assert app.run(grows).result == {"attempts": 5, "sent": ["ana", "ben"]}


@pytest.mark.parametrize(("first", "then"), [("text", "increment"), (3, "append"), ({"a": 1}, "increment")])
def test_an_operation_on_a_value_of_another_kind_is_refused_by_name(first, then):
    """213"""

    @agent
    def odd(task: Task) -> None:
        task.state.value = first
        getattr(task.state, then)("value", 1)

    with holdfast.open("memory:") as app:
        done = app.run(odd)
    assert done.status == "failed" and done.failure.type == InvalidEvent.__name__ and "value" in done.failure.message


def test_state_is_seen_in_the_timeline_and_in_the_task_with_columns_apart(folder):
    """214"""
    typed("run", "recap.py", "--param", "recipient_name=Ana", "--id", "r")
    full, shown = typed("log", "r", "--full").stdout, typed("show", "r").stdout
    assert "increment   send_attempts" in full and "state set   message_id           msg-1" in full
    assert "send_attempts = 1" in shown and "message_id = msg-1" in shown


def test_a_template_takes_values_of_the_state_and_refuses_what_is_missing():
    """215"""

    @agent
    def writes(task: Task) -> str:
        task.state.name = "Ana"
        with pytest.raises(InvalidTemplate):
            task.render("{state.nobody}")
        return task.render('Dear {state.name}, {{"json": true}}')

    with holdfast.open("memory:") as app:
        assert app.run(writes).result == 'Dear Ana, {"json": true}'


def test_state_may_be_changed_from_outside_while_the_task_is_paused(app):
    """216"""

    @agent
    def pauses(task: Task) -> str:
        task.state.to = "ana"
        task.wait("go")
        return task.state.to

    app.run(pauses, id="p")
    app.patch("p", StatePatch(set={"to": "ben"}), by="eva")
    app.signal("p", "go")
    assert app.resume("p", pauses).result == "ben"


# Sent once


def test_a_guard_in_the_state_skips_what_was_sent(app):
    """217"""

    @tool(effect="once")
    def send(to: str) -> str:
        SENT.append(to)
        return "msg-1"

    @agent
    def guarded(task: Task) -> str:
        for _ in range(2):
            if "message_id" not in task.state:
                task.state.message_id = send(to="ana")
        return task.state.message_id

    assert app.run(guarded, id="g").result == app.run(guarded, id="g").result == "msg-1" and SENT == ["ana"]


def test_changed_code_run_again_under_its_id_sends_nothing_twice(folder):
    """218"""
    run = ("run", "recap.py", "--param", "recipient_name=Ana", "--id")
    killed(folder, "drafted", *run, "half")
    assert typed(*run, "whole").stdout == "msg-1\n"
    old = (folder / "recap.py").read_text()
    (folder / "recap.py").write_text(old.replace("draft(recipient_name)", "draft(recipient_name.upper())"))
    assert typed(*run, "whole").stdout == "msg-1\n" and len(mails(folder)) == 1, "it had ended"
    changed = typed(*run, "half")
    assert changed.exit_code == 1 and StepChanged.__name__ in changed.output and len(mails(folder)) == 1
    (folder / "recap.py").write_text(old)
    assert typed("resume", "half", "recap.py").stdout == "msg-1\n" and len(mails(folder)) == 2


def test_a_procedure_run_again_without_an_id_sends_once_by_its_business_key(app):
    """219"""

    @agent
    def recap(task: Task, to: str) -> str:
        return send_unique(to=to)

    assert [app.run(recap, {"to": "ana"}).result for _ in range(2)] == ["msg-1", "msg-1"] and SENT == ["ana"]


@pytest.mark.parametrize("declared", [{}, {"effect": "once", "on_doubt": "fail"}])
def test_a_retry_loop_around_a_call_that_may_have_happened_sends_once(app, declared):
    """220"""

    @tool(**declared)
    def send(to: str) -> str:
        SENT.append(to)
        raise ConnectionError("the answer was lost")

    @agent
    def loops(task: Task) -> int:
        for attempt in range(3):
            with pytest.raises(StepFailed) as failed:
                send(to="ana")
            assert failed.value.maybe_done, attempt
        return len(SENT)

    assert app.run(loops).result == 1 and SENT == ["ana"]


def test_sending_again_after_a_review_sends_once_by_its_business_key(app):
    """221"""

    @agent
    def reviewed(task: Task, to: str) -> str:
        send_unique(to=to)
        task.ask("Is it fine?", name="review")
        return send_unique(to=to)

    app.run(reviewed, {"to": "ana"}, id="r")
    app.answer("r", "review", "send it", by="eva")
    assert app.resume("r", reviewed).result == "msg-1" and SENT == ["ana"]


def test_an_error_after_the_effect_is_settled_and_other_tasks_get_that_outcome(app):
    """222"""

    @tool(effect="once", unique="recap-{to}", reconcile=lambda call: Happened("msg-1"), reconcile_after=0)
    def send(to: str) -> str:
        SENT.append(to)
        raise ConnectionError("the answer was lost")

    @agent
    def catches(task: Task) -> str:
        try:
            return send(to="ana")
        except StepFailed:
            return "lost"

    assert [app.run(catches).result for _ in range(2)] == ["msg-1", "msg-1"] and SENT == ["ana"]


def test_a_process_killed_after_the_effect_does_not_send_again(folder):
    """223"""
    killed(folder, "sent", "run", "recap.py", "--param", "recipient_name=Ana", "--id", "r")
    assert len(mails(folder)) == 1
    assert typed("resume", "r", "recap.py").stdout == "msg-1\n" and len(mails(folder)) == 1


def test_a_call_has_a_stable_key_of_its_own_or_one_that_is_given(app):
    """224"""
    keys = []

    @tool(effect="idempotent", retry=3)
    def send(to: str, *, idempotency_key: str) -> str:
        keys.append(idempotency_key)
        if len(keys) < 3:
            raise ConnectionError("503")
        return current_call().idempotency_key

    @tool(effect="once", unique="{text}")
    def post(text: str) -> str:
        SENT.append(text)
        return "posted"

    long = "{braces} " + "x" * 10_000

    @agent
    def sends(task: Task) -> str:
        post(text=long)
        return send(to="ana")

    done = app.run(sends, id="s")
    app.run(sends, id="t")
    assert keys[:3] == [done.result] * 3 and [long] == SENT


# Stages, parameters, tests, logs


def test_stages_are_declared_set_asserted_and_listed_and_others_refused(app):
    """225"""

    @agent(stages=["drafting", "sending"])
    def staged(task: Task, stage: str) -> str:
        task.stage("drafting")
        task.stage(stage)
        return stage

    expect(app.run(staged, {"stage": "sending"}, id="s")).stages("drafting", "sending")
    assert [row.id for row in app.list(stage="sending")] == ["s"]
    odd = app.run(staged, {"stage": "sent"})
    assert odd.status == "failed" and "sending" in odd.failure.message


@pytest.mark.parametrize("flag", ["-p", "--param"])
def test_a_procedure_is_run_with_parameters_by_their_short_and_long_flag(folder, flag):
    """226, 227"""
    assert typed("run", "recap.py", flag, "recipient_name=Ana").stdout == "msg-1\n"
    assert mails(folder)[0].startswith("Dear Ana ")


def test_a_procedure_is_tried_with_mocks_and_crashed_everywhere(folder):
    """228"""
    words = ("test", "recap.py", "--mock", "--param", "recipient_name=Ana")
    assert typed(*words).exit_code == 0 and mails(folder) == []
    crashed = typed(*words, "--crash", "--sample", "6", "--json")
    assert json.loads(crashed.stdout)["crash"]["survived"], crashed.output
    assert mails(folder) == []


def test_a_procedure_is_tried_with_mocks_and_nothing_else_by_its_own_example(folder):
    """229"""
    done = typed("test", "recap.py", "--mock")
    assert done.exit_code == 0 and "recap (mock) is completed: 2 steps" in done.stdout and "ok    check" in done.stdout
    (folder / "recap.py").write_text(PROCEDURE.replace('== "complete" and', '== "sending" and'))
    assert typed("test", "recap.py", "--mock").exit_code == 1


def test_a_test_says_what_state_and_stage_it_expects(folder):
    """230"""
    typed("run", "recap.py", "--param", "recipient_name=Ana", "--id", "r")
    with holdfast.open("holdfast.db") as app:
        done = app.get("r")
        expect(done).completed("msg-1").stage("complete").state(message_id="msg-1", send_attempts=1)
        expect(done).called("send", times=1)
        with pytest.raises(AssertionError):
            expect(done).stage("sending")


def test_a_line_with_values_is_logged_once(app):
    """231"""

    @step
    def look() -> int:
        return 1

    @agent
    def logs(task: Task) -> str:
        task.log("sending the recap")
        look()
        return task.ask("Well?", name="well")

    app.run(logs, id="l")
    app.answer("l", "well", "yes")
    app.resume("l", logs)
    lines = [record.event for record in app.events("l") if record.kind == "log_written"]
    assert [line.text for line in lines] == ["sending the recap"]


def test_the_whole_state_at_a_failure_can_be_read(app):
    """232"""

    @agent
    def fails(task: Task) -> None:
        task.state.to = "ana"
        task.state.increment("send_attempts")
        raise ConnectionError("no answer")

    done = app.run(fails, id="f")
    assert dict(app.at("f", done.failed_at).state) == {"to": "ana", "send_attempts": 1}
    assert done.failure.message == "no answer"
