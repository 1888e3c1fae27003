"""Programs that the crash tests run as processes of their own: python writer.py NAME ARGUMENTS…

Whatever they were promised they write down as acknowledgements, one `os.write` each, once the promise was made: the
operating system keeps what was written when the process is killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import holdfast
from holdfast import events as ev
from holdfast.core import codec
from holdfast.core.codec import Draft, Group, Head, LoggedEvent, Origin, UniqueKey, Write
from holdfast.core.events import Event
from holdfast.store.protocol import Store
from holdfast.store.sqlite.store import SqliteStore

SHARED = ("shared-0", "shared-1")
RACED = "raced"


class Acks:
    """What was acknowledged, in a file."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path
        self.count = 0
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(self, log: str, seq: int, digest: bytes) -> None:
        line = json.dumps({"log": log, "seq": seq, "digest": digest.hex()}) + "\n"
        assert os.write(self._file, line.encode()) == len(line)
        self.count += 1

    def head(self, app: holdfast.App, log: str) -> None:
        """Note the head of a log that nobody else writes to."""
        head = app.store.head(log)
        assert head is not None
        self.note(log, head.seq, head.digest)

    def records(self, records: Iterable[LoggedEvent]) -> None:
        for record in records:
            self.note(record.log, record.seq, record.digest)

    def seqs(self) -> list[int]:
        """The seqs noted, by whichever process."""
        with open(self.path) as file:
            return [json.loads(line)["seq"] for line in file]

    def close(self) -> None:
        os.close(self._file)


def note(text: str) -> Event:
    """A small event."""
    return ev.LogWritten(text=text)


