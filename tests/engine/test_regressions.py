"""Defects that were found once, each with the shortest way to see it again."""

import os
import signal
import stat
import threading

import apsw
import pytest
from msgspec import Raw
from msgspec.structs import replace

import holdfast
from holdfast import StatePatch, events as ev, pack
from holdfast.core import codec, limits
from holdfast.core.codec import Group
from holdfast.engine.logs.committer import Ticket
from holdfast.engine.maintenance import export
from holdfast.store.protocol import Erasure
from tests.engine.reading.test_reading import step


def erase(app, *seqs):
    app.store.erase([Erasure("t", seq, "ana", "asked", 1) for seq in seqs])


@pytest.mark.parametrize(
    "event",
    [
        ev.GoalSet(goal=5),
        ev.FactLearned(key="k", value=pack(1), source=None),
        ev.PlanSet(steps=[1]),
        ev.PlanSet(steps="flights"),
        ev.TaskClaimed(holder=5),
        ev.StepStarted(key="a#1", name="a", effect="bogus"),
        ev.StepFailed(key="a#1", name="a", failure="x"),
        ev.StepCompleted(key=5, name="a", result=pack(1)),
        ev.StateSet(name="x", value=Raw(b"garbage")),
        ev.StateSet(name="x", value={"$blob": "zz"}),
        ev.MessageAdded(message={"role": "user"}),
        ev.StateIncremented(name="x", by=float("nan")),
        ev.GoalSet(goal="\ud800"),
        ev.StageSet(stage=5),
        ev.StageSet(stage=None),
        ev.TurnStarted(turn=1.5),
        ev.TaskForked(parent="nobody", at=1),
        ev.TaskCreated(agent="again"),
        ev.Erased(),
        ev.StageSet,
        "drafting",
    ],
    ids=lambda event: getattr(type(event), "__name__", ""),
)
def test_an_event_that_could_not_be_read_back_is_refused_before_it_is_written(app, event):
    app.start("a", id="t")
    with pytest.raises(holdfast.HoldfastError) as refused:
        app.append("t", event)
    assert refused.value.hint
    assert app.get("t").seq == 1


@pytest.mark.parametrize("given", [{"goal": 5}, {"stages": [1]}, {"stages": "ab"}, {"queue": None}, {"priority": "h"}])
def test_a_task_cannot_be_started_with_what_could_not_be_read_back(app, given):
    with pytest.raises(holdfast.HoldfastError):
        app.start("a", id="t", **given)
    assert app.list() == []


def test_names_that_would_collide_as_json_are_refused(app, texts):
    for input in ({1: "a", "1": "b"}, [1], "Q3"):
        with texts.raises(holdfast.InvalidValue):
            app.start("a", input)


def test_a_number_that_outgrows_json_is_refused(app, texts):
    app.start("a", id="t")
    app.append("t", ev.StateIncremented(name="n", by=1e308))
    with texts.raises(holdfast.InvalidEvent):
        app.append("t", ev.StateIncremented(name="n", by=1e308))


def test_an_interrupt_while_waiting_for_the_lock_leaves_no_transaction_open(tmp_path):
    path = str(tmp_path / "a.db")
    with holdfast.open(path) as app:
        app.start("a", id="t")
        other = apsw.Connection(path)
        other.execute("begin immediate")
        threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        threading.Timer(0.5, lambda: other.execute("rollback")).start()
        with pytest.raises(KeyboardInterrupt):
            app.start("a", id="u")
        log = app.logs.load("t")
        for n in range(5):
            log.append([ev.LogWritten(text=str(n))])
        app.start("a", id="v")
        other.close()
    with holdfast.open(path) as app:
        assert app.get("t").seq == 6 and app.get("v").seq == 1


def test_a_planted_blob_is_refused_and_does_no_harm_to_others(app):
    value = "x" * 5000
    with holdfast.open("memory:") as source:
        source.start("a", id="s")
        source.append("s", ev.StateSet(name="x", value=pack(value)))
        lines = list(export.export(source.logs, "s"))
    junk = [
        codec.dump({**codec.load(line, dict), "data": "anVuaw=="}) if b'"blob"' in line[:20] else line for line in lines
    ]
    with pytest.raises(holdfast.LogCorrupt):
        app.import_(junk)
    app.start("a", id="mine")
    app.append("mine", ev.StateSet(name="x", value=pack(value)))
    assert app.get("mine").state["x"] == value and app.verify().ok


