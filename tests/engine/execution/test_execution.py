"""Agents: done once, replayed the same, never twice, whatever happens in between."""

import contextlib
import dataclasses
import functools
import subprocess
import sys
import textwrap
import threading
import time

import msgspec
import pytest

import holdfast
from holdfast import DidNotHappen, Happened, NotDone, Retry, Unknown, agent, events as ev, tool
from holdfast.core import codec, limits
from holdfast.engine.maintenance import export
from tests.waiting import until

STORES = ("memory", "sqlite", "postgres")

FAST = Retry(3, first=0)


class World:
    """The outside world: remembers every request."""

    def __init__(self):
        self.requests = []

    def did(self, what):
        self.requests.append(what)
        return f"{what} {self.requests.count(what)}"


@pytest.fixture
def world():
    return World()


def recap_on(world, **options):
    """An agent with every kind of step, on a world that remembers."""

    @tool(
        effect="once",
        reconcile=lambda call: Happened("msg 1") if "send" in world.requests else DidNotHappen(),
        reconcile_after=0,
    )
    def send(to: str, *, idempotency_key: str) -> str:
        assert holdfast.current_call().idempotency_key == idempotency_key
        return world.did("send")

    @tool(effect="read")
    def look(city: str) -> str:
        return world.did("look")

    @agent(stages=["drafting", "sending"], **options)
    def recap(task, notes: str) -> list:
        task.stage("drafting")
        before = task.state.increment("runs")
        draft = task.step(lambda: {"subject": notes.upper(), "by": world.did("draft")}, name="draft")
        task.fact("subject", draft["subject"], source="draft")
        city = task.call(look, city="Oslo")
        task.stage("sending")
        sent = task.call(send, to="sam")
        task.state.sent = sent
        task.decide("again?", False, why="once is enough", options=[True, False])
        after = task.state.increment("runs")
        return [before, city, sent, after, str(task.uuid()), task.random(), sorted(task.state)]

    return recap


def test_a_task_runs_to_its_end_and_running_it_again_does_nothing(app, world):
    recap = recap_on(world)
    done = app.run(recap, {"notes": "q3"}, id="r")
    assert done.status == "completed" and done.stage == "sending"
    assert done.result[:4] == [1, "look 1", "send 1", 2]
    assert done.facts["subject"].value == "Q3" and done.decisions[0]["why"] == "once is enough"
    again = app.run(recap, {"notes": "q3"}, id="r")
    assert again.to_dict() == done.to_dict()
    assert world.requests == ["draft", "look", "send"]


def test_a_crash_after_any_event_is_survived_and_nothing_is_done_twice(app, world):
    recap = recap_on(world)
    done = app.run(recap, {"notes": "q3"}, id="r")
    lines = list(export.export(app.logs, "r"))
    for seq in range(1, done.seq):
        world.requests[:] = requests_before(app, seq)
        with holdfast.open("memory:") as other:
            other.import_(prefix(lines, seq))
            resumed = other.run(recap, {"notes": "q3"}, id="r")
            assert resumed.status == "completed"
            assert resumed.result[:2] + resumed.result[3:] == done.result[:2] + done.result[3:]
            assert world.requests.count("send") == 1 and world.requests.count("draft") == 1
            assert resumed.state["runs"] == 2, "a counter counts once, not once a replay"
            assert len([r for r in other.events("r") if r.kind == "fact_learned"]) == 1
            assert other.verify().ok


def requests_before(app, seq):
    """What the world had seen when the log had come that far. An announced call may have been made."""
    steps = [record.event for record in app.events("r", limit=seq) if hasattr(record.event, "key")]
    made = [event for event in steps if isinstance(event, ev.StepCompleted | ev.StepStarted)]
    return list(dict.fromkeys(event.name for event in made))


def prefix(lines, seq):
    kept = [line for line in lines if b'"is":"event"' not in line or msgspec.json.decode(line)["seq"] <= seq]
    return [*kept[:-1], codec.dump({"is": "end", "events": seq})]


