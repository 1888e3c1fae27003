"""Versions of typed state: upcast when read, appended with the first write, and nothing lost on the way."""

import asyncio
import dataclasses
import json
import logging

import pytest

import holdfast
from holdfast import InvalidState, InvalidValue, StateNotMigrated, StatePatch, agent, events as ev
from holdfast.core import codec, limits
from holdfast.core.state import shapes
from holdfast.testing import UpcastFailed, check_upcasts, save_sample
from tests.engine.both import KINDS, Crash, declarer, events, kinds


@dataclasses.dataclass
class One:
    name: str
    visits: int = 0
    count: int = 0


@dataclasses.dataclass
class Two:
    first: str
    last: str = ""
    visits: int = 0
    count: str = ""


@dataclasses.dataclass
class Three:
    names: list[str]
    visits: int = 0
    count: str = ""


def split(state):
    if "name" in state:
        state["first"], _, state["last"] = state.pop("name").partition(" ")
    if "count" in state:
        state["count"] = str(state["count"])
    return state


def join(state):
    return {"names": [state.pop("first"), state.pop("last", "")], **state}


def first_life(app, either, crash=True, **given):
    """A task of version 1 that stops in the middle of its turn."""

    @either(state=One, name="worker")
    def worker(task):
        task.state.name = "Ana Lee"
        task.state.count = 5
        yield task.step(lambda: 1, name="one")
        task.state.increment("visits")
        yield task.wait("go")

    return app.run(worker, id="t")


def of_version_two(either, body, **options):
    worker = either(state=Two, state_version=2, name="worker", **options)(body)
    worker.upcast(1, 2)(split)
    return worker


def of_version_three(either, body):
    worker = either(state=Three, state_version=3, name="worker")(body)
    worker.upcast(1, 2)(split)
    worker.upcast(2, 3)(join)
    return worker


def test_reading_upcasts_in_order_and_writes_nothing(app, either):
    first_life(app, either)
    app.signal("t", "go")
    seen = []

    def body(task):
        yield task.step(lambda: 1, name="one")
        seen.append(task.state.model)
        yield task.wait("go")
        return [task.state.names, task.state.visits, task.state.count]

    worker = of_version_three(either, body)
    done = app.run(worker, id="t")
    assert done.result == [["Ana", "Lee"], 1, "5"], done.failure
    assert seen == [Three(["Ana", "Lee"], 0, "5")]
    assert "state_migrated" not in kinds(app) and done.state_version == 1
    assert done.state == {"name": "Ana Lee", "visits": 1, "count": 5}, "the log has what was written"
    assert worker.read_state(done) == Three(["Ana", "Lee"], 1, "5")


def test_the_first_write_appends_the_migrated_state_once_and_a_replay_sees_the_same(app, either):
    first_life(app, either)
    lives = []

    def body(task):
        seen = []
        lives.append(seen)
        seen.append(task.state.all())
        task.state.first = "Bea"  # the code has changed, and writes another field than it did
        seen.append(task.state.all())
        task.state.count = "6"  # as it did before, in another form
        seen.append(task.state.all())
        yield task.step(lambda: 1, name="one")
        seen.append(task.state.all())
        task.state.increment("visits")
        seen.append(task.state.all())
        yield task.wait("go")
        seen.append(task.state.all())
        task.state.increment("visits")
        task.state.last = "Moe"
        seen.append(task.state.all())
        yield task.step(lambda: 1, name="two")
        seen.append(task.state.all())
        yield task.wait("end")
        return task.state.visits

    worker = of_version_two(either, body)
    for signal in ("go", "end"):
        app.signal("t", signal)
        done = app.run(worker, id="t")
    assert done.status == "completed", done.failure
    assert lives[0] == lives[1][: len(lives[0])] and len(lives) == 2
    (migrated,) = events(app, "state_migrated")
    assert migrated.version == 2 and not migrated.branch
    assert codec.unpack(migrated.bag["first"], None) == "Ana" and codec.unpack(migrated.bag["count"], None) == "5"
    order = kinds(app)
    assert order[order.index("state_migrated") + 1] == "state_set", "in one write, before what asked for it"
    assert done.state == {"first": "Bea", "last": "Moe", "visits": 2, "count": "5"}
    assert done.state_version == 2 and app.at("t", 5).state_version == 1
    names = [(one.get("first"), one["last"]) for one in lives[1]]
    assert names[1] == ("Bea", "") and names[3] == ("Ana", "Lee") and names[-1] == ("Bea", "Moe")
    assert [one["count"] for one in lives[1]][:4] == ["", "", "6", "5"]


