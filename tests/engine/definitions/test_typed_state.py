"""Typed state: what does not fit the model is refused with its path, and nothing of it is written."""

import dataclasses
import datetime
from typing import Annotated

import msgspec
import pydantic
import pytest
from hypothesis import given, strategies as st

import holdfast
from holdfast import InvalidState, InvalidTemplate, InvalidValue, StatePatch, UnknownName, agent, events as ev
from tests.engine.both import events, kinds


@dataclasses.dataclass
class Address:
    city: str
    zip: Annotated[int, msgspec.Meta(ge=0)] = 0


@dataclasses.dataclass
class Trip:
    name: Annotated[str, msgspec.Meta(min_length=2)]
    seats: Annotated[int, msgspec.Meta(le=12)] = 10
    address: Address | None = None
    tags: list[str] = dataclasses.field(default_factory=lambda: ["new"])
    day: datetime.date | None = None
    paid: bool = False


class SAddress(msgspec.Struct):
    city: str
    zip: Annotated[int, msgspec.Meta(ge=0)] = 0


class STrip(msgspec.Struct):
    name: Annotated[str, msgspec.Meta(min_length=2)]
    seats: Annotated[int, msgspec.Meta(le=12)] = 10
    address: SAddress | None = None
    tags: list[str] = msgspec.field(default_factory=lambda: ["new"])
    day: datetime.date | None = None
    paid: bool = False


class PAddress(pydantic.BaseModel):
    city: str
    zip: int = pydantic.Field(default=0, ge=0)


class PTrip(pydantic.BaseModel):
    name: str
    seats: int = pydantic.Field(default=10, le=12)
    address: PAddress | None = None
    tags: list[str] = pydantic.Field(default_factory=lambda: ["new"])
    day: datetime.date | None = None
    paid: bool = False

    @pydantic.field_validator("name")
    @classmethod
    def long_enough(cls, name):
        if len(name) < 2:
            raise ValueError("a name has two letters")
        return name


MODELS = {"dataclass": (Trip, Address), "struct": (STrip, SAddress), "pydantic": (PTrip, PAddress)}


@pytest.fixture(params=MODELS)
def models(request):
    return MODELS[request.param]


def address_of(model, city, zip):
    return model(city=city, zip=zip)


def test_values_come_back_as_the_model_has_them_now_and_on_replay(app, either, models):
    trip, address = models
    seen = []

    @either(state=trip)
    def worker(task):
        assert task.state.seats == 10 and task.state.tags == ["new"] and task.state.address is None
        assert (
            "seats" not in task.state
            and task.state.get("name", "nobody") == "nobody"
            and not hasattr(task.state, "name")
        )
        task.state.name = "Ana"
        task.state.address = address(city="Oslo", zip=7)
        task.state["day"] = datetime.date(2024, 2, 29)
        assert task.state.increment("seats", 2) == 12
        task.state.append("tags", "paid")
        seen.append((task.state.all(), task.state.model))
        yield task.step(lambda: 1, name="one")
        seen.append((task.state.all(), task.state.model))
        del task.state.seats
        seen.append((task.state.seats, sorted(task.state)))
        yield task.wait("go")

    app.run(worker, id="t")
    app.signal("t", "go")
    done = app.run(worker, id="t")
    assert done.status == "completed", done.failure
    whole = trip(
        name="Ana",
        seats=12,
        address=address(city="Oslo", zip=7),
        tags=["new", "paid"],
        day=datetime.date(2024, 2, 29),
    )
    assert seen[0][1] == whole and seen[0][0]["address"] == whole.address and seen[0][0]["paid"] is False
    assert seen[:3] == seen[3:] and seen[0] == seen[1] and seen[2] == (10, ["address", "day", "name", "tags"])
    assert done.state == {
        "name": "Ana",
        "address": {"city": "Oslo", "zip": 7},
        "day": "2024-02-29",
        "tags": ["new", "paid"],
    }
    assert worker.read_state(done) == dataclasses_replace(whole, seats=10) and done.state_version == 1
    assert "state_migrated" not in kinds(app), "it was of this version from the beginning"


