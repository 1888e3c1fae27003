"""States and wake-ups that servers share by way of Redis: never trusted, never needed."""

import logging
import os
import subprocess
import sys
import textwrap
import threading
import time

import pytest

import holdfast
from holdfast import agent
from holdfast.core import codec, events as ev, limits
from holdfast.core.errors import InvalidUrl, MissingExtra
from holdfast.core.state import shapes
from holdfast.engine.logs import shared_cache
from holdfast.engine.people.erasure import erase_logs
from tests.redis_server import running
from tests.waiting import until

P = codec.pack


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(limits, "CACHE_PAUSE_SECONDS", 0.3)


@pytest.fixture
def opened(tmp_path, redis_for_all):
    """Opens apps on one store and one Redis, each as another server would."""
    apps = []

    def opener(path="store.db", cache=None, **given):
        apps.append(holdfast.open(tmp_path / path, cache=cache or redis_for_all.url(), **given))
        return apps[-1]

    yield opener
    for app in apps:
        app.close()


def grown(app, id="t", events=100, **given):
    app.start("a", id=id, **given)
    app.append(id, *(ev.StateSet(name=f"k{n}", value=P(n)) for n in range(events)))


def counts(app):
    return app.logs.cache.counts


def shared(app, id="t"):
    """Read a task, and wait until other servers can have its state."""
    app.get(id)
    until(lambda: counts(app).shared)


def keys(server):
    with server.client() as client:
        return sorted(client.keys("holdfast:*"))


def test_a_server_begins_where_another_left_off(opened):
    one, other = opened(), opened()
    grown(one)
    shared(one)
    assert len(other.get("t").state) == 100
    assert counts(other).shared_hits == 1
    one.append("t", ev.StateSet(name="k0", value=P("new")))
    assert other.get("t").state["k0"] == "new", "the tail comes from the log"
    late = opened()
    assert late.get("t").state["k0"] == "new" and counts(late).shared_hits == 1


def test_a_task_that_waits_is_shared_as_it_is(opened):
    @agent
    def waiting(task):
        for n in range(40):
            task.step(lambda n=n: n, name="x")
        return task.wait("go")

    one, other = opened(), opened(agents=[waiting])
    assert one.run(waiting, id="w").status == "waiting"
    until(lambda: counts(one).shared)
    other.signal("w", "go", 7)
    assert counts(other).shared_hits == 1
    assert other.resume("w").result == 7


def test_short_tasks_are_not_worth_a_trip(opened):
    one = opened()
    grown(one, events=5)
    one.get("t")
    one.close()
    assert counts(one).shared == 0


def test_another_process_shares_too(opened, tmp_path, redis_for_all):
    one = opened()
    grown(one)
    shared(one)
    code = f"""
        import holdfast
        with holdfast.open({str(tmp_path / "store.db")!r}) as app:
            app.signal("t", "hello")
            assert app.logs.cache.counts.shared_hits == 1, app.logs.cache.counts
            print(app.get("t").seq)
    """
    env = {**os.environ, "HOLDFAST_CACHE": redis_for_all.url()}
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], env=env, capture_output=True, text=True)
    assert done.stdout.split() == ["102"], done.stderr
    assert one.get("t").seq == 102


def test_stores_that_share_a_server_share_nothing_else(opened, redis_for_all):
    one, other = opened("one.db"), opened("other.db")
    for app, value in ((one, "one"), (other, "other")):
        grown(app)
        app.append("t", ev.StateSet(name="whose", value=P(value)))
        shared(app)
    assert len({one.store.identity().id, other.store.identity().id}) == 2
    assert opened("one.db").get("t").state["whose"] == "one"
    assert opened("other.db").get("t").state["whose"] == "other"


def test_keys_say_nothing_of_names_and_expire(tmp_path, redis_server):
    with holdfast.open(tmp_path / "x.db", cache=redis_server.url("/0?expire=90s")) as app:
        grown(app, "secret-name")
        shared(app, "secret-name")
        (key,) = keys(redis_server)
        assert b"secret" not in key
        with redis_server.client() as client:
            assert 80_000 < client.pttl(key) <= 90_000


