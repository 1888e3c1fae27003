"""Many work on the same keys at once: append, pop, erase, trim, drop, verify, export. Nothing is lost or done twice."""

import contextlib
import random
import threading
from collections import Counter

import pytest

import holdfast
from holdfast import Conflict, InvalidValue, RecordWrite
from tests.crash.workload import THOROUGH

STORES = ("memory", "sqlite", "postgres")
KEYS = ("a", "b")
LARGE = [b"one " * 2_000, b"two " * 2_000]
WRITERS, ROUNDS = 4, 400 if THOROUGH else 60
pytestmark = pytest.mark.usefixtures("hasty_threads")


class Tally:
    """What happened to records, by their data: each is unlike all others."""

    def __init__(self):
        self.appended, self.popped, self.removed = Counter(), Counter(), 0
        self.lock = threading.Lock()


def append(records, chance, tally, name):
    key, data = chance.choice(KEYS), [f"{name} {chance.getrandbits(48)}".encode() for _ in range(chance.randint(1, 3))]
    if len(data) == 1:
        records.append(key, data[0], blobs={"large": chance.choice(LARGE)})
    else:
        records.append(key, data)
    tally.appended.update(data)


def append_to_both(records, chance, tally, name):
    data = [f"{name} {key} {chance.getrandbits(48)}".encode() for key in KEYS]
    records.write([RecordWrite(key=key, data=one) for key, one in zip(KEYS, data, strict=True)])
    tally.appended.update(data)


def append_after(records, chance, tally, name):
    key, data = chance.choice(KEYS), f"{name} {chance.getrandbits(48)}".encode()
    with contextlib.suppress(Conflict):
        records.append(key, data, expect=records.head(key), blobs={"large": chance.choice(LARGE)})
        tally.appended[data] += 1


def pop(records, chance, tally, name):
    popped = records.pop(chance.choice(KEYS))
    if popped is not None:
        assert all(value in LARGE for value in popped.blobs.values())
        tally.popped[popped.data] += 1


def erase(records, chance, tally, name):
    key = chance.choice(KEYS)
    seqs = [one.seq for one in records.read(key, last=3)]
    tally.removed += records.erase(key, seqs)


def trim(records, chance, tally, name):
    tally.removed += records.trim(chance.choice(KEYS), keep=chance.randint(1, 5))


def drop(records, chance, tally, name):
    """How many go cannot be known: so a key is dropped only as it was read."""
    key = chance.choice(KEYS)
    head = records.head(key)
    count = len(records.read(key, before=head + 1))
    with contextlib.suppress(Conflict):
        if head and count == len(records.read(key, before=head + 1)) and records.drop(key, expect=head):
            tally.dropped = True


WORK = (append, append, append, append_to_both, append_after, pop, pop, erase, trim)


def race(app, work, seed):
    """Let writers work at once, beside one who verifies and one who exports; gives what happened."""
    tallies, failed, stop = [Tally() for _ in range(WRITERS)], [], threading.Event()

    def guarded(action):
        def run():
            try:
                action()
            except BaseException as error:
                failed.append(error)
                stop.set()

        return threading.Thread(target=run)

    def writer(number):
        chance, records = random.Random(f"{seed}.{number}"), app.records("raced")
        for _ in range(ROUNDS):
            if stop.is_set():
                return
            chance.choice(work)(records, chance, tallies[number], f"{number}")

    def verifier():
        while not stop.is_set():
            assert app.verify().problems == []

    def exporter():
        records = app.records("raced")
        while not stop.is_set():
            for key in KEYS:
                with contextlib.suppress(InvalidValue):  # it is not there just now
                    lines = list(records.export_lines(key))
                    with holdfast.open("memory:") as target:
                        target.import_(lines)

    writers = [guarded(lambda number=number: writer(number)) for number in range(WRITERS)]
    others = [guarded(verifier), guarded(exporter)]
    for thread in (*writers, *others):
        thread.start()
    for thread in writers:
        thread.join()
    stop.set()
    for thread in others:
        thread.join()
    assert failed == []
    return tallies


def all_of(tallies, name):
    return sum((getattr(one, name) for one in tallies), Counter())


def assert_whole(app):
    """Every record that is there can be read with its values, and no value is left that no record has."""
    assert app.verify().problems == [] and app.store.check() == []
    live = [one for key in KEYS for one in app.records("raced").read(key)]
    assert {value for one in live for value in one.blobs.values()} <= {*LARGE}
    return Counter(one.data for one in live)


@pytest.mark.parametrize("seed", range(3 if THOROUGH else 1))
def test_what_is_appended_is_there_or_was_taken_away_once(app, seed):
    tallies = race(app, WORK, seed)
    live = assert_whole(app)
    appended, popped = all_of(tallies, "appended"), all_of(tallies, "popped")
    assert max(appended.values()) == 1 and set(popped.values()) <= {1}, "none is appended or popped twice"
    assert live <= appended and popped <= appended and not live & popped
    removed = sum(one.removed for one in tallies)
    assert len(appended) == len(live) + len(popped) + removed


@pytest.mark.parametrize("seed", range(3 if THOROUGH else 1))
def test_keys_that_are_dropped_meanwhile_are_begun_again_and_no_seq_is_used_twice(app, seed):
    tallies = race(app, (*WORK, drop), seed)
    live = assert_whole(app)
    appended, popped = all_of(tallies, "appended"), all_of(tallies, "popped")
    assert live <= appended and popped <= appended and not live & popped
    records = app.records("raced")
    for key in KEYS:
        records.drop(key)
    assert app.stats().blobs == 0 and records.keys() == [], "what nobody refers to is gone"
    assert app.stats().events == 0
