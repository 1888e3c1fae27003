"""Agents that talk to models, spend, know their users and are patched while they work: the corpus, continued.

Every call of a model is seen by the world. What it used up stands in the log once; a call that was announced and has no
record is listed as unknown spend. `accounted` recomputes both from the events alone.
"""

import contextlib
import dataclasses
import threading
from typing import NamedTuple

from holdfast import Budget, StatePatch, TaskFinished, Usage, agent, events as ev, report_usage, tool
from holdfast.core import codec
from holdfast.engine.app import App
from holdfast.engine.reading import timeline
from holdfast.llm import ScriptedModel, loop_agent, say, use
from tests.crash.corpus import AT_ONCE, cast, of_kind, tools_of

ANA = "@user/ana"
GUESS = Usage(7, 4)
"""What a call is thought to cost; it costs something else."""


# What was spent


class Spent(NamedTuple):
    """What the events of a log say of its own calls."""

    announced: int
    recorded: list[int]
    lost: list[int]


def tokens(usage):
    return usage.input_tokens + usage.output_tokens


def spent_by(records):
    """Read off the events: what was announced with an estimate, what was recorded, and what was announced in vain."""
    announced, recorded, lost = 0, [], []
    under_way = {}
    for record in records:
        match record.event:
            case ev.TurnStarted(turn=turn):
                under_way = {(key if isinstance(key, tuple) else (turn, key)): one for key, one in under_way.items()}
            case ev.StepStarted(key=key, estimate=Usage() as estimate):
                announced += 1
                lost += [tokens(under_way.pop(key))] if key in under_way else []
                under_way[key] = estimate
            case (ev.StepCompleted() | ev.StepFailed() | ev.AttemptFailed()) as event:
                estimate = under_way.pop(event.key, None)
                recorded += [tokens(event.usage)] if event.usage is not None else []
                failed = not isinstance(event, ev.StepCompleted)
                lost += [tokens(estimate)] if failed and event.usage is None and estimate is not None else []
            case ev.TaskCompleted() | ev.TaskFailed() | ev.TaskCancelled():
                lost += [tokens(one) for one in under_way.values()]
                under_way = {}
            case _:
                pass
    return Spent(announced, recorded, lost)


def accounted(state, world, *, each=None):
    """Nothing is counted twice, nothing that went out is hidden. The task pays for its children too."""
    logs = state._logs
    tasks = [name for name in logs.store.logs() if not name.startswith("@")]
    read = {name: list(timeline.records(logs, name)) for name in tasks}
    found = [spent_by(records) for records in read.values()]
    announced = sum(one.announced for one in found)
    recorded, lost = ([used for one in found for used in one[index]] for index in (1, 2))
    assert each is None or set(recorded) == {each}, recorded
    seen, kept = len(world.requests("model")), state.budget
    assert tokens(kept.usage) == sum(recorded), f"{tokens(kept.usage)} are counted, and {recorded} were recorded"
    assert sorted(one["tokens"] for one in kept.unknown) == sorted(lost), f"{kept.unknown} instead of {lost}"
    assert kept.used["tokens"] == sum(recorded) + sum(lost)
    hidden = seen - len(recorded) - len(kept.unknown)
    assert hidden <= 0, f"{hidden} calls of the model are neither recorded nor listed as unknown"
    crashes = sum(record.kind == "task_claimed" for records in read.values() for record in records)
    assert announced - seen <= crashes, "what was announced was done, but for a crash"


def asks(world, **usage):
    """A model that the world hears of, and that tells what it used up."""

    def model(prompt):
        world.request("model", prompt=prompt)
        report_usage(**usage)
        return f"to {prompt}"

    return model


# Budgets

AHEAD = GUESS.input_tokens + GUESS.output_tokens


def budget_fails(world):
    """Asks a model until its budget is used up: by what is recorded, and by what nobody knows."""
    model = asks(world, input_tokens=20, output_tokens=5)

    @agent(budget=Budget(tokens=70))
    def budget_fails(task):
        for number in range(9):
            task.step(model, f"say {number}", name="model", estimate=GUESS)

    def exceeded(state, world):
        assert state.failure.code == "budget-exceeded" and state.budget.used["tokens"] + AHEAD > 70
        assert state.flags == ["budget_pressure"] and len(of_kind(state, "step_completed")) in (1, 2, 3)
        accounted(state, world, each=25)

    return cast({}, ends="failed", result=None, also=exceeded, agent=budget_fails)