def dataclasses_replace(whole, **changes):
    if isinstance(whole, pydantic.BaseModel):
        return whole.model_copy(update=changes)
    if isinstance(whole, msgspec.Struct):
        return msgspec.structs.replace(whole, **changes)
    return dataclasses.replace(whole, **changes)


def bad_writes():
    yield "state.name", lambda state: setattr(state, "name", 3)
    yield "state.name", lambda state: setattr(state, "name", "A")
    yield "state.name", lambda state: setattr(state, "name", None)
    yield "state.nane", lambda state: setattr(state, "nane", "Ana")
    yield "state.address.zip", lambda state: setattr(state, "address", {"city": "Oslo", "zip": "7"})
    yield "state.address.zip", lambda state: setattr(state, "address", {"city": "Oslo", "zip": -7})
    yield "state.address.city", lambda state: setattr(state, "address", {"city": 3})
    yield "state.tags[1]", lambda state: setattr(state, "tags", ["a", 2])
    yield "state.tags[1]", lambda state: state.append("tags", 2)
    yield "state.seats", lambda state: state.increment("seats", 3)
    yield "state.seats", lambda state: state.increment("seats", 0.5)
    yield "state.seats", lambda state: state.increment("seats", True)
    yield "state.seats", lambda state: state.increment("seats", "1")
    yield "state.seats", lambda state: setattr(state, "seats", "11")
    yield "state.name", lambda state: state.increment("name")
    yield "state.paid", lambda state: state.increment("paid")
    yield "state.nope", lambda state: state.increment("nope")
    yield "state.seats", lambda state: state.append("seats", 1)
    yield "state.nope", lambda state: state.append("nope", 1)
    yield "state.nope", lambda state: state.__delattr__("nope")
    yield "state.nope", lambda state: state.get("nope")
    yield "state.day", lambda state: setattr(state, "day", "yesterday")


def test_what_does_not_fit_is_refused_with_its_path_and_nothing_is_written(app, models, texts):
    refusals = []

    @agent(state=models[0])
    def worker(task):
        for path, write in bad_writes():
            with pytest.raises(InvalidState) as refused:
                write(task.state)
            refusals.append((path, refused.value))
        with texts.raises(InvalidState):
            task.state.model  # noqa: B018
        with texts.raises(AttributeError):
            task.state.name  # noqa: B018
        with texts.raises(AttributeError):
            task.state.nope  # noqa: B018
        with pytest.raises(holdfast.NotSerializable):
            task.state.name = object()
        with pytest.raises(holdfast.InvalidEvent):
            del task.state.name
        task.step(lambda: 1, name="one")

    done = app.run(worker, id="t")
    assert done.status == "completed", done.failure
    for path, error in refusals:
        text = str(error)
        if path == "state.address.city" and "missing" in text:
            continue
        assert error.details["path"] == path and path in text and error.hint and error.code == "invalid-state", text
    wrong = next(error for path, error in refusals if path == "state.address.zip")
    assert wrong.details["expected"] and wrong.details["got"] == "str"
    assert kinds(app) == ["task_created", "task_claimed", "step_completed", "task_completed"]


def test_a_refusal_that_nobody_catches_fails_the_task_by_its_name(app, models):
    @agent(state=models[0])
    def worker(task):
        task.state.name = 3

    failure = app.run(worker, id="t").failure
    assert failure.type == "InvalidState" and failure.code == "invalid-state" and "state.name" in failure.message


