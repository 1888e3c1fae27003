"""More engines with a bug planted in them: in what is spent, in what users and patches change, in what models see."""

import contextlib
import itertools
from collections import Counter

import pytest
from msgspec.structs import replace

from holdfast import Budget, PatchConflict, Retry, StatePatch, Usage, agent, events as ev, tool
from holdfast.core import codec, limits, messages, retries
from holdfast.core.codec import Group
from holdfast.core.flows import pacing, step as flows
from holdfast.core.messages import problems
from holdfast.core.state import budget, fold, merge
from holdfast.engine.app import App
from holdfast.engine.control import patches
from holdfast.engine.definitions.state_versions import States
from holdfast.engine.execution import execution as runs
from holdfast.engine.execution.branch_views import Views
from holdfast.engine.execution.linked_logs import LinkedLogs
from holdfast.engine.logs import log as logs
from holdfast.engine.logs.log import Log
from holdfast.failpoints import armed
from holdfast.llm import say
from holdfast.store.memory.store import MemoryStore
from holdfast.testing import World
from holdfast.testing.clock import FakeClock
from tests.crash import corpus_spending as corpus
from tests.crash.test_planted_bugs import Bench, Bug, app_on, changes, crashed, crashing


@pytest.fixture(scope="module")
def world():
    with World() as started:
        yield started


@pytest.fixture(autouse=True)
def _small_limits(monkeypatch):
    monkeypatch.setattr(limits, "SNAPSHOT_MIN_BYTES", 300)


# The smallest agents that show it


def one_paying_child(world):
    """A parent that pays for what its child asks a model."""
    model = corpus.asks(world, input_tokens=3)

    @agent
    def child(task):
        return task.step(model, "hi", name="model", estimate=corpus.GUESS)

    @agent(budget=Budget(tokens=100))
    def parent(task):
        return task.spawn(child)

    return corpus.cast({}, result="to hi", agent=parent, agents=[child], also=corpus.accounted)


def one_visit(world):
    """A task that changes its user's state and ends."""

    @agent
    def visitor(task):
        task.step(lambda visits: visits, task.user.state.increment("visits"), name="look")

    def visit(app):
        return app.run(visitor, id="visit", user="ana")

    def counted(state, world):
        visits = App(state._logs.store, state._logs.clock).user("ana").state.get("visits")
        assert visits == 1, f"{visits} visits are known of"

    return corpus.cast({}, drive=visit, id="visit", agents=[visitor], also=counted)


def one_summary(world):
    """A conversation too long for its window."""

    def notes(messages):
        world.request("model")
        return corpus.used(say("They talked."))

    @agent
    def talker(task):
        for number in range(12):
            task.message({"role": "user", "content": f"question {number} " + "word " * 20})
        task.summarise(notes, max_tokens=300)
        return task.step(lambda: 1, name="after")

    def once(state, world):
        made, written = corpus.of_kind(state, "messages_summarised"), corpus.of_kind(state, "step_completed")
        assert len(written) == len(made) + 1, f"{len(written) - 1} summaries were made where {len(made)} are wanted"
        corpus.accounted(state, world, each=12)

    return corpus.cast({}, result=1, agent=talker, also=once)


# What is spent


def usage_counted_again_on_a_replay(patch):
    """Whoever takes a task counts once more what its steps used up."""

    def again(right, state, event, seq, at_us):
        right(state, event, seq, at_us)
        if state.attempts > 1:
            state.spent = replace(state.spent, input_tokens=2 * state.spent.input_tokens)

    changes(patch, ev.TaskClaimed, again)


def unknown_spend_dropped(patch):
    """A call that was cut off and made again was, it seems, free."""
    patch.setattr(budget, "announced_again", lambda state, earlier, at_us: None)


def models_are_asked_without_a_word(patch):
    """An estimate is compared with the budget, and not announced."""
    right = flows._plain_attempt
    patch.setattr(
        flows,
        "_plain_attempt",
        lambda work, key, attempt, request: right(work, key, attempt, replace(request, estimate=None)),
    )


def what_is_under_way_at_the_end_is_forgotten(patch):
    patch.setattr(budget, "forsaken", lambda state: [])


def a_task_that_is_cancelled_lists_what_was_cut_off(bench):
    app = app_on(bench)
    model = corpus.asks(bench.world, input_tokens=3)

    @agent
    def shop(task):
        task.step(model, "hi", name="model", estimate=Usage(7, 4))

    crashed(lambda: app.run(shop, id="shop"), "world.after")
    app.cancel("shop")
    told = app.get("shop").budget
    assert [one["tokens"] for one in told.unknown] == [11], "a call that went out is hidden"


def children_spend_in_secret(patch):
    patch.setattr(budget, "shares", lambda state, events: iter(()))


def those_who_pay_are_told_afterwards(patch):
    """What a child spent is recorded first; those who pay are told in a second write."""
    _in_a_second_group(patch, lambda write: write.log[0] != "@" and write.expect is None)


