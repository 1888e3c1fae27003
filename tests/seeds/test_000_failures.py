"""The first document, its second half: what a step is shown, checkpoints, retention, the errors people make."""

import asyncio
import json
import logging
import threading
import time
from datetime import UTC, datetime

import pytest

import holdfast
from holdfast import (
    InvalidState,
    InvalidValue,
    ResumeExpired,
    Retention,
    Retry,
    TaskNotFound,
    WindowTooSmall,
    agent,
    tool,
)
from tests.waiting import until

STORES = ("memory", "sqlite", "postgres")
CLOCK = None  # the real one
QUICK = Retry(3, first=0.01)
LONG = 20


def knowing(body):
    """An agent that knows something, and what its body makes of that."""

    @agent
    def knows(task):
        task.step(lambda: "seen", name="look")
        task.artifact("of another step", type="log", step="look#1")
        task.artifact("the plan of the deployment", type="plan", step="deploy")
        for number in range(1, 4):
            task.fact(f"f{number}", "x" * 200 if number == 3 else number, source="test")
        task.question("is it monday?")
        return body(task)

    return knows


# Slices


def test_a_slice_has_goal_step_facts_artifacts_and_open_questions(app):
    """Row 64."""

    def body(task):
        found = task.context("deploy", max_bytes=8_000)
        return [found.goal, found.step, [one.key for one in found.facts], len(found.artifacts), [*found.questions]]

    done = app.run(knowing(body), goal="ship it", id="t")
    goal, step, facts, artifacts, questions = done.unwrap()
    assert (goal, step, artifacts, questions) == ("ship it", "deploy", 2, ["is it monday?"])
    assert {*facts} == {"f1", "f2", "f3"}


def test_artifacts_of_the_step_come_first_then_the_newest_facts(app):
    """Row 65."""

    def body(task):
        for number in range(60):
            task.fact(f"g{number}", "a fact of some length", source="test")
        found = task.context("deploy", max_bytes=900)
        return [[one.step for one in found.artifacts], [one.key for one in found.facts]]

    artifacts, facts = app.run(knowing(body), goal="ship it", id="t").unwrap()
    assert artifacts[0] == "deploy"
    assert "g59" in facts and "g0" not in facts


def test_what_is_too_large_is_left_out_and_named_and_the_rest_goes_in(app):
    """Row 66."""

    def body(task):
        found = task.context("deploy", max_bytes=360)
        return [[one.key for one in found.facts], [*found.left_out_facts]]

    facts, left_out = app.run(knowing(body), goal="ship it", id="t").unwrap()
    assert "f3" in left_out and "f2" in facts


def test_a_limit_that_is_too_small_for_goal_and_step_is_refused_with_numbers(app):
    """Row 68."""

    def body(task):
        with pytest.raises(WindowTooSmall) as refused:
            task.context("deploy", max_bytes=10)
        return str(refused.value)

    assert "10" in app.run(knowing(body), goal="ship it", id="t").unwrap()


# Checkpoints


@pytest.mark.parametrize("strategy", ["every_step", "every_iteration", "on_state_change"])
def test_each_checkpoint_strategy_gives_the_same_result(app, strategy):
    """Row 69."""

    @agent(loop=True, checkpoint=strategy)
    def loops(task):
        value = task.step(lambda: task.turn, name="turn")
        task.state.seen = value
        return value if task.turn == 4 else None

    assert app.run(loops, id="t").unwrap() == 4
    assert app.get("t").state["seen"] == 4


def test_a_strategy_skips_what_the_others_would_save(url):
    """Row 70."""

    def commits(strategy):
        count = []

        @agent(loop=True, checkpoint=strategy)
        def loops(task):
            for name in ("a", "b", "c"):
                task.step(lambda: 1, name=name)
            return 1 if task.turn == 3 else None

        with holdfast.open(url, namespace=strategy.replace("_", "-")) as app:
            app.on_events(lambda log, events: count.append(len(events)))
            app.run(loops, id="t")
        return len(count)

    assert commits("every_iteration") < commits("every_step")


def test_a_checkpoint_that_is_too_old_is_not_resumed_also_below_a_second(app):
    """Row 71."""

    @agent(resume_within=0.05)
    def waits(task):
        task.step(lambda: 1, name="one")
        return task.ask("go on?", name="go")

    app.run(waits, id="t")
    app.answer("t", "go", "yes")
    time.sleep(0.1)
    with pytest.raises(ResumeExpired) as refused:
        app.resume("t", waits)
    assert "within 0.05 s" in refused.value.message and " 0 s" not in refused.value.message
    assert app.resume("t", waits, anyway=True).unwrap() == "yes"