def test_a_patch_from_outside_is_refused_at_the_door(app, models):
    @agent(state=models[0])
    def worker(task):
        task.wait("go")
        return [task.state.name, task.state.seats, task.state.tags]

    seq = app.run(worker, id="t").seq
    for path, patch in (
        ("state.name", {"set": {"name": 3}}),
        ("state.nope", {"set": {"nope": 3}}),
        ("state.address.zip", {"set": {"name": "Ana", "address": {"city": "Oslo", "zip": "x"}}}),
        ("state.seats", {"increment": {"seats": 3}}),
        ("state.tags[1]", {"append": {"tags": 3}}),
        ("state.name", {"append": {"name": 3}}),
        ("state.nope", {"increment": {"nope": 3}}),
    ):
        with pytest.raises(InvalidState) as refused:
            app.patch("t", StatePatch(**patch))
        assert refused.value.details["path"] == path and refused.value.hint
        with pytest.raises(InvalidState):
            app.fork("t", patch=StatePatch(**patch), id="fork")
    assert app.get("t").seq == seq and [one.id for one in app.list()] == ["t"]
    app.patch("t", StatePatch(set={"name": "Ana"}, increment={"seats": 2}, append={"tags": "x"}, raise_flags=["f"]))
    app.patch("t", StatePatch(increment={"seats": -1}, append={"tags": "y"}))
    assert app.fork("t", patch=StatePatch(set={"name": "Bob"}), id="fork").state["name"] == "Bob"
    app.signal("t", "go")
    assert app.run(worker, id="t").result == ["Ana", 11, ["new", "x", "y"]]


def test_an_app_that_does_not_know_the_agent_lets_a_patch_in_and_the_agent_meets_it(tmp_path, models):
    refused = []

    @agent(state=models[0])
    def worker(task):
        task.wait("go")
        for read in (lambda: task.state.name, task.state.all, lambda: task.state.model):
            with pytest.raises(InvalidState) as error:
                read()
            refused.append(error.value.details["path"])
        if "nope" in task.state:
            with pytest.raises(InvalidState):
                task.state.seats = 3
            del task.state.nope
        task.state.name = "Ana"
        return task.state.name

    for number, (name, value) in enumerate((("name", 3), ("nope", 4))):
        path = tmp_path / f"{number}.db"
        with holdfast.open(path) as app:
            app.run(worker, id="t")
        with holdfast.open(path) as stranger:
            stranger.patch("t", StatePatch(set={name: value}))
            stranger.signal("t", "go")
        with holdfast.open(path) as app:
            assert app.run(worker, id="t").result == "Ana"
    assert refused == ["state.name"] * 3 + ["state.nope"] * 3


def test_an_agents_own_patch_is_checked_too(app, either, models):
    @either(state=models[0])
    def worker(task):
        with pytest.raises(InvalidState):
            task.patch(StatePatch(set={"seats": "x"}, raise_flags=["no"]))
        task.patch(StatePatch(set={"name": "Ana"}, increment={"seats": 1}, append={"tags": "x"}), why="yes")
        seen = [task.state.seats, task.state.tags]
        yield task.step(lambda: 1, name="one")
        return [*seen, task.state.model.seats]

    done = app.run(worker, id="t")
    assert done.result == [11, ["new", "x"], 11] and done.flags == []


def test_checks_of_the_whole_count_as_soon_as_nothing_is_missing(app):
    class Span(pydantic.BaseModel):
        low: int
        high: int
        note: str = ""

        @pydantic.model_validator(mode="after")
        def ordered(self):
            if self.low > self.high:
                raise ValueError("low is above high")
            return self

        def model_post_init(self, context):
            assert self.low is not None

    @dataclasses.dataclass
    class Pair:
        low: int
        high: int
        note: str = ""

        def __post_init__(self):
            if self.low > self.high:
                raise ValueError("low is above high")

    for number, model in enumerate((Span, Pair)):

        @agent(state=model)
        def worker(task):
            task.state.low = 5
            task.state.note = "x"
            with pytest.raises(InvalidState, match="low is above high"):
                task.state.high = 4
            task.state.high = 6
            with pytest.raises(InvalidState, match="low is above high"):
                task.state.increment("low", 2)
            return [task.state.low, task.state.model.high]

        assert app.run(worker, id=f"t{number}").result == [5, 6]


