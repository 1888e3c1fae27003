"""Several tasks of one user: what one has read, and another has changed since, is not silently overwritten."""

import asyncio
import contextlib
import threading

import pytest
from hypothesis import given, settings, strategies as st

import holdfast
from holdfast import PatchConflict, StatePatch, agent, events as ev, tool
from holdfast.core import codec
from tests.engine.both import KINDS, Crash, declarer, events, kinds

STORES = ("memory", "sqlite", "postgres")


def look(value):
    return value


class Others:
    """What another writer does, once, however often the agent comes by."""

    def __init__(self, *writes):
        self.writes = list(writes)

    def __call__(self):
        if self.writes:
            self.writes.pop(0)()


def other(app, **fields):
    """Another writer sets something of the user's."""
    return lambda: app.user("ana").patch(StatePatch(set=fields), by="ben")


def finished(app, worker, id="t"):
    """Let a task go on from its `wait("go")`: everything before is replayed."""
    assert app.get(id).status == "waiting", app.get(id).failure
    app.signal(id, "go")
    return app.run(worker, id=id)


def test_a_field_that_was_read_and_changed_by_another_since_is_not_set(app, either, texts):
    others, told, calls = Others(other(app, n=50)), [], []

    @tool(effect="once")
    def pay(n: int) -> int:
        calls.append(n)
        return n

    @either()
    def worker(task):
        n = task.user.state.n
        others()
        task.user.state.n = n + 1
        task.state.said = n
        seen = [task.user.state.n]
        try:
            yield task.call(pay, n=n)
        except PatchConflict as conflict:
            told.append(conflict)
        seen += [task.user.state.n, task.state.said]
        yield task.wait("go")
        return seen

    app.user("ana").state.n = 1
    app.run(worker, id="t", user="ana")
    assert calls == [], "the verb raises before it does anything"
    before = app.user("ana").get()
    done = finished(app, worker)
    assert done.result == [2, 50, 1], done.failure
    assert len(told) == 2 and str(told[0]) == str(told[1]), "on replay too, and the same"
    texts.check(str(told[0]))
    sides = {name: told[0].details[name] for name in ("path", "base", "mine", "theirs", "by", "user")}
    assert sides == {"path": "state.n", "base": 1, "mine": "set 2", "theirs": "set 50", "by": "ben", "user": "ana"}
    assert app.user("ana").state.n == 50 and app.user("ana").get().seq == before.seq, "nothing was written"
    (refused,) = events(app, "patch_refused")
    assert refused.user and refused.path == "state.n" and "user_patched" not in kinds(app)
    assert calls == [] and app.verify().ok


def test_of_two_tasks_that_read_and_then_set_one_is_told(url):
    """Both have read before either writes."""
    with holdfast.open(url) as app:
        read = asyncio.Event()
        waiting = []

        async def meet(number):
            waiting.append(number)
            if len(waiting) == 2:
                read.set()
            await read.wait()

        @agent
        async def worker(task, number: int):
            n = task.user.state.get("n", 0)
            await task.step(meet, number)
            task.user.state.n = n + 1
            await task.step(look, number)

        async def both():
            return await asyncio.gather(*(app.arun(worker, {"number": n}, id=f"t{n}", user="ana") for n in (1, 2)))

        ends = asyncio.run(both())
        assert sorted(one.status for one in ends) == ["completed", "failed"]
        failed = next(one for one in ends if one.status == "failed")
        assert failed.failure.code == "patch-conflict" and app.user("ana").state.n == 1


def test_who_caught_it_reads_again_and_sets_again(app, either):
    others = Others(other(app, n=50), other(app, n=60))

    @either()
    def worker(task):
        attempts = 0
        while True:
            attempts += 1
            n = task.user.state.n
            others()
            task.user.state.n = n + 1
            try:
                yield task.checkpoint("set")
                break
            except PatchConflict:
                task.state.increment("refused")
        yield task.wait("go")
        return [attempts, task.user.state.n]

    app.user("ana").state.n = 1
    app.run(worker, id="t", user="ana")
    done = finished(app, worker)
    assert done.result == [3, 61] and done.state == {"refused": 2} and app.user("ana").state.n == 61


def test_who_sets_the_same_stale_value_again_is_refused_again(app):
    others, refused = Others(other(app, n=50)), []

    @agent
    def worker(task):
        n = task.user.state.n
        others()
        for _ in range(3):
            task.user.state.n = n + 1
            try:
                task.step(look, 1)
            except PatchConflict:
                refused.append(n)

    app.user("ana").state.n = 1
    assert app.run(worker, id="t", user="ana").status == "completed"
    assert refused == [1, 1, 1] and app.user("ana").state.n == 50