def _in_a_second_group(patch, which):
    right = Log.append

    def in_two(self, events, *, also=(), **given):
        right(self, events, also=tuple(one for one in also if not which(one)), **given)
        for write in filter(which, also):
            self._logs.committer.commit(Group((write,)))

    patch.setattr(Log, "append", in_two)


def a_log_written_to_twice_in_a_group(patch):
    for module in (logs, runs):
        patch.setattr(module, "merge_writes", tuple)


def a_childs_last_result_may_come_with_its_end(bench):
    app = app_on(bench)
    model = corpus.asks(bench.world, input_tokens=3)

    @agent(checkpoint="every_iteration")
    def child(task):
        return task.step(model, "hi", name="model")

    @agent(budget=Budget(tokens=100))
    def parent(task):
        return task.spawn(child)

    def patiently(name):
        tries[name] += 1
        assert tries[name] < 1000, "the child's end is refused for ever"

    tries = Counter()
    with armed(patiently):
        assert app.run(parent, id="shop").budget.used["tokens"] == 3


# Users


def users_told_afterwards(patch):
    """What a task changes of its user is in its own log first, and in the user's after that."""
    _in_a_second_group(patch, lambda write: write.log[0] == "@")


def pins_are_not_heeded(patch):
    """A task sees its user as they are now, on a replay too."""
    patch.setattr(LinkedLogs, "_at", lambda self, of, seen: self._logs.load(corpus.ANA).state)


# Conversations


def summaries_made_again(patch):
    """Whoever takes a task asks for its summary once more."""

    def forgetting(right, state, event, seq, at_us):
        right(state, event, seq, at_us)
        state.steps = {key: step for key, step in state.steps.items() if not (step.done and step.name == "summary")}

    changes(patch, ev.TaskClaimed, forgetting)


def windows_cut_between_a_call_and_its_result(patch):
    """Every message is a group of its own."""

    right = messages.Groups._take

    def alone(self, message, at):
        right(self, message, at)
        self.starts += [at] if at not in self.starts else []

    patch.setattr(messages.Groups, "_take", alone)


def a_window_keeps_calls_with_their_results(bench):
    app = app_on(bench)

    @agent
    def shop(task):
        task.message({"role": "user", "content": "look"})
        for n in range(6):
            call = {"id": f"c{n}", "type": "function", "function": {"name": "look", "arguments": "{}"}}
            task.message({"role": "assistant", "content": None, "tool_calls": [call]})
            task.message({"role": "tool", "tool_call_id": f"c{n}", "content": "word " * 30})
        windows = [task.messages.window(max_tokens=size, keep_last=0) for size in range(120, 400, 10)]
        return [[problems(one, "chat"), one.repaired] for one in windows]

    done = app.run(shop, id="shop")
    assert done.result is not None, done.failure
    found = [one for one in done.result if one != [[], []]]
    assert found == [], f"no provider takes this: {found[0]}"


# Refusals, rates, and what is waited for


class Busy(Exception):
    status_code = 429


def refusals_are_charged(patch):
    """Whatever became of a request, its estimate counts."""
    patch.setattr(retries, "is_refusal", lambda error: False)


def refusals_are_tried_at_once(patch):
    """How long a destination asks to wait is not read."""
    patch.setattr(retries, "wait_asked_for", lambda error, now: 0.0)


def what_was_refused_costs_nothing_and_waits_as_asked(bench):
    def model():
        error = Busy("slow down")
        error.response = type("Response", (), {"headers": {"retry-after": "90"}})
        raise error

    @agent(budget=Budget(tokens=1_000))
    def shop(task):
        return task.step(model, estimate=Usage(900), retry=Retry(2, first=0))

    done = app_on(bench).run(shop, id="shop", hold=0)
    assert done.budget.used["tokens"] == 0, f"{done.budget.used['tokens']} tokens were charged for nothing"
    assert done.status == "waiting", "it was tried again at once"


def a_moment_is_used_however_late(patch):
    """A call that missed its moment is made all the same."""
    right = pacing.Turn

    def lenient(attempt, at_us, late_us, missed=0, has_come=False):
        return right(attempt, at_us, 2**62, missed, has_come)

    patch.setattr(pacing, "Turn", lenient)


def moments_are_forgotten_with_the_suspension(patch):
    """Whoever takes the task up again stands in line again."""
    patch.setattr(pacing, "_kept", lambda state, key, attempt: None)


def calls_keep_to_their_moments(bench):
    clock, rung = FakeClock(), []
    app = App(MemoryStore(), clock)

    @tool(effect="idempotent", rate="1/m")
    def ring() -> None:
        rung.append(clock.now_us())

    @agent
    def bell(task):
        task.call(ring)

    for id in ("a", "b", "c"):
        app.run(bell, id=id, hold=0)
    wake = app.get("b").waiting.wake_at
    clock.advance(60.5)
    assert app.run(bell, id="b", hold=0).waiting.wake_at.timestamp() - wake.timestamp() < 2, "it has another moment"
    clock.advance(600)
    for id in ("b", "c"):
        app.run(bell, id=id, hold=0)
    apart = [later - earlier for earlier, later in itertools.pairwise(rung)]
    assert all(one >= 60_000_000 for one in apart), f"calls come {min(apart) / 1e6:g} s after one another"


