"""The state bag: paths into objects, values that cannot be changed in place, and read-modify-write."""

import asyncio
import copy
import heapq
import json
import threading

import msgspec
import pydantic
import pytest

import holdfast
from holdfast import InvalidEvent, InvalidValue, StateMutated, StatePatch, StepFailed, agent, events as ev, tool
from holdfast.core import codec
from tests.engine.both import Crash, events, kinds

STORES = ("memory", "sqlite", "postgres")


def look(value):
    return value


def replayed(app, worker, id="t"):
    """Let a task go on from its `wait("go")`: everything before is replayed."""
    app.signal(id, "go")
    done = app.run(worker, id=id)
    assert done.status == "completed", done.failure
    return done


# Paths


def test_a_name_with_a_dot_is_a_path_into_an_object(app, either):
    seen = []

    @either()
    def worker(task):
        task.state.set("preferences.seat", "aisle")
        task.state["preferences.meal.vegan"] = True
        assert task.state.increment("preferences.trips") == 1
        task.state.append("preferences.likes", "trains")
        task.state.set("preferences.old", 1)
        del task.state["preferences.old"]
        seen.append((task.state.preferences, task.state.get("preferences.meal.vegan"), "preferences.old" in task.state))
        yield task.step(look, 1)
        seen.append((task.state["preferences.seat"], "preferences.meal" in task.state, task.state.get("a.b", 7)))
        yield task.wait("go")
        return task.render("{state.preferences.seat} {state.preferences.trips}")

    app.run(worker, id="t")
    first, seen[:] = list(seen), []
    done = replayed(app, worker)
    wanted = {"likes": ["trains"], "meal": {"vegan": True}, "seat": "aisle", "trips": 1}
    assert first == seen == [(wanted, True, False), ("aisle", True, 7)]
    assert done.state == {"preferences": wanted} and done.result == "aisle 1"
    assert kinds(app).count("state_set") == 3, "what was said is said once"


def test_a_path_in_a_patch_leads_into_an_object_and_leaves_the_rest_alone(app):
    app.start("a", id="t")
    app.patch("t", StatePatch(set={"prefs": {"seat": "aisle", "trips": 1, "likes": []}, "old": {"a": 1, "b": 2}}))
    app.patch(
        "t",
        StatePatch(
            set={"prefs.seat": "window", "fresh.deep.er": 1},
            increment={"prefs.trips": 2},
            append={"prefs.likes": "trains"},
            delete=["old.a"],
        ),
    )
    prefs = {"seat": "window", "trips": 3, "likes": ["trains"]}
    assert app.get("t").state == {"prefs": prefs, "old": {"b": 2}, "fresh": {"deep": {"er": 1}}}
    app.user("ana").state.set("prefs.seat", "aisle")
    app.user("ana").patch(StatePatch(set={"prefs.meal": "vegan"}))
    assert app.user("ana").state.all() == {"prefs": {"seat": "aisle", "meal": "vegan"}}
    assert app.user("ana").state["prefs.seat"] == "aisle" and "prefs.none" not in app.user("ana").state


def test_what_others_change_inside_an_object_is_not_lost_when_an_agent_changes_another_part_of_it(app, either):
    theirs = [StatePatch(set={"prefs.meal": "vegan"}, append={"prefs.notes": "theirs"})]

    @either()
    def worker(task):
        task.state.prefs = {"seat": "aisle", "notes": ["n" * 60] * 90}
        yield task.step(look, 1)
        task.state.set("prefs.seat", "window")
        if theirs:
            app.patch("t", theirs.pop())
        task.state.append("prefs.notes", "mine")
        yield task.step(look, 2)
        yield task.wait("go")

    app.run(worker, id="t")
    prefs = replayed(app, worker).state["prefs"]
    assert (prefs["seat"], prefs["meal"], len(prefs["notes"])) == ("window", "vegan", 92)
    app.store.drop_snapshots(log="t")
    assert app.get("t").state["prefs"] == prefs and app.verify().ok