def budget_asks(world):
    """Waits at its limit, is allowed more, and goes on. Answers carry their usage; one try fails without telling."""

    def model(prompt):
        number = world.request("model", prompt=prompt)["number"]
        if number == 2:
            raise ConnectionError("cut off")
        return {"content": prompt, "model": "m", "usage": {"prompt_tokens": 20, "completion_tokens": 5}}

    @agent(budget=Budget(tokens=60, calls=20, on_exceed="ask"))
    async def budget_asks(task):
        given = {"name": "model", "estimate": GUESS, "retry": AT_ONCE}
        return [(await task.step(model, f"say {number}", **given))["content"] for number in range(4)]

    def allow(app, state):
        assert state.waiting.kind == "budget", state.waiting
        app.raise_budget(state.id, Budget(tokens=int(state.budget.limits["tokens"]) + 40), by="ana")

    def all_there(state, world):
        accounted(state, world, each=25)
        assert of_kind(state, "budget_raised") and len(state.budget.unknown) >= 1, "the try that failed may be paid for"

    wanted = [f"say {number}" for number in range(4)]
    return cast({}, result=wanted, also=all_there, agent=budget_asks, finish=allow)


def budget_tree(world):
    """Children and a grandchild use up the budget of their root, which asks for more."""
    use = tools_of(world)
    model = asks(world, input_tokens=10, output_tokens=2)

    @agent
    def grandchild(task):
        task.step(model, "grandchild", name="model", estimate=GUESS)
        return task.call(use.pay, amount=1)

    @agent
    def child(task, number: int):
        task.step(model, f"child {number}", name="model", estimate=GUESS)
        return task.spawn(grandchild) if number == 1 else number

    @agent(budget=Budget(tokens=30, on_exceed="ask"))
    def budget_tree(task):
        one = task.spawn(child, {"number": 1})
        return [one, *task.map(child, [{"number": 2}, {"number": 3}], limit=1)]

    def allow(app, state):
        root = app.get("crash-test")
        app.raise_budget(root.id, Budget(tokens=int(root.budget.limits["tokens"]) + 30), by="ana")

    def all_there(state, world):
        accounted(state, world, each=12)
        assert state.budget.used["calls"] == 1 and len(of_kind(state, "child_spent")) >= 5

    given = {"agent": budget_tree, "agents": [child, grandchild], "finish": allow}
    return cast({"pay": 1}, result=["pay-1", 2, 3], also=all_there, **given)


def async_tree(world):
    """Children at once on one event loop, whose spending is written to the same log."""

    async def model(number):
        world.request("model", number=number)
        report_usage(input_tokens=10, output_tokens=2)
        return number

    @agent
    async def child(task, number: int):
        first = await task.step(model, number, name="model", estimate=GUESS)
        return first + await task.step(model, 10, name="model", estimate=GUESS)

    @agent(budget=Budget(tokens=1_000))
    async def async_tree(task):
        return await task.map(child, [{"number": number} for number in (1, 2, 3)])

    given = {"agent": async_tree, "agents": [child]}
    return cast({}, result=[11, 12, 13], also=lambda state, world: accounted(state, world, each=12), **given)


# Loops


def heard(world, model):
    """A model whose every request the world hears of."""

    async def ask(messages, tools, **options):
        world.request("model", shown=len(messages))
        return await model(messages, tools, **options)

    return ask


def used(reply, prompt=10, completion=2):
    return {**reply, "usage": {"prompt_tokens": prompt, "completion_tokens": completion}}


