"""Document 000, rows 1 to 63: tasks, retries, deadlines, stores, and the contract of an agent's state."""

import json
import threading
import time

import pytest

import holdfast
from holdfast import (
    Budget,
    InvalidEvent,
    InvalidValue,
    Retry,
    StatePatch,
    StoreUnreachable,
    TaskBusy,
    TaskFailed,
    TaskNotFound,
    agent,
    current_call,
    tool,
)
from holdfast.llm import ModelRefused, ScriptedModel, loop_agent, read_artifact, say, use
from holdfast.testing import crash_everywhere
from holdfast.testing.conformance import StoreConformance

STORES = ("sqlite",)
LONG = 60

CONTRACT = {
    "goal": "free disk space on web-1",
    "constraints": {"human_in_the_loop": {"required_for_risk_levels": ["write_local", "external_action"]}},
    "budget": {
        "max_steps": 20,
        "max_wall_time_ms": 300_000,
        "max_llm_tokens": 60_000,
        "max_artifact_bytes_in_context": 48_000,
    },
    "plan": ["look", "clean", "report"],
    "known_facts": [{"key": "disk", "value": 91, "source": "df"}],
    "open_questions": ["which logs may go?"],
    "artifacts": [{"artifact_id": "df-1", "type": "text", "summary": "output of df", "bytes": 12}],
    "risk_flags": ["production"],
}


@pytest.fixture
def live(url):
    """An app whose clock goes on by itself."""
    with holdfast.open(url) as opened:
        yield opened


@agent
def echo(task, user_input: str):
    return user_input.upper()


@agent
def failing(task):
    raise ValueError("no")


# The task


def test_a_task_has_an_id_which_is_made_if_none_is_given(app):
    """Row 1."""
    assert app.run(echo, {"user_input": "hi"}, id="t1").id == "t1"
    assert len(app.run(echo, {"user_input": "hi"}).id) > 16


def test_a_task_keeps_what_the_user_said(app):
    """Row 2."""
    assert app.run(echo, {"user_input": "hi"}, id="t").input["user_input"] == "hi"


def test_a_task_is_pending_then_running_then_completed_or_failed(app):
    """Row 3."""
    seen = []

    @agent
    def looks(task):
        seen.append(task.current.status)
        return task.step(lambda: app.get("t").status, name="look")

    assert app.start(looks, id="t").status == "pending"
    done = app.run(looks, id="t")
    assert (seen, done.result, done.status) == (["running"], "running", "completed")
    assert app.run(failing).status == "failed"


def test_a_task_has_its_result(app):
    """Row 4."""
    assert app.run(echo, {"user_input": "hi"}).result == "HI"


def test_a_failed_task_has_its_error_as_data(app):
    """Row 5."""
    failure = app.run(failing).failure
    assert (failure.type, failure.message) == ("ValueError", "no")
    assert failure.traceback


def test_a_task_knows_when_it_was_made_and_last_changed(app, clock):
    """Row 6."""

    @agent
    def waits(task):
        task.wait("go")

    first = app.run(waits, id="t")
    clock.advance(5)
    then = app.signal("t", "go")
    assert first.created_at == then.created_at <= first.updated_at < then.updated_at


def test_a_task_can_be_written_as_json(app):
    """Row 7."""
    done = app.run(echo, {"user_input": "hi"}, id="t")
    assert json.loads(done.to_json())["result"] == "HI"
    assert json.loads(json.dumps(done.to_dict()))["input"] == {"user_input": "hi"}


# Executing


def test_a_task_that_is_not_there_is_said_to_be_missing(app):
    """Row 8."""
    with pytest.raises(TaskNotFound):
        app.get("x")


def test_a_completed_task_is_not_executed_again(app):
    """Row 9."""
    times = []

    @agent
    def once(task):
        times.append(1)
        return len(times)

    assert [app.run(once, id="t").result for _ in range(2)] == [1, 1]
    assert times == [1]