def test_a_fold_goes_on_past_what_was_erased(app):
    app.start("a", id="t")
    app.append("t", ev.StateSet(name="x", value=pack(1)), ev.StateDeleted(name="x"))
    app.append("t", step("s#1"), ev.MessageAdded(step="s#1"))
    app.append("t", ev.WaitStarted(key="w#1", wait="person"), ev.WaitEnded(key="w#1"))
    app.append("t", ev.StepStarted(key="p#1", name="p", effect="once"), ev.StepDoubted(key="p#1"))
    app.append("t", ev.StepSettled(key="p#1", happened=True, result=pack(1)))
    app.append("t", ev.StateSet(name="l", value=pack("s")), ev.StateSet(name="l", value=pack([])))
    app.append("t", ev.StateAppended(name="l", value=pack(1)), ev.StateSet(name="n", value=pack("s")))
    app.append("t", ev.StateSet(name="n", value=pack(1)), ev.StateIncremented(name="n", by=2))
    erase(app, 2, 4, 6, 8, 12, 15)
    state = app.get("t")
    assert dict(state.state) == {"l": [1], "n": 2}
    assert app.verify().ok and app.verify().erased == 6


def test_an_erased_creation_keeps_the_tasks_place_in_the_lists(app):
    app.start("worker", id="t", user="bob")
    app.append("t", ev.LogWritten(text="x"))
    erase(app, 1)
    app.append("t", ev.StageSet(stage="next"))
    assert [row.id for row in app.list(user="bob", agent="worker")] == ["t"]


def test_erasing_takes_the_snapshots_and_the_blobs_along(app):
    app.start("a", id="t")
    app.append("t", ev.StateSet(name="x", value=pack("secret" * 1000)))
    log = app.logs.load("t")
    log._snapshot_at = -1
    log.append([ev.LogWritten(text="x")])
    (blob,) = app.store.blobs_of("t")
    app.store.erase([Erasure("t", 2, "ana", "asked", 1, (blob.hash,))])
    assert app.stats().snapshots == app.stats().blobs == 0
    assert "x" not in app.get("t").state


def test_a_fork_before_its_parents_own_events_can_be_exported_alone(app):
    app.start("a", id="A")
    app.append("A", *[ev.LogWritten(text=str(n)) for n in range(9)])
    app.fork("A", at=8, id="B")
    app.fork("B", at=3, id="C")
    with holdfast.open("memory:") as other:
        other.import_(export.export(app.logs, "C"))
        assert other.get("C").seq == 4 and other.verify().ok


def test_an_export_of_a_growing_task_is_whole(app):
    app.start("a", id="t")
    erasures = app.store.erasures

    def grow(log):
        app.append("t", ev.StateSet(name="x", value=pack("y" * 5000)))
        return erasures(log)

    app.store.erasures = grow
    lines = list(export.export(app.logs, "t"))
    app.store.erasures = erasures
    with holdfast.open("memory:") as other:
        assert other.import_(lines).events == 1


def test_a_damaged_snapshot_is_only_a_lost_cache(tmp_path, caplog, texts):
    path = str(tmp_path / "a.db")
    with holdfast.open(path) as app:
        app.start("a", id="t")
        app.append("t", ev.StateSet(name="balance", value=pack(1234567)))
        log = app.logs.load("t")
        log._snapshot_at = -1
        log.append([ev.LogWritten(text="x")])
    raw = apsw.Connection(path)
    (body,) = raw.execute("select body from snapshots").fetchone()
    for damaged in (body.replace(b"1234567", b"9234567"), body[:40], b"", b"12345678z" + body):
        raw.execute("update snapshots set body = ?", (damaged,))
        with holdfast.open(path) as app:
            assert app.get("t").state["balance"] == 1234567
    raw.close()
    for said in caplog.messages:
        texts.check(said)


def test_what_was_rolled_back_is_not_shown_as_if_it_counted(app):
    app.start("a", id="t")
    app.append("t", ev.MessageAdded(message=pack("one")), step("A#1"))
    app.append("t", ev.MessageAdded(message=pack("two")), step("B#1"), ev.DecisionMade(question="q", choice=pack(1)))
    back = app.rollback("t", 1)
    assert back.messages == ["one", "two"] and list(back.steps) == ["A#1"] and back.decisions == []
    back = app.rollback("t", 1)
    assert back.messages == ["one"] and list(back.steps) == []
    with pytest.raises(holdfast.StepNotFound):
        app.step("t", "B#1")
    app.append("t", step("A#1", "again"))
    assert app.step("t", "A#1").result == "again" and app.step("t", "A#1").before == 8
    assert app.at("t", 6).messages == ["one", "two"], "what was known then stays known of then"


def test_a_message_after_a_rollback_is_made_of_the_step_that_counts(app):
    app.start("a", id="t")
    app.append("t", ev.TurnStarted(turn=1), step("model#1", "A"))
    app.append("t", ev.TurnStarted(turn=2), step("model#1", "B"))
    app.rollback("t", to=3)
    app.append("t", ev.MessageAdded(step="model#1"))
    assert app.get("t").messages == ["A"]
    assert [one.result for one in app.steps("t")] == ["A"]