def test_each_version_migrates_once(app, either):
    first_life(app, either)

    def two(task):
        yield task.step(lambda: 1, name="one")
        task.state.increment("visits")
        yield task.wait("go")
        task.state.last = "Moe"
        yield task.wait("on")

    def three(task):
        yield task.step(lambda: 1, name="one")
        task.state.increment("visits")
        yield task.wait("go")
        if "names" not in task.state:
            raise RuntimeError
        yield task.wait("on")
        task.state.append("names", "Zed")
        yield task.step(lambda: 1, name="three")
        return task.state.names

    app.signal("t", "go")
    app.run(of_version_two(either, two), id="t")
    app.signal("t", "on")
    done = app.run(of_version_three(either, three), id="t")
    assert done.result == ["Ana", "Moe", "Zed"], done.failure
    assert [one.version for one in events(app, "state_migrated")] == [2, 3]


def test_a_crash_around_the_migration_leaves_nothing_half(tmp_path, either):
    """Killed with the migration said and not written, and again just after it was written."""
    for number, place in enumerate(("before", "after")):
        with holdfast.open(tmp_path / f"{number}.db") as app:
            first_life(app, either)
            app.signal("t", "go")
            crashed = []

            def body(task, place=place, crashed=crashed):
                yield task.step(lambda: 1, name="one")
                task.state.increment("visits")
                yield task.wait("go")
                task.state.last = "Moe"
                if place == "after":
                    yield task.step(lambda: 1, name="two")
                if not crashed:
                    crashed.append(1)
                    raise Crash
                yield task.step(lambda: 1, name="two" if place == "before" else "three")
                return [task.state.first, task.state.last, task.state.visits]

            worker = of_version_two(either, body)
            with pytest.raises(Crash):
                app.run(worker, id="t")
            assert place == "before" or len(events(app, "state_migrated")) == 1
            done = app.run(worker, id="t")
            assert done.result == ["Ana", "Moe", 1], done.failure
            assert [one.version for one in events(app, "state_migrated")] == [2]


def test_an_agent_that_migrates_survives_a_crash_everywhere(crash_everywhere):
    @agent(state=One, name="worker")
    def old(task):
        task.state.name = "Ana Lee"
        task.step(lambda: 1, name="one")
        task.wait("go")

    def body(task):
        task.state.last = "Moe"
        task.step(lambda: 1, name="one")
        task.wait("go")
        task.state.increment("visits")
        task.step(lambda: 2, name="two")
        return [task.state.first, task.state.last, task.state.visits]

    new = agent(state=Two, state_version=2, name="worker")(body)
    new.upcast(1, 2)(split)

    def setup(app):
        app.run(old, id="crash-test")
        app.signal("crash-test", "go")

    def migrated_once(state, world):
        assert state.result == ["Ana", "Moe", 1]
        assert state.state == {"first": "Ana", "last": "Moe", "visits": 1} and state.state_version == 2

    for store in ("memory:", "sqlite"):
        report = crash_everywhere(new, setup=setup, check=migrated_once, crashes=2, store=store)
        assert report.survived == report.tried > 10


def test_branches_migrate_together_and_lose_nothing(app):
    first_life(app, declarer("async"))

    @agent(state=Two, state_version=2, name="worker")
    async def worker(task):
        async def one(number):
            task.state.increment("visits", 10)
            await task.step(lambda: number, name="branch")
            task.state.increment("visits", 100)
            await task.step(lambda: number, name="again")

        await asyncio.gather(*(one(number) for number in range(4)))
        await task.step(lambda: None, name="last")
        return [task.state.first, task.state.visits]

    worker.upcast(1, 2)(split)
    app.signal("t", "go")
    assert app.run(worker, id="t").result == ["Ana", 441]
    assert len(events(app, "state_migrated")) == 1