def loop_agent_tools(world):
    """The ready loop: two calls in one reply, a tool that fails as an observation, one that may be called once."""
    tools = tools_of(world)

    @tool(effect="read")
    def look(place: str) -> str:
        if place == "nowhere":
            raise ValueError("there is no such place")
        return f"saw {place}"

    replies = [
        lambda messages: [used(use("pay", amount=3)), use("look", place="Oslo"), use("look", place="nowhere")],
        used(use("pay", amount=4)),
        used(say("Done.")),
    ]
    model = heard(world, ScriptedModel(replies))
    made = loop_agent("loop_agent_tools", model, [tools.pay, look], "Be brief.", budget=Budget(tokens=500))

    def talked(state, world):
        accounted(state, world, each=12)
        results = [one["content"] for one in state.messages if one["role"] == "tool"]
        assert results[:2] == ["pay-1", "saw Oslo"] and "no such place" in results[2] and results[3:] == ["pay-2"]
        ids = [call["id"] for one in state.messages for call in one.get("tool_calls") or ()]
        assert ids == [one["tool_call_id"] for one in state.messages if one["role"] == "tool"] and len(set(ids)) == 4
        assert state.state["input_tokens"] == 30 and state.state["output_tokens"] == 6

    return cast({"pay": 2}, result="Done.", also=talked, agent=made, input={"goal": "Pay."})


def loop_summarises(world):
    """A loop whose window is too small: it is asked for summaries, each of them once, and each paid for."""

    @tool(effect="read")
    def look(n: int) -> str:
        return f"saw {n} " + "word " * 60

    async def answer(messages, tools, **options):
        if not tools:
            return used(say("They looked around."), 50, 4)
        said = [one["content"] for one in messages if one["role"] == "assistant" and one.get("tool_calls")]
        number = int(said[-1].split()[1]) if said else 0
        if number == 5:
            return used(say("Enough."))
        return used({**use("look", n=number), "content": f"look {number + 1}"})

    options = {"max_tokens": 400, "strategy": "summarise", "keep_last": 2, "budget": Budget(tokens=5_000)}
    made = loop_agent("loop_summarises", heard(world, answer), [look], "Look around.", **options)

    def told(state, world):
        accounted(state, world)
        made, steps = of_kind(state, "messages_summarised"), of_kind(state, "step_completed")
        written = [one for one in steps if one.name == "summary"]
        assert len(made) == len(written) >= 1 and {tokens(one.usage) for one in written} == {54}
        assert len(state.messages) == 2 + 2 * 5 + 1 and len(world.requests("model")) >= 6 + len(made)

    return cast({}, result="Enough.", also=told, agent=made, input={"goal": "Look."})


# Users


def user_state(world):
    """Two tasks of one user: each counts a visit a turn, while somebody else changes what the user said."""
    return _visits(world, False)


def async_user_state(world):
    """The same on an event loop, with somebody writing to the user's log all the time."""
    return _visits(world, True)


def _visits(world, beside):
    tools = tools_of(world)
    open_apps = {}

    def move(to):
        """Somebody else changes the user's state, meanwhile."""
        open_apps["app"].user("ana").patch(StatePatch(set={"city": to}, append={"moves": to}), by="ana")

    def body(task):
        seen = task.user.state.city
        visits = task.user.state.increment("visits")
        task.user.patch(StatePatch(append={"log": f"{task.id}/{task.turn}"}, increment={"visits": 0}))
        return seen, visits

    @agent(name="visitor", loop=True)
    def plain(task):
        seen, visits = body(task)
        task.step(lambda city: None, seen, name="look")
        task.step(move, f"{task.id}-{task.turn}", name="move")
        task.step(lambda city, visits: None, task.user.state.city, visits, name="look again")
        task.state.append("seen", [seen, task.user.state.city, visits])
        return task.call(tools.pay, amount=visits) if task.turn == 2 else None

    @agent(name="visitor", loop=True)
    async def looping(task):
        seen, visits = body(task)
        await task.step(lambda city: None, seen, name="look")
        await task.step(move, f"{task.id}-{task.turn}", name="move")
        await task.step(lambda city, visits: None, task.user.state.city, visits, name="look again")
        task.state.append("seen", [seen, task.user.state.city, visits])
        return await task.call(tools.apay, amount=visits) if task.turn == 2 else None

    visitor = looping if beside else plain

    def visits(app):
        open_apps["app"] = app
        with _writing(lambda: _visit(app)) if beside else contextlib.nullcontext():
            assert app.run(visitor, id="one", user="ana").status == "completed"
            return app.run(visitor, id="two", user="ana")

    def counted(state, world):
        bag = App(state._logs.store, state._logs.clock).user("ana").state.all()
        one = timeline.state_at(state._logs, "one", state._logs.head("one").seq)
        assert bag["visits"] == 4 and bag["log"] == ["one/1", "one/2", "two/1", "two/2"], bag
        assert one.state["seen"] == [["Oslo", "Oslo", 1], ["one-1", "one-1", 2]]
        assert state.state["seen"] == [["one-2", "one-2", 3], ["two-1", "two-1", 4]]
        assert list(dict.fromkeys(bag["moves"])) == ["one-1", "one-2", "two-1", "two-2"] and bag["city"] == "two-2"
        for id in ("one", "two"):
            by, said = f"visitor in task {id}", [one.patch for one in of_kind(state, "user_patched", id)]
            told = [one.patch for one in of_kind(state, "state_patched", ANA) if one.by == by]
            assert said == told and len(said) == 4, "what a task says of its user stands in the user's log, once"

    def begin(app):
        app.user("ana").state.city = "Oslo"

    result = 4 if beside else "pay-2"
    given = {"drive": visits, "id": "two", "agents": [visitor], "setup": begin}
    return cast({"pay": 2}, result=result, also=counted, **given)


