"""Whatever several servers do to their logs, what one reads with a cache is what it would read without."""

import contextlib

import pytest
from hypothesis import given, settings, strategies as st

import holdfast
from holdfast.core import codec, events as ev, limits
from holdfast.core.errors import HoldfastError
from holdfast.engine.app import App
from holdfast.engine.logs.cache import Cache
from holdfast.engine.logs.redis import address
from holdfast.engine.logs.shared_cache import SharedCache
from holdfast.engine.people.erasure import erase_logs
from holdfast.store.memory.store import MemoryStore
from holdfast.testing.clock import FakeClock

IDS = ("a", "b", "c", "d")
P = codec.pack

ids = st.sampled_from(IDS)
servers = st.integers(0, 1)
names = st.sampled_from(["x", "y"])
events = st.one_of(
    st.builds(ev.StateSet, name=names, value=st.integers(0, 99).map(P) | st.just(P("large" * 1000))),
    st.builds(ev.StateIncremented, name=names, by=st.integers(1, 5)),
    st.builds(ev.FactLearned, key=names, value=st.integers(0, 9).map(P)),
    st.builds(
        ev.StepCompleted, key=st.sampled_from(["s#1", "s#2"]), name=st.just("s"), result=st.integers(0, 9).map(P)
    ),
    st.builds(ev.FlagRaised, flag=names),
    st.builds(ev.PlanSet, steps=st.lists(names, max_size=2).map(tuple)),
    st.builds(ev.TurnStarted, turn=st.integers(1, 3)),
    st.builds(ev.WaitStarted, key=st.just("w#1"), wait=st.just("signal"), name=names, prompt=st.just(P(None))),
    st.builds(ev.TaskSuspended, why=st.just("signal")),
    st.builds(ev.TaskCancelled),
)
actions = st.one_of(
    st.tuples(st.just("start"), servers, ids, st.none() | st.just("ana")),
    st.tuples(st.just("append"), servers, ids, st.lists(events, min_size=1, max_size=3)),
    st.tuples(st.just("append"), servers, ids, st.lists(events, min_size=1, max_size=3)),
    st.tuples(st.just("signal"), servers, ids, names),
    st.tuples(st.just("read"), servers, ids, st.none()),
    st.tuples(st.just("at"), servers, ids, st.integers(1, 12)),
    st.tuples(st.just("rollback"), servers, ids, st.integers(1, 8)),
    st.tuples(st.just("fork"), servers, st.tuples(ids, ids), st.none() | st.integers(1, 8)),
    st.tuples(st.just("snapshot"), servers, ids, st.none()),
    st.tuples(st.just("erase"), servers, ids, st.sampled_from(["x", "y"])),
    st.tuples(st.just("erase user"), servers, ids, st.none()),
    st.tuples(st.just("end"), servers, ids, st.none()),
    st.tuples(st.just("gc"), servers, ids, st.integers(0, 1)),
)


def do(app, what, id, given):
    match what:
        case "start":
            app.start("agent", id=id, user=given)
        case "append":
            app.append(id, *given)
        case "signal":
            app.signal(id, given)
        case "read":
            app.get(id)
        case "at":
            app.at(id, given)
        case "rollback":
            app.rollback(id, to=given)
        case "fork":
            app.fork(id[0], id=id[1], at=given)
        case "snapshot":
            log = app.logs.load(id)
            log._snapshot_at = -1
            log.append([ev.LogWritten(text="with a snapshot")])
        case "erase":
            app.logs.head(id)
            erase_logs(app.logs, [id], by="", why="", only=lambda event: getattr(event, "name", "") == given)
        case "erase user":
            app.user("ana").erase()
        case "end":
            app.append(id, ev.TaskCancelled())
        case "gc":
            app.gc(keep=given)


def found(app, id, upto=None):
    """Everything there is to a log's state, or why there is none."""
    try:
        log = app.logs.load(id, upto=upto)
    except HoldfastError as error:
        return error.code
    return log.head, codec.dump(log.state), app.get(id).to_dict() if upto is None else None


def check(apps, plain, steps):
    for what, server, id, given_ in steps:
        with contextlib.suppress(HoldfastError):  # what is refused is refused with and without a cache
            do(apps[server], what, id, given_)
        for app in apps:
            for one in IDS:
                assert found(app, one) == found(plain, one), (what, id, given_)
    for app in apps:
        for one in IDS:
            for seq in (2, 5):
                assert found(app, one, seq) == found(plain, one, seq)


@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_what_is_read_with_a_cache_is_what_is_read_without(store, tmp_path_factory):
    @settings(max_examples=settings().max_examples if store == "memory" else settings().max_examples // 3)
    @given(steps=st.lists(actions, min_size=3, max_size=25), small=st.booleans())
    def holds(steps, small):
        path = str(tmp_path_factory.mktemp("s") / "x.db")
        clock = FakeClock()
        kept = MemoryStore() if store == "memory" else None

        def opened(bytes):
            return App(kept, clock, cache=Cache(bytes)) if kept else holdfast.open(path, clock=clock, cache_bytes=bytes)

        with opened(60_000 if small else limits.CACHE_BYTES) as one, opened(limits.CACHE_BYTES) as two:
            check((one, two), opened(0), [("start", 0, "a", "ana"), *steps])

    holds()


def test_what_is_read_with_redis_is_what_is_read_without(redis_for_all, monkeypatch):
    """No memory of their own: every read goes to Redis first, and everything is shared at once."""
    monkeypatch.setattr(limits, "CACHE_SHARE_EVENTS", 1)
    where = address(redis_for_all.url())

    @settings(max_examples=settings().max_examples // 2)
    @given(steps=st.lists(actions, min_size=3, max_size=20))
    def holds(steps):
        store, clock = MemoryStore(), FakeClock()
        tiers = [SharedCache(where, store), SharedCache(where, store)]
        for tier in tiers:
            tier._courier.take = lambda name, kept, tier=tier: tier._carry((), name, kept) or 0  # now, not soon
        apps = [App(store, clock, cache=Cache(0, tier)) for tier in tiers]
        check(apps, App(store, clock, cache=Cache(0)), [("start", 0, "a", "ana"), *steps])
        for tier in tiers:
            tier.close()

    holds()