def test_others_see_that_a_task_is_running(url):
    """Row 10."""
    with holdfast.open(url) as app, holdfast.open(url) as other:

        @agent
        def looks(task):
            return task.step(lambda: other.get("t").status, name="look")

        assert app.run(looks, id="t").result == "running"


def test_how_a_task_ended_is_stored(url):
    """Row 11."""
    with holdfast.open(url) as app:
        app.run(echo, {"user_input": "hi"}, id="good")
        app.run(failing, id="bad")
    with holdfast.open(url) as app:
        assert (app.get("good").status, app.get("good").result) == ("completed", "HI")
        assert (app.get("bad").status, app.get("bad").failure.message) == ("failed", "no")


def test_who_runs_a_task_can_have_its_error_raised(app):
    """Row 12."""
    with pytest.raises(TaskFailed, match="no"):
        app.run(failing).unwrap()
    assert app.run(echo, {"user_input": "hi"}).unwrap() == "HI"


# Retries


def flaky(times, failures):
    def work():
        times.append(time.monotonic())
        if len(times) <= failures:
            raise ConnectionError("down")
        return "up"

    return work


def waits_of(app, clock, patient):
    """How long a task waits for its next attempts, each in seconds."""
    waits = []
    done = app.run(patient, id="t", hold=0)
    while done.status == "waiting":
        due_us = done.steps["call#1"].raw.retry_us
        waits.append(round((due_us - clock.now_us()) / 1e6, 1))
        clock.advance(waits[-1])
        done = app.run(patient, id="t", hold=0)
    return waits


def test_a_step_is_tried_again_after_one_two_four_and_eight_seconds(app, clock):
    """Row 13."""
    assert [Retry(5).delay(n, 0) for n in (1, 2, 3, 4)] == [1, 2, 4, 8]
    times = []

    @agent
    def patient(task):
        return task.step(flaky(times, 4), name="call", retry=5)

    assert waits_of(app, clock, patient) == [1, 2, 4, 8]
    assert app.get("t").result == "up"


def test_nothing_is_waited_for_after_the_last_attempt(app, clock):
    """Row 14."""

    @agent
    def hopeless(task):
        task.step(flaky([], 9), name="call", retry=3)

    assert waits_of(app, clock, hopeless) == [1, 2]
    assert app.get("t").status == "failed"


def test_the_error_says_how_often_it_was_tried_and_the_last_reason(live):
    """Row 15."""

    @agent
    def hopeless(task):
        task.step(flaky([], 9), name="call", retry=Retry(3, first=0.01))

    assert "failed after 3 attempts: ConnectionError: down" in live.run(hopeless).failure.message


def test_attempts_that_fail_are_seen_while_it_goes_on(live):
    """Row 16."""

    @agent
    def patient(task):
        task.step(flaky([], 1), name="call", retry=Retry(3, first=0.1))

    live.run(patient, id="t")
    assert "attempt_failed" in [one.kind for one in live.follow("t")]
    assert any("again in 0.1 s" in repr(line) for line in live.describe("t"))


# Deadlines


def test_a_deadline_is_for_the_whole_task_and_looked_at_before_each_turn(app, clock):
    """Row 18."""
    turns = []

    @agent(loop=True, deadline=5)
    def slow(task):
        turns.append(task.turn)
        task.step(lambda: clock.advance(2), name="work")

    done = app.run(slow)
    assert (done.status, turns) == ("failed", [1, 2, 3])


def test_a_missed_deadline_is_stored_as_a_failure(app, clock):
    """Row 19."""

    @agent(deadline=1)
    def slow(task):
        task.step(lambda: clock.advance(2), name="work")
        task.step(lambda: 1, name="more")

    assert app.run(slow).failure.code == "time-limit"