def test_what_others_patch_meanwhile_is_migrated_too(tmp_path):
    """A patch in the old form that comes between what the agent sees and its first write is not lost."""
    path = tmp_path / "a.db"
    with holdfast.open(path) as app, holdfast.open(path) as stranger:
        first_life(app, declarer("def"))
        app.signal("t", "go")

        def body(task):
            yield task.step(lambda: 1, name="one")
            yield task.wait("go")
            task.state.last = "Moe"
            seen = task.state.first
            yield task.step(lambda: stranger.patch("t", StatePatch(set={"name": "Bob Ray"})) and None, name="two")
            return [seen, task.state.first, task.state.last]

        worker = of_version_two(declarer("def"), body)
        assert app.run(worker, id="t").result == ["Ana", "Bob", "Moe"]
        assert kinds(app)[-5:] == ["state_patched", "state_migrated", "state_set", "step_completed", "task_completed"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("checkpoint", ["every_step", "before_effects", "on_state_change", "every_iteration"])
def test_what_others_break_before_the_migration_is_an_error_and_can_be_mended(tmp_path, kind, checkpoint, texts):
    path = tmp_path / "a.db"
    with holdfast.open(path) as app, holdfast.open(path) as stranger:
        first_life(app, declarer(kind))
        app.signal("t", "go")

        def body(task):
            yield task.step(lambda: 1, name="one")
            yield task.wait("go")
            task.state.last = "Moe"
            if stranger.get("t").state["name"] == "Ana Lee":
                stranger.patch("t", StatePatch(set={"name": 5}))
            yield task.step(lambda: 2, name="two")
            yield task.step(lambda: 3, name="three")
            yield task.checkpoint("done")
            return [task.state.first, task.state.last]

        worker = of_version_two(declarer(kind), body, checkpoint=checkpoint)
        with texts.raises(StateNotMigrated):
            app.run(worker, id="t")
        assert app.get("t").state == {"name": 5, "count": 5, "visits": 1} and app.get("t").state_version == 1
        stranger.patch("t", StatePatch(set={"name": "Bob Ray"}))
        done = app.run(worker, id="t")
        assert done.result == ["Bob", "Moe"] and done.state_version == 2, done.failure
        assert app.verify().ok


def test_an_untyped_state_becomes_version_one(app, either):
    @either(name="worker")
    def untyped(task):
        task.state.name = "Ana Lee"
        yield task.wait("go")

    app.run(untyped, id="t")
    app.run(untyped, id="u")

    @either(state=One, name="worker")
    def typed(task):
        task.state.name = "Ana Lee"
        yield task.wait("go")
        task.state.visits = 3
        yield task.step(lambda: 1, name="one")
        return task.state.name

    def body(task):
        yield task.wait("go")
        return task.state.first

    app.signal("t", "go")
    app.signal("u", "go")
    done = app.run(typed, id="t")
    assert done.result == "Ana Lee" and done.state_version == 1, done.failure
    assert app.run(of_version_two(either, body), id="u").result == "Ana"


def test_a_task_that_was_started_by_name_has_the_version_of_its_first_write(app):
    worker = of_version_two(declarer("def"), lambda task: setattr(task.state, "first", "Ana"))
    app.start("worker", id="t")
    done = app.resume("t", worker)
    assert done.status == "completed" and done.state == {"first": "Ana"} and done.state_version == 2
    app.start("worker", id="u")
    patched = app.patch("u", StatePatch(set={"first": "Bob"}))
    assert patched.state_version == 2 and app.resume("u").state == {"first": "Ana"}


def refusals():
    def lost(worker):
        worker.upcast(1, 2)(lambda state: {**split(state), "extra": 1})

    def raises(worker):
        worker.upcast(1, 2)(lambda state: state["nope"])

    def no_dict(worker):
        worker.upcast(1, 2)(lambda state: None)

    def no_names(worker):
        worker.upcast(1, 2)(lambda state: {1: 2})

    def wrong(worker):
        worker.upcast(1, 2)(lambda state: {"first": 3})

    def odd(worker):
        worker.upcast(1, 2)(lambda state: {"first": object()})

    yield lambda worker: None, StateNotMigrated
    yield lost, StateNotMigrated
    yield raises, StateNotMigrated
    yield no_dict, StateNotMigrated
    yield no_names, StateNotMigrated
    yield wrong, InvalidState
    yield odd, holdfast.NotSerializable


@pytest.mark.parametrize(("prepare", "error"), list(refusals()))
def test_a_state_that_cannot_be_migrated_is_an_error_and_never_a_loss(app, prepare, error, texts):
    first_life(app, declarer("def"))
    before = app.get("t").to_dict()
    raised = []

    def body(task):
        task.step(lambda: 1, name="one")
        for use in (
            lambda: task.state.first,
            lambda: setattr(task.state, "first", "Bea"),
            lambda: task.state.increment("visits"),
            lambda: task.state.append("first", 1),
            lambda: delattr(task.state, "first"),
            lambda: "first" in task.state,
            lambda: list(task.state),
            task.state.all,
            lambda: task.state.model,
            lambda: task.patch(StatePatch(set={"first": "x"})),
            lambda: task.render("{state.first}"),
        ):
            with texts.raises(error) as refused:
                use()
            raised.append(refused.value)
        assert task.render("{id}") == "t"
        task.wait("on")

    worker = agent(state=Two, state_version=2, name="worker")(body)
    prepare(worker)
    app.signal("t", "go")
    assert app.resume("t", worker).status == "waiting"
    assert len(raised) == 11 and all(one.hint for one in raised)
    assert (app.get("t").state, app.get("t").state_version) == (before["state"], 1)
    seq = app.get("t").seq
    with texts.raises(error):
        app.patch("t", StatePatch(set={"first": "x"}))
    with texts.raises(error):
        worker.read_state(app.get("t"))
    assert app.get("t").seq == seq
    app.patch("t", StatePatch(raise_flags=["fine"]))


def test_a_newer_state_than_the_agents_is_refused(app, either, texts):
    first_life(app, either)

    def two(task):
        yield task.step(lambda: 1, name="one")
        task.state.increment("visits")
        yield task.wait("go")
        task.state.last = "Moe"
        yield task.wait("on")

    app.signal("t", "go")
    app.run(of_version_two(either, two), id="t")
    app.signal("t", "on")

    @either(state=One, name="worker")
    def old(task):
        yield task.step(lambda: 1, name="one")
        yield task.wait("go")
        yield task.wait("on")
        return task.state.name

    failed = app.run(old, id="t")
    assert failed.status == "failed" and failed.failure.code == "state-not-migrated"
    texts.check(failed.failure.message)


def test_a_cause_is_kept_with_the_failure(app):
    first_life(app, declarer("def"))
    app.signal("t", "go")

    @agent(state=Two, state_version=2, name="worker")
    def worker(task):
        task.step(lambda: 1, name="one")
        return task.state.first

    worker.upcast(1, 2)(lambda state: 1 / 0)
    failure = app.run(worker, id="t").failure
    assert failure.type == "StateNotMigrated" and failure.cause.type == "ZeroDivisionError"


def test_a_patch_waits_for_an_older_agent_that_is_at_work(tmp_path, texts):
    path = tmp_path / "a.db"
    refused = []
    with holdfast.open(path) as app:
        newer = of_version_two(declarer("def"), lambda task: None)

        @agent(state=One, name="worker")
        def older(task):
            task.state.name = "Ana Lee"
            task.step(lambda: 1, name="one")

            def patch():
                app._dispatcher.register(newer)
                with texts.raises(StateNotMigrated) as error:
                    app.patch("t", StatePatch(set={"first": "Bob"}))
                refused.append(error.value.hint)

            task.step(patch, name="two")
            task.wait("go")
            return task.state.name

        app.run(older, id="t")
        assert refused
        app._dispatcher.register(newer)
        assert app.patch("t", StatePatch(set={"first": "Bob"})).state == {"first": "Bob", "last": "Lee"}


def test_a_fork_is_patched_in_the_new_form_and_sees_it_at_once(app):
    first_life(app, declarer("def"))

    def body(task):
        yield task.step(lambda: 1, name="one")
        return task.state.first

    worker = of_version_two(declarer("def"), body)
    app._dispatcher.register(worker)
    fork = app.fork("t", patch=StatePatch(set={"first": "Bob"}), id="fork")
    assert fork.state == {"first": "Bob", "last": "Lee", "visits": 1, "count": "5"}
    assert app.run(worker, id="fork").result == "Bob"
    assert app.get("t").state_version == 1


def test_a_rollback_to_before_the_migration_migrates_again(app):
    first_life(app, declarer("def"))
    before = app.get("t").seq

    def body(task):
        yield task.step(lambda: 1, name="one")
        yield task.wait("go")
        task.state.last = "Moe"
        yield task.step(lambda: 1, name="two")
        return [task.state.first, task.state.last]

    worker = of_version_two(declarer("def"), body)
    app.signal("t", "go")
    assert app.run(worker, id="t").result == ["Ana", "Moe"]
    back = app.rollback("t", to=before)
    assert back.state_version == 1 and back.state["name"] == "Ana Lee"
    app.signal("t", "go")
    assert app.run(worker, id="t").result == ["Ana", "Moe"]
    assert len(events(app, "state_migrated")) == 2


def test_large_values_that_did_not_change_are_not_stored_again(app):
    text = "x" * (limits.BLOB_BYTES * 2)

    @dataclasses.dataclass
    class Old:
        text: str
        name: str = ""

    @dataclasses.dataclass
    class New:
        text: str
        title: str = ""

    @agent(state=Old, name="worker")
    def old(task):
        task.state.text = text
        task.state.name = "a"
        task.wait("go")

    @agent(state=New, state_version=2, name="worker")
    def new(task):
        task.wait("go")
        task.state.title += "b"
        return task.state.text == text

    new.upcast(1, 2)(lambda state: {"title": state.pop("name"), **state})
    app.run(old, id="t")
    app.signal("t", "go")
    done = app.run(new, id="t")
    assert done.result is True and done.state["title"] == "ab", done.failure
    (set_then,) = [one for one in events(app, "state_set") if one.name == "text"]
    assert bytes(events(app, "state_migrated")[0].bag["text"]) == bytes(set_then.value)
    assert app.verify().ok


def test_snapshots_carry_the_version_of_the_state_and_of_the_fold(tmp_path, monkeypatch, caplog):
    @agent(state=One, name="worker")
    def long(task):
        task.state.name = "Ana Lee"
        for number in range(60):
            task.step(lambda: "y" * 3_000, name="step")
            task.state.count = number
        task.wait("go")

    path = tmp_path / "a.db"
    with holdfast.open(path) as app:
        app.run(long, id="t")
        whole = app.get("t").to_dict()
        snapshot = app.store.snapshot("t", upto=None, version=shapes.FOLD_VERSION)
        assert snapshot is not None and snapshot.version == shapes.FOLD_VERSION
        assert json.loads(codec.inflate(snapshot.body))["state_version"] == 1
        assert app.store.snapshot("t", upto=None, version=shapes.FOLD_VERSION + 1) is None
        monkeypatch.setattr("holdfast.engine.logs.log.FOLD_VERSION", shapes.FOLD_VERSION + 1)
        restored = []
        monkeypatch.setattr("holdfast.engine.logs.log.Log.restore", lambda self, snapshot: restored.append(snapshot))
        assert app.get("t").to_dict() == whole and restored == [], "another fold's snapshot is not looked at"
        monkeypatch.undo()

        def body(task):
            for _ in range(60):
                task.step(lambda: "y" * 3_000, name="step")
            task.wait("go")
            task.state.last = "Moe"
            task.step(lambda: 1, name="end")
            return [task.state.first, task.state.last, task.state.count]

        caplog.set_level(logging.WARNING)
        app.signal("t", "go")
        worker = of_version_two(declarer("def"), body)
        assert app.run(worker, id="t").result == ["Ana", "Moe", "59"]


@pytest.mark.parametrize(("start", "to"), [(2, 1), (1, 1), (1, 4), (-1, 2), ("1", 2), (1, None), (True, 2), (1.0, 2)])
def test_an_upcaster_that_leads_nowhere_is_refused(start, to):
    worker = agent(state=Three, state_version=3, name="worker")(lambda task: None)
    with pytest.raises(InvalidValue) as refused:
        worker.upcast(start, to)(split)
    assert refused.value.hint


def test_one_way_leads_on_from_a_version_and_it_is_a_plain_function():
    worker = agent(state=Three, state_version=3, name="worker")(lambda task: None)
    assert worker.upcast(1, 3)(split) is split, "a version may be skipped"

    async def later(state):
        return state

    for start, fn in ((1, join), (2, 3), (2, later)):
        with pytest.raises(InvalidValue) as refused:
            worker.upcast(start, 3)(fn)
        assert refused.value.hint


def test_a_migrated_state_that_was_erased_keeps_its_version():
    from holdfast.core.state.fold import evolve

    told = [
        ev.TaskCreated(agent="worker", state_version=1),
        ev.StateSet(name="name", value=holdfast.pack("Ana Lee")),
        ev.Erased(),  # in the place of a StateMigrated
        ev.StateAppended(name="names", value=holdfast.pack("Ana"), state_version=3),
    ]
    folded = None
    for seq, event in enumerate(told, start=1):
        folded = evolve(folded, "t", seq, seq, event)
    assert folded.state_version == 3 and sorted(folded.bag) == ["name", "names"]


# Samples


def test_samples_of_every_version_are_read_with_what_the_agent_has_become(app, tmp_path, texts):
    folder = tmp_path / "samples"
    saved = save_sample(first_life(app, declarer("def")), folder)
    assert saved == save_sample(app.get("t"), folder) and len(list(folder.iterdir())) == 1
    assert json.loads(saved.read_text()) == {
        "agent": "worker",
        "version": 1,
        "state": {"name": "Ana Lee", "visits": 1, "count": 5},
    }
    worker = of_version_three(declarer("def"), lambda task: None)
    with texts.raises(UpcastFailed) as refused:
        check_upcasts(worker, folder)
    assert len(refused.value.problems) == 2
    given = [
        {"version": 1, "state": {"name": "Ana Lee"}},
        {"version": 2, "state": {"first": "Ana"}},
        {"version": 3, "state": {"names": []}},
    ]
    assert check_upcasts(worker, given) == 3
    bad = [{"version": 2, "state": {"last": "x"}}, {"version": 3, "state": {"names": [1]}}, {"state": {}}, 3]
    with texts.raises(UpcastFailed) as refused:
        check_upcasts(worker, [*given, *bad])
    assert len(refused.value.problems) == 4
    (folder / "other.json").write_text('{"agent": "another", "version": 9, "state": {"x": 1}}')
    with pytest.raises(UpcastFailed) as refused:
        check_upcasts(worker, folder)
    assert len(refused.value.problems) == 2, "another agent's samples are not ours"
    (folder / "broken.json").write_text("{")
    with texts.raises(InvalidValue):
        check_upcasts(worker, folder)
    with texts.raises(InvalidValue):
        check_upcasts(worker, tmp_path / "nowhere")
    with texts.raises(InvalidValue):
        check_upcasts(agent(name="w")(lambda task: None), folder)


def test_events_of_the_ground_floor_cannot_go_back_in_versions(app, texts):
    app.start("worker", id="t")
    app.append("t", ev.StateMigrated(version=2, bag={"a": holdfast.pack(1)}))
    with texts.raises(holdfast.InvalidEvent):
        app.append("t", ev.StateMigrated(version=2))
    assert app.get("t").state == {"a": 1}