def test_a_step_that_ends_in_a_later_turn_belongs_to_the_turn_it_began_in(app):
    app.start("a", id="t")
    app.append("t", ev.TurnStarted(turn=1), ev.StepStarted(key="pay#1", name="pay", tool="pay", effect="once"))
    app.append("t", ev.WaitStarted(key="ask#1", wait="person", name="ask"), ev.TurnStarted(turn=2))
    app.append("t", ev.StepCompleted(key="1/pay#1", name="pay", result=pack("ok")), ev.WaitEnded(key="ask#1"))
    assert {one.key: one.status for one in app.steps("t", turn=1)} == {"pay#1": "completed", "ask#1": "completed"}
    assert app.step("t", "1/pay#1").result == "ok"


def test_an_open_call_cannot_be_replaced_or_forgotten(app, texts):
    app.start("a", id="t")
    app.append("t", ev.StepStarted(key="pay#1", name="pay", tool="pay", effect="once", idempotency_key="k"))
    with texts.raises(holdfast.InvalidEvent):
        app.append("t", ev.StepStarted(key="pay#1", name="pay", tool="pay", effect="read"))
    app.append("t", ev.TurnStarted(turn=1))
    app.append("t", ev.StepStarted(key="pay#1", name="pay", tool="pay", effect="once", idempotency_key="other"))
    with pytest.raises(holdfast.InvalidEvent, match="0/pay#1"):
        app.append("t", ev.TaskCompleted(result=pack(1)))


def test_verify_does_not_take_growth_for_loss(app):
    app.start("a", id="t")
    rows = app.store.rows

    def grow(log):
        found = rows(log)
        app.append("t", ev.StageSet(stage="later"))
        return found

    app.store.rows = grow
    assert app.verify("t").ok


def test_what_is_wrong_with_a_forks_past_is_wrong_with_the_fork(tmp_path):
    path = str(tmp_path / "a.db")
    with holdfast.open(path) as app:
        app.start("a", id="p")
        app.append("p", ev.StateSet(name="x", value=pack(1)))
        app.fork("p", id="f")
    raw = apsw.Connection(path)
    raw.execute("drop trigger events_are_never_changed")
    raw.execute("update events set body = cast(replace(body, '1', '9') as blob) where seq = 2")
    raw.close()
    with holdfast.open(path) as app:
        assert [(one.task, one.seq) for one in app.verify("f").problems] == [("p", 2)]


@pytest.mark.parametrize(
    "change",
    [
        lambda line: {**line, "format": 99},
        lambda line: {**line, "log": "a b\n"},
        lambda line: {**line, "log": ""},
        lambda line: {**line, "base": 5},
        lambda line: {**line, "base": -3},
        lambda line: {**line, "prev": "zz"},
    ],
)
def test_an_import_with_a_wrong_header_is_refused(app, change):
    with holdfast.open("memory:") as source:
        source.start("a", id="s")
        first, *rest = export.export(source.logs, "s")
    with pytest.raises(holdfast.HoldfastError):
        app.import_([codec.dump(change(codec.load(first, dict))), *rest])
    assert app.store.logs() == []


def test_an_import_is_checked_whole_before_anything_is_written(app):
    with holdfast.open("memory:") as source:
        source.start("a", id="s")
        source.fork("s", id="f")
        lines = list(export.export(source.logs, "f"))
    lines[-2] = lines[-2].replace(b'"at":', b'"at":1')
    with pytest.raises(holdfast.LogCorrupt):
        app.import_(lines)
    assert app.store.logs() == []


def test_a_fork_is_not_imported_onto_another_past(app):
    with holdfast.open("memory:") as source:
        source.start("a", id="s")
        source.fork("s", id="f")
        lines = list(export.export(source.logs, "f"))
    app.start("someone else", id="s")
    with pytest.raises(holdfast.HoldfastError):
        app.import_([lines[2], *lines[3:-1], codec.dump({"is": "end", "events": 1})])
    assert app.store.logs() == ["s"]


def test_an_import_that_died_before_its_erasures_heals(app):
    with holdfast.open("memory:") as source:
        source.start("a", id="t")
        source.append("t", ev.LogWritten(text="secret"))
        erase(source, 2)
        lines = list(export.export(source.logs, "t"))
    restore, app.store.erase = app.store.erase, lambda erasures: 1 / 0
    with pytest.raises(ZeroDivisionError):
        app.import_(lines)
    app.store.erase = restore
    app.import_(lines)
    assert app.verify().ok