def test_a_field_whose_name_has_a_dot_stays_what_it_is(app, either):
    """As older versions wrote them. Nothing else becomes such a field."""
    app.start("worker", id="t")
    app.append("t", ev.StateSet(name="gpt-4.1", value=codec.pack(1)), ev.StateSet(name="v1.0", value=codec.pack({})))
    before = app.get("t").state
    assert before == {"gpt-4.1": 1, "v1.0": {}}

    @either(name="worker")
    def worker(task):
        task.state.increment("gpt-4.1")
        task.state["gpt-4.2"] = 5
        del task.state["v1.0"]
        assert task.state["gpt-4.1"] == 2 and task.state["gpt-4.2"] == 5 and "v1.0" not in task.state
        yield task.wait("go")

    app.run(worker, id="t")
    app.patch("t", StatePatch(set={"gpt-4.1": 7}))
    assert replayed(app, worker).state == {"gpt-4.1": 7, "gpt-4": {"2": 5}}


def test_a_task_that_an_older_version_began_is_replayed_as_it_was(app, either):
    """That version set a field "a.b" beside a field "a" that is a number, which no path leads into."""
    said = {"branch": "."}
    app.start("worker", id="t")
    app.append("t", ev.TaskClaimed(holder="older"))
    app.append(
        "t", ev.StateSet(name="a", value=codec.pack(1), **said), ev.StateSet(name="a.b", value=codec.pack(2), **said)
    )
    app.append("t", ev.StepCompleted(key="look#1", name="look", result=codec.pack(1), input={"value": codec.pack(1)}))
    app.append("t", ev.TaskReleased())

    @either(name="worker")
    def worker(task):
        task.state.a = 1
        task.state["a.b"] = 2
        yield task.step(look, 1)
        return [task.state.a, task.state["a.b"]]

    done = app.run(worker, id="t")
    assert done.result == [1, 2] and done.state == {"a": 1, "a.b": 2} and kinds(app).count("state_set") == 2


@pytest.mark.parametrize("path", ["a..b", ".a", "a.", ".", ".".join("x" * 20), "n.x", "l.0", "prefs.seat.x", "a" * 300])
def test_a_path_that_leads_nowhere_is_refused_with_a_remedy(app, path, texts):
    @agent
    def worker(task):
        task.state.n, task.state.l, task.state.prefs = 1, [1], {"seat": "aisle"}
        task.step(look, 1)
        writes = [
            lambda: task.state.set(path, 1),
            lambda: task.state.increment(path),
            lambda: task.state.append(path, 1),
            lambda: task.patch(StatePatch(set={path: 1})),
            lambda: app.patch("t", StatePatch(set={path: 1})),
        ]
        if path not in ("n.x", "l.0", "prefs.seat.x"):  # those are of this task's state
            writes += [lambda: task.user.state.set(path, 1), lambda: app.user("bo").state.set(path, 1)]
        for write in writes:
            with pytest.raises((InvalidEvent, InvalidValue)) as refused:
                write()
            assert refused.value.hint
        with texts.raises((InvalidEvent, InvalidValue)):
            task.state.set(path, 1)
        with pytest.raises((InvalidValue, StepFailed)) as told:  # what depends on the state is recorded
            task.state.update(path, look)
        assert told.value.hint

    done = app.run(worker, id="t", user="ana")
    assert done.status == "completed", done.failure
    assert done.state == {"n": 1, "l": [1], "prefs": {"seat": "aisle"}}
    assert app.user("ana").state.all() == app.user("bo").state.all() == {}