def test_an_unknown_task_is_not_found(app):
    """Row 72."""
    with pytest.raises(TaskNotFound):
        app.resume("nothing", knowing(lambda task: 1))


def test_a_failed_task_goes_on_where_it_failed(app):
    """Row 73."""
    made = []

    @agent
    def works(task):
        task.step(lambda: made.append("a"), name="a")
        task.step(lambda: made.append("b") or 1 / (len(made) - 2), name="b")

    assert app.run(works, id="t").status == "failed"
    assert app.resume("t", works).status == "completed"
    assert made == ["a", "b", "b"]


def test_resuming_a_completed_task_gives_it_back(app):
    """Row 74."""
    works = knowing(lambda task: "done")
    assert app.run(works, id="t").unwrap() == "done"
    assert app.resume("t", works).unwrap() == "done"


def test_a_pending_task_is_simply_begun(app):
    """Row 75."""
    works = knowing(lambda task: "done")
    assert app.start(works, id="t").status == "pending"
    assert app.run(works, id="t").unwrap() == "done"


def test_a_state_that_does_not_fit_its_model_is_refused(app):
    """Row 76."""
    from dataclasses import dataclass

    @dataclass
    class Paid:
        euros: int = 0

    @agent(state=Paid)
    def pays(task):
        with pytest.raises(InvalidState):
            task.state.euros = "many"
        return task.state.euros

    assert app.run(pays, id="t").unwrap() == 0


# Retention


def test_gc_keeps_the_newest_and_says_how_many_went(app):
    """Row 77."""
    works = knowing(lambda task: 1)
    for number in range(4):
        app.run(works, id=f"t{number}")
    found = app.gc(keep=2)
    assert found.tasks == 2 and {row.id for row in app.list()} == {"t2", "t3"}


@agent
def quick(task):
    return 1


def test_workers_remove_old_tasks_on_a_schedule_and_one_of_them_does(url):
    """Row 78."""
    removed = []
    with holdfast.open(url) as app:
        for number in range(6):
            app.run(quick, id=f"t{number}")
        workers = [app.worker([quick], gc=Retention(every="1h", keep=2), name=f"w{n}") for n in range(3)]
        for one in workers:
            one.tell_collected = lambda found: removed.append(found.tasks)

        async def serve():
            running = [asyncio.create_task(one.arun()) for one in workers]
            await asyncio.to_thread(until, lambda: removed)
            await asyncio.sleep(1.2)  # the others look too, and find that it was done
            for one in workers:
                one.stop()
            await asyncio.gather(*running)

        asyncio.run(serve())
        assert removed == [4] and len(app.list()) == 2
        assert sum(one.counts["collected"] for one in workers) == 4


@pytest.mark.parametrize(
    "given",
    [{"every": 0, "keep": 1}, {"every": "1h"}, {"every": "1h", "keep": -1}, {"every": "soon", "keep": 1}],
)
def test_a_retention_that_could_do_nothing_is_refused(given):
    """Row 78: bad input."""
    with pytest.raises(InvalidValue) as refused:
        Retention(**given)
    assert refused.value.hint


def test_a_worker_is_given_a_retention_and_nothing_else(app):
    """Row 78: bad input."""
    with pytest.raises(InvalidValue) as refused:
        app.worker([quick], gc="1h")
    assert "Retention(" in refused.value.hint


# The errors people make


def test_a_file_is_created_once_however_often_the_step_is_tried(app, tmp_path):
    """Row 79."""

    @tool(effect="once", unique="file-{name}")
    def create(name: str) -> str:
        with (tmp_path / name).open("x") as file:
            file.write("hello")
        return name

    @agent
    def makes(task):
        return [task.call(create, name="a.txt"), task.call(create, name="a.txt")]

    assert app.run(makes, id="t").unwrap() == ["a.txt", "a.txt"]
    assert app.run(makes, id="u").unwrap() == ["a.txt", "a.txt"]