def test_the_same_id_with_other_input_is_a_conflict_that_shows_both(app, world):
    recap = recap_on(world)
    app.run(recap, {"notes": "q3"}, id="r")
    with pytest.raises(holdfast.InputConflict, match=r"'q3'.*'q4'"):
        app.run(recap, {"notes": "q4"}, id="r")


@pytest.mark.parametrize(
    "input",
    [{}, {"notes": 3}, {"notes": "x", "extra": 1}],
)
def test_input_is_checked_before_anything_is_written(app, world, input, texts):
    with texts.raises(holdfast.InvalidInput):
        app.run(recap_on(world), input, id="r")
    assert app.list() == []


def test_a_step_is_tried_again_and_what_went_wrong_is_kept(app, world):
    def flaky():
        if len(world.requests) < 2:
            world.did("try")
            raise ConnectionError("503")
        return "ok"

    @agent
    def worker(task):
        return task.step(flaky, retry=FAST)

    done = app.run(worker, id="t")
    step = done.steps["flaky#1"]
    assert (done.result, step.attempts, len(step.failures)) == ("ok", 3, 2)
    assert step.failures[0].type == "ConnectionError" and "503" in step.failures[0].message


def test_a_step_that_fails_for_good_fails_the_same_way_on_replay(app, world, texts):
    def broken():
        world.did("try")
        raise ValueError("no")

    @agent
    def worker(task):
        try:
            task.step(broken, retry=FAST)
        except holdfast.StepFailed as error:
            task.state.error = str(error)
        return task.step(lambda: world.did("go on"), name="go on")

    done = app.run(worker, id="t")
    texts.check(done.state["error"])
    lines = list(export.export(app.logs, "t"))
    with holdfast.open("memory:") as other:
        other.import_(prefix(lines, done.seq - 1))
        assert other.run(worker, id="t").state["error"] == done.state["error"]
    assert world.requests == ["try"] * 3 + ["go on"]


def test_an_agent_that_raises_fails_its_task_and_can_be_resumed(app, world):
    def broken():
        if world.did("try") == "try 1":
            raise ValueError("no")
        return "mended"

    @agent
    def worker(task):
        first = task.step(lambda: world.did("first"), name="first")
        return [first, task.step(broken)]

    failed = app.run(worker, id="t")
    assert failed.status == "failed" and failed.failure.type == "StepFailed"
    assert failed.failure.traceback
    assert app.run(worker, id="t").status == "failed", "running it again does nothing"
    assert app.resume("t", worker).result == ["first 1", "mended"]
    assert world.requests == ["first", "try", "try"]
    assert app.resume("t", worker).result == ["first 1", "mended"], "a completed task is given back"


def test_an_error_of_a_once_tool_is_not_repeated_unless_it_says_that_nothing_was_done(app, world):
    @tool(effect="once", retry=FAST)
    def pay(sure: bool) -> str:
        if world.did("pay") == "pay 1":
            raise NotDone("card reader is off") if sure else ConnectionError("lost")
        return "paid"

    @agent
    def worker(task, sure: bool):
        return task.call(pay, sure=sure)

    assert app.run(worker, {"sure": True}, id="sure").result == "paid"
    world.requests.clear()
    assert app.run(worker, {"sure": False}, id="unsure").waiting.kind == "doubt"
    assert world.requests == ["pay"]


@pytest.mark.parametrize(
    ("answer", "result", "calls"),
    [
        (Happened("found"), "found", 1),
        (DidNotHappen(), "pay 2", 2),
        (Unknown(), None, 1),
        (ValueError("down"), None, 1),
    ],
)
def test_a_call_in_doubt_is_asked_about_and_never_silently_repeated(app, world, answer, result, calls, texts):
    def reconcile(call):
        assert (call.tool, call.task_id, call.arguments) == ("pay", "t", {"amount": 3})
        if isinstance(answer, Exception):
            raise answer
        return answer

    @tool(effect="once", timeout="50ms", reconcile=reconcile, reconcile_after=0)
    def pay(amount: int) -> str:
        done = world.did("pay")
        if done == "pay 1":
            time.sleep(0.3)
        return done

    @agent
    def worker(task):
        return task.call(pay, amount=3)

    state = app.run(worker, id="t")
    assert world.requests.count("pay") == calls
    if result is not None:
        assert state.result == result
        return
    assert (state.status, state.waiting.kind, state.calls["pay#1"].status) == ("waiting", "doubt", "doubt")
    assert app.run(worker, id="t").status == "waiting"
    with texts.raises(holdfast.InvalidEvent):
        app.settle("t", "other#1", happened=True)
    app.settle("t", "pay#1", happened=True, result="saw it", by="ana")
    assert app.run(worker, id="t").result == "saw it"
    assert world.requests.count("pay") == 1


