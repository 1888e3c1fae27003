"""Bugs about several writers, planted one by one: who is faster, who is told, what is read again. Each is caught."""

import asyncio
import time

import msgspec
import pytest
from msgspec.structs import replace

import holdfast
from holdfast import PatchConflict, StatePatch, agent, tool
from holdfast.core import codec, limits
from holdfast.core.flows import requests, writers
from holdfast.core.state import fold_knowledge, merge
from holdfast.engine.control import patches
from holdfast.engine.definitions import lent
from holdfast.engine.execution.execution import Execution
from holdfast.engine.execution.linked_logs import LinkedLogs
from holdfast.engine.execution.pending import PendingWrite
from holdfast.engine.verbs import user
from holdfast.testing import World
from tests.crash import corpus_writers
from tests.crash.test_planted_bugs import Bench, Bug, changes, crashing


@pytest.fixture(scope="module")
def world():
    with World() as started:
        yield started


@pytest.fixture(autouse=True)
def _small_limits(monkeypatch):
    monkeypatch.setattr(limits, "SNAPSHOT_MIN_BYTES", 300)


# What is expected and required


def of_two_who_set_the_same_one_wins(bench):
    with holdfast.open("memory:") as app:
        app.start("shop", id="t")
        won = 0
        for _ in range(2):
            try:
                app.patch("t", StatePatch(set={"holder": "me"}), expect=1)
                won += 1
            except PatchConflict:
                continue
    assert won == 1, f"{won} writers won"


def equal_values_go_together(patch):
    """Who sets what another has set meanwhile is let through if the values are equal."""
    right = merge._go_together
    patch.setattr(merge, "_go_together", lambda one, two: right(one, two) or one == two)


def a_part_of_what_another_replaced_is_not_set(bench):
    with holdfast.open("memory:") as app:
        app.start("shop", id="t")
        app.patch("t", StatePatch(set={"prefs": {"seat": "aisle"}}), expect=1)
        try:
            app.patch("t", StatePatch(set={"prefs.seat": "window"}), expect=1)
        except PatchConflict:
            return
    raise AssertionError("a part was set of what another has replaced")


def paths_are_compared_as_names(patch):
    """Only the very same path is the same thing."""
    patch.setattr(merge, "overlap", lambda one, two: one == two)


def one_of_many_sends(bench):
    with holdfast.open("memory:") as app:
        app.start("shop", id="t")
        app.patch("t", StatePatch(require={"sent": None}, set={"sent": 1}))
        try:
            app.patch("t", StatePatch(require={"sent": None}, set={"sent": 2}))
        except PatchConflict:
            return
    raise AssertionError("it was sent twice")


def requirements_are_decoration(patch):
    """What a patch requires is stored, and not looked at."""
    patch.setattr(patches, "refuse_unmet", lambda *given: None)


def one_of_many_tasks_sends(bench):
    with holdfast.open("memory:") as app:

        @agent
        def worker(task):
            task.user.patch(StatePatch(require={"sent": None}, set={"sent": task.id}))
            task.checkpoint("sent")

        ends = [app.run(worker, id=id, user="ana").status for id in ("one", "two")]
        assert ends == ["completed", "failed"], "two tasks sent it"


def requirements_of_agents_are_decoration(patch):
    """What an agent's own patch requires is stored, and not looked at."""
    right = writers._refusal
    patch.setattr(writers, "_refusal", lambda around, one, *rest: right(around, _demanding_nothing(one), *rest))


def _demanding_nothing(one):
    patch = getattr(one.event, "patch", None)
    return one if patch is None else replace(one, event=replace(one.event, patch=replace(patch, require={})))


# Tasks of one user


def a_stale_value_is_not_set(bench):
    calls, others, ends = [], [True], []

    @tool(effect="once")
    def pay(n: int) -> None:
        calls.append(n)

    with holdfast.open("memory:") as app:
        app.user("ana").state.n = 1

        @agent
        def worker(task):
            n = task.user.state.n
            if others and others.pop():
                app.user("ana").state.n = 50
            task.user.state.n = n + 1
            try:
                task.call(pay, n=n)
            except PatchConflict:
                ends.append("refused")
            task.wait("go")

        app.run(worker, id="t", user="ana")
        assert app.user("ana").state.n == 50, "what another wrote is lost"
        assert calls == [], "a call was made on what is not so"
        app.signal("t", "go")
        app.run(worker, id="t")
        assert ends == ["refused", "refused"], "a replay went another way"
        assert app.user("ana").state.n == 50, "what another wrote is lost"


def reads_are_not_remembered(patch):
    patch.setattr(user._Fields, "note", lambda self, name: None)


def what_others_wrote_is_not_looked_at(patch):
    patch.setattr(merge, "stale_read", lambda *given: None)


def refusals_are_told_when_it_is_over(patch):
    """The verb is carried out first, and only the end of the agent tells."""
    right = writers.settle

    def later(around, branch):
        if around.unsettled and branch in around.unsettled:
            return
        yield from right(around, branch)

    patch.setattr(writers, "settle", later)


def a_replay_forgets_refusals(patch):
    """What was refused is known as said, and no more is known of it."""
    patch.setattr(fold_knowledge, "refusal_key", lambda turn, identity, count: f"{turn} {count}")


def who_was_refused_can_try_again(bench):
    others, tries = [40, 30], []

    with holdfast.open("memory:") as app:
        app.user("ana").state.n = 1

        @agent
        def worker(task):
            while len(tries) < 9:
                n = task.user.state.n
                if others:
                    app.user("ana").state.n = others.pop()
                task.user.state.n = n + 1
                try:
                    task.checkpoint("set")
                except PatchConflict:
                    tries.append(n)
                else:
                    return

        app.run(worker, id="t", user="ana")
        assert tries == [1, 30], f"it read {tries}"
        assert app.user("ana").state.n == 41


