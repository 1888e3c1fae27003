"""Typed state: values that were changed in place are told of, paths and updates are held against the model."""

from dataclasses import dataclass, field

import msgspec
import pydantic
import pytest

import holdfast
from holdfast import InvalidState, PatchConflict, StateMutated, StatePatch, StepFailed, agent
from tests.engine.both import kinds

STORES = ("memory", "sqlite", "postgres")


@dataclass
class Address:
    city: str
    lines: list[str] = field(default_factory=list)


@dataclass
class Guest:
    name: str = ""
    address: Address = field(default_factory=lambda: Address("Oslo"))
    nights: int = 1
    wishes: list[str] = field(default_factory=list)
    rooms: dict[str, int] = field(default_factory=dict)


class StructAddress(msgspec.Struct):
    city: str
    lines: list[str] = []


class StructGuest(msgspec.Struct):
    name: str = ""
    address: StructAddress = msgspec.field(default_factory=lambda: StructAddress("Oslo"))
    wishes: list[str] = []


class ModelAddress(pydantic.BaseModel):
    city: str
    lines: list[str] = []


class ModelGuest(pydantic.BaseModel):
    name: str = ""
    address: ModelAddress = ModelAddress(city="Oslo")
    wishes: list[str] = []


MODELS = {"dataclass": Guest, "struct": StructGuest, "pydantic": ModelGuest}
ADDRESS = {"dataclass": Address, "struct": StructAddress, "pydantic": ModelAddress}


@pytest.fixture(params=MODELS)
def model(request):
    return request.param


def look(value):
    return value


def move(task):
    task.state.address.city = "Rome"


def add_a_line(task):
    task.state.address.lines.append("1 Elm Street")


def wish(task):
    task.state.wishes.append("a view")


def wish_in_the_model(task):
    task.state.model.wishes.append("a view")


CHANGES = {
    move: "task.state.address.city",
    add_a_line: "task.state.address.lines",
    wish: "task.state.wishes",
    wish_in_the_model: "task.state.model.wishes",
}
VERBS = {
    "a step": lambda task: task.step(look, 1),
    "a wait": lambda task: task.sleep(0),
    "a stage": lambda task: task.stage("on"),
    "another field": lambda task: task.state.set("name", "Ana"),
    "an update": lambda task: task.state.update("name", lambda name: "Ana"),
    "a map": lambda task: task.map(look, [1], name="each"),
    "the end": None,
}


@pytest.mark.parametrize("is_set", [True, False], ids=["set", "by default"])
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("change", CHANGES, ids=lambda one: one.__name__)
def test_a_value_that_was_changed_in_place_is_told_of_by_the_next_verb(model, change, verb, is_set):
    done_twice = []

    @agent(state=MODELS[model])
    def worker(task):
        if is_set:
            task.state.address = ADDRESS[model](city="Oslo", lines=[])
            task.state.wishes = []
            task.step(look, 0)
        change(task)
        if VERBS[verb] is not None:
            with pytest.raises(StateMutated) as told:
                VERBS[verb](task)
            assert told.value.details["path"] == CHANGES[change] and told.value.hint
            done_twice.append(VERBS[verb](task))  # once is enough

    with holdfast.open("memory:") as app:
        done = app.run(worker, id="t")
        if VERBS[verb] is None:
            assert done.status == "failed" and done.failure.code == "state-mutated"
            assert CHANGES[change] in done.failure.message
        else:
            assert done.status == "completed" and len(done_twice) == 1, done.failure
        assert "Rome" not in str(done.state) and "view" not in str(done.state)


def test_a_value_that_is_kept_over_verbs_is_told_of_when_it_is_changed(app, either):
    told = []

    @either(state=Guest)
    def worker(task):
        lines = task.state.address.lines
        yield task.step(look, 1)
        yield task.step(look, 2)
        lines.append("late")
        try:
            yield task.step(look, 3)
        except StateMutated as error:
            told.append(error.details["path"])
        yield task.wait("go")

    app.run(worker, id="t")
    app.signal("t", "go")
    assert app.run(worker, id="t").status == "completed"
    assert told == ["task.state.address.lines"] * 2, "on replay too"


def test_a_value_that_is_changed_and_then_set_is_written(app, either, model):
    @either(state=MODELS[model])
    def worker(task):
        address = task.state.address
        address.city = "Rome"
        task.state.address = address
        wishes = task.state.wishes
        wishes.append("a view")
        task.state.set("wishes", wishes)
        yield task.step(look, 1)
        return [task.state.address.city, task.state.wishes]

    done = app.run(worker, id="t")
    assert done.result == ["Rome", ["a view"]], done.failure


def test_reading_and_handing_on_is_no_change(app, either, model):
    def improve(address, wishes):
        address.city = "Rome"
        wishes.append("a view")
        return address.city

    @either(state=MODELS[model])
    def worker(task):
        task.state.wishes = ["quiet"]
        before = (task.state.address, task.state.wishes, task.state.model, task.state.all())
        moved = yield task.step(improve, task.state.address, task.state.wishes)
        assert task.state.address is before[0] or model == "pydantic", "made once"
        return [moved, task.state.address.city, task.state.wishes, sorted(before[3])[:2]]

    done = app.run(worker, id="t")
    assert done.result == ["Rome", "Oslo", ["quiet"], ["address", "name"]], done.failure


# Paths