# Threads


def thread(world):
    """Two tasks in one conversation, while somebody else speaks in it: each sees the same on every replay."""
    tools = tools_of(world)
    open_apps = {}

    def interrupt(text):
        """Somebody else says something, meanwhile."""
        open_apps["app"].thread("talk").message({"role": "user", "content": text}, by="ana")

    @agent(name="talker", loop=True)
    async def talker(task):
        task.message({"role": "user", "content": f"{task.id} in turn {task.turn}"})
        heard = await task.step(lambda messages: len(messages), task.messages.window(max_tokens=5_000), name="listen")
        await task.step(interrupt, f"between {task.id} {task.turn}", name="interrupt")
        task.message({"role": "assistant", "content": f"heard {heard}"})
        await task.step(lambda texts: None, [one["content"] for one in task.messages], name="look")
        task.state.append("heard", heard)
        return await task.call(tools.apay, amount=heard) if task.turn == 2 else None

    def talk(app):
        open_apps["app"] = app
        assert app.run(talker, id="one", thread="talk").status == "completed"
        return app.run(talker, id="two", thread="talk")

    def once_each(state, world):
        thread = App(state._logs.store, state._logs.clock).thread("talk")
        said = [one["content"] for one in thread.messages if not one["content"].startswith("between")]
        assert len(said) == 8 == len(set(enumerate(said))), said
        for id in ("one", "two"):
            own = [
                message["content"] for message in timeline.state_at(state._logs, id, state._logs.head(id).seq).messages
            ]
            events = (record.event for record in thread.events() if record.kind == "message_added")
            there = [codec.unpack(event.message, state._logs.blob)["content"] for event in events if event.task == id]
            assert own == there, "what a task says stands in its thread, once and in order"

    given = {"drive": talk, "id": "two", "agents": [talker], "same_result": False}
    return cast({"pay": 2}, result=..., also=once_each, **given)


# Versions


@dataclasses.dataclass
class Old:
    name: str
    visits: int = 0


@dataclasses.dataclass
class New:
    names: list[str]
    visits: int = 0
    tags: list[str] = dataclasses.field(default_factory=list)


def new_version(world):
    """A task of one version of its state, gone on with under the next: migrated once, and nothing counted twice."""
    tools = tools_of(world)

    @agent(name="worker", state=Old)
    def old(task):
        task.state.name = "Ana Lee"
        task.step(lambda: 1, name="one")
        task.state.increment("visits")
        task.wait("go")

    @agent(name="worker", state=New, state_version=2)
    def new(task):
        task.step(lambda: 1, name="one")
        task.state.increment("visits")
        task.wait("go")
        task.state.append("tags", "new")
        paid = task.call(tools.pay, amount=task.state.visits)
        task.state.increment("visits")
        task.step(lambda visits: visits, task.state.visits, name="two")
        return [task.state.names, task.state.visits, task.state.tags, paid]

    @new.upcast(1, 2)
    def split(state):
        if "name" in state:
            state["names"] = state.pop("name").split()
        return state

    def versions(app):
        known = {row.id for row in app.list()}
        if "t" not in known or not any(one.kind == "signal_received" for one in app.events("t")):
            app.run(old, id="t")
            app.signal("t", "go")
        return app.run(new, id="t")

    def migrated(state, world):
        assert len(of_kind(state, "state_migrated")) == 1 and state.state_version == 2
        assert state.state == {"names": ["Ana", "Lee"], "visits": 2, "tags": ["new"]}

    return cast({"pay": 1}, result=[["Ana", "Lee"], 2, ["new"], "pay-1"], also=migrated, drive=versions, id="t")


