"""Closing an app while a call runs: nobody else makes the call meanwhile."""

import subprocess
import sys
import textwrap
import threading
import time

import pytest

import holdfast
from holdfast import StoreClosed, agent, tool

STORES = ("sqlite", "postgres")

PROGRAM = textwrap.dedent(
    """
    import sys, threading, time
    import holdfast
    from holdfast import agent, tool

    url, effects, seconds, grace = sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4])

    @tool(effect="once", on_doubt="retry")
    def pay(order: int) -> str:
        with open(effects, "a") as file:
            file.write("paid\\n")
        time.sleep(seconds)
        return "receipt"

    @agent
    def worker(task):
        paid = task.call(pay, order=1)
        task.step(lambda: None, name="after")
        return paid

    app = holdfast.open(url)

    def say(text):
        sys.stdout.write(text + "\\n")
        sys.stdout.flush()

    def work():
        try:
            say(app.run(worker, id="t").status)
        except BaseException as error:
            say(type(error).__name__)

    if sys.argv[5] == "first":
        thread = threading.Thread(target=work)
        thread.start()
        while not app.list(status="running") or "step_started" not in [one.kind for one in app.events("t")]:
            time.sleep(0.01)
        app.close(grace=grace)
        say("closed")
        thread.join()
    else:
        work()
    """
)


@pytest.fixture
def program(tmp_path, url):
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    effects = tmp_path / "effects"
    effects.touch()

    started = []

    def start(who, seconds, grace):
        given = [sys.executable, str(file), url, str(effects), str(seconds), str(grace), who]
        started.append(subprocess.Popen(given, stdout=subprocess.PIPE, text=True))
        return started[-1]

    start.effects = effects
    yield start
    for one in started:
        one.kill()
        one.communicate()


def test_a_call_that_outlasts_the_grace_is_not_made_again_by_another_process(program):
    first = program("first", 5, 0.2)
    assert first.stdout.readline() == "closed\n"
    second = program("second", 0, 0)
    assert second.communicate(timeout=60)[0] == "TaskBusy\n", "the first process lives, and so does its call"
    assert program.effects.read_text() == "paid\n"
    assert first.communicate(timeout=60)[0] == "StoreClosed\n"
    third = program("third", 0, 0)
    third.communicate(timeout=60)
    assert program.effects.read_text() == "paid\npaid\n", "its tool says: make it again, if nobody knows"


def test_a_call_that_ends_within_the_grace_is_recorded(program):
    first = program("first", 0.5, 30)
    out = first.communicate(timeout=60)[0].split()
    assert sorted(out) == ["StoreClosed", "closed"]
    second = program("second", 0, 0)
    assert second.communicate(timeout=60)[0] == "completed\n"
    assert program.effects.read_text() == "paid\n"


def test_a_process_that_dies_after_closing_is_taken_over(program):
    first = program("first", 60, 0.1)
    assert first.stdout.readline() == "closed\n"
    first.kill()
    first.wait(10)
    second = program("second", 0, 0)
    assert second.communicate(timeout=60)[0] == "completed\n"


def test_closing_waits_for_no_one_when_nothing_runs(url):
    app = holdfast.open(url)
    began = time.monotonic()
    app.close()
    app.close()
    assert time.monotonic() - began < 20


def test_a_task_of_another_thread_is_released_and_goes_on_later(url):
    go, begun = threading.Event(), threading.Event()

    @tool(effect="once")
    def pay(order: int) -> int:
        begun.set()
        go.wait(20)
        return order

    @agent
    def worker(task):
        return [task.call(pay, order=1), task.step(int, "2", name="after")]

    app = holdfast.open(url)
    told = []

    def work():
        try:
            app.run(worker, id="t")
        except StoreClosed as closed:
            told.append(closed)

    thread = threading.Thread(target=work)
    thread.start()
    assert begun.wait(20)
    threading.Timer(0.2, go.set).start()
    app.close()
    thread.join(20)
    assert told and "'t'" in told[0].message and told[0].hint
    with holdfast.open(url) as again:
        assert again.get("t").status == "pending"
        assert again.run(worker, id="t").result == [1, 2]