def nothing(state):
    return None


BLIND = {
    "a blind set": (nothing, lambda state: setattr(state, "n", 7)),
    "a blind set by path": (nothing, lambda state: state.set("p.n", 7)),
    "another field": (lambda state: state.n, lambda state: state.set("m", 7)),
    "a part that others left alone": (lambda state: state.p, lambda state: state.set("p.m", 7)),
    "an increment": (lambda state: state.n, lambda state: state.increment("n")),
    "an append": (lambda state: state.all(), lambda state: state.append("l", 7)),
    "a look at the whole, printed": (repr, lambda state: state.set("n", 7)),
}
STALE = {
    "set": (lambda state: state.n, lambda state: state.set("n", 7)),
    "deleted": (lambda state: state.get("n"), lambda state: state.__delitem__("n")),
    "found by in": (lambda state: "n" in state, lambda state: state.set("n", 7)),
    "not found": (lambda state: "new" in state, lambda state: setattr(state, "new", 7)),
    "not found by its attribute": (lambda state: hasattr(state, "new"), lambda state: setattr(state, "new", 7)),
    "read with everything": (lambda state: state.all(), lambda state: state.set("n", 7)),
    "iterated": (list, lambda state: state.set("n", 7)),
    "a part of what was read": (lambda state: state.p, lambda state: state.set("p.n", 7)),
    "the whole of what was read in part": (lambda state: state["p.n"], lambda state: state.set("p", {})),
}


@pytest.mark.parametrize("case", [*BLIND, *STALE])
def test_only_what_was_read_and_set_can_be_refused(app, case):
    others = Others(other(app, n=50, new=1, **{"p.n": 50}))
    read, write = BLIND.get(case) or STALE[case]

    @agent
    def worker(task):
        read(task.user.state)
        others()
        write(task.user.state)
        task.step(look, 1)

    app.user("ana").patch(StatePatch(set={"n": 1, "l": [], "p": {"n": 1, "m": 1}}))
    done = app.run(worker, id="t", user="ana")
    assert (done.status == "failed") == (case in STALE), done.failure
    assert kinds(app).count("patch_refused") == (case in STALE)
    now = app.user("ana").state.all()
    theirs = {"n": 50, "l": [], "p": {"n": 50, "m": 1}, "new": 1}
    assert (now == theirs) == (case in STALE)


def test_a_template_reads_what_it_names_and_no_more(app):
    others = Others(other(app, name="Ana", visits=50))

    @agent
    def worker(task, template: str):
        text = task.render(template)
        others()
        task.user.state.visits = 2
        task.step(look, 1)
        return text

    for template, refused in (("{user.name}", False), ("{user.visits}", True), ("{user}", True)):
        others.writes = [other(app, name="Ana", visits=50)]
        app.user("ana").patch(StatePatch(set={"name": "Ana", "visits": 1}))
        done = app.run(worker, {"template": template}, id=template.strip("{}"), user="ana")
        assert (done.status == "failed") == refused, done.failure
        assert app.user("ana").state.visits == (50 if refused else 2)


def test_what_a_task_wrote_itself_is_no_others(app, either):
    @either()
    def worker(task):
        task.user.state.n = 1
        for number in range(3):
            task.user.state.n = task.user.state.n + 1
            task.user.patch(StatePatch(set={"m": task.user.state.n}))
            yield task.step(look, number)
        yield task.user.state.update("n", lambda n: n * 10)
        task.user.state.n = task.user.state.n + 1
        yield task.wait("go")
        return [task.user.state.n, task.user.state.m]

    app.run(worker, id="t", user="ana")
    done = finished(app, worker)
    assert done.result == [41, 4] and app.user("ana").state.all() == {"n": 41, "m": 4}
    assert "patch_refused" not in kinds(app)


def test_what_a_branch_says_after_a_change_that_may_be_refused_stays_in_order(app, either):
    """A blind change and the task's own events come after it, also when it is refused."""
    others = Others(other(app, n=50))

    @either()
    def worker(task):
        n = task.user.state.n
        others()
        task.user.state.n = n + 1
        task.user.state.city = "Oslo"
        task.state.first = 1
        task.user.state.n = n + 2
        task.stage("second")
        seen = [task.user.state.n, task.user.state.city, task.state.first]
        try:
            yield task.step(look, 1)
        except PatchConflict:
            seen += [task.user.state.n, task.user.state.city, task.state.first]
        yield task.wait("go")
        return seen

    app.user("ana").state.n = 1
    app.run(worker, id="t", user="ana")
    done = finished(app, worker)
    assert done.result == [3, "Oslo", 1, 50, "Oslo", 1], done.failure
    assert app.user("ana").state.all() == {"n": 50, "city": "Oslo"} and done.stage == "second"
    written = [kind for kind in kinds(app) if kind in ("patch_refused", "user_patched", "state_set", "stage_set")]
    assert written == ["patch_refused", "user_patched", "state_set", "patch_refused", "stage_set"]