# Patches from outside


class _writing:
    """Somebody who writes all the time, in a thread of their own, until the block ends."""

    def __init__(self, write):
        self._write = write
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._go_on)

    def _go_on(self):
        for _ in range(40):
            if self._enough.wait(0.002):
                return
            self._write()

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *raised):
        self._enough.set()
        self._thread.join()
        return False


def _visit(app):
    app.user("ana").state.increment("seen by others")


def patched(world):
    """Patched in its steps and beside them, by several at once: what commutes adds up, whatever crashes."""
    return _patched(world, False)


def async_patched(world):
    """The same on an event loop."""
    return _patched(world, True)


def _patched(world, is_async):
    tools = tools_of(world)
    open_apps = {}

    def change(number):
        """Somebody else changes the task, once: who did it stands there with it."""
        app = open_apps["app"]
        if number not in app.get("t").state.get("did", []):
            patch = StatePatch(increment={"n": number}, append={"did": number}, raise_flags=[f"f{number}"])
            seq = app.patch("t", patch, expect=1, by="ana").seq
            world.request("patched", number=number, seq=seq)

    def change_all(numbers):
        threads = [threading.Thread(target=change, args=(number,)) for number in numbers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    @agent(name="worker")
    def plain(task):
        task.state.increment("n", 100)
        task.step(change_all, [1, 2], name="others")
        paid = task.call(tools.pay, amount=1)
        task.patch(StatePatch(increment={"n": 1000}, append={"did": 9}))
        task.step(change_all, [3], name="others")
        task.step(lambda n, did: None, task.state.n, sorted(task.state.did), name="look")
        return paid

    @agent(name="worker")
    async def looping(task):
        task.state.increment("n", 100)
        await task.step(change_all, [1, 2], name="others")
        paid = await task.call(tools.apay, amount=1)
        task.patch(StatePatch(increment={"n": 1000}, append={"did": 9}))
        await task.step(change_all, [3], name="others")
        await task.step(lambda n, did: None, task.state.n, sorted(task.state.did), name="look")
        return paid

    worker = looping if is_async else plain

    def patches(app):
        open_apps["app"] = app
        if "t" not in {row.id for row in app.list()}:
            app.start(worker, id="t")
        with _writing(lambda: _tick(app)):
            return app.run(worker, id="t")

    def added_up(state, world):
        assert state.state["n"] == 1106 and sorted(state.state["did"]) == [1, 2, 3, 9], dict(state.state)
        assert sorted(state.flags) == ["f1", "f2", "f3"]
        found = {one.seq: one.event for one in timeline.records(state._logs, "t") if one.kind == "state_patched"}
        ticks = sum(one.patch.increment.get("ticks", 0) for one in found.values())
        assert state.state.get("ticks", 0) == ticks, "the fold is what was written"
        for one in world.requests("patched"):
            assert found[one.data["seq"]].patch.increment == {"n": one.data["number"]}, "an acknowledged patch is there"

    result = 1 if is_async else "pay-1"
    given = {"drive": patches, "id": "t", "agents": [worker]}
    return cast({"pay": 1}, result=result, also=added_up, **given)


def _tick(app):
    with contextlib.suppress(TaskFinished):  # it may have ended by now
        app.patch("t", StatePatch(increment={"ticks": 1}))


CORPUS = [
    *(loop_agent_tools, loop_summarises, budget_fails, budget_asks, budget_tree, async_tree),
    *(user_state, async_user_state, thread, new_version, patched, async_patched),
]