def test_every_step_of_an_agent_can_be_tried_again(app):
    """Row 80."""
    tries = []

    @agent(retries=QUICK)
    def works(task):
        return task.step(lambda: tries.append(1) or 1 / (len(tries) // 3), name="flaky")

    assert app.run(works, id="t").unwrap() == 1.0 and len(tries) == 3


def test_a_deadline_cuts_a_step_that_hangs(app):
    """Row 81."""
    released = threading.Event()

    @agent(deadline=0.2)
    def hangs(task):
        task.step(released.wait, 3 * LONG, name="hang")

    began = time.monotonic()
    done = app.run(hangs, id="t")
    assert done.status == "failed" and done.failure.code == "time-limit"
    assert time.monotonic() - began < LONG
    released.set()


def test_state_outlives_the_program(url):
    """Row 82."""
    if url == "memory:":
        pytest.skip("memory: is gone with its app")
    with holdfast.open(url) as app:
        app.run(knowing(lambda task: setattr(task.state, "n", 7)), id="t")
    with holdfast.open(url) as app:
        assert app.get("t").state["n"] == 7


def test_a_task_that_is_done_is_not_done_again(app):
    """Row 83."""
    made = []

    @agent
    def works(task):
        return task.step(lambda: made.append(1) or "done", name="work")

    assert [app.run(works, id="t").unwrap() for _ in range(3)] == ["done"] * 3 and made == [1]


def test_one_agent_writes_progress_and_another_goes_on_with_it(app):
    """Row 84; over MCP: tests/mcp."""
    from holdfast.mcp import server

    app.run(knowing(lambda task: task.plan(["a", "b"])), id="t", goal="ship it")

    @agent
    def goes_on(task):
        return [task.current.goal, task.current.pending]

    assert app.run(goes_on, id="u", contract=app.get("t").contract()).unwrap() == ["ship it", ["a", "b"]]
    assert server(app) is not None


# What is seen of failures


def test_a_failure_is_logged_with_the_place_of_its_state(app, caplog):
    """Row 85 and M37."""

    @agent
    def fails(task):
        task.state.order = 17
        task.step(lambda: 1 / 0, name="divide")

    with caplog.at_level(logging.INFO, logger="holdfast"):
        app.run(fails, id="t")
        app.run(fails, id="t")
    (record,) = [one for one in caplog.records if one.name == "holdfast.failures"]
    assert record.levelname == "ERROR" and "ZeroDivisionError" in record.getMessage()
    assert (record.holdfast_task, record.holdfast_agent, record.holdfast_step) == ("t", "fails", "divide#1")
    assert app.at("t", record.holdfast_state_seq).state["order"] == 17


def test_a_failure_that_a_parent_handles_is_no_error_of_the_program(app, caplog):
    """Row 85 and M37."""

    @agent
    def fails(task):
        raise ValueError("no")

    @agent
    def handles(task):
        with pytest.raises(holdfast.StepFailed):
            task.spawn(fails)

    with caplog.at_level(logging.INFO, logger="holdfast"):
        assert app.run(handles, id="t").status == "completed"
    (record,) = [one for one in caplog.records if one.name == "holdfast.failures"]
    assert (record.levelname, record.holdfast_task) == ("INFO", "t/fails#1")


def test_a_program_is_told_of_failures_wherever_they_happen(url):
    """Row 85."""
    told, heard = [], []

    @agent
    def fails(task):
        raise ValueError("no")

    with holdfast.open(
        url, on_failure=lambda state: told.append((state.id, state.failure.context.exception.type))
    ) as app:
        app.run(fails, id="t")
        assert told == [("t", "ValueError")], "before run returns"
        if url != "memory:":
            with holdfast.open(url, on_failure=lambda state: heard.append(state.id)) as other:
                other.run(fails, id="u")
                until(lambda: len(told) == 2)
                assert heard == ["u"]
        app.resume("t", fails)
        until(lambda: [id for id, _ in told].count("t") == 2)
    assert [id for id, _ in told].count("u") <= 1


@pytest.mark.parametrize("given", [7, "function"])
def test_what_cannot_be_told_is_refused(given):
    """Row 85: bad input."""
    with pytest.raises(InvalidValue) as refused:
        holdfast.open("memory:", on_failure=given)
    assert "on_failure" in refused.value.message and refused.value.hint


def test_an_async_hook_is_refused():
    """Row 85: bad input."""

    async def tell(state):
        pass

    with pytest.raises(InvalidValue):
        holdfast.open("memory:", on_failure=tell)


@pytest.mark.parametrize("status", [400, 401, 404])
def test_permanent_errors_are_not_tried_again(app, status):
    """Row 86."""
    from holdfast.llm import loop_agent

    class Refused(Exception):
        status_code = status

    asked = []

    async def model(messages, tools=(), **options):
        asked.append(1)
        raise Refused("no")

    done = app.run(loop_agent("asks", model=model, retry=Retry(5, first=0.01)), {"goal": "hi"}, id="t")
    assert done.status == "failed" and len(asked) == 1


def test_a_line_of_the_log_has_fields_for_programs(app):
    """Row 231, as an agent writes it on failure."""

    @agent
    def writes(task):
        task.log("paid", order=17, lines=["a", {"b": None}])
        task.step(lambda: 1, name="one")

    app.run(writes, id="t")
    (event,) = [json.loads(one.to_json()) for one in app.events("t") if one.kind == "log_written"]
    assert event["event"]["text"] == "paid"
    assert event["event"]["fields"] == {"order": 17, "lines": ["a", {"b": None}]}
    assert any(line.value == 'paid order=17 lines=["a",{"b":null}]' for line in app.describe("t"))


def test_a_field_that_is_not_json_is_refused_with_its_name(app):
    """Row 231: bad input."""

    @agent
    def writes(task):
        with pytest.raises(holdfast.NotSerializable) as refused:
            task.log("paid", at=object())
        with pytest.raises(InvalidValue):
            task.log(7)
        return str(refused.value)

    assert "at" in app.run(writes, id="t").unwrap()


def test_a_function_outside_of_tasks_is_tried_again_as_steps_are(caplog):
    """Row 17, plain and async."""
    tries = []

    def flaky(n):
        tries.append(n)
        if len(tries) % 3:
            raise ConnectionError("down")
        return n

    async def slow(n):
        return flaky(n)

    began = time.monotonic()
    assert holdfast.retry(flaky, 7, retry=Retry(3, first=0.05)) == 7
    assert time.monotonic() - began >= 0.15, "0.05 s and 0.1 s"
    assert asyncio.run(holdfast.retry(slow, 8, retry=QUICK)) == 8
    assert "attempt 1 of 3 failed" in caplog.text
    with pytest.raises(holdfast.RetriesExhausted) as failed:
        holdfast.retry(lambda: 1 / 0, retry=Retry(2, first=0.01))
    assert "after 2 attempts: ZeroDivisionError" in str(failed.value)
    assert isinstance(failed.value.__cause__, ZeroDivisionError)


def test_what_another_attempt_would_meet_too_is_raised_at_once():
    """Row 17."""
    tries = []

    def refused(error):
        tries.append(1)
        raise error

    with pytest.raises(KeyError):
        holdfast.retry(refused, KeyError("k"), retry=QUICK, retry_on=[ConnectionError])
    with pytest.raises(holdfast.NotDone):
        holdfast.retry(refused, holdfast.NotDone("never", permanent=True), retry=QUICK)
    assert len(tries) == 2


def test_retry_is_refused_where_it_would_not_be_safe(app):
    """Row 17: bad input."""

    @tool(effect="once")
    def pay() -> str:
        return "paid"

    @agent
    def tries(task):
        with pytest.raises(InvalidValue) as refused:
            holdfast.retry(print)
        assert "task.step" in refused.value.hint
        return task.step(lambda: holdfast.retry(lambda: "in a step"), name="one")

    assert app.run(tries, id="t").unwrap() == "in a step"
    for given in ((7,), (pay,)):
        with pytest.raises(InvalidValue) as refused:
            holdfast.retry(*given)
        assert refused.value.hint
    with pytest.raises(InvalidValue):
        holdfast.retry(print, retry=0)


def test_a_task_as_json_has_everything_it_has_as_attributes(app):
    """Row 7."""

    @tool(effect="idempotent", retry=QUICK)
    def flaky() -> int:
        raise ConnectionError("down")

    @agent(deadline="1h")
    def fails(task):
        task.call(flaky)

    done = app.run(fails, id="t")
    told = json.loads(done.to_json())
    assert told["calls"] == {"flaky#1": "flaky"} and told["failed_at"] == done.failed_at
    assert datetime.fromisoformat(told["deadline"]) == done.deadline.astimezone(UTC)
    assert told["digest"] == done.digest and told["holder"] is None and told["state_version"] == 0
    assert done.to_dict(sections=["interrupted"]) == {"interrupted": False}, "it is not in the log"
    step, known = told["steps"]["flaky#1"], done.steps["flaky#1"]
    assert (step["before"], step["after"], step["turn"]) == (known.before, known.after, 0)
    assert step["idempotency_key"] == known.idempotency_key and len(step["failures"]) == 2