def test_a_step_has_a_time_limit_of_its_own(tmp_path):
    """Row 20."""
    with holdfast.open(tmp_path / "x.db") as app:
        released = threading.Event()

        @agent
        def slow(task):
            task.step(released.wait, LONG, name="wait", timeout=0.1)

        begun = time.monotonic()
        assert app.run(slow).status == "failed"
        assert time.monotonic() - begun < LONG / 3
        released.set()


def test_a_deadline_cuts_the_call_that_is_under_way(tmp_path):
    """Row 21."""
    with holdfast.open(tmp_path / "x.db") as app:
        released = threading.Event()

        @agent(deadline=0.3)
        def hangs(task):
            task.step(released.wait, LONG, name="wait")

        begun = time.monotonic()
        done = app.run(hangs)
        assert (done.status, done.failure.code) == ("failed", "time-limit")
        assert time.monotonic() - begun < LONG / 3
        released.set()


def test_a_tool_knows_the_time_it_has_left(tmp_path):
    """Row 22."""

    @tool(effect="read", timeout=9)
    def look() -> float | None:
        return current_call().time_left

    @agent(deadline=5)
    def asks(task):
        return task.call(look)

    with holdfast.open(tmp_path / "x.db") as app:
        assert 0 < app.run(asks).result <= 5


def test_a_deadline_ends_the_wait_before_another_attempt(app, clock):
    """Row 23."""

    @agent(deadline=1)
    def patient(task):
        task.step(flaky([], 9), name="call", retry=Retry(3, first=6))

    waiting = app.run(patient, id="t", hold=0)
    assert (waiting.waiting.wake_at - waiting.updated_at).total_seconds() < 1.1
    clock.advance(1)
    assert app.run(patient, id="t").failure.code == "time-limit"


def test_a_task_that_was_too_late_can_be_resumed_with_another_deadline(app, clock):
    """Row 24."""

    @agent(deadline=1)
    def works(task):
        return task.step(lambda: "done", name="work")

    app.start(works, id="t")
    clock.advance(2)
    assert app.run(works, id="t").failure.code == "time-limit"
    assert app.resume("t", works, deadline="1m").result == "done"


def test_a_deadline_passes_while_a_person_is_asked(app, clock):
    """Row 25."""

    @agent(deadline=1)
    def asks(task):
        return task.ask("well?")

    assert app.run(asks, id="t").status == "waiting"
    clock.advance(2)
    assert app.run(asks, id="t").failure.code == "time-limit"


def test_a_deadline_passes_while_a_task_sleeps(app, clock):
    """Row 26."""

    @agent(deadline=0.5)
    def sleeps(task):
        task.sleep(30)

    assert app.run(sleeps, id="t", hold=0).status == "waiting"
    clock.advance(0.5)
    assert app.run(sleeps, id="t", hold=0).failure.code == "time-limit"


# Saving and resuming


def test_a_task_outlives_the_process_that_made_it(url):
    """Row 27."""
    with holdfast.open(url) as app:
        app.start(echo, {"user_input": "hi"}, id="t")
    with holdfast.open(url) as app:
        assert app.resume("t", echo).result == "HI"


def test_one_can_ask_whether_a_task_is_there_without_an_exception(app):
    """Row 28 and 44."""
    assert app.find("t") is None
    app.start(echo, {"user_input": "hi"}, id="t")
    assert app.find("t").status == "pending"


def test_many_threads_share_an_app(tmp_path):
    """Row 29."""
    times = []

    @agent
    def once(task, n: int):
        task.step(lambda: times.append(n), name="work")

    with holdfast.open(tmp_path / "x.db") as app:
        threads = [
            threading.Thread(target=lambda n=n: app.run(once, {"n": n % 4}, id=f"t{n % 4}", wait=20)) for n in range(16)
        ]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
    assert sorted(times) == [0, 1, 2, 3]


def test_a_task_that_is_not_there_cannot_be_resumed(app):
    """Row 30."""
    with pytest.raises(TaskNotFound):
        app.resume("x", echo)


