"""Programs for agents, as data: an agent that carries one out, lives it through crashes, and notes what it reads.

A program is a list of turns, a turn a line of operations, and an operation a tuple: its verb and what that needs. A
`gather` or `group` holds lines of its own, which become branches. Each operation has a place, `<turn/branch/…:index>`,
and whatever it writes carries that place, so that the log tells what was recorded.
"""

import asyncio
import re
import threading
import time
from collections import Counter

from hypothesis import strategies as st

import holdfast
from holdfast import DidNotHappen, Happened, Retry, StatePatch, agent, events as ev, tool
from holdfast.core import codec
from holdfast.core.events import effects
from holdfast.core.state.patch import changes_of
from holdfast.engine.app import App
from holdfast.testing.clock import FakeClock
from holdfast.testing.crash import lives

ID = "t"
MAX_ROUNDS = 60
EFFECTS = tuple(effects.EFFECTS)
STRATEGIES = ("every_step", "every_iteration", "on_state_change", "before_effects")

_PLACE = re.compile(r"<[\w/]+:\d+(?:\[\d+\])?>")


# Programs


def _steps(where):
    quick = st.integers(0, 3)
    names = st.sampled_from("ab")
    how = st.sampled_from(where)
    return st.one_of(
        st.tuples(st.just("step"), names, how, quick, st.booleans()),
        st.tuples(st.just("fail"), names, how, quick),
        st.tuples(st.just("flaky"), names, how, quick, st.booleans()),
        st.tuples(st.just("map"), st.integers(1, 3), how, quick, st.none() | st.integers(0, 2)),
        st.tuples(st.just("call"), st.sampled_from(EFFECTS), how, quick),
        st.tuples(st.just("reply"), names, how, quick),
    )


COUNTED = st.sampled_from([("say", "increment"), ("say", "append")])
OTHERS = ("set", "measure", "message", "decide", "flag", "fact", "note", "stage")
SAY = COUNTED | st.tuples(st.just("say"), st.sampled_from(OTHERS))
READ = st.tuples(st.just("read"), st.sampled_from(["all", "get", "now", "uuid", "random", "messages"]))
WAIT = st.sampled_from([("wait",), ("sleep",), ("checkpoint",), ("spawn",)])
ASIDE = st.sampled_from([("poke",), ("poke",), ("early",), ("pause", 1), ("pause", 3)])


def _operations(where):
    steps = _steps(where)
    return _mixed((5, steps), (5, SAY), (1, READ), (2, ASIDE), (1, WAIT))


def _mixed(*shares):
    """One of some strategies, each as often as its share; `one_of` counts what is the same once."""
    many = [strategy for share, strategy in shares for _ in range(share)]
    return st.integers(0, len(many) - 1).flatmap(many.__getitem__)


def _line(depth, size):
    operation = _operations(["loop", "thread"])
    if depth:
        operation = _mixed((6, operation), (1, _together(depth)))
    return st.lists(operation, min_size=1, max_size=size)


def _branch(depth):
    """A branch begins with anything at all: a look whether it sees what its creator saw, branches of its own."""
    line = _line(depth, 5)
    begins = [(2, line), (2, line.map(lambda operations: [("begin",), *operations]))]
    if depth:
        begins.append((1, st.builds(lambda first, rest: [first, *rest], _together(depth), line)))
    return _mixed(*begins)


def _together(depth):
    branches = st.lists(_branch(depth - 1), min_size=2, max_size=3)
    together = st.tuples(st.sampled_from(["gather", "group"]), branches)
    return together | st.tuples(st.just("background"), _branch(depth - 1).map(lambda line: [line]))