def test_a_second_copy_brings_erasures_and_removals_along(app, tmp_path):
    for id in ("t", "u"):
        app.start("a", id=id)
        app.append(id, ev.LogWritten(text="secret"), ev.TaskCompleted(result=pack(1)))
    app.copy_to(tmp_path / "b.db")
    erase(app, 2)
    app.gc(keep=1)
    app.copy_to(tmp_path / "b.db")
    with holdfast.open(tmp_path / "b.db") as copy:
        assert copy.verify().ok
        assert {row.id for row in copy.list()} == {row.id for row in app.list()}
        for row in copy.list():
            assert len(copy.store.erasures(row.id)) == len(app.store.erasures(row.id))


def test_one_impossible_group_does_not_fail_those_it_was_queued_with(tmp_path):
    with holdfast.open(tmp_path / "a.db") as app:
        logs = [app.logs.create(f"t{n}", [ev.TaskCreated(agent="a")]) for n in range(3)]
        writes = [log.draft([ev.StageSet(stage="next")]) for log in logs]
        too_much = replace(writes[1], summary=replace(writes[1].summary, priority=2**70))
        tickets = [Ticket(Group((write,))) for write in (writes[0], too_much, writes[2])]
        app.logs.committer._commit_batch(tickets)
        assert [ticket.error is None for ticket in tickets] == [True, False, True]
        assert [app.get(f"t{n}").seq for n in range(3)] == [2, 1, 2]


def test_files_with_what_a_store_holds_are_as_private_as_the_store(tmp_path, texts):
    with holdfast.open(tmp_path / "a.db") as app:
        app.start("a", id="t")
        app.backup(tmp_path / "b.db")
        app.export("t", tmp_path / "t.jsonl")
        with texts.raises(holdfast.InvalidValue):
            app.backup(tmp_path / "no" / "b.db")
    for name in ("a.db", "b.db", "t.jsonl"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


def test_forks_of_forks_have_a_limit_that_is_told_in_time(app, monkeypatch, texts):
    monkeypatch.setattr(limits, "MAX_FORK_DEPTH", 3)
    app.start("a", id="f0")
    app.fork("f0", id="f1")
    app.fork("f1", id="f2")
    with texts.raises(holdfast.InvalidValue):
        app.fork("f2", id="f3")
    assert app.get("f2").seq == 3


def test_wrong_arguments_are_named(app):
    app.start("a", id="t")
    for call in (
        lambda: app.get(42),
        lambda: app.at("t", "1"),
        lambda: app.fork("t", patch=[]),
        lambda: app.step("t", "²/x"),
        lambda: app.import_([b"\xff"]),
        lambda: app.list(after="nobody"),
        lambda: app.fork("t", patch=StatePatch(raise_flags=["\ud800"])),
    ):
        with pytest.raises(holdfast.HoldfastError) as refused:
            call()
        assert refused.value.hint


def test_a_forked_child_does_not_count_on_its_parents_threads(tmp_path):
    @holdfast.agent
    def timed(task):
        return task.step(lambda: 1, name="x", timeout="5s")

    with holdfast.open(tmp_path / "parent.db") as app:
        assert app.run(timed, id="t").result == 1
    child = os.fork()
    if child == 0:
        with holdfast.open(tmp_path / "child.db") as app:
            os._exit(0 if app.run(timed, id="t").result == 1 else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("kind", ["def", "async"])
def test_what_was_written_but_cannot_be_folded_is_told_and_hangs_nobody(app, monkeypatch, kind, texts):
    right = holdfast.engine.logs.log.Log.accept

    def accept(self, write, placed, folded=None):
        if any(draft.kind == "step_completed" for draft in write.drafts):
            raise ValueError("cannot be folded")
        return right(self, write, placed, folded)

    monkeypatch.setattr(holdfast.engine.logs.log.Log, "accept", accept)

    async def one(task):
        return await task.step(lambda: 1, name="x")

    def two(task):
        return [task.step(lambda: 1, name="x"), task.step(lambda: 2, name="y")]

    worker = holdfast.agent(checkpoint="before_effects", name="worker")(one if kind == "async" else two)
    with texts.raises(ValueError):
        app.run(worker, id="t")


@pytest.mark.parametrize("effect", ["read", "idempotent", "once", "plain"])
def test_a_large_argument_is_the_same_argument_when_it_comes_again(app, effect):
    """It is kept beside the log, and was once taken for another one."""
    seen = []

    def send(text: str) -> str:
        seen.append(len(text))
        return "sent"

    known = None if effect == "plain" else holdfast.tool(effect=effect)(send)

    @holdfast.agent
    def post(task):
        text = "x" * 9_000
        sent = task.step(send, text) if known is None else task.call(known, text=text)
        task.ask("go on?")
        return sent

    app.run(post, id="t", user="ana" if effect == "once" else None)
    app.answer("t", "ask#1", True)
    assert app.run(post, id="t").result == "sent" and seen == [9_000]