@pytest.fixture
def entry(opened, tmp_path, redis_server):
    """A shared state: how to read it by another server after it was tampered with."""
    app = opened(cache=redis_server.url())
    grown(app)
    shared(app)
    (key,) = keys(redis_server)
    with redis_server.client() as client:
        yield app, client, key, lambda: opened(cache=redis_server.url())


def ignored(reader):
    assert len(reader.get("t").state) == 100
    assert counts(reader).shared_hits == 0
    return True


@pytest.mark.parametrize("poison", [b"", b"x", b"garbage" * 1000, b"\0" * 40, b"\xff" * (9 * 1024 * 1024)])
def test_garbage_is_ignored(entry, poison):
    _, client, key, other = entry
    client.set(key, poison)
    assert ignored(other())


def test_a_flipped_byte_anywhere_is_noticed(entry):
    app, client, key, _ = entry
    whole, identity = client.get(key), app.store.identity()
    assert shared_cache.unseal("t", whole, identity.key) is not None
    for at in range(len(whole)):
        flipped = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
        assert shared_cache.unseal("t", flipped, identity.key) is None
    for end in range(0, len(whole), 7):
        assert shared_cache.unseal("t", whole[:end], identity.key) is None


def test_a_value_of_another_kind_is_ignored(entry):
    _, client, key, other = entry
    client.delete(key)
    client.lpush(key, b"a list")
    assert ignored(other())


def test_the_state_of_another_log_is_ignored(entry):
    app, client, key, other = entry
    grown(app, "u")
    app.append("u", ev.StateSet(name="k0", value=P("of u")))
    app.get("u")
    until(lambda: client.dbsize() == 2)
    (foreign,) = {*client.keys("holdfast:*")} - {key}
    client.set(key, client.get(foreign))
    reader = other()
    assert ignored(reader) and counts(reader).shared_dropped == 0, "it is known by its name, before the log is asked"


def test_a_state_that_nobody_signed_is_ignored(entry):
    """Right seq, right digest, another state: who can write to Redis cannot put words into a task's mouth."""
    app, client, key, other = entry
    kept = app.logs.cache.states.get("t")
    forged = shapes.State(summary=kept.state.summary, seq=kept.head.seq, bag={"k0": P("forged")})
    lie = type(kept)(kept.head, forged, kept.sizes, kept.ground)
    client.set(key, shared_cache.seal("t", lie, b"k" * 32))
    assert ignored(other())


def test_the_state_of_another_fold_is_ignored(entry, monkeypatch):
    app, client, key, other = entry
    kept = app.logs.cache.states.get("t")
    with monkeypatch.context() as patched:
        patched.setattr(shared_cache, "FOLD_VERSION", shapes.FOLD_VERSION + 1)
        newer = shared_cache.seal("t", kept, app.store.identity().key)
    client.set(key, newer)
    assert ignored(other())


@pytest.mark.parametrize("change", ["digest", "seq", "ahead", "erased"])
def test_a_state_that_the_log_does_not_confirm_is_ignored_and_deleted(entry, change):
    app, client, key, other = entry
    kept = app.logs.cache.states.get("t")
    head, ground = kept.head, kept.ground
    match change:
        case "digest":
            head = type(head)(head.seq, b"\0" * 32)
        case "seq":
            head = type(head)(head.seq - 1, head.digest)
        case "ahead":
            head = type(head)(head.seq + 5, head.digest)
        case "erased":
            ground = type(ground)(3)
    client.set(key, shared_cache.seal("t", type(kept)(head, kept.state, kept.sizes, ground), app.store.identity().key))
    reader = other()
    assert ignored(reader) and counts(reader).shared_dropped == 1


def test_erasing_a_user_deletes_what_is_shared(entry):
    app, client, key, _ = entry
    grown(app, "mine", user="ana")
    app.append("mine", ev.TaskCancelled())
    app.get("mine")
    until(lambda: client.dbsize() == 2)
    app.user("ana").erase()
    assert client.keys("holdfast:*") == [key]


def test_what_was_erased_elsewhere_is_not_served_from_redis(entry, tmp_path):
    *_, other = entry
    with holdfast.open(tmp_path / "store.db") as eraser:  # knows nothing of Redis
        erase_logs(eraser.logs, ["t"], by="", why="", only=lambda event: getattr(event, "name", "") == "k7")
    reader = other()
    assert "k7" not in reader.get("t").state and counts(reader).shared_dropped == 1