def programs(kind):
    """Programs for `async` agents, with branches three deep, or for `def` agents, with threads."""
    if kind == "def":
        operation = _mixed(
            (9, _operations(["plain", "plain", "loop"])), (1, st.tuples(st.just("threads"), st.integers(1, 3)))
        )
        line = st.lists(operation, min_size=1, max_size=12)
    else:
        ends = _line(1, 3)
        several = st.tuples(st.sampled_from(["gather", "group"]), st.lists(_branch(2), min_size=2, max_size=5))
        line = st.builds(lambda a, b, c: [*a, b, *c], ends | st.just([]), several, ends | st.just([]))
    return st.builds(_ending, st.one_of(st.tuples(line), st.tuples(line), st.tuples(line, line)), st.booleans())


def _ending(turns, waits):
    """A program that waits at its end is replayed as a whole."""
    return [*turns[:-1], [*turns[-1], *([("wait",)] if waits else [])]]


def walk(program):
    """Every operation of a program with its place and the line it is in."""
    for turn, line in enumerate(program):
        yield from _walk(str(turn), line)


def _walk(path, line):
    for index, operation in enumerate(line):
        yield f"<{path}:{index}>", operation
        if operation[0] in ("gather", "group", "background"):
            for number, branch in enumerate(operation[1]):
                yield from _walk(f"{path}/{index}x{number}", branch)


# Carrying a program out


class Line:
    """Where a line of a program is: its path, what its last waiting verb wrote, what it has done so far."""

    def __init__(self, path, creator=None, before=None):
        self.path = path
        self.before = before
        self.basis = creator.basis if creator else ()
        self.made = creator.made.copy() if creator else []
        self.background = []