def refused_tasks_see_what_they_saw(patch):
    """A refusal lets nobody see more of the user."""
    patch.setattr(fold_knowledge, "_see_user", lambda state, seq: None)


def what_is_written_after_a_look_is_not_lost(bench):
    """Another writer comes between the look at the user's log and the write to it."""
    others = [True]

    with holdfast.open("memory:") as app:
        app.user("ana").state.n = 1

        def double(n):
            if others and others.pop():
                app.user("ana").state.n = 50
            return n * 2

        @agent
        def worker(task):
            return task.user.state.update("n", double)

        done = app.run(worker, id="t", user="ana")
        assert done.result == app.user("ana").state.n == 100, "an update was made of what was no longer there"


def the_users_head_is_wherever_it_is(patch):
    """What a task changes goes to the head of its user's log, whatever has come there since."""
    right = LinkedLogs.writes
    patch.setattr(LinkedLogs, "writes", lambda self, events, heads=(): right(self, events))


def branches_lose_no_update(bench):
    @agent
    async def worker(task):
        async def one():
            await task.step(lambda: None, name="look")
            await task.state.update("n", lambda n: (n or 0) + 1)

        await asyncio.gather(*(one() for _ in range(8)))

    with holdfast.open(bench.directory / f"{time.monotonic_ns()}.db") as app:
        assert app.run(worker, id="t").state == {"n": 8}, "branches overwrote each other"


def branches_decide_for_themselves(patch):
    """What other branches wrote since is not looked at."""
    patch.setattr(PendingWrite, "overtaken", lambda self, tail, before: False)


# Values that are changed in place


def a_change_in_place_is_told(bench):
    @agent
    def worker(task):
        task.state.items = [{"done": False}]
        task.state.items[0]["done"] = True

    with holdfast.open("memory:") as app:
        assert app.run(worker, id="t").status == "failed", "a change in place vanished"


def only_the_outermost_is_read_only(patch):
    """What is inside a list or a dict of the state is an ordinary one."""
    for setter in ("_SET_ITEM", "_SET_FIELD"):
        patch.setattr(codec.read_only, setter, lambda made, key, item: None)


def a_typed_change_in_place_is_told(bench):
    @agent(state=msgspec.defstruct("State", [("items", list[int], [])]))
    def worker(task):
        items = task.state.items
        task.step(lambda: None, name="one")
        items.append(1)
        task.step(lambda: None, name="two")

    with holdfast.open("memory:") as app:
        assert app.run(worker, id="t").status == "failed", "a change in place vanished"


def what_was_handed_out_is_looked_at_once(patch):
    """After the first verb nobody looks any more."""
    right = lent.Lent.check

    def once(self):
        right(self)
        self._loans.clear()

    patch.setattr(lent.Lent, "check", once)


def updates_are_not_recognised(patch):
    """A replay calls the function again."""
    right = requests.Branch.key
    patch.setattr(
        requests.Branch, "key", lambda self, name: f"{right(self, name)}{id(self) if name.startswith('update') else ''}"
    )


def held_back_without_end(patch):
    """A change that may be refused is held back, and what is said after it is not."""
    right = Execution.record_immediate

    def hasty(self, branch, event, condition=None):
        held = branch.unsettled.held if branch.unsettled is not None and condition is None else None
        kept = None if held is None else held[:]
        if held:
            held.clear()
        right(self, branch, event, condition)
        if held is not None:
            held[:0] = kept

    patch.setattr(Execution, "record_immediate", hasty)


def what_was_refused_counts_as_done(patch):
    def done(right, state, event, seq, at_us):
        right(state, event, seq, at_us)
        state.user_changes = (*state.user_changes, event.patch)

    changes(patch, holdfast.events.PatchRefused, done)


BUGS = [
    Bug(equal_values_go_together, of_two_who_set_the_same_one_wins, "2 writers won"),
    Bug(paths_are_compared_as_names, a_part_of_what_another_replaced_is_not_set, "another has replaced"),
    Bug(requirements_are_decoration, one_of_many_sends, "sent twice"),
    Bug(requirements_of_agents_are_decoration, one_of_many_tasks_sends, "two tasks sent it"),
    Bug(reads_are_not_remembered, a_stale_value_is_not_set, "is lost"),
    Bug(what_others_wrote_is_not_looked_at, a_stale_value_is_not_set, "is lost"),
    Bug(refusals_are_told_when_it_is_over, a_stale_value_is_not_set, "is not so"),
    Bug(a_replay_forgets_refusals, a_stale_value_is_not_set, "another way|is not so|refused"),
    Bug(refused_tasks_see_what_they_saw, who_was_refused_can_try_again, "it read"),
    Bug(the_users_head_is_wherever_it_is, what_is_written_after_a_look_is_not_lost, "no longer there"),
    Bug(branches_decide_for_themselves, branches_lose_no_update, "overwrote each other"),
    Bug(only_the_outermost_is_read_only, a_change_in_place_is_told, "vanished"),
    Bug(what_was_handed_out_is_looked_at_once, a_typed_change_in_place_is_told, "vanished"),
    Bug(updates_are_not_recognised, crashing(corpus_writers.writers), "were not survived|the user's state is"),
    Bug(held_back_without_end, crashing(corpus_writers.writers, sample=3), "does not end well even without a crash"),
    Bug(what_was_refused_counts_as_done, who_was_refused_can_try_again, "it read"),
]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.plant.__name__)
def test_a_planted_bug_is_caught(bug, world, tmp_path):
    bug.assert_caught(Bench(world, tmp_path))
