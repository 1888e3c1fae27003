"""Tasks around code that is no agent: `with app.task(…)`."""

# ruff: noqa: PT012 — what a block does is several statements

import threading

import pytest

import holdfast
from holdfast import agent, tool
from holdfast.testing.crash.everywhere import MovableClock
from tests.engine.both import kinds

CLOCK = MovableClock


def test_a_block_completes_its_task_and_entering_it_again_replays(app):
    did = []
    for _ in range(2):
        with app.task("triage", {"ticket": 7}, id="t") as task:
            plan = task.step(lambda ticket: did.append(ticket) or "plan", task.input["ticket"], name="plan")
            task.finish(plan)
    done = app.get("t")
    assert (done.status, done.result, done.agent, did) == ("completed", "plan", "triage", [7])
    assert kinds(app, "t").count("task_completed") == 1


def test_an_exception_fails_the_task_and_comes_out(app):
    with pytest.raises(ValueError, match="no"), app.task("triage", id="t") as task:
        task.fact("before", 1)
        raise ValueError("no")
    failed = app.get("t")
    assert (failed.status, failed.failure.message, failed.facts["before"].value) == ("failed", "no", 1)
    assert all("holdfast/engine" not in frame for frame in failed.failure.traceback)


def test_a_failed_block_that_is_entered_again_goes_on(app):
    did = []

    def work():
        with app.task("triage", id="t") as task:
            task.step(lambda: did.append("one"), name="one")
            if len(did) == 1:
                did.append("fail")
                raise ValueError("no")
            task.step(lambda: did.append("two"), name="two")

    with pytest.raises(ValueError):
        work()
    work()
    assert did == ["one", "fail", "two"] and app.get("t").status == "completed"


def test_a_wait_comes_out_as_suspended_and_the_next_time_goes_on(app):
    def work():
        with app.task("triage", id="t") as task:
            task.finish([task.step(lambda: 1, name="one"), task.ask("who?")])

    with pytest.raises(holdfast.Suspended):
        work()
    assert (app.get("t").status, app.get("t").waiting.kind, app.get("t").holder) == ("waiting", "person", None)
    with pytest.raises(holdfast.Suspended):
        work()
    app.answer("t", "ask", "Ana")
    work()
    assert app.get("t").result == [1, "Ana"]


def test_turns_begin_at_the_turn_it_was_on_and_steps_before_them_are_found(app):
    did = []

    def work(upto):
        with app.task("triage", id="t") as task:
            plan = task.step(lambda: did.append("plan") or 10, name="plan")
            for turn in task.turns(max=5):
                task.state.increment("total", task.step(lambda turn=turn: did.append(turn) or plan, name="one"))
                if turn == upto:
                    if upto < 3:
                        task.wait("go")
                    break
            task.finish(task.state.total)

    with pytest.raises(holdfast.Suspended):
        work(2)
    app.signal("t", "go")
    work(3)
    assert did == ["plan", 1, 2, 3] and app.get("t").result == 30 and app.get("t").turn == 3


def test_turns_end_with_their_limit(app):
    with app.task("triage", id="t") as task:
        seen = list(task.turns(max=3))
    assert seen == [1, 2, 3] and app.get("t").status == "completed"


def test_a_new_step_on_a_finished_task_is_refused(app):
    did = []
    with app.task("triage", id="t") as task:
        task.step(lambda: 1, name="one")
    before = app.get("t").seq
    with pytest.raises(holdfast.TaskFinished) as refused, app.task("triage", id="t") as task:
        assert task.step(lambda: did.append(1), name="one") == 1
        task.step(lambda: did.append(2), name="two")
    assert refused.value.hint and did == [] and app.get("t").seq == before


@pytest.mark.parametrize("say", [lambda task: task.fact("x", 1), lambda task: setattr(task.state, "x", 1)])
def test_something_new_said_on_a_finished_task_is_refused(app, say):
    with app.task("triage", id="t") as task:
        task.step(lambda: 1, name="one")
    with pytest.raises(holdfast.TaskFinished), app.task("triage", id="t") as task:
        say(task)


def test_run_and_resume_refuse_such_a_task_and_say_why(app, texts):
    with pytest.raises(holdfast.Suspended), app.task("triage", id="t") as task:
        task.ask("who?")
    triage = agent(name="triage")(lambda task: 1)
    for attempt in (lambda: app.resume("t", triage), lambda: app.resume("t"), lambda: app.run(triage, id="t")):
        with texts.raises(holdfast.HoldfastError):
            attempt()


def test_an_agents_task_is_not_entered(app, texts):
    app.start("other", id="t")
    with texts.raises(holdfast.InvalidValue) as refused, app.task("triage", id="t"):
        pass
    assert refused.value.hint


def test_other_input_is_a_conflict(app):
    with app.task("triage", {"ticket": 7}, id="t"):
        pass
    with pytest.raises(holdfast.InputConflict, match=r"7.*8"), app.task("triage", {"ticket": 8}, id="t"):
        pass


def test_a_second_thread_finds_it_busy(app):
    outcomes = []

    def enter():
        try:
            with app.task("triage", id="t"):
                outcomes.append("in")
        except holdfast.TaskBusy as busy:
            outcomes.append(busy.hint)

    with app.task("triage", id="t") as task:
        task.step(lambda: 1, name="one")
        other = threading.Thread(target=enter)
        other.start()
        other.join()
    assert outcomes and outcomes != ["in"] and app.get("t").status == "completed"


def test_a_block_undoes_what_it_did_when_it_fails(app):
    undone = []

    def undo(call):
        undone.append(call.result)

    @tool(effect="once", compensate=undo)
    def book() -> str:
        return "B1"

    with pytest.raises(ValueError), app.task("triage", id="t") as task:
        task.call(book)
        raise ValueError("no")
    assert undone == ["B1"] and app.get("t").status == "failed"
    with pytest.raises(holdfast.HoldfastError), app.task("triage", id="t") as task:
        task.step(lambda: 1, name="more")


def test_an_interrupted_block_is_let_go(app):
    with pytest.raises(KeyboardInterrupt), app.task("triage", id="t") as task:
        task.step(lambda: 1, name="one")
        raise KeyboardInterrupt
    assert (app.get("t").status, app.get("t").holder) == ("pending", None)
    with app.task("triage", id="t") as task:
        task.finish(task.step(lambda: 2, name="one"))
    assert app.get("t").result == 1


def test_a_cancelled_block_stops_before_its_next_step(app):
    did = []
    try:
        with app.task("triage", id="t") as task:
            task.step(lambda: app.cancel("t") and None, name="one")
            task.step(lambda: did.append(1), name="two")
    except holdfast.Cancelled:
        pass
    assert did == [] and app.get("t").status == "cancelled"


def test_a_block_spawns_children_and_maps(app):
    @agent
    def double(task, n: int):
        return 2 * n

    with app.task("triage", id="t") as task:
        task.finish([task.spawn(double, {"n": 3}), task.map(lambda n: n + 1, [1, 2], name="more")])
    assert app.get("t").result == [6, [2, 3]]


def test_an_unserialisable_result_fails_the_block_and_is_named(app):
    with pytest.raises(holdfast.NotSerializable), app.task("triage", id="t") as task:
        task.finish(object())
    assert app.get("t").status == "failed"
