"""Every failpoint is passed, and a crash at any of them leaves a log that goes on."""

import pytest

import holdfast
from holdfast import events as ev
from holdfast.failpoints import NAMES, armed
from holdfast.testing.auditor import audit
from holdfast.testing.conformance import SampleCrash
from tests.engine.reading.test_reading import step


def work(path):
    """Everything that has a failpoint: opening, claiming, appending, a snapshot. Can be gone on with."""
    with holdfast.open(path) as app:
        if app.store.origin("t") is None:
            app.start("a", id="t")
        log = app.logs.load("t")
        log.claim()
        for n in range(log.state.steps_done, 4):
            log._snapshot_at = -1
            log.append([step(f"s#{n}")])
        app.run(acting, id="u")
        if not log.state.ended:
            log.append([ev.TaskCompleted(result=holdfast.core.codec.pack("done"))])
        return app.get("t")


@holdfast.agent
def acting(task):
    return task.step(len, [1])


def test_every_failpoint_is_passed(tmp_path):
    passed = set()
    with armed(passed.add):
        work(tmp_path / "a.db")
    assert passed == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("hit", [1, 2, 3])
def test_a_crash_at_any_failpoint_is_survived(tmp_path, name, hit):
    path = tmp_path / "a.db"
    hits = 0

    def crash(passed):
        nonlocal hits
        hits += passed == name
        if passed == name and hits == hit:
            raise SampleCrash

    try:
        with armed(crash):
            work(path)
    except SampleCrash:
        pass
    try:
        state = work(path)
    except holdfast.TaskFinished:
        with holdfast.open(path) as app:
            state = app.get("t")
    assert state.status == "completed" and set(state.steps) == {f"s#{n}" for n in range(4)}
    with holdfast.open(path) as app:
        assert app.verify().ok
    assert audit(str(path)) == []