def test_resuming_a_completed_task_does_nothing_and_gives_it_back(app):
    """Row 31."""
    app.run(echo, {"user_input": "hi"}, id="t")
    assert app.resume("t", echo).result == "HI"


def test_a_failed_task_is_resumed_where_it_failed(app):
    """Row 32."""
    made = []

    @agent
    def two(task):
        task.step(lambda: made.append("a"), name="a")
        task.step(lambda: made.append("b") or 1 / (len(made) > 2), name="b")
        return made

    assert app.run(two, id="t").status == "failed"
    assert app.resume("t", two, by="ana", why="again").status == "completed"
    assert made == ["a", "b", "b"]


def cleaner(cleaned, fails=0):
    @tool(effect="once", retry=Retry(3, first=0.01), retry_on=[ConnectionError])
    def clean_logs(host: str) -> str:
        if len(cleaned) < fails:
            cleaned.append("503")
            raise ConnectionError("503")
        cleaned.append(host)
        return "3 GB freed"

    model = ScriptedModel([use("clean_logs", host="web-1"), say("There is room again.")])
    return loop_agent("devops", model, [clean_logs], "You look after servers.")


def test_the_progress_of_a_loop_is_saved_in_each_turn(app):
    """Row 33."""
    done = app.run(cleaner([]), {"goal": "free space"}, id="t")
    assert done.turn == 2
    assert [one["role"] for one in done.messages] == ["system", "user", "assistant", "tool", "assistant"]


def test_tools_are_tried_three_times(live):
    """Row 34."""
    cleaned = []
    assert live.run(cleaner(cleaned, fails=2), {"goal": "free space"}).status == "completed"
    assert cleaned == ["503", "503", "web-1"]


def test_the_example_cleans_once_wherever_it_crashes(tmp_path):
    """Row 35 and 37."""
    cleaned = []

    def again(app):
        cleaned.clear()

    def check(state, world):
        assert cleaned.count("web-1") <= 1 and state.status == "completed"

    def settle(app, state):
        call = next(item for item in app.inbox(state.id) if item.kind == "doubt")
        app.settle(state.id, call.key, happened="web-1" in cleaned, result="3 GB freed", by="ana")

    report = crash_everywhere(
        cleaner(cleaned),
        {"goal": "free space"},
        setup=again,
        check=check,
        finish=settle,
        sample=6,
        exceptions=False,
        directory=tmp_path,
        same_result=False,
    )
    assert report.survived == report.tried > 0


def test_the_example_needs_only_another_url_for_postgresql(postgres_url):
    """Row 36."""
    with holdfast.open(postgres_url) as app:
        assert app.run(cleaner([]), {"goal": "free space"}).result == "There is room again."
        assert app.verify().ok


def test_of_two_agents_one_gets_the_task(url):
    """Row 38."""
    with holdfast.open(url) as app, holdfast.open(url) as other:

        @agent
        def works(task):
            def run_too():
                with pytest.raises(TaskBusy):
                    other.run(works, id="t")
                return "mine"

            return task.step(run_too, name="work")

        assert app.run(works, id="t").result == "mine"


def test_tasks_that_are_not_done_are_listed_by_status_and_by_a_lost_worker(app):
    """Row 39."""
    app.start(echo, {"user_input": "hi"}, id="new")
    app.run(failing, id="bad")
    assert [one.id for one in app.list(status="pending")] == ["new"]
    assert [one.id for one in app.list(status="failed")] == ["bad"]
    assert app.list(interrupted=True) == []


def test_stores_are_exchanged_by_their_url(tmp_path):
    """Row 40."""
    for url in ("memory:", str(tmp_path / "x.db")):
        with holdfast.open(url) as app:
            assert app.run(echo, {"user_input": "hi"}).result == "HI"


def test_a_store_of_ones_own_has_a_suite_that_tells_whether_it_is_one():
    """Row 41: a store is more than three methods; what they are to do is tested for whoever writes one."""
    assert sum(name.startswith("test_") for name in dir(StoreConformance)) > 30