@pytest.mark.parametrize("loop", [False, True])
def test_at_the_end_of_an_agent_or_a_turn_it_is_how_the_task_ends(app, either, loop):
    others = Others(other(app, n=50))

    @either(loop=loop)
    def worker(task):
        n = task.user.state.n
        others()
        task.user.state.n = n + 1
        return None if loop else "done"

    app.user("ana").state.n = 1
    for _ in range(2):  # resumed, it comes to the same end
        done = app.run(worker, id="t", user="ana") if _ == 0 else app.resume("t", worker)
        assert done.status == "failed" and done.failure.code == "patch-conflict"
    assert app.user("ana").state.n == 50 and kinds(app).count("patch_refused") == 1


def test_in_a_block_it_is_raised_by_the_next_verb_or_by_the_end(app):
    app.user("ana").state.n = 1

    def enter():
        with app.task("b", id="t", user="ana") as task:
            n = task.user.state.n
            other(app, n=50)()
            task.user.state.n = n + 1

    with pytest.raises(PatchConflict):
        enter()
    assert app.get("t").status == "failed"
    with app.task("b", id="u", user="ana") as task:
        n = task.user.state.n
        other(app, n=60)()
        task.user.state.n = n + 1
        with pytest.raises(PatchConflict):
            task.step(look, 1)
    assert app.get("u").status == "completed" and app.user("ana").state.n == 60


def test_a_block_with_turns_meets_what_was_refused_before_them_again(app):
    app.user("ana").state.n = 1
    others, refused = Others(other(app, n=50)), []

    def enter(last):
        with app.task("b", id="t", user="ana") as task:
            n = task.user.state.n
            others()
            task.user.state.n = n + 1
            try:
                task.step(look, 1)
            except PatchConflict as conflict:
                refused.append(conflict.details["theirs"])
            for turn in task.turns(max=3):
                task.step(look, turn)
                if turn == last:
                    raise Crash

    for last in (1, 2, None):
        try:
            enter(last)
        except Crash:
            continue
    assert refused == ["set 50"] * 3 and app.get("t").status == "completed" and app.user("ana").state.n == 50


def test_an_error_of_the_agents_own_comes_before_a_refusal(app):
    others = Others(other(app, n=50))

    @agent
    def worker(task):
        n = task.user.state.n
        others()
        task.user.state.n = n + 1
        raise ZeroDivisionError

    app.user("ana").state.n = 1
    done = app.run(worker, id="t", user="ana")
    assert done.failure.type == "ZeroDivisionError" and app.user("ana").state.n == 50
    assert "patch_refused" in kinds(app)


def test_branches_are_told_of_their_own_changes_only(app):
    others = Others(other(app, n=50))

    @agent
    async def worker(task):
        async def stale():
            n = task.user.state.n
            others()
            task.user.state.n = n + 1
            try:
                await task.step(look, "stale", name="stale")
            except PatchConflict:
                return "refused"

        async def blind():
            task.user.state.m = 7
            await task.step(look, "blind", name="blind")
            return "written"

        ends = await asyncio.gather(stale(), blind(), stale())
        await task.wait("go")
        return ends

    app.user("ana").state.n = 1
    app.run(worker, id="t", user="ana")
    done = finished(app, worker)
    assert done.result == ["refused", "written", "refused"], done.failure
    assert app.user("ana").state.all() == {"n": 50, "m": 7}


def test_a_branch_begun_after_a_read_counts_as_having_read(app):
    others = Others(other(app, n=50))

    @agent
    async def worker(task):
        n = task.user.state.n
        others()

        async def write():
            task.user.state.n = n + 1
            await task.step(look, 1)

        with pytest.raises(PatchConflict):
            await asyncio.create_task(write())

    app.user("ana").state.n = 1
    assert app.run(worker, id="t", user="ana").status == "completed" and app.user("ana").state.n == 50


FIELDS = st.sampled_from(["n", "m", "p.a", "p"])
PROGRAMS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["read", "set", "increment", "update", "other", "require"]), FIELDS),
        st.tuples(st.sampled_from(["verb", "state", "all"]), st.just("n")),
    ),
    min_size=3,
    max_size=14,
)


