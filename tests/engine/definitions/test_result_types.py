"""What a function declares to return comes back equal and of that type: on the first run and on every replay."""

import enum
import typing
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import holdfast
from holdfast import InvalidValue, NotSerializable, agent, tool

STORES = ("memory", "sqlite", "postgres")


class Mood(enum.Enum):
    GLAD = "glad"
    SAD = "sad"


class Mixed(enum.Enum):
    ONE = 1
    TEXT = "text"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclass
class Place:
    city: str
    since: datetime
    photo: bytes = b""


@dataclass
class Trip:
    places: list[Place]
    price: Decimal
    mood: Mood
    span: tuple[int, str] = (0, "")
    extra: dict[str, int] = field(default_factory=dict)


class Point(msgspec.Struct):
    x: int
    at: datetime | None = None


class Person(pydantic.BaseModel):
    name: str
    born: date
    owes: Decimal


class Row(typing.TypedDict):
    number: int
    paid: Decimal


MOMENTS = st.datetimes(timezones=st.just(UTC), min_value=datetime(1970, 1, 2), max_value=datetime(2200, 1, 1))
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
DECIMALS = st.decimals(allow_nan=False, allow_infinity=False, places=2, min_value=-(10**9), max_value=10**9)
NUMBERS = st.integers(-(2**63), 2**63 - 1)
PLACES = st.builds(Place, TEXTS, MOMENTS, st.binary(max_size=8))

TYPES = {
    str: TEXTS,
    int: NUMBERS,
    bool: st.booleans(),
    float: st.floats(allow_nan=False, allow_infinity=False),
    bytes: st.binary(max_size=16),
    datetime: MOMENTS,
    date: st.dates(),
    timedelta: st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=10**6)),
    Decimal: DECIMALS,
    UUID: st.uuids(),
    Mood: st.sampled_from(Mood),
    Mixed: st.sampled_from(Mixed),
    Level: st.sampled_from(Level),
    tuple[int, str]: st.tuples(NUMBERS, TEXTS),
    tuple[bytes, ...]: st.lists(st.binary(max_size=4), max_size=3).map(tuple),
    list[Place]: st.lists(PLACES, max_size=3),
    dict[str, Decimal]: st.dictionaries(TEXTS, DECIMALS, max_size=3),
    Place: PLACES,
    Trip: st.builds(Trip, st.lists(PLACES, max_size=2), DECIMALS, st.sampled_from(Mood), st.tuples(NUMBERS, TEXTS)),
    Place | None: st.none() | PLACES,
    Point: st.builds(Point, NUMBERS, st.none() | MOMENTS),
    Person: st.builds(Person, name=TEXTS, born=st.dates(), owes=DECIMALS),
    list[Person]: st.lists(st.builds(Person, name=TEXTS, born=st.dates(), owes=DECIMALS), max_size=2),
    Row: st.fixed_dictionaries({"number": NUMBERS, "paid": DECIMALS}),
}


def same(one, two):
    """Equal, and of equal type, all the way down."""
    if type(one) is not type(two) or one != two:
        return False
    if isinstance(one, dict):
        return all(same(one[key], two[key]) for key in one)
    if isinstance(one, list | tuple):
        return all(same(a, b) for a, b in zip(one, two, strict=True))
    return True


def giving(declared, value, name):
    def give():
        return value

    give.__annotations__["return"] = declared
    give.__name__ = name
    return give


@pytest.mark.parametrize("declared", TYPES, ids=str)
@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_a_value_comes_back_as_it_was_on_the_first_run_and_on_replay(app, declared, data):
    value, seen, id = data.draw(TYPES[declared]), [], app.new_id()
    called = tool(effect="idempotent")(giving(declared, value, "called"))

    def worker(task):
        seen.append([task.step(giving(declared, value, "done")), task.call(called), called()])
        task.wait("go")
        return value

    worker.__annotations__["return"] = declared
    declared_agent = agent(worker)
    app.run(declared_agent, id=id)
    app.signal(id, "go")
    done = app.run(declared_agent, id=id)
    assert done.status == "completed", done.failure
    for given_back in (*seen[0], *seen[1], done.result, done.unwrap(), declared_agent.read_result(app.get(id))):
        assert same(given_back, value), (given_back, value)
    assert len(seen) == 2


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (b"ab", ""),
        ([1, {"a": b"ab"}], "[1]['a']"),
        (Place("Oslo", datetime(2026, 1, 1, tzinfo=UTC), b"ab"), "['photo']"),
        ({"a": bytearray(b"ab")}, "['a']"),
        ({1, 2}, ""),
        ({"a": [frozenset("a")]}, "['a'][0]"),
    ],
)
def test_bytes_and_sets_that_would_come_back_as_something_else_are_refused(app, value, path, texts):
    @agent
    def worker(task):
        verbs = {
            "fact": lambda: task.fact("k", value),
            "note": lambda: task.note("k", value),
            "state": lambda: task.state.set("k", value),
            "result": lambda: task.step(lambda: value, name="one"),
        }
        for verb in verbs.values():
            with texts.raises((NotSerializable, holdfast.StepFailed)) as refused:
                verb()
            assert path in str(refused.value)
        return value

    failed = app.run(worker, id="t")
    assert failed.failure.type == "NotSerializable" and path in failed.failure.message
    with texts.raises(NotSerializable):
        app.start("worker", {"given": value})


def test_a_part_that_is_not_declared_is_refused_too(app):
    def loose() -> dict[str, typing.Any]:
        return {"photo": b"ab"}

    @agent
    def worker(task):
        return task.step(loose)

    assert "is bytes, which would come back as text" in app.run(worker, id="t").failure.message


@pytest.mark.parametrize("declared", [set[int], frozenset[str], list[set[int]], dict[str, set[str]] | None], ids=str)
def test_a_function_that_declares_a_set_is_refused_before_it_is_called(app, declared, texts):
    called = []

    def give():
        called.append(1)

    give.__annotations__["return"] = declared
    given = tool(give)

    @agent
    def worker(task):
        with texts.raises(InvalidValue):
            task.step(give)
        with texts.raises(InvalidValue):
            task.call(given)

    assert app.run(worker, id="t").status == "completed" and called == []


def test_an_input_of_bytes_is_taken_where_it_is_declared(app):
    @agent
    def worker(task, photo: bytes, where: Place) -> bytes:
        assert type(photo) is bytes and type(where) is Place
        task.wait("go")
        return photo + where.photo

    given = {"photo": b"\x00\xff", "where": Place("Oslo", datetime(2026, 1, 1, tzinfo=UTC), b"!")}
    app.run(worker, given, id="t")
    app.signal("t", "go")
    assert app.run(worker, given, id="t").result == b"\x00\xff!"


def test_arguments_of_steps_may_be_anything_json_can_stand_for(app):
    @agent
    def worker(task):
        return task.step(lambda data, names: [len(data), sorted(names)], b"abc", {"b", "a"}, name="one")

    assert app.run(worker, id="t").result == [3, ["a", "b"]]


def test_a_mixed_enum_that_is_not_there_is_refused_by_name(app, texts):
    def give() -> Mixed:
        return "other"

    @agent
    def worker(task):
        with texts.raises(holdfast.InvalidInput):
            task.step(give)

    assert app.run(worker, id="t").status == "completed"