def test_a_server_that_cannot_be_reached_is_said_to_be():
    """Row 42."""
    pytest.importorskip("psycopg")
    with pytest.raises(StoreUnreachable):
        holdfast.open("postgresql://nobody@127.0.0.1:1/none?connect_timeout=1")


def test_starting_a_known_task_again_finds_it(app):
    """Row 43."""
    first = app.start(echo, {"user_input": "hi"}, id="t")
    assert app.start(echo, {"user_input": "hi"}, id="t").created_at == first.created_at


def test_lists_go_in_the_order_of_creation_and_carry_what_tasks_were_given(app, clock):
    """Row 45."""
    for n in range(3):
        app.run(echo, {"user_input": f"n{n}"}, id=f"t{n}")
        clock.advance(1)
    rows = list(app.list(status="completed", order="oldest", include=["input", "result"], limit=None))
    assert [(one.id, one.input["user_input"], one.result) for one in rows] == [
        ("t0", "n0", "N0"),
        ("t1", "n1", "N1"),
        ("t2", "n2", "N2"),
    ]
    assert rows[0].created_at < rows[1].created_at


def test_a_step_and_its_record_are_one_transaction(url):
    """Row 46 and 47."""

    @tool(effect="transaction")
    def add(euros: int, *, connection) -> None:
        connection.execute("create table if not exists accounts (euros int)")
        connection.execute("insert into accounts values (?)", (euros,))
        if euros > 10:
            raise ValueError("too much")

    @agent
    def pays(task):
        task.call(add, euros=5)
        task.call(add, euros=100)

    @tool(effect="transaction")
    def total(*, connection) -> int:
        return sum(row[0] for row in connection.execute("select euros from accounts"))

    @agent
    def counts(task):
        return task.call(total)

    with holdfast.open(url) as app:
        assert app.run(pays).status == "failed"
        assert app.run(counts).result == 5


# The contract


def test_the_contract_is_json_that_is_read_and_written_the_same(app):
    """Row 48."""
    assert holdfast.TaskState.from_contract(json.dumps(CONTRACT)).contract() == CONTRACT

    @agent
    def nothing(task):
        return "done"

    done = app.run(nothing, contract=CONTRACT)
    assert done.contract() == {**CONTRACT, "final_answer": "done"}


def risky(level, made):
    @tool(effect="once", risk=level)
    def act() -> str:
        made.append(level)
        return level

    return act


@pytest.mark.parametrize(("level", "waits"), [("write_local", True), ("external_action", True), ("read_only", False)])
def test_calls_of_these_risks_wait_for_a_person(app, level, waits):
    """Row 49."""
    made = []

    @agent
    def acts(task):
        return task.call(risky(level, made))

    assert (app.run(acts, contract=CONTRACT).status == "waiting") is waits
    assert bool(made) is not waits


def test_a_child_asks_for_approval_as_the_contract_of_its_parent_says(app):
    """Row 50."""
    made = []

    @agent
    def child(task):
        return task.call(risky("external_action", made))

    @agent
    def parent(task):
        return task.spawn(child)

    app.run(parent, id="t", contract=CONTRACT)
    assert made == []
    [asked] = app.inbox()
    app.approve(asked.task, asked.key, by="ana")
    assert app.run(parent, id="t", contract=CONTRACT).result == "external_action"


def test_a_child_asks_for_approval_as_the_agent_of_its_parent_says(app):
    """Row 51."""
    made = []

    @agent
    def child(task):
        return task.call(risky("money", made))

    @agent(required_for_risk_levels=["money"])
    def parent(task):
        return [task.spawn(child), task.map(child, [{}])]

    assert app.run(parent).status == "waiting"
    assert made == []