def _number(value):
    return value if isinstance(value, int) else 0


class Program:
    """An agent that does what it is told, and notes what it sees; another writer comes where the program says so."""

    def __init__(self, app, steps):
        self.app, self.steps, self.seen, self.came = app, steps, [], set()

    def state_of(self, task):
        return task.user.state

    def body(self, task):
        state = self.state_of(task)
        for number, (what, name) in enumerate(self.steps):
            try:
                yield from getattr(self, f"_{what}")(task, state, number, name)
            except PatchConflict as conflict:
                self.seen.append((number, "refused", conflict.details["path"], conflict.details["theirs"]))
            except (holdfast.InvalidEvent, holdfast.StepFailed) as refused:
                self.seen.append((number, refused.message))
            self.seen.append((number, what, repr(state), task.state.get("told")))
        yield task.wait("go")

    def _read(self, task, state, number, name):
        self.seen.append(state.get(name))
        yield from ()

    def _all(self, task, state, number, name):
        self.seen.append(state.all())
        yield from ()

    def _set(self, task, state, number, name):
        state.set(name, number)
        yield from ()

    def _increment(self, task, state, number, name):
        state.increment(name)
        yield from ()

    def _state(self, task, state, number, name):
        task.state.told = number
        yield from ()

    def _require(self, task, state, number, name):
        task.user.patch(StatePatch(require={name: None}, set={name: number}))
        yield from ()

    def _update(self, task, state, number, name):
        self.seen.append((yield state.update(name, lambda value: _number(value) + 1)))

    def _verb(self, task, state, number, name):
        self.seen.append((yield task.step(look, number)))

    def _other(self, task, state, number, name):
        if number not in self.came:
            self.came.add(number)
            with contextlib.suppress(holdfast.InvalidEvent):  # something else is in the way of that path by now
                self.app.user("ana").patch(StatePatch(set={name: -number}), by="ben")
        yield from ()


class OwnProgram(Program):
    """The same with the task's own state, which the other writer patches."""

    def state_of(self, task):
        return task.state

    def _require(self, task, state, number, name):
        task.patch(StatePatch(require={name: None}, set={name: number}))
        yield from ()

    def _other(self, task, state, number, name):
        if number not in self.came:
            self.came.add(number)
            with contextlib.suppress(holdfast.InvalidEvent):
                self.app.patch("t", StatePatch(set={name: -number}), by="ben")
        yield from ()


@settings(max_examples=min(150, settings().max_examples * 3), deadline=None)
@given(steps=PROGRAMS, kind=st.sampled_from(KINDS), large=st.booleans())
def test_whatever_is_patched_meanwhile_a_replay_sees_and_is_refused_the_same(steps, kind, large):
    with holdfast.open("memory:") as app:
        program = OwnProgram(app, [*steps, ("verb", "n")])
        worker = declarer(kind)(name="worker")(program.body)
        app.start(worker, id="t")
        if large:
            app.append("t", ev.StateSet(name="p", value=codec.pack({"a": 1, "z": "z" * 5_000})))
        assert app.run(worker, id="t").status == "waiting"
        first, program.seen = program.seen, []
        done = finished(app, worker)
        assert done.status == "completed" and program.seen == first
        app.store.drop_snapshots(log="t")
        assert app.get("t").state == done.state and app.verify().ok


@settings(max_examples=min(150, settings().max_examples * 3), deadline=None)
@given(steps=PROGRAMS, kind=st.sampled_from(KINDS))
def test_whatever_others_do_a_replay_sees_and_is_refused_the_same(steps, kind):
    with holdfast.open("memory:") as app:
        program = Program(app, [*steps, ("verb", "n")])
        worker = declarer(kind)(name="worker")(program.body)
        waiting = app.run(worker, id="t", user="ana")
        assert waiting.status == "waiting", waiting.failure
        first, program.seen = program.seen, []
        written = app.user("ana").get().seq
        assert finished(app, worker).status == "completed"
        assert program.seen == first, "a replay sees what was seen, and is refused what was refused"
        assert app.user("ana").get().seq == written, "and writes nothing"
        said = [event.patch for event in events(app, "user_patched")]
        told = [one.event.patch for one in app.user("ana").events() if getattr(one.event, "task", "") == "t"]
        assert said == told and app.verify().ok


# What a patch requires