@pytest.mark.parametrize(("policy", "status", "calls"), [("fail", "failed", 1), ("retry", "completed", 2)])
def test_a_call_in_doubt_follows_the_declared_policy(app, world, policy, status, calls):
    @tool(effect="once", timeout="50ms", on_doubt=policy)
    def pay() -> str:
        done = world.did("pay")
        if done == "pay 1":
            time.sleep(0.3)
        return done

    @agent
    def worker(task):
        return task.call(pay)

    assert app.run(worker, id="t").status == status
    assert world.requests.count("pay") == calls


def test_a_question_waits_for_its_answer_and_holds_nothing(app, texts):
    @agent
    def worker(task):
        task.fact("before", 1)
        try:
            name = task.ask("who?", name="who")
        except Exception:
            return "swallowed"
        finally:
            task.state  # noqa: B018 — looking is allowed
        return f"hello {name}"

    waiting = app.run(worker, id="t")
    assert (waiting.status, waiting.waiting.kind) == ("waiting", "person")
    assert waiting.waiting.on[0]["prompt"] == "who?" and waiting.facts["before"].value == 1
    with texts.raises(holdfast.InvalidEvent):
        app.answer("t", "what", 1)
    assert app.answer("t", "who", "Ana", by="ana").status == "pending"
    assert app.run(worker, id="t").result == "hello Ana"


def test_a_swallowed_suspension_does_not_complete_the_task(app):
    @agent
    def worker(task):
        with contextlib.suppress(BaseException):
            task.wait("go")
        with pytest.raises(holdfast.Suspended):
            task.fact("after", 1)
        return "finished?"

    assert app.run(worker, id="t").status == "waiting"
    app.signal("t", "go", 7)
    app_state = app.get("t")
    assert app_state.status == "pending" and "after" not in app_state.facts


def test_signals_may_come_before_they_are_waited_for(app):
    @agent
    def worker(task):
        return [task.wait("go"), task.wait("go"), task.wait("stop", timeout=0)]

    app.start("worker", id="t")
    app.signal("t", "go", 1)
    assert app.run(worker, id="t").status == "waiting"
    app.signal("t", "go", 2, by="bob")
    assert app.run(worker, id="t").result == [1, 2, None]


def test_a_short_sleep_is_sat_out_and_a_long_one_suspends(app, clock):
    @agent
    def worker(task, length: float):
        task.sleep(length)
        return "awake"

    assert app.run(worker, {"length": 0.0001}, id="short").result == "awake"
    asleep = app.run(worker, {"length": 3600}, id="long")
    assert (asleep.status, asleep.waiting.kind) == ("waiting", "timer")
    clock.advance(3601)
    assert app.run(worker, {"length": 3600}, id="long").result == "awake"


def test_a_loop_runs_turn_by_turn_and_replays_only_its_turn(app, world):
    @agent(loop=True, max_turns=5)
    def counter(task, upto: int):
        seen = task.state.get("total", 0)
        task.state.increment("total", task.step(lambda: 1, name="one"))
        world.did(f"turn {task.turn}")
        task.message({"role": "user", "content": f"turn {task.turn}"})
        if task.state.total >= upto:
            return [seen, task.state.total, len(task.messages)]
        return None

    assert app.run(counter, {"upto": 3}, id="t").result == [2, 3, 3]
    assert world.requests == ["turn 1", "turn 2", "turn 3"]
    assert [step.turn for step in app.steps("t")] == [1, 2, 3]
    failed = app.run(counter, {"upto": 99}, id="endless")
    assert failed.status == "failed" and failed.failure.code == "turn-limit" and failed.turn == 5