def test_a_budget_of_steps_is_kept(app):
    """Row 52."""

    @agent
    def busy(task):
        for n in range(30):
            task.step(lambda n=n: n, name="work")

    done = app.run(busy, contract=CONTRACT)
    assert (done.failure.code, done.budget.used["steps"]) == ("budget-exceeded", 20)


def test_a_budget_of_time_cuts_what_hangs(tmp_path):
    """Row 53."""
    released = threading.Event()

    @agent(budget=Budget(wall_time=0.3))
    def hangs(task):
        task.step(released.wait, LONG, name="wait")

    with holdfast.open(tmp_path / "x.db") as app:
        begun = time.monotonic()
        assert app.run(hangs).failure.code == "budget-exceeded"
        assert time.monotonic() - begun < LONG / 3
        released.set()


def test_a_budget_of_tokens_survives_and_can_be_raised(url):
    """Row 54."""

    @agent(budget=Budget(tokens=100))
    def talks(task):
        for _ in range(3):
            task.step(lambda: {"usage": {"prompt_tokens": 40, "completion_tokens": 10}}, name="model")
        return "done"

    with holdfast.open(url) as app:
        assert app.run(talks, id="t").failure.code == "budget-exceeded"
    with holdfast.open(url) as app:
        assert app.get("t").budget.used["tokens"] == 100
        app.raise_budget("t", Budget(tokens=1_000), by="ana")
        assert app.resume("t", talks).result == "done"


def test_a_slice_needs_no_limit_where_the_budget_has_one(app):
    """Row 55."""

    @agent
    def slices(task):
        task.artifact("x" * 1_000, summary="short", step="look")
        task.artifact("y" * 100_000, summary="long", step="look")
        return task.context("look").size

    assert 1_000 < app.run(slices, contract=CONTRACT).result <= 48_000

    @agent
    def unlimited(task):
        task.context("look")

    assert "Budget(artifact_bytes=" in app.run(unlimited).failure.message


def test_a_budget_counts_only_what_was_used(live):
    """Row 56."""
    answers = []

    async def refused_twice(messages, tools, **options):
        answers.append(1)
        if len(answers) < 3:
            raise ModelRefused("too many requests", status=429)
        return say("done", usage={"prompt_tokens": 20, "completion_tokens": 1})

    talker = loop_agent("talker", refused_twice, retry=Retry(3, first=0.01), budget=Budget(tokens=60_000))
    done = live.run(talker, {"goal": "word " * 15_000})
    assert (done.status, done.budget.used["tokens"]) == ("completed", 21)


def test_an_agent_keeps_plan_facts_questions_artifacts_and_flags(app):
    """Row 57."""

    @agent
    def knows(task):
        task.plan(["a", "b"])
        task.fact("disk", 91, source="df")
        task.question("why?")
        task.artifact("text", summary="a text")
        task.flag("production")

    done = app.run(knows)
    assert [one.text for one in done.plan] == ["a", "b"]
    assert (done.facts["disk"].value, done.facts["disk"].source) == (91, "df")
    assert (done.questions, done.flags, len(done.artifacts)) == (["why?"], ["production"], 1)


def test_a_patch_is_made_whole_or_refused_with_its_reason(app):
    """Row 58."""
    app.start(echo, {"user_input": "hi"}, id="t")
    patch = StatePatch(
        append_facts=[{"key": "disk", "value": 91}], replace_plan=["a"], add_questions=["why?"], set={"n": 1}
    )
    changed = app.patch("t", patch, by="ana")
    assert (changed.facts["disk"].value, changed.pending, changed.questions) == (91, ["a"], ["why?"])
    with pytest.raises(InvalidEvent, match="no step 'z'"):
        app.patch("t", StatePatch(set={"n": 2}, complete_plan_step="z"))
    assert app.get("t").state["n"] == 1