def blockers_are_dropped(patch):
    """A task that waits for a budget does not say which."""
    right = fold._CHANGES[ev.TaskSuspended]

    def silent(state, event, seq, at_us):
        right(state, replace(event, blockers=()), seq, at_us)

    patch.setitem(fold._CHANGES, ev.TaskSuspended, silent)


def the_inbox_says_how_much_would_do(bench):
    app = app_on(bench)

    @agent(budget=Budget(tokens=100, on_exceed="ask"))
    def shop(task):
        return task.step(lambda: 1, name="model", estimate=Usage(900))

    app.run(shop, id="shop")
    (item,) = app.inbox()
    assert (item.key, item.ahead) == ("tokens", 900), "nobody can tell how much would do"


# Patches and versions


def clashes_are_ignored(patch):
    patch.setattr(merge, "first_clash", lambda mine, theirs: None)


def who_changes_what_another_changed_is_told(bench):
    app = app_on(bench)
    app.start("shop", id="shop")
    app.patch("shop", StatePatch(set={"n": 1}), expect=1)
    with contextlib.suppress(PatchConflict):
        app.patch("shop", StatePatch(set={"n": 2}), expect=1)
        raise AssertionError("a change was overwritten by somebody who had not seen it")


def increments_written_as_the_number_they_came_to(patch):
    """Whoever adds to a number writes what it was when they looked, and what they add."""
    right = patches.patch

    def numbers(logs, id, wanted, expect, by, why, agents):
        seen = logs.load(id).state.bag
        came_to = {name: codec.unpack(seen.get(name, codec.pack(0)), None) + n for name, n in wanted.increment.items()}
        values = {name: codec.pack(value) for name, value in came_to.items()}
        return right(logs, id, replace(wanted, increment={}, set=values), None, by, why, agents)

    patch.setattr(patches, "patch", numbers)


def the_first_write_of_a_new_version_is_like_any_other(patch):
    """What was written before is left as it was, beside what is written now."""
    patch.setattr(States, "preceded", lambda self, events, state, fetch: events)


def upcast_in_the_fold(patch):
    """A task of an older version is turned into a newer one as it is read, whoever reads it."""
    right = Views.__init__

    def eager(self, logs, log, first, messages=None, states=None):
        if states is not None and log.folded is not None and log.folded.state_version < states.version:
            log.folded = states.lift(log.folded, states.version, logs.blob)
        right(self, logs, log, first, messages, states)

    patch.setattr(Views, "__init__", eager)


BUGS = [
    Bug(usage_counted_again_on_a_replay, crashing(corpus.budget_fails), "are counted, and"),
    Bug(unknown_spend_dropped, crashing(corpus.budget_fails), "instead of"),
    Bug(models_are_asked_without_a_word, crashing(corpus.loop_agent_tools, sample=20), "neither recorded nor listed"),
    Bug(what_is_under_way_at_the_end_is_forgotten, a_task_that_is_cancelled_lists_what_was_cut_off, "is hidden"),
    Bug(children_spend_in_secret, crashing(one_paying_child), "does not end well even without a crash"),
    Bug(those_who_pay_are_told_afterwards, crashing(one_paying_child), "are counted, and"),
    Bug(a_log_written_to_twice_in_a_group, a_childs_last_result_may_come_with_its_end, "refused for ever"),
    Bug(users_told_afterwards, crashing(one_visit), "visits are known of"),
    Bug(pins_are_not_heeded, crashing(corpus.user_state, sample=3), "does not end well even without a crash"),
    Bug(summaries_made_again, crashing(one_summary), "summaries were made"),
    Bug(windows_cut_between_a_call_and_its_result, a_window_keeps_calls_with_their_results, "no provider takes this"),
    Bug(refusals_are_charged, what_was_refused_costs_nothing_and_waits_as_asked, "charged for nothing"),
    Bug(refusals_are_tried_at_once, what_was_refused_costs_nothing_and_waits_as_asked, "tried again at once"),
    Bug(a_moment_is_used_however_late, calls_keep_to_their_moments, "after one another"),
    Bug(moments_are_forgotten_with_the_suspension, calls_keep_to_their_moments, "it has another moment"),
    Bug(blockers_are_dropped, the_inbox_says_how_much_would_do, "how much would do"),
    Bug(clashes_are_ignored, who_changes_what_another_changed_is_told, "overwritten by somebody"),
    Bug(increments_written_as_the_number_they_came_to, crashing(corpus.patched, sample=10), "1106|not survived|well"),
    Bug(the_first_write_of_a_new_version_is_like_any_other, crashing(corpus.new_version), "even without a crash"),
    Bug(upcast_in_the_fold, crashing(corpus.new_version), "does not end well even without a crash"),
]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.plant.__name__)
def test_a_planted_bug_is_caught(bug, world, tmp_path):
    bug.assert_caught(Bench(world, tmp_path))