def test_a_changed_input_is_noticed_and_follows_the_policy(app, world):
    inputs = iter([1, 2, 2])

    def make(on_change):
        @agent(name="worker", on_change=on_change)
        def worker(task):
            value = task.step(lambda n: [n, world.did("made")], next(inputs), name="make")
            task.wait("go")
            return value

        return worker

    app.run(make("error"), id="t")
    app.signal("t", "go")
    failed = app.run(make("error"), id="t")
    assert failed.failure.type == "StepChanged" and "n=1" in failed.failure.message and "n=2" in failed.failure.message
    assert app.resume("t", make("rerun")).result == [2, "made 2"]


def test_verbs_inside_a_step_are_refused_with_a_remedy(app, texts):
    @agent
    def worker(task):
        return task.step(lambda: task.step(lambda: 1, name="inner"), name="outer")

    failed = app.run(worker, id="t")
    texts.check(failed.failure.message)


@pytest.mark.parametrize(
    "body",
    [
        lambda task: task.stage("nowhere"),
        lambda task: task.phase("done"),
        lambda task: task.step(lambda: 1),
        lambda task: task.step(lambda: {"deep": object()}, name="x"),
        lambda task: task.state.missing,
        lambda task: task.done("unplanned"),
        lambda task: object(),
    ],
)
def test_mistakes_of_an_agent_are_named(app, body, texts):
    broken = agent(name="broken", stages=["a"])(lambda task: body(task))
    failed = app.run(broken, id="t")
    assert failed.status == "failed"
    texts.check(failed.failure.message)


@pytest.mark.parametrize(
    "declare",
    [
        lambda: agent(name="x")(lambda: None),
        lambda: agent(name="x", max_turns=3)(lambda task: None),
        lambda: agent(name="x", checkpoint="sometimes")(lambda task: None),
        lambda: tool(name="x", effect="twice")(lambda: None),
        lambda: tool(name="x", effect="read", reconcile=print)(lambda: None),
        lambda: tool(name="x", timeout="soon")(lambda: None),
    ],
)
def test_a_wrong_declaration_is_refused_at_once(declare):
    with pytest.raises(holdfast.InvalidValue) as refused:
        declare()
    assert refused.value.hint


class Struct(msgspec.Struct):
    x: int


@dataclasses.dataclass
class Data:
    s: Struct
    tags: list[str]


def test_typed_values_are_the_same_the_first_time_and_on_replay(app):
    seen = []

    def make(n: int) -> Data:
        return Data(Struct(n), ["a"])

    @agent
    def worker(task, start: Data):
        seen.append((start, task.step(make, 3), task.step(functools.partial(make, 4))))
        task.wait("go")

    given = {"start": {"s": {"x": 1}, "tags": []}}
    app.run(worker, given, id="t")
    app.signal("t", "go")
    assert app.run(worker, given, id="t").status == "completed"
    assert seen[0] == seen[1] == (Data(Struct(1), []), Data(Struct(3), ["a"]), Data(Struct(4), ["a"]))


def test_outside_events_stay_hidden_until_the_next_waiting_verb_also_on_replay(app):
    seen = []

    @agent
    def worker(task):
        looks = [task.state.get("outside")]
        task.step(lambda: app.append("t", ev.StateSet(name="outside", value=codec.pack(1))) and None, name="poke")
        looks.append(task.state.get("outside"))
        task.state.mine = True
        looks.append(task.state.get("outside"))
        seen.append(looks)
        task.wait("go")
        return looks

    app.run(worker, id="t")
    app.append("t", ev.StateSet(name="outside", value=codec.pack(2)))
    app.signal("t", "go")
    assert app.run(worker, id="t").result == [None, 1, 1]
    assert seen[0] == seen[1]


def test_a_cancelled_task_stops_before_its_next_step(app, world):
    @agent
    def worker(task):
        task.step(lambda: app.cancel("t", why="enough", by="ana") and None, name="first")
        task.step(lambda: world.did("second"), name="second")

    stopped = app.run(worker, id="t")
    assert stopped.status == "cancelled" and world.requests == []
    app.start("worker", id="u")
    assert app.cancel("u").status == "cancelled"