class Story:
    """A program and its lives: what was read, what was done, and everything that is wrong with it."""

    def __init__(self, program, *, kind="async", checkpoint="every_step", place=None):
        self.program = program
        self.checkpoint = checkpoint
        self.problems = []
        self.truth = {}
        self.sent = []
        self.hits = ()
        self._place = place or FlyingPlace()
        self._clock = FakeClock()
        self._pokes = 0
        self._life = 0
        self._app = None
        self._reads = {}
        self._returned = []
        self._known = frozenset()
        self._runs = Counter()
        self._guard = threading.Lock()
        self._before = {}
        self._pausing = kind == "async"
        self.agent = self._declared(kind)
        self.child = agent(name="child")(lambda task, place: task.step(lambda: self._ran(place, place), name="work"))
        self.tools = {effect: self._tool(effect) for effect in EFFECTS}

    # Lives

    def live(self, crash_at=None):
        """One process: from opening the store to the end of the task, or to its crash."""
        self._life += 1
        self._reads, self._returned = {}, []
        self._known = self._recorded()[1]
        life = lives.simulated(self._open, self._work, crash_at)
        if life.error:
            self.problems.append(f"life {self._life}: {life.error}")
        self._compare()
        return life

    def _open(self):
        self._app = App(self._place.open(), self._clock)
        return self._app

    def look(self):
        """An app to look at what is left with."""
        return App(self._place.open(), self._clock)

    def _work(self, app):
        try:
            for _ in range(MAX_ROUNDS):
                state = app.run(self.agent, id=ID)
                if state.status != "waiting":
                    return
                self._compare()
                app.signal(ID, "go", self._poked())
        except BaseExceptionGroup as group:
            raise lives.Crash from group
        raise TimeoutError(f"it waits for ever: {state.waiting}")

    def _compare(self):
        """What was read after something that is in the log must be read there ever after."""
        places, _ = self._recorded()
        reads, self._reads = self._reads, {}
        for place, (value, basis) in reads.items():
            if not set(basis) <= places:
                continue
            known = self.truth.setdefault(place, value)
            if known != value:
                self.problems.append(f"life {self._life} read {value!r} at {place}; before it was {known!r}")
        if self.checkpoint == "every_step":
            lost = [marker for marker in self._returned if marker not in places]
            self.problems += [f"life {self._life}: {marker} had returned and is not in the log" for marker in lost]

    def _recorded(self):
        """What is in the log: the places whose steps have an outcome, and the keys of those steps."""
        places, keys = set(), set()
        store = self._place.peek()
        for name in store.logs():
            for row in store.read(name):
                if row.kind in ("step_completed", "step_failed", "step_settled"):
                    event = codec.decode(row.kind, row.body)
                    if not getattr(event, "happened", True):
                        continue
                    keys.add((name, self._turn_of(name, row.seq, store), event.key))
                    places |= set(_PLACE.findall(row.body.decode()))
        return places, frozenset(keys)

    def _turn_of(self, name, seq, store):
        return sum(row.kind == "turn_started" for row in store.read(name, upto=seq))

    # Outside

    def _poked(self):
        with self._guard:
            self._pokes += 1
            return self._pokes

    def _poke(self):
        """Somebody else changes the state."""
        number = self._poked()
        patch = StatePatch(set={"outside": number}, increment={"pokes": 1})
        self._app.append(ID, ev.StatePatched(patch=changes_of(patch)))

    def _ran(self, marker, value, poke=False):
        """A step's function runs."""
        call = holdfast.current_call()
        with self._guard:
            self._runs[self._life, marker, call.attempt] += 1
            if self._runs[self._life, marker, call.attempt] > 1:
                self.problems.append(f"life {self._life}: {marker} ran twice")
            turn = int(marker[1:].split("/")[0].split(":")[0]) + 1 if len(self.program) > 1 else 0
            if (call.task_id, turn if call.task_id == ID else 0, call.step) in self._known:
                self.problems.append(f"life {self._life}: {marker} ran again, and {call.step} was recorded")
        if poke:
            self._poke()
        return value

    def _is_alive(self, life):
        """A thread that was given something before its process died, and wakes up after that, is dead too."""
        if life != self._life:
            raise lives.Crash

    # The agent

    def _declared(self, kind):
        loop = {"loop": True} if len(self.program) > 1 else {}
        declare = agent(name="worker", checkpoint=self.checkpoint, **loop)

        async def fly(task):
            return await self._fly(task, *self._turn(task))

        def walk(task):
            return self._plod(task, *self._turn(task))

        return declare(fly if kind == "async" else walk)

    def _turn(self, task):
        number = max(task.turn - 1, 0)
        return Line(str(number)), self.program[number], number == len(self.program) - 1

    async def _fly(self, task, line, operations, last=False):
        work = self._carry_out(task, line, operations)
        try:
            wanted = work.send(None)
            while True:
                try:
                    value = await wanted
                except Exception as error:
                    wanted = work.throw(error)
                else:
                    wanted = work.send(value)
        except StopIteration as done:
            return done.value if last else None

    def _plod(self, task, line, operations, last):
        work = self._carry_out(task, line, operations)
        try:
            value = work.send(None)
            while True:
                value = work.send(value)
        except StopIteration as done:
            return done.value if last else None

    def _carry_out(self, task, line, operations):
        """One line of a program. Gives what its waiting verbs gave."""
        given = []
        for index, (verb, *details) in enumerate(operations):
            marker = f"<{line.path}:{index}>"
            outcome = yield from getattr(self, f"_do_{verb}")(task, line, marker, *details)
            given.append(outcome)
            if verb != "pause":
                self._read(line, f"after {marker}", (task.state.all(), task.now()))
        for started in line.background:
            outcome = yield started
            given.append(outcome)
        return given

    def _read(self, line, marker, value):
        self._reads[marker] = (value, line.basis)

    def _returned_from(self, line, *markers):
        line.basis = markers
        line.made += markers
        self._returned += markers

    # Waiting verbs

    def _function(self, marker, how, pauses, *, poke=False, fail=False, value=None):
        life = self._life

        def end():
            self._is_alive(life)
            self._ran(marker, None, poke)
            if fail:
                raise ValueError(marker)
            return marker if value is None else value

        async def on_loop():
            for _ in range(pauses):
                await asyncio.sleep(0)
            return end()

        def in_thread():
            for _ in range(pauses):
                time.sleep(0)
            return end()

        return on_loop if how == "loop" else in_thread

    def _do_step(self, task, line, marker, name, how, pauses, poke):
        value = yield task.step(self._function(marker, how, pauses, poke=poke), name=name)
        return self._got(line, marker, value, marker)

    def _got(self, line, marker, value, wanted):
        if value != wanted:
            self.problems.append(f"life {self._life}: {marker} gave {value!r}, not {wanted!r}")
        self._returned_from(line, marker)
        return value

    def _do_fail(self, task, line, marker, name, how, pauses):
        try:
            yield task.step(self._function(marker, how, pauses, poke=True, fail=True), name=name)
        except holdfast.StepFailed as error:
            self._read(line, marker, str(error))
            self._returned_from(line, marker)
            return str(error)
        return self.problems.append(f"{marker} did not fail")

    def _do_flaky(self, task, line, marker, name, how, pauses, poke):
        work = self._function(marker, how, pauses, poke=poke)

        def first_fails():
            if holdfast.current_call().attempt == 1:
                raise ConnectionError("once more")
            return work()

        value = yield task.step(first_fails, name=name, retry=Retry(2, first=0))
        return self._got(line, marker, value, marker)

    def _do_map(self, task, line, marker, count, how, pauses, bad):
        markers = [f"{marker[:-1]}[{item}]>" for item in range(count)]
        works = [self._function(one, how, pauses, poke=item == 0, fail=item == bad) for item, one in enumerate(markers)]

        def each(item):
            return works[item]()

        try:
            values = yield task.map(each, range(count), limit=2, name="m")
        except holdfast.StepFailed as error:
            line.basis = tuple(markers)  # a store that broke may hide behind this: see test_branches
            line.made += markers
            return str(error)
        if values != markers:
            self.problems.append(f"life {self._life}: {marker} gave {values!r}")
        self._returned_from(line, *markers)
        return values

    def _do_threads(self, task, line, marker, count):
        markers = [f"{marker[:-1]}[{item}]>" for item in range(count)]
        values = {}

        def work(one):
            try:
                values[one] = task.step(self._function(one, "plain", 1, poke=True), name=one.strip("<>"))
            except BaseException as error:
                values[one] = error

        threads = [threading.Thread(target=work, args=(one,)) for one in markers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for one, value in values.items():
            if isinstance(value, BaseException):
                raise value
            if value != one:
                self.problems.append(f"life {self._life}: {one} gave {value!r}")
        self._returned += markers
        line.made += markers
        return sorted(values.values())
        yield

    def _do_call(self, task, line, marker, effect, how, pauses):
        self._before[marker] = (line.made.copy(), self._life, pauses)
        value = yield task.call(self.tools[effect], place=marker)
        return self._got(line, marker, value, marker)

    def _tool(self, effect):
        def work(place: str, *, connection=None) -> str:
            made, life, pauses = self._before[place]
            for _ in range(pauses):
                time.sleep(0)
            self._is_alive(life)
            if effect != "read":
                written = b"".join(row.body for row in self._place.peek().read(ID))
                missing = [one for one in made if one.encode() not in written]
                if missing:
                    self.problems.append(f"life {self._life}: {effect} {place} began before {missing} were durable")
            if effect == "once":
                self.sent.append(place)
            return self._ran(place, place)

        def reconcile(call):
            place = call.arguments["place"]
            return Happened(place) if place in self.sent else DidNotHappen()

        more = {"reconcile": reconcile, "reconcile_after": 0} if effect == "once" else {}
        return tool(name=effect, effect=effect, **more)(work)

    def _do_reply(self, task, line, marker, name, how, pauses):
        """A model's reply becomes a message, which is stored once."""
        reply = {"role": "assistant", "content": marker}
        value = yield task.step(self._function(marker, how, pauses, value=reply), name=name)
        self._got(line, marker, value, reply)
        task.message(value)
        return marker

    def _do_wait(self, task, line, marker):
        value = yield task.wait("go")
        self._returned_from(line)
        self._read(line, marker, value)
        return "a signal"

    def _do_sleep(self, task, line, marker):
        value = yield task.sleep(0)
        self._returned_from(line)
        return value

    def _do_checkpoint(self, task, line, marker):
        yield task.checkpoint(marker)
        self._returned_from(line)

    def _do_spawn(self, task, line, marker):
        value = yield task.spawn(self.child, {"place": marker})
        return self._got(line, marker, value, marker)

    # Immediate verbs, reading, and what is no verb

    def _do_say(self, task, line, marker, what):
        match what:
            case "set":
                task.state["k"] = marker
            case "measure":
                task.state["size"] = [marker, len(str(task.state.all()))]
            case "increment":
                self._read(line, marker, task.state.increment("n"))
            case "append":
                task.state.append("list", marker)
            case "fact":
                task.fact("f", marker)
            case "note":
                task.note("k", marker)
            case "decide":
                task.decide("which?", marker)
            case "stage":
                task.stage(marker)
            case "flag":
                task.flag(marker)
            case _:
                task.message({"role": "user", "content": marker})
        if what != "increment":
            line.made.append(marker)
        return None
        yield

    def _do_read(self, task, line, marker, what):
        match what:
            case "all":
                value = task.state.all()
            case "get":
                value = [task.state.get("k"), task.state.get("n"), task.state.get("outside")]
            case "now":
                value = task.now().isoformat()
            case "uuid":
                value = str(task.uuid())
            case "random":
                value = task.random()
            case _:
                value = task.messages
        self._read(line, marker, value)
        return None
        yield

    def _do_poke(self, task, line, marker):
        self._poke()
        return None
        yield

    def _do_early(self, task, line, marker):
        """A signal comes before, or while, somebody waits for it."""
        self._app.signal(ID, "go", self._poked())
        return None
        yield

    def _do_pause(self, task, line, marker, times):
        """What is no verb: others go on meanwhile."""
        for _ in range(times):
            if self._pausing:
                yield asyncio.sleep(0)

    # Branches

    def _do_begin(self, task, line, marker):
        """A branch begins with what its creator saw when it started it."""
        begins = task.state.all()
        self._read(line, marker, begins)
        if begins != line.before:
            self.problems.append(f"life {self._life}: {marker} begins with {begins!r}, its creator saw {line.before!r}")
        return None
        yield

    def _do_gather(self, task, line, marker, branches):
        return (yield asyncio.gather(*self._branches(task, line, marker, branches)))

    def _do_group(self, task, line, marker, branches):
        return (yield _grouped(self._branches(task, line, marker, branches)))

    def _do_background(self, task, line, marker, branches):
        line.background += [asyncio.create_task(one) for one in self._branches(task, line, marker, branches)]
        return None
        yield

    def _branches(self, task, line, marker, branches):
        before = None
        if any(branch[0] == ("begin",) for branch in branches):  # else the line may have used no verb yet
            before = task.state.all()
            self._read(line, marker, before)
        path = marker.strip("<>").replace(":", "/")
        lines = [Line(f"{path}x{number}", line, before) for number in range(len(branches))]
        return [self._fly(task, one, branch, last=True) for one, branch in zip(lines, branches, strict=True)]


async def _grouped(branches):
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(branch) for branch in branches]
    return [task.result() for task in tasks]


class PeekedPlace(lives.MemoryPlace):
    """A store in memory, which event loops write to at once."""

    def peek(self):
        """The store as it is, by somebody who takes nothing over."""
        return self._store


class FlyingPlace(PeekedPlace):
    """A store in memory that is written to by the committing thread, as a file that survives power loss is."""

    def open(self):
        store = super().open()
        store.append_at_once = lambda group: None
        return store


class FilePlace(lives.SqlitePlace):
    """A file."""

    _reader = None

    def peek(self):
        """The store as it is, by somebody who takes nothing over."""
        self._reader = self._reader or self.open()
        return self._reader