def test_a_path_through_a_large_value_is_looked_at_before_anything_is_written(app, either):
    """The fold could not tell: what lies beside the log is not fetched by it."""
    large = {"list": ["x" * 60] * 90, "object": {"n": 1}}

    @either()
    def worker(task):
        task.state.large = large
        yield task.step(look, 1)
        for write in (
            lambda: task.state.set("large.list.x", 1),
            lambda: task.state.increment("large.list"),
            lambda: task.state.append("large.object", 1),
            lambda: task.state.__delitem__("large.none"),
            lambda: task.patch(StatePatch(increment={"large.list": 1})),
            lambda: app.patch("t", StatePatch(set={"large.list.x": 1})),
        ):
            with pytest.raises(InvalidEvent):
                write()
        with pytest.raises(StepFailed, match="InvalidEvent"):
            yield task.state.update("large.list.x", lambda x: 1)
        yield task.state.update("large.object.n", lambda n: n + 1)
        task.state.increment("large.object.n")
        return task.state["large.object.n"]

    done = app.run(worker, id="t")
    assert done.result == 3, done.failure
    assert done.state == {"large": {**large, "object": {"n": 3}}} and app.verify().ok


def test_names_that_are_no_text_and_values_too_deep_are_refused(app):
    deep = [[]]
    for _ in range(58):
        deep = [deep]

    @agent
    def worker(task):
        for name in (1, None, ["a"]):
            with pytest.raises(InvalidValue):
                task.state[name] = 1
            with pytest.raises(InvalidValue):
                task.state.update(name, look)
            for state in (task.user.state, app.user("bo").state):
                with pytest.raises((InvalidValue, TypeError)):
                    state[name] = 1
                with pytest.raises(InvalidValue):
                    state.update(name, look)
        task.state.set("a.b.c", deep)
        with pytest.raises(InvalidValue, match="deeper"):
            task.state.set("a.b.c.d.e.f.g.h.i", deep)

    done = app.run(worker, id="t", user="ana")
    assert app.user("ana").state.all() == app.user("bo").state.all() == {}
    assert done.status == "completed", done.failure


def test_a_patch_that_changes_an_object_and_a_part_of_it_is_refused(app):
    app.start("a", id="t")
    for patch in (
        {"set": {"a": {}, "a.b": 1}},
        {"set": {"a.b": 1}, "delete": ["a"]},
        {"increment": {"a.b.c": 1, "a.b": 1}},
    ):
        with pytest.raises(InvalidEvent, match="two ways"):
            app.patch("t", StatePatch(**patch))
    assert app.get("t").seq == 1


# Read-only values