@pytest.mark.parametrize("form", [dict, json.dumps, lambda patch: json.dumps(patch).encode()])
def test_a_patch_may_come_as_a_dict_or_as_json(app, form):
    """Row 59."""
    app.start(echo, {"user_input": "hi"}, id="t")
    assert app.patch("t", form({"set": {"city": "Oslo"}})).state["city"] == "Oslo"
    assert app.user("ana").patch(form({"set": {"seat": 4}})).state["seat"] == 4

    @agent
    def patches(task):
        task.patch(form({"set": {"city": "Rome"}}))

    assert app.run(patches).state["city"] == "Rome"
    assert app.fork("t", patch=form({"set": {"city": "Bern"}})).state["city"] == "Bern"


def test_what_is_not_a_patch_is_refused_by_name(app, texts):
    """Row 59."""
    app.start(echo, {"user_input": "hi"}, id="t")
    for wrong in (5, ["set"], {"sett": {}}, "{", {"set": 5}):
        with texts.raises(InvalidValue):
            app.patch("t", wrong)


def test_one_part_normalises_and_another_chooses_from_what_is_known(app):
    """Row 60."""

    def normalise(task, said):
        task.fact("service", said.strip().lower(), source="user")

    @agent
    def splits(task, said: str):
        normalise(task, said)
        task.plan(["restart", "report"])
        service = task.current.facts["service"].value
        return f"{task.current.pending[0]} {service}"

    assert app.run(splits, {"said": " NGINX "}).result == "restart nginx"


def test_a_plan_is_changed_when_facts_come(app):
    """Row 61."""

    @agent
    def replans(task):
        task.plan(["look", "clean"])
        task.done("look")
        task.fact("full", False)
        if not task.current.facts["full"].value:
            task.plan(["look", "report"])
        return task.current.pending

    done = app.run(replans)
    assert done.result == ["report"]
    assert [one.done for one in done.plan] == [True, False]


def test_an_agent_sees_that_its_budget_runs_out(app):
    """Row 62."""

    @agent(budget=Budget(steps=5))
    def thrifty(task):
        for _ in range(4):
            task.step(lambda: 1, name="work")
        return ["budget_pressure" in task.current.flags, task.current.budget.pressure, task.render("{flags}")]

    assert app.run(thrifty).result == [True, True, '["budget_pressure"]']


def test_a_large_thing_is_kept_apart_and_read_back_by_its_id(app):
    """Row 63."""

    @agent(budget=Budget(artifact_bytes=2_000))
    def writes(task):
        made = task.artifact("x" * 100_000, summary="a long text")
        return [made, len(task.current.artifacts[made].data), len(task.context("writes").text)]

    done = app.run(writes, id="t")
    made, length, shown = done.result
    assert length == 100_000 and shown < 2_000
    assert app.artifact("t", made).data == "x" * 100_000
    with pytest.raises(InvalidValue, match="has no artifact 'y'"):
        app.artifact("t", "y")


def test_a_model_reads_an_artifact_page_by_page(app):
    """Row 63."""

    def page(start):
        return lambda messages: use("read_artifact", artifact_id=find(messages), start=start, length=6)

    def find(messages):
        return next(one["content"] for one in messages if one["role"] == "tool")

    @tool(effect="read")
    def look() -> str:
        return kept[0]

    kept = []
    model = ScriptedModel([use("look"), page(0), page(6), use("read_artifact", artifact_id="none"), say("read")])
    reader = loop_agent("reader", model, [look, read_artifact])

    @agent
    def makes(task):
        return task.artifact("hello world")

    app.run(makes, id="made")
    kept.append(next(iter(app.get("made").artifacts)))
    contract = {**app.get("made").contract(), "goal": "read it"}
    done = app.run(reader, {"goal": "read it"}, contract=contract)
    told = [one["content"] for one in done.messages if one["role"] == "tool"]
    assert [json.loads(one) for one in told[1:3]] == [
        {"text": "hello ", "length": 11, "next": 6},
        {"text": "world", "length": 11, "next": None},
    ]
    assert "no artifact 'none'" in told[3]