def test_a_state_on_its_way_while_it_is_erased_does_not_stay(entry):
    """The key is deleted before the state arrives; the courier looks after it has written."""
    app, client, *_ = entry
    kept = app.logs.cache.states.get("t")
    erase_logs(app.logs, ["t"], by="", why="", only=lambda event: getattr(event, "name", "") == "k7")
    assert client.keys("holdfast:*") == []
    before = counts(app).shared
    app.logs.cache.tier.share("t", kept)
    until(lambda: counts(app).shared > before and counts(app).shared_dropped)
    until(lambda: client.keys("holdfast:*") == [])


def test_what_is_removed_is_removed_there_too(entry):
    app, client, _, _ = entry
    app.append("t", ev.TaskCancelled())
    app.gc(keep=0)
    assert client.keys("holdfast:*") == []


# Losing it


def works(app, id):
    """Everything goes on, and without waiting for the tier each time."""
    begun = time.monotonic()
    grown(app, id)
    assert len(app.get(id).state) == 100
    app.signal(id, "x")
    app.append(id, ev.TaskCancelled())
    app.logs.cache.tier.wake("default")
    assert time.monotonic() - begun < 100 * limits.CACHE_TIMEOUT_SECONDS / 2


def warnings(caplog):
    return [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_killing_it_loses_nothing_and_stops_nothing(opened, redis_server, caplog, texts):
    one, other = opened(cache=redis_server.url()), opened(cache=redis_server.url())
    grown(one)
    shared(one)
    redis_server.kill()
    for n in range(5):
        works(one, f"t{n}")
    assert len(other.get("t").state) == 100
    until(lambda: counts(one).errors)
    away = warnings(caplog)
    assert len(away) == 2, "one for each server"
    for record in away:
        texts.check(record.message)
    redis_server.start()
    time.sleep(limits.CACHE_PAUSE_SECONDS)
    grown(one, "later")
    shared(one, "later")
    assert len(opened(cache=redis_server.url()).get("later").state) == 100


def test_one_that_hangs_costs_one_short_wait_for_each_pause(opened, redis_server, monkeypatch, caplog):
    monkeypatch.setattr(limits, "CACHE_PAUSE_SECONDS", 60.0)
    app = opened(cache=redis_server.url(), cache_bytes=0)
    grown(app)
    shared(app)
    redis_server.freeze()
    begun = time.monotonic()
    for _ in range(50):
        app.get("t")
    assert limits.CACHE_TIMEOUT_SECONDS <= time.monotonic() - begun < limits.CACHE_TIMEOUT_SECONDS * 50
    assert len(warnings(caplog)) == 1
    redis_server.thaw()


def test_nobody_is_there(opened, caplog):
    app = opened(cache="redis://127.0.0.1:1/0")
    works(app, "t")
    assert app.get("t").status == "cancelled"
    until(lambda: counts(app).errors)
    assert len(warnings(caplog)) == 1


def test_a_wrong_password_is_told_once_and_never_shown(tmp_path, caplog):
    for server in running("--requirepass", "right"):
        for password in ("wrong-password", ""):
            caplog.clear()
            with holdfast.open(tmp_path / "x.db", cache=server.url(password=password)) as app:
                works(app, f"t{password}")
                until(lambda app=app: counts(app).errors)
            assert len(warnings(caplog)) == 1
            assert "wrong-password" not in caplog.text
        with holdfast.open(tmp_path / "x.db", cache=server.url(password="right")) as app:
            grown(app, "right")
            shared(app, "right")


def test_a_full_server_refuses_and_all_goes_on(tmp_path, caplog, texts):
    for server in running("--maxmemory", "1kb", "--maxmemory-policy", "noeviction"):
        with server.client() as client, holdfast.open(tmp_path / "x.db", cache=server.url()) as app:
            with pytest.raises(Exception, match="maxmemory"):
                client.set("k", "x")
            for n in range(3):
                works(app, f"t{n}")
            until(lambda app=app: counts(app).unshared)
            [said] = warnings(caplog)
            texts.check(said.message)
            client.config_set("maxmemory", 0)
            grown(app, "later")
            shared(app, "later")


def test_closing_while_it_is_away_takes_no_time(opened, redis_server):
    app = opened(cache=redis_server.url())
    app.logs.cache.tier.on_wake(lambda queue: None)
    grown(app)
    redis_server.freeze()
    app.get("t")
    begun = time.monotonic()
    app.close()
    assert time.monotonic() - begun < 20
    redis_server.thaw()


# Wake-ups


def listening(app):
    heard, stop = [], None
    stop = app.logs.cache.tier.on_wake(heard.append)
    return heard, stop


def test_a_wake_up_reaches_every_server_of_the_store_and_no_other(opened, redis_for_all):
    one, other, foreign = opened(), opened(), opened("foreign.db")
    (mine, _), (theirs, stop), (never, _) = listening(one), listening(other), listening(foreign)
    until(lambda: one.logs.cache.tier.wake("mail") or (mine and theirs))
    assert set(mine) == set(theirs) == {"mail"} and never == []
    stop()
    theirs.clear()
    one.logs.cache.tier.wake("more")
    until(lambda: "more" in mine)
    assert theirs == []


def test_a_listener_hears_again_when_the_server_is_back(opened, redis_server):
    app = opened(cache=redis_server.url())
    heard, _ = listening(app)
    until(lambda: app.logs.cache.tier.wake("a") or "a" in heard)
    redis_server.kill()
    app.logs.cache.tier.wake("lost")
    time.sleep(0.1)
    redis_server.start()
    until(lambda: app.logs.cache.tier.wake("b") or "b" in heard)


def test_a_listener_that_fails_is_told_of_the_next(opened, caplog):
    app, heard = opened(), []

    def listen(queue):
        heard.append(queue)
        raise ValueError("odd")

    app.logs.cache.tier.on_wake(listen)
    until(lambda: app.logs.cache.tier.wake("x") or len(heard) >= 2)
    assert "odd" in caplog.text


def test_waking_never_waits(opened, redis_server):
    app = opened(cache=redis_server.url())
    redis_server.freeze()
    begun = time.monotonic()
    for n in range(1000):
        app.logs.cache.tier.wake(f"q{n}")
    assert time.monotonic() - begun < 100 * limits.CACHE_TIMEOUT_SECONDS, "a thousand waits take ten times as long"
    redis_server.thaw()


def test_no_thread_is_left_when_an_app_is_closed(opened):
    before = set(threading.enumerate())
    app = opened()
    listening(app)
    grown(app)
    shared(app)
    app.close()
    left = [one.name for one in threading.enumerate() if one not in before]
    assert not [name for name in left if name.startswith("holdfast-")]


# Opening


@pytest.mark.parametrize(
    "url",
    [
        *("http://127.0.0.1", "redis:", "redis://", "redis://h:port/0", "redis://h:99999/0", "redis://h/name"),
        *("memcached://h", "127.0.0.1:6379", "redis://h/0?foo=1", "redis://h/0#x", "unix://", "redis://[::1"),
        *(
            "redis://h/0?expire=",
            "redis://h/0?expire=0",
            "redis://h/0?expire=never",
            "redis://h?db=x",
            "redis://h?expire=900d",
        ),
    ],
)
def test_an_address_that_is_none_is_refused_before_anything_is_made(tmp_path, url, texts):
    with texts.raises(InvalidUrl):
        holdfast.open(tmp_path / "x.db", cache=url)
    assert not (tmp_path / "x.db").exists()


def test_a_password_is_not_in_the_error(tmp_path):
    with pytest.raises(InvalidUrl) as refused:
        holdfast.open(tmp_path / "x.db", cache="redis://:hunter2@h/name")
    assert "hunter2" not in str(refused.value)


def test_the_environment_may_name_it(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_CACHE", "odd://x")
    with pytest.raises(InvalidUrl):
        holdfast.open(tmp_path / "x.db")
    with holdfast.open(tmp_path / "x.db", cache="") as app:
        assert app.logs.cache.tier is None


def test_without_its_client_the_error_says_what_to_install(tmp_path, monkeypatch, texts):
    monkeypatch.setitem(sys.modules, "redis", None)
    with texts.raises(MissingExtra):
        holdfast.open(tmp_path / "x.db", cache="redis://127.0.0.1/0")
    assert not (tmp_path / "x.db").exists()