def test_a_deadline_is_absolute_and_checked_before_every_step(app, clock, world):
    @agent(deadline="10m")
    def worker(task):
        task.step(lambda: clock.advance(601), name="slow")
        task.step(lambda: world.did("late"), name="late")

    failed = app.run(worker, id="t")
    assert failed.failure.code == "time-limit" and world.requests == []
    assert failed.deadline is not None


def test_a_second_process_gets_busy_and_takes_over_when_the_first_is_killed(tmp_path):
    script = tmp_path / "agents.py"
    script.write_text(
        textwrap.dedent(
            """
            import pathlib, sys, time
            import holdfast
            from holdfast import agent

            HERE = pathlib.Path(__file__).parent

            def note(what):
                with open(HERE / "world", "a") as world:
                    world.write(what + "\\n")

            def slow():
                note("slow began")
                if not (HERE / "second").exists():
                    time.sleep(60)

            @agent
            def worker(task):
                task.step(note, "first")
                task.step(slow)
                return "done"

            if __name__ == "__main__":
                holdfast.open(HERE / "a.db").run(worker, id="t")
            """
        )
    )
    sys.path.insert(0, str(tmp_path))
    try:
        import agents  # pyright: ignore[reportMissingImports]
    finally:
        sys.path.pop(0)
    first = subprocess.Popen([sys.executable, str(script)])
    try:
        until(lambda: (tmp_path / "world").exists() and "slow" in (tmp_path / "world").read_text())
        (tmp_path / "second").touch()
        with holdfast.open(tmp_path / "a.db") as app:
            with pytest.raises(holdfast.TaskBusy):
                app.run(agents.worker, id="t")
            first.kill()
            first.wait()
            began = time.monotonic()
            assert app.get("t").interrupted
            assert app.run(agents.worker, id="t").result == "done"
            assert time.monotonic() - began < limits.LEASE_SECONDS / 2, "no lease is waited for"
    finally:
        first.kill()
        first.wait()
    assert (tmp_path / "world").read_text().split("\n")[:-1] == ["first", "slow began", "slow began"]


def test_two_threads_running_one_task_do_it_once(app, world):
    @agent
    def worker(task):
        return task.step(lambda: (time.sleep(0.05), world.did("work"))[1], name="work")

    outcomes = []

    def run():
        try:
            outcomes.append(app.run(worker, id="t").status)
        except (holdfast.TaskBusy, holdfast.LeaseLost) as error:
            outcomes.append(type(error).__name__)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert app.get("t").status == "completed"
    assert world.requests == ["work"], outcomes


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_an_interrupted_task_is_let_go_and_goes_on_later(app, world, stop):
    @agent
    def worker(task):
        first = task.step(lambda: world.did("first"), name="first")
        if len(world.requests) == 1:
            world.did("stop")
            raise stop
        return [first, task.step(lambda: world.did("second"), name="second")]

    with pytest.raises(stop):
        app.run(worker, id="t")
    assert (app.get("t").status, app.get("t").holder) == ("pending", None)
    assert app.run(worker, id="t").result == ["first 1", "second 1"]
    assert world.requests == ["first", "stop", "second"]


def test_a_zombie_writes_nothing_and_is_told(app, world):
    @agent
    def worker(task):
        task.step(lambda: app.append("t", ev.TaskClaimed(holder="1-other")) and None, name="overtaken")
        world.did("after")

    with pytest.raises(holdfast.LeaseLost):
        app.run(worker, id="t")
    assert app.get("t").holder == "1-other" and "overtaken#1" not in app.get("t").steps
    assert world.requests == []


def test_a_call_that_was_rolled_back_is_not_made_again(app, world):
    @tool(effect="once")
    def pay(amount: int) -> str:
        return world.did("pay")

    @agent
    def worker(task):
        task.step(lambda: world.did("plan"), name="plan")
        paid = task.call(pay, amount=3)
        return [paid, task.step(lambda: world.did("ship"), name="ship")]

    app.run(worker, id="t")
    app.rollback("t", 3)
    done = app.run(worker, id="t")
    assert done.result == ["pay 1", "ship 2"]
    assert world.requests == ["plan", "pay", "ship", "plan", "ship"]