def large(chance: random.Random, size: int) -> Event:
    """An event whose value is kept beside the log, if the size is that of a blob; it hardly compresses."""
    return ev.StateSet(name="large", value=codec.pack(chance.randbytes(size // 2).hex()))


def write_pair(app: holdfast.App, acks: Acks, one: str, other: str, text: str) -> None:
    """Write an event to each of two logs and take a unique key: all or nothing."""
    writes = tuple(Write(log, drafts(note(text)), app.store.head(log)) for log in (one, other))
    placed = app.logs.committer.commit(Group(writes, (UniqueKey(text, one, ""),)))
    for write, place in zip(writes, placed, strict=True):
        acks.note(write.log, place.first, place.digests[0])


# Random work, until killed


def swarm(db: str, acks: str, name: str, seed: str, durability: Any) -> None:
    """Do random work on tasks of one's own and on tasks that others work on too."""
    app = holdfast.open(db, durability=durability)
    worker = _Worker(app, Acks(acks), name, random.Random(int(seed)))
    worker.share()
    while True:
        worker.work()


def prowling_swarm(db: str, *arguments: str) -> None:
    """The same, while two threads open and close every file of the directory, which drops POSIX locks."""
    for _ in range(2):
        threading.Thread(target=read_directory, args=(os.path.dirname(db),), daemon=True).start()
    swarm(db, *arguments)


def read_directory(folder: str) -> None:
    """Read all files of a folder again and again, as an agent does that looks for something."""
    while True:
        for name in os.listdir(folder):
            with contextlib.suppress(FileNotFoundError), open(os.path.join(folder, name), "rb") as file:
                file.read(1 << 16)
        time.sleep(0.001)


def looker(db: str) -> None:
    """Open the store, look at it and close it again and again."""
    while True:
        with contextlib.suppress(holdfast.NotAStore), holdfast.open(db) as app:
            app.list(limit=3)
        time.sleep(0.01)


class _Worker:
    def __init__(self, app: holdfast.App, acks: Acks, name: str, chance: random.Random) -> None:
        self.app, self.acks, self.name, self.chance = app, acks, name, chance
        self.made = 0
        self.open: list[str] = []
        self.ended: list[str] = []

    def share(self) -> None:
        for id in SHARED:
            try:
                self.app.start("sharer", id=id)
            except holdfast.TaskExists:
                continue

    def work(self) -> None:
        if not self.open:
            self.start()
        elif len(self.open) > 6:
            self.finish()
        often = (self.one, self.one, self.several, self.large, self.shared, self.pair)
        self.chance.choice((*often, self.start, self.fork, self.undo, self.reopen, self.collect))()

    def _new(self) -> str:
        self.made += 1
        self.open.append(f"{self.name}-{self.made}")
        return self.open[-1]

    def _any(self) -> str:
        return self.chance.choice(self.open)

    def start(self) -> None:
        id = self._new()
        self.app.start("worker", {"number": self.made}, id=id)
        self.acks.head(self.app, id)

    def one(self) -> None:
        self.acks.records(self.app.append(self._any(), note("one")))

    def several(self) -> None:
        events = [note(f"one of {count}") for count in range(self.chance.randint(2, 6))]
        self.acks.records(self.app.append(self._any(), *events))

    def large(self) -> None:
        self.acks.records(self.app.append(self._any(), large(self.chance, self.chance.randint(3_000, 20_000))))

    def shared(self) -> None:
        id = self.chance.choice(SHARED)
        head = self.app.store.head(id)
        assert head is not None
        try:
            self.acks.records(self.app.append(id, note(f"after {head.seq}"), expect=head.seq))
        except holdfast.Conflict:
            return

    def pair(self) -> None:
        one, other = self.chance.sample((*self.open, *SHARED), 2)
        self.made += 1
        try:
            write_pair(self.app, self.acks, one, other, f"pair {self.name} {self.made}")
        except holdfast.Conflict:
            return

    def fork(self) -> None:
        """Fork a task of one's own; one that has ended may have been removed by another."""
        parent = self.chance.choice((*self.open, *self.ended[-2:]))
        self.made += 1
        id = f"{self.name}-{self.made}"
        try:
            at = self.chance.randint(1, self.app.logs.head(parent).seq)
            self.app.fork(parent, at=at, id=id)
        except holdfast.TaskCollected:
            return
        self.open.append(id)
        self.acks.head(self.app, id)

    def undo(self) -> None:
        id = self._any()
        if self.app.logs.head(id).seq > 1:
            self.app.rollback(id, to=1)
            self.acks.head(self.app, id)

    def finish(self) -> None:
        id = self._any()
        self.acks.records(self.app.append(id, ev.TaskFailed(failure=holdfast.Failure("Error", "enough"))))
        self.open.remove(id)
        self.ended.append(id)

    def reopen(self) -> None:
        """Go on with a task that has ended, unless another has removed it."""
        if self.ended:
            id = self.ended.pop()
            try:
                self.acks.records(self.app.append(id, ev.TaskReopened()))
            except (holdfast.TaskCollected, holdfast.Conflict):
                return
            self.open.append(id)

    def collect(self) -> None:
        """Remove what has ended, whoever ended it."""
        if self.chance.random() < 0.3:
            self.app.gc(keep=3)


# Races


def race(db: str, acks: str, threads: str, upto: str) -> None:
    """Many threads append to one log until it is long enough; each notes what it won."""
    store = SqliteStore(db, durability="process")
    won = Acks(acks)
    print("ready", flush=True)
    sys.stdin.readline()
    run_threads(int(threads), lambda number: _run(store, won, f"{os.getpid()}.{number}", int(upto)))
    store.close()


def _run(store: Store, won: Acks, who: str, upto: int) -> None:
    while (head := store.head(RACED)) is not None and head.seq < upto:
        outcome = store.append([after(RACED, head, who)])[0]
        if isinstance(outcome, tuple):
            won.note(RACED, outcome[0].first, outcome[0].digests[0])


def run_threads(count: int, work: Callable[[int], None]) -> None:
    """Run work in that many threads at once; what one raises is raised here."""
    errors: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def drafts(*events: Event) -> tuple[Draft, ...]:
    return tuple(codec.draft(event, 1)[0] for event in events)


def begin(store: Store, log: str) -> Head:
    """Make a log with one event."""
    write = Write(log, drafts(note("first")), Head(0, codec.genesis(log)), Origin())
    outcome = store.append([Group((write,))])[0]
    assert isinstance(outcome, tuple)
    return Head(1, outcome[0].digests[0])


def after(log: str, head: Head, text: str) -> Group:
    """One event after a head."""
    return Group((Write(log, drafts(note(text)), head),))


# Holders


def hold(db: str) -> None:
    """Say under which name this process is alive, and stay so until the input ends."""
    store = SqliteStore(db)
    print(store.holder(), flush=True)
    sys.stdin.read()


def hold_and_fork(db: str) -> None:
    """The same, with a child that outlives its parent, until the input ends."""
    store = SqliteStore(db)
    print(store.holder(), flush=True)
    child = os.fork()
    if child:
        print(child, flush=True)
    sys.stdin.read()


def see(db: str, *holders: str) -> None:
    """Say which holders are alive."""
    store = SqliteStore(db)
    print(json.dumps([store.alive(holder) for holder in holders]))
    store.close()


def use_after_fork(db: str) -> None:
    """Use a store in a forked child, then in the parent; say what came of each."""
    app = holdfast.open(db)
    app.start("parent", id="task")
    verbs: dict[str, Callable[[], object]] = {
        "append": lambda: app.append("task", note("from the child")),
        "read": lambda: app.get("task"),
        "list": lambda: app.list(),
        "holder": lambda: app.store.holder(),
        "alive": lambda: app.store.alive("1-1"),
        "drop": lambda: app.store.drop_snapshots(),
    }
    child = os.fork()
    if not child:
        print(json.dumps({name: _outcome(verb) for name, verb in verbs.items()}), flush=True)
        app.close()
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
    print(json.dumps({name: _outcome(verb) for name, verb in verbs.items()}), flush=True)
    app.close()


def _outcome(verb: Callable[[], object]) -> str:
    try:
        verb()
    except Exception as error:
        return type(error).__name__
    return "done"


_ALL = (swarm, prowling_swarm, looker, race, hold, hold_and_fork, see, use_after_fork)
PROGRAMS = {program.__name__: program for program in _ALL}

if __name__ == "__main__":
    PROGRAMS[sys.argv[1]](*sys.argv[2:])