def test_a_patch_from_inside_is_refused_if_what_it_requires_is_not_so(app, either):
    others = Others(lambda: app.patch("t", StatePatch(set={"sent": "theirs"})), lambda: None)
    told = []

    @either()
    def worker(task):
        task.state.n = 1
        task.patch(StatePatch(require={"n": 1}, set={"n": 2}))
        task.user.patch(StatePatch(require={"seat": None}, set={"seat": "aisle"}))
        yield task.step(look, 1)
        for _ in range(2):
            others()
            task.patch(StatePatch(require={"sent": None}, set={"sent": "mine", "n": 3}), why="to send once")
            task.state.after = 1
            task.user.patch(StatePatch(require={"seat": "window"}, set={"seat": "none"}))
            try:
                yield task.step(look, 2)
            except PatchConflict as conflict:
                told.append((conflict.details["path"], conflict.details["mine"], conflict.details["theirs"]))
        yield task.wait("go")
        return [task.state.n, task.state.sent, task.state.after, task.user.state.seat]

    app.run(worker, id="t", user="ana")
    done = finished(app, worker)
    assert done.result == [2, "theirs", 1, "aisle"], done.failure
    assert told == [("state.sent", "null", '"theirs"')] * 4
    assert kinds(app).count("patch_refused") == 4 and app.user("ana").state.seat == "aisle"


# Read-modify-write


def test_an_update_of_the_users_state_is_made_again_if_another_writer_was_faster(app, either):
    called, others = [], Others(other(app, n=50), other(app, n=60))

    def double(n):
        called.append(n)
        others()
        return n * 2

    @either()
    def worker(task):
        made = yield task.user.state.update("n", double)
        seen = [made, task.user.state.n]
        yield task.user.state.update("prefs.trips", lambda trips: (trips or 0) + 1)
        yield task.wait("go")
        return [*seen, task.user.state.prefs]

    app.user("ana").state.n = 1
    app.run(worker, id="t", user="ana")
    assert called == [1, 50, 60]
    done = finished(app, worker)
    assert called == [1, 50, 60], "a replay calls no function"
    assert done.result == [120, 120, {"trips": 1}], done.failure
    assert app.user("ana").state.all() == {"n": 120, "prefs": {"trips": 1}} and app.verify().ok


def test_an_update_from_outside_is_made_again_if_another_writer_was_faster(app):
    ana, called = app.user("ana"), []

    def add(n):
        called.append(n)
        if len(called) == 1:
            app.user("ana").state.n = 10
        return (n or 0) + 1

    assert ana.state.update("n", add) == 11 and called == [None, 10]
    assert ana.state.update("prefs.seats", lambda seats: [*(seats or []), "aisle"]) == ["aisle"]
    with pytest.raises(ZeroDivisionError):
        ana.state.update("n", lambda n: n / 0)
    assert ana.state.all() == {"n": 11, "prefs": {"seats": ["aisle"]}}


def test_many_who_update_the_same_at_once_all_count(app):
    """From outside, in tasks and in async tasks, in threads of one process."""

    @agent
    def plain(task):
        for _ in range(5):
            task.user.state.update("n", lambda n: (n or 0) + 1)

    @agent
    async def looping(task):
        for _ in range(5):
            await task.user.state.update("n", lambda n: (n or 0) + 1)

    def outside(number):
        for _ in range(5):
            app.user("ana").state.update("n", lambda n: (n or 0) + 1)

    work = [
        outside,
        lambda n: app.run(plain, id=f"p{n}", user="ana"),
        lambda n: app.run(looping, id=f"l{n}", user="ana"),
    ]
    threads = [threading.Thread(target=work[number % 3], args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert app.user("ana").state.n == 60 and app.verify().ok


def test_a_fork_and_a_mock_task_keep_what_they_change_to_themselves(app):
    others = Others()

    @agent
    def worker(task):
        n = task.user.state.n
        others()
        task.user.state.n = n + 1
        task.step(look, 1)
        task.user.patch(StatePatch(require={"n": n + 1}, set={"m": 1}))
        made = task.user.state.update("n", lambda n: n * 10)
        return [made, task.user.state.n, task.user.state.m]

    app.user("ana").state.n = 1
    app.run(worker, id="t", user="ana")
    assert app.user("ana").state.all() == {"n": 20, "m": 1}
    seq = app.user("ana").get().seq
    others.writes = []
    app.fork("t", at=2, id="f", effects="live")
    assert app.resume("f", worker).result == [20, 20, 1]
    assert app.run(worker, id="mocked", user="ana", mock=True).result == [210, 210, 1]
    assert app.user("ana").get().seq == seq, "neither writes to the user's log"