def test_a_path_leads_into_a_typed_value_and_is_held_against_its_type(app, either):
    @either(state=Guest)
    def worker(task):
        task.state.set("address.city", "Rome")  # beside what the default has
        task.state.append("address.lines", "1 Elm Street")
        assert task.state.increment("rooms.single") == 1
        seen = [task.state["address.city"], task.state.get("rooms.single"), "rooms.double" in task.state]
        for wrong in (
            lambda: task.state.set("address.city", 7),
            lambda: task.state.set("address.lines", "no list"),
            lambda: task.state.append("address.city", "x"),
            lambda: task.state.increment("address.lines"),
            lambda: task.state.set("nights.x", 1),
            lambda: task.state.set("nobody.x", 1),
            lambda: task.patch(StatePatch(set={"address.city": 7})),
            lambda: task.state.__delitem__("address.city"),
        ):
            with pytest.raises(InvalidState) as refused:
                wrong()
            assert refused.value.hint
        yield task.wait("go")
        del task.state["address.lines"]
        return [*seen, task.state.address.lines, task.state.address.city]

    app.run(worker, id="t")
    with pytest.raises(InvalidState):
        app.patch("t", StatePatch(set={"address.city": 7}))
    app.patch(
        "t", StatePatch(set={"address.city": "Bergen"}, increment={"rooms.double": 2}, append={"address.lines": "2"})
    )
    app.signal("t", "go")
    done = app.run(worker, id="t")
    assert done.result == ["Rome", 1, False, [], "Bergen"], done.failure
    assert done.state == {"address": {"city": "Bergen"}, "rooms": {"single": 1, "double": 2}}


def test_a_patch_into_a_field_that_is_not_set_begins_from_the_models_default(app):
    @dataclass
    class Order:
        totals: dict[str, int] = field(default_factory=lambda: {"net": 5, "tax": 1})
        items: dict[str, list[str]] = field(default_factory=lambda: {"a": ["x"]})

    @agent(state=Order)
    def shop(task):
        task.wait("go")

    app.run(shop, id="t")
    app.patch("t", StatePatch(increment={"totals.net": 2}, append={"items.a": "y"}))
    assert app.get("t").state == {"totals": {"net": 7, "tax": 1}, "items": {"a": ["x", "y"]}}
    app.patch("t", StatePatch(set={"totals.tax": 3}, delete=["items.a"]))
    assert app.get("t").state == {"totals": {"net": 7, "tax": 3}, "items": {}}


def test_what_a_patch_requires_counts_the_models_defaults(app):
    @agent(state=Guest)
    def worker(task):
        task.wait("go")

    app.run(worker, id="t")
    app.patch("t", StatePatch(require={"nights": 1, "address.city": "Oslo"}, set={"nights": 2}))
    with pytest.raises(PatchConflict):
        app.patch("t", StatePatch(require={"nights": 1}, set={"nights": 3}))
    assert app.get("t").state == {"nights": 2}


# Updates


def test_an_update_gets_and_gives_a_value_of_the_models_type(app, either):
    def move(address):
        assert isinstance(address, Address)
        address.city = "Rome"
        return address

    @either(state=Guest)
    def worker(task):
        moved = yield task.state.update("address", move)
        nights = yield task.state.update("nights", lambda nights: nights + 2)
        yield task.state.update("address.city", str.upper)
        yield task.state.update("rooms.single", lambda rooms: (rooms or 0) + 1)
        for wrong in (lambda nights: "many", lambda nights: None):
            with pytest.raises(StepFailed, match="InvalidState"):
                yield task.state.update("nights", wrong)
        with pytest.raises(StepFailed, match="InvalidState"):
            yield task.state.update("nobody", lambda value: 1)
        yield task.wait("go")
        return [moved.city, nights, task.state.address.city]

    app.run(worker, id="t")
    app.signal("t", "go")
    done = app.run(worker, id="t")
    assert done.result == ["Rome", 3, "ROME"], done.failure
    assert done.state["rooms"] == {"single": 1} and kinds(app).count("state_updated") == 4


def test_names_that_are_no_text_are_refused_by_a_typed_state_too(app):
    @agent(state=Guest)
    def worker(task):
        for name in (1, None):
            with pytest.raises(InvalidState):
                task.state[name] = 1
            with pytest.raises(InvalidState):
                task.state.get(name)
            with pytest.raises(holdfast.InvalidValue):
                task.state[name]
            assert name not in task.state

    done = app.run(worker, id="t")
    assert done.status == "completed", done.failure


@pytest.mark.parametrize("name", ["set", "update"])
def test_a_field_that_could_not_be_read_is_refused(name):
    model = msgspec.defstruct("Odd", [(name, int, 0)])
    with pytest.raises(holdfast.InvalidValue, match=name):

        @agent(state=model)
        def worker(task):
            pass


def test_a_migrated_state_holds_no_envelope_of_a_fold(app):
    """A list that grew, and an object that was changed inside, beside the log: the event holds them whole."""

    @dataclass
    class Old:
        items: list[str] = field(default_factory=list)
        prefs: dict[str, str] = field(default_factory=dict)
        n: int = 0

    def body(task):
        task.state.items = ["x" * 100] * 60
        task.state.prefs = {f"k{number}": "y" * 100 for number in range(60)}
        task.step(look, 1)
        task.state.append("items", "last")
        task.state.set("prefs.k1", "other")
        task.wait("go")
        task.state.n = 5
        return [len(task.state.items), task.state.prefs["k1"]]

    agent(name="w", state=Old)(body)
    app.run(agent(name="w", state=Old)(body), id="t")
    newer = agent(name="w", state=Old, state_version=2)(body)
    newer.upcast(1, 2)(look)
    app.signal("t", "go")
    assert app.run(newer, id="t").result == [61, "other"]
    assert kinds(app).count("state_migrated") == 1 and app.verify().problems == []