CHANGES = {
    "append": (lambda items: items.append(2), 'task.state.append("items", 2)'),
    "extend": (lambda items: items.extend([2]), 'task.state.update("items", fn)'),
    "insert": (lambda items: items.insert(0, 2), 'task.state.update("items", fn)'),
    "pop": (lambda items: items.pop(), 'task.state.update("items", fn)'),
    "remove": (lambda items: items.remove(1), 'task.state.update("items", fn)'),
    "clear": (lambda items: items.clear(), 'task.state.update("items", fn)'),
    "sort": (lambda items: items.sort(key=str), 'task.state.update("items", fn)'),
    "reverse": (lambda items: items.reverse(), 'task.state.update("items", fn)'),
    "item": (lambda items: items.__setitem__(0, 2), 'task.state.update("items", fn)'),
    "slice": (lambda items: items.__setitem__(slice(0, 1), []), 'task.state.update("items", fn)'),
    "del": (lambda items: items.__delitem__(0), 'task.state.update("items", fn)'),
    "+=": (lambda items: items.__iadd__([2]), 'task.state.update("items", fn)'),
    "*=": (lambda items: items.__imul__(2), 'task.state.update("items", fn)'),
    "inside a list": (lambda items: items[1].update(x=1), 'task.state.update("items", fn)'),
    "item of an item": (lambda items: items[1].__setitem__("x", 1), 'task.state.update("items", fn)'),
}
OBJECT_CHANGES = {
    "item": (lambda prefs: prefs.__setitem__("seat", "aisle"), "task.state.set(\"prefs.seat\", 'aisle')"),
    "del": (lambda prefs: prefs.__delitem__("seat"), 'del task.state["prefs.seat"]'),
    "pop": (lambda prefs: prefs.pop("seat"), 'task.state.update("prefs", fn)'),
    "popitem": (lambda prefs: prefs.popitem(), 'task.state.update("prefs", fn)'),
    "clear": (lambda prefs: prefs.clear(), 'task.state.update("prefs", fn)'),
    "update": (lambda prefs: prefs.update(seat=1), 'task.state.update("prefs", fn)'),
    "setdefault": (lambda prefs: prefs.setdefault("x", 1), 'task.state.update("prefs", fn)'),
    "|=": (lambda prefs: prefs.__ior__({"x": 1}), 'task.state.update("prefs", fn)'),
    "nested list": (lambda prefs: prefs["likes"].append("x"), "task.state.append(\"prefs.likes\", 'x')"),
    "nested object": (lambda prefs: prefs["meal"].__setitem__("a", 1), 'task.state.set("prefs.meal.a", 1)'),
    "odd key": (lambda prefs: prefs.__setitem__("a.b", 1), 'task.state.update("prefs", fn)'),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_list_of_the_state_cannot_be_changed_and_names_the_verb_to_use(change):
    _cannot_be_changed("items", [1, {"a": [1]}], *change)


@pytest.mark.parametrize("change", OBJECT_CHANGES.values(), ids=OBJECT_CHANGES)
def test_an_object_of_the_state_cannot_be_changed_and_names_the_verb_to_use(change):
    _cannot_be_changed("prefs", {"seat": "window", "likes": [], "meal": {}}, *change)


def _cannot_be_changed(name, value, change, verb):
    @agent
    def worker(task):
        for state, verbs in ((task.state, "task.state"), (task.user.state, "task.user.state")):
            state[name] = value
            with pytest.raises(StateMutated) as refused:
                change(state[name])
            assert verb.replace("task.state", verbs) in refused.value.hint
            assert refused.value.details["path"].startswith(f"{verbs}.{name}")
            assert state[name] == value and state.all() == {name: value}

    with holdfast.open("memory:") as app:
        done = app.run(worker, id="t", user="ana")
        assert done.status == "completed", done.failure
        assert done.state == app.user("ana").state.all() == {name: value}
        with pytest.raises(StateMutated, match=r"app\.user"):
            change(app.user("ana").state[name])


def test_copies_are_ordinary_and_libraries_take_the_originals(app):
    class Item(msgspec.Struct):
        tags: list[str]

    class Model(pydantic.BaseModel):
        items: list[dict[str, list[str]]]

    @agent
    def worker(task):
        value = [{"tags": ["a"]}]
        task.state.items, task.state.prefs = value, {"seat": {"row": 1}}
        items, prefs = task.state.items, task.state.prefs
        for made in (
            copy.copy(items),
            items.copy(),
            list(items),
            items[:],
            [*items],
            items + [],
            sorted(items, key=str),
        ):
            assert type(made) is list and made == value
            made.append(1)
        for made in (copy.copy(prefs), prefs.copy(), dict(prefs), {**prefs}, prefs | {}):
            assert type(made) is dict and made == {"seat": {"row": 1}}
            made["x"] = 1
        deep = copy.deepcopy(items)
        deep[0]["tags"].append("b")
        assert type(deep) is list and type(deep[0]) is dict and type(deep[0]["tags"]) is list
        with pytest.raises(StateMutated):
            items.copy()[0]["tags"].append("b")  # what a shallow copy holds is what was read
        assert isinstance(items, list) and isinstance(prefs, dict) and items == value
        assert json.dumps(items) == json.dumps(value) and json.dumps(prefs, indent=1)
        assert msgspec.json.encode(items) == msgspec.json.encode(value)
        assert msgspec.convert(items, list[Item]) == [Item(["a"])]
        assert Model.model_validate({"items": items}, strict=True) == Model(items=items) == Model(items=value)
        assert task.state.items is items and task.state["prefs.seat"] is prefs["seat"], "wrapped once"
        task.state.again = items
        task.fact("items", items)
        return items

    done = app.run(worker, id="t")
    assert done.status == "completed", done.failure
    assert done.result == done.state["again"] == done.facts["items"].value == [{"tags": ["a"]}]


def test_a_default_is_as_read_only_as_the_value_it_stands_for(app):
    """An agent that changes it must not work until the first value is there, and fail from then on."""

    @agent
    def worker(task):
        for state in (task.state, task.user.state, app.user("bo").state):
            for default in ([1], {"a": [1]}):
                found = state.get("items", default)
                assert found == default and state.get("none", 7) == 7
                with pytest.raises(StateMutated):
                    found.clear()
                copy.deepcopy(found).clear()
                assert default, "what the agent gave is its own"
        return task.step(lambda items: items.append(2) or items, task.state.get("items", []), name="grow")

    done = app.run(worker, id="t", user="ana")
    assert done.result == [2] and done.state == {}, done.failure


CHANGES_WITHOUT_ASKING = {
    "heappush": lambda state: heapq.heappush(state.queue, 1),
    "heapify": lambda state: heapq.heapify(state.queue),
    "list.append": lambda state: list.append(state.queue, 1),
    "dict.update": lambda state: dict.update(state.prices, tea=2),
    "inside": lambda state: list.append(state.prices["old"], 1),
    "default": lambda state: heapq.heappush(state.get("none", []), 1),
    "odd": lambda state: list.__setitem__(state.queue, 0, Odd()),
}


class Odd:
    def __eq__(self, other):
        raise ValueError("it is compared with nothing")


@pytest.mark.parametrize("whose", ["task", "user"])
@pytest.mark.parametrize("change", CHANGES_WITHOUT_ASKING)
def test_a_change_that_asks_nobody_is_refused_by_the_next_verb_and_lost(app, either, change, whose):
    @either()
    def worker(task):
        state = task.state if whose == "task" else task.user.state
        state.queue, state.prices = [7, 5], {"tea": 1, "old": []}
        CHANGES_WITHOUT_ASKING[change](state)
        with pytest.raises(StateMutated, match="was changed in place"):
            yield task.step(look, 1, name="first")
        yield task.step(look, 2, name="second")
        return [state.queue, state.prices, state.get("none", [])]

    done = app.run(worker, id="t", user="ana")
    assert done.result == [[7, 5], {"tea": 1, "old": []}, []], done.failure
    assert list(done.steps) == ["second#1"]


@pytest.mark.parametrize("ends", ["return", "set"])
def test_a_change_that_asks_nobody_is_found_at_the_end_and_forgiven_if_it_is_set(app, either, ends):
    @either()
    def worker(task):
        task.state.queue = [7, 5]
        yield task.step(look, 1, name="first")
        queue = task.state.queue
        heapq.heappush(queue, 1)
        if ends == "set":
            task.state.queue = queue
        return "done"

    done = app.run(worker, id="t")
    if ends == "set":
        assert (done.result, done.state["queue"]) == ("done", [1, 5, 7]), done.failure
    else:
        assert done.failure.type == "StateMutated" and "task.state.queue" in done.failure.message


@pytest.mark.parametrize("checkpoint", ["every_step", "before_effects", "on_state_change", "every_iteration"])
def test_updates_and_conditions_hold_under_every_checkpoint_strategy(app, either, checkpoint):
    theirs = [StatePatch(set={"n": 50})]

    @either(checkpoint=checkpoint, loop=True)
    def worker(task):
        yield task.step(look, task.turn)
        task.state.append("turns", task.turn)
        made = yield task.state.update("n", lambda n: (n or 0) + 1)
        if theirs:
            app.patch("t", theirs.pop())
        task.patch(StatePatch(require={"n": made}, set={"seen": made}))
        task.state.after = task.turn
        try:
            yield task.step(look, made)
        except holdfast.PatchConflict:
            task.state.append("refused", task.turn)
        if task.turn < 3:
            return None
        yield task.wait("go")
        return [made, task.state.all()]

    app.run(worker, id="t")
    done = replayed(app, worker)
    wanted = {"turns": [1, 2, 3], "n": 52, "seen": 52, "after": 3, "refused": [1]}
    assert done.result == [52, wanted] and done.state == wanted
    app.store.drop_snapshots(log="t")
    assert app.get("t").state == wanted


def test_a_block_updates_its_state_and_is_entered_again(app):
    called = []

    def enter(stop):
        with app.task("b", id="t") as task:
            first = task.state.update("n", lambda n: called.append(n) or 1)
            for turn in task.turns(max=2):
                task.state.update("n", lambda n: called.append(n) or n * 10)
                if turn == stop:
                    raise Crash
            task.finish([first, task.state.n])

    with pytest.raises(Crash):
        enter(1)
    enter(None)
    assert app.get("t").result == [1, 100] and called == [None, 1, 10]


def test_functions_of_steps_and_tools_get_ordinary_values_which_they_may_change(app, either):
    def grow(items, *, more):
        items.append(more["x"][0].pop("n"))
        return [type(items).__name__, type(more["x"][0]).__name__, items]

    @tool(effect="idempotent")
    def extend(items: list, nested: dict) -> list:
        nested["inner"].append(1)
        return [*items, type(items).__name__, type(nested["inner"]).__name__]

    @either()
    def worker(task):
        task.state.items, task.state.more = [1], [{"n": 2}]
        first = yield task.step(grow, task.state.items, more={"x": list(task.state.more)})
        second = yield task.call(extend, items=task.state.items, nested={"inner": task.state.items})
        third = yield task.map(lambda item: item.append(1) or type(item).__name__, [task.state.items], name="each")
        yield task.wait("go")
        return [first, second, third, task.state.all()]

    app.run(worker, id="t")
    wanted = [["list", "dict", [1, 2]], [1, "list", "list"], ["list"], {"items": [1], "more": [{"n": 2}]}]
    assert replayed(app, worker).result == wanted


# Read-modify-write


def test_an_update_makes_a_new_value_once_and_a_replay_finds_it(app, either):
    called = []

    def add(total):
        called.append(total)
        return (total or 0) + 5

    @either()
    def worker(task):
        task.state.total = 1
        first = yield task.state.update("total", add)
        second = yield task.state.update("nested.total", add)
        third = yield task.state.update("total", add)
        seen = [first, second, third, task.state.total, task.state.nested]
        yield task.wait("go")
        return [*seen, (yield task.state.update("items", lambda items: [*(items or []), 1]))]

    app.run(worker, id="t")
    assert called == [1, None, 6]
    done = replayed(app, worker)
    assert called == [1, None, 6], "a replay calls no function"
    assert done.result == [6, 5, 11, 11, {"total": 5}, [1]]
    assert [event.value for event in events(app, "state_updated")][:3] == [codec.pack(n) for n in (6, 5, 11)]
    assert app.steps("t")[0].key == "update state.total#1" and app.steps("t")[0].result == 6


def test_an_update_is_made_again_of_the_newest_value_if_another_writer_was_faster(app, either):
    called = []

    def double(n):
        called.append(n)
        if len(called) == 1:
            app.patch("t", StatePatch(set={"n": 50}), by="ben")
        return n * 2

    @either()
    def worker(task):
        task.state.n = 1
        yield task.step(look, 1)
        made = yield task.state.update("n", double)
        seen = [made, task.state.n]
        yield task.wait("go")
        return seen

    app.run(worker, id="t")
    done = replayed(app, worker)
    assert called == [1, 50] and done.result == [100, 100] and done.state["n"] == 100


def test_branches_that_update_the_same_field_lose_nothing(app):
    @agent
    async def worker(task):
        async def one(number):
            await task.step(look, number, key=f"look-{number}")
            task.state.increment("n")
            await task.state.update("n", lambda n: (n or 0) + 1)
            await task.state.update("seen", lambda seen: [*(seen or []), number])

        await asyncio.gather(*(one(number) for number in range(12)))
        await task.wait("go")
        return task.state.all()

    app.run(worker, id="t")
    done = replayed(app, worker)
    assert done.state["n"] == 24 and sorted(done.state["seen"]) == list(range(12)) and done.result == done.state


@pytest.mark.parametrize("wrong", [None, 3, "fn", look("x"), asyncio.sleep])
def test_an_update_without_a_plain_function_is_refused(app, wrong, either):
    @either()
    def worker(task):
        with pytest.raises(InvalidValue) as refused:
            task.state.update("n", wrong)
        assert "lambda value" in refused.value.hint
        with pytest.raises(InvalidValue):
            task.user.state.update("n", wrong)
        with pytest.raises(InvalidValue):
            app.user("ana").state.update("n", wrong)
        yield task.step(look, 1)

    done = app.run(worker, id="t", user="ana")
    assert done.status == "completed" and done.state == {}, done.failure


def test_an_update_that_goes_wrong_writes_nothing(app, either, texts):
    def fails(value):
        raise RuntimeError("no")

    def forgets(items):
        items.append(2)

    @either()
    def worker(task):
        task.state.items = [1]
        yield task.step(look, 1)
        for fn in (fails, forgets, lambda items: task.state.set("x", 1), lambda items: object()):
            try:
                yield task.state.update("items", fn)
            except StepFailed as refused:
                texts.check(str(refused))
        yield task.wait("go")
        return (yield task.state.update("items", lambda items: None))

    app.run(worker, id="t")
    done = replayed(app, worker)
    assert done.result is None and done.state == {"items": None}
    assert kinds(app).count("state_updated") == 1 and kinds(app).count("step_failed") == 4


def test_a_function_that_could_not_update_then_is_not_asked_again_on_a_replay(app, either):
    """By then it might have a value, and the agent would go another way."""
    asked = []

    def withdraw(balance):
        asked.append(balance)
        if balance < 10:
            raise ValueError(f"only {balance} left")
        return balance - 10

    @either()
    def worker(task):
        task.state.balance = 5
        told = []
        for update in (task.state.update, task.user.state.update):
            try:
                yield update("balance", withdraw)
            except StepFailed as refused:
                told.append(refused.message)
        yield task.wait("go")
        return told

    app.user("ana").state.balance = 7
    app.run(worker, id="t", user="ana")
    app.patch("t", StatePatch(set={"balance": 100}))
    app.user("ana").state.balance = 100
    done = replayed(app, worker)
    assert asked == [5, 7] and ["only 5" in done.result[0], "only 7" in done.result[1]] == [True, True]
    assert done.state["balance"] == app.user("ana").state.balance == 100


def test_a_task_that_an_update_failed_tries_it_again_when_it_is_resumed(app, either):
    def withdraw(balance):
        if balance < 10:
            raise ValueError(f"only {balance} left")
        return balance - 10

    @either()
    def worker(task):
        return (yield task.user.state.update("balance", withdraw))

    app.user("ana").state.balance = 5
    assert app.run(worker, id="t", user="ana").failure.code == "step-failed"
    app.user("ana").state.balance = 50
    assert app.resume("t", worker).result == 40


def test_an_async_agent_is_told_that_an_update_was_not_awaited(app):
    @agent
    async def worker(task):
        task.state.update("n", lambda n: 1)

    failure = app.run(worker, id="t").failure
    assert "await task.state.update" in failure.message


def test_an_update_in_a_bare_thread_is_refused(app):
    errors = []

    @agent
    def worker(task):
        def update():
            try:
                task.state.update("n", lambda n: 1)
            except holdfast.UnnamedThread as error:
                errors.append(error)

        thread = threading.Thread(target=update)
        thread.start()
        thread.join()

    assert app.run(worker, id="t").status == "completed" and len(errors) == 1