def test_a_models_aliases_and_odd_types_do_not_get_in_the_way(app):
    class Inner(pydantic.BaseModel):
        first: int = pydantic.Field(alias="theFirst")

    class Aliased(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(validate_default=True, extra="forbid", frozen=True)
        name: str = pydantic.Field(alias="theName", min_length=1)
        inner: Inner | None = None
        by_day: dict[datetime.date, str] = {}

    class Renamed(msgspec.Struct, rename="camel", kw_only=True, frozen=True):
        by_day: dict[datetime.date, str] = {}
        first_name: str
        some: set[int] = set()

    @dataclasses.dataclass
    class Mixed:
        inner: Inner
        hidden: int = dataclasses.field(default=3, init=False)

    @agent(state=Aliased)
    def aliased(task):
        task.state.by_day = {"2024-02-29": "one"}
        task.state.name = "Ana"
        task.state.inner = Inner(theFirst=3)
        return [task.state.model.inner.first, task.state.name, [day.year for day in task.state.by_day]]

    @agent(state=Renamed)
    def renamed(task):
        task.state.by_day = {"2024-02-29": "one"}
        task.state.some = {3}
        task.state.first_name = "Ana"
        return [task.state.model.first_name, [day.year for day in task.state.by_day], list(task.state.some)]

    @agent(state=Mixed)
    def mixed(task):
        with pytest.raises(InvalidState, match=r"state\.inner\."):
            task.state.inner = {"first": "x"}
        task.state.inner = Inner(theFirst=3)
        return task.state.model.inner.first

    for worker, result in ((aliased, [3, "Ana", [2024]]), (renamed, ["Ana", [2024], [3]]), (mixed, 3)):
        done = app.run(worker, id=worker.name)
        assert done.result == result, done.failure


@pytest.mark.parametrize(
    "options",
    [
        {"state": dict},
        {"state": 3},
        {"state": Trip("Ana")},
        {"state": pydantic.dataclasses.dataclass(type("P", (), {"__annotations__": {"a": int}}))},
        {"state": dataclasses.make_dataclass("Clash", [("model", int)])},
        {"state": dataclasses.make_dataclass("Private", [("_x", int)])},
        {"state": dataclasses.make_dataclass("Unknown", [("x", "Nowhere")])},
        {"state": dataclasses.make_dataclass("Odd", [("x", Trip | STrip)])},
        {"state": Trip, "state_version": 0},
        {"state": Trip, "state_version": True},
        {"state": Trip, "state_version": "2"},
        {"state_version": 2},
    ],
)
def test_a_declaration_that_cannot_work_is_refused(options):
    with pytest.raises(InvalidValue) as refused:

        @agent(**options)
        def worker(task): ...

    assert refused.value.hint


def test_branches_lose_none_of_each_others_writes(app):
    import asyncio

    @agent(state=Trip)
    async def worker(task):
        async def one(number):
            await task.step(lambda: number, name="one")
            task.state.increment("seats", -1)
            task.state.append("tags", str(number))
            await task.step(lambda: number, name="two")

        await asyncio.gather(*(one(number) for number in range(5)))
        await task.step(lambda: None, name="last")
        return [task.state.seats, sorted(task.state.tags)]

    assert app.run(worker, id="t").result == [5, ["0", "1", "2", "3", "4", "new"]]


WRITES = st.one_of(
    st.tuples(st.just("set"), st.sampled_from(["name", "seats", "tags", "paid", "nope"]), st.integers(-3, 15)),
    st.tuples(st.just("set"), st.sampled_from(["name", "tags"]), st.text(max_size=3) | st.lists(st.text(max_size=2))),
    st.tuples(st.just("increment"), st.sampled_from(["seats", "name", "paid"]), st.integers(-3, 3) | st.floats()),
    st.tuples(st.just("append"), st.sampled_from(["tags", "seats"]), st.text(max_size=2) | st.integers()),
    st.tuples(st.just("delete"), st.sampled_from(["name", "seats", "tags", "nope"]), st.none()),
    st.tuples(st.just("step"), st.none(), st.none()),
)


def write(task, how, name, value):
    if how == "set":
        task.state[name] = value
    elif how == "delete":
        delattr(task.state, name)
    elif how == "step":
        task.step(lambda: None, name="step")
    else:
        getattr(task.state, how)(name, value)


@given(st.sampled_from(sorted(MODELS)), st.lists(WRITES, max_size=12))
def test_what_is_accepted_fits_the_model_and_a_replay_sees_the_same(kind, writes):
    model = MODELS[kind][0]
    lives = []

    @agent(state=model)
    def worker(task):
        seen = []
        lives.append(seen)
        for one in writes:
            try:
                write(task, *one)
            except holdfast.HoldfastError as error:
                seen.append(error.code)
            seen.append(task.state.all())
        task.wait("go")

    with holdfast.open("memory:") as app:
        app.run(worker, id="t")
        state = app.get("t")
        app.signal("t", "go")
        assert app.run(worker, id="t").status == "completed"
    assert lives[0] == lives[1]
    plain = dict(state.state)
    assert set(plain) <= set(worker.states.model.fields)
    worker.states.model.fits(plain, plain)
    if "name" in plain:
        assert worker.read_state(state) is not None


def test_an_agent_and_a_reader_fill_in_templates_with_what_they_see(app, either):
    @either(state=Trip)
    def worker(task, ticket: int):
        task.state.name = "Ana"
        task.state.address = Address("Oslo", 7)
        task.fact("service", "db.main", source="scan")
        task.fact("disk.used", 91)
        task.note("idea", [1, 2])
        task.plan(["look", "fix"])
        task.question("which host?")
        task.stage("looking")
        text = "{state.name} of {state.address.city} has {state.seats}: {facts.service} {facts.disk.used} {notes.idea}"
        seen = task.render(text + " {input.ticket} {plan} {plan.1} {questions.0} {stage} {phase} {turn} {id} {{x}}")
        with pytest.raises(UnknownName, match=r"\{facts\.servce\}"):
            task.render("{facts.servce}")
        with pytest.raises(UnknownName, match="goal"):
            task.render("{goal}")
        with pytest.raises(InvalidTemplate):
            task.render("{")
        yield task.step(lambda: 1, name="one")
        return seen

    done = app.run(worker, {"ticket": 7}, id="t")
    expected = 'Ana of Oslo has 10: db.main 91 [1,2] 7 ["look","fix"] fix which host? looking idle 0 t {x}'
    assert done.result == expected, done.failure
    assert done.render("{state.name} {facts.service} {input.ticket}") == "Ana db.main 7"
    with pytest.raises(UnknownName):
        done.render("{state.seats}")  # a reader sees what is in the log
    assert not any(isinstance(one, ev.LogWritten) for one in events(app, "log_written"))


def test_a_block_of_the_same_name_has_no_model(app):
    @agent(state=Trip, name="triage")
    def worker(task): ...

    app.run(worker, id="t")
    with app.task("triage", id="block") as task:
        task.state.anything = 1
    with app.task("triage", id="open") as task:
        app.patch("open", StatePatch(set={"anything": 2}))
        task.step(lambda: 1, name="one")
        assert task.state.anything == 2


def test_a_default_that_is_no_json_is_refused_by_its_name(app):
    @dataclasses.dataclass
    class Odd:
        x: object = dataclasses.field(default_factory=object)

    @agent(state=Odd)
    def worker(task):
        with pytest.raises(holdfast.NotSerializable):
            task.render("{state.x}")

    assert app.run(worker, id="t").status == "completed"


def test_an_untyped_state_fills_templates_too(app, texts):
    @agent
    def worker(task):
        task.state.name = "Ana"
        return task.render("{state.name}")

    assert app.run(worker, id="t").result == "Ana"
    with texts.raises(InvalidValue):
        worker.upcast(1, 2)
    with texts.raises(InvalidValue):
        worker.read_state(app.get("t"))
