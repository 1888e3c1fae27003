"""What a reader with fresh eyes found: types, hooks, schemas and calls that did something else than they say."""

from __future__ import annotations

import asyncio
import enum
import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, NewType, TypedDict

import pydantic
import pytest

import holdfast
from holdfast import Happened, StepFailed, Task, Tool, agent, step, tool
from holdfast.engine.definitions.declared.convert import convert

if TYPE_CHECKING:
    from fractions import Fraction

STORES = ("memory", "sqlite")
CLOCK = None


# Values that come back as they were


@dataclass
class Ok:
    n: int


@dataclass
class Err:
    why: str


@dataclass
class Same:
    n: int


class Mixed(enum.Enum):
    WORD = "w"
    NUMBER = 1
    PAIR = (1, 2)


@dataclass
class Holder:
    either: Ok | Err
    kind: Mixed
    when: datetime | date


class Row(TypedDict):
    either: Ok | Err
    model: Charge


class Charge(pydantic.BaseModel):
    id: str = pydantic.Field(alias="chargeId")


class Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True, extra="forbid")
    at: datetime
    price: Decimal

    @pydantic.computed_field
    @property
    def double(self) -> Decimal:
        return 2 * self.price


@dataclass
class WithModel:
    charge: Charge


class Photo(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
    data: bytes


CASES: list[tuple[Any, Any]] = [
    (Ok | Err, Err("x")),
    (list[Ok | Err], [Ok(1), Err("x")]),
    (dict[str, Ok | Err], {"a": Err("x")}),
    (tuple[Ok | Err, int], (Err("x"), 1)),
    (tuple[Ok | Err, ...], (Err("x"), Ok(2))),
    (Ok | Err | None, None),
    (Holder, Holder(Err("x"), Mixed.PAIR, date(2026, 1, 2))),
    (Row, {"either": Ok(1), "model": Charge(chargeId="c")}),
    (list[Mixed], [Mixed.NUMBER, Mixed.PAIR]),
    (dict[str, Mixed], {"a": Mixed.WORD}),
    (Charge, Charge(chargeId="c1")),
    (list[Charge], [Charge(chargeId="c1")]),
    (Strict, Strict(at=datetime(2026, 1, 2), price=Decimal("1.10"))),
    (WithModel, WithModel(Charge(chargeId="c1"))),
    (Photo, Photo(data=b"\xff\x00")),
]


@pytest.mark.parametrize(("kind", "value"), CASES, ids=[str(kind) for kind, _ in CASES])
def test_a_declared_value_comes_back_equal_on_the_first_run_and_on_replay(app, kind, value):
    def give():
        return value

    give.__annotations__["return"] = kind
    done = []

    @agent
    def a(task):
        done.append(task.step(give))
        task.wait("go")
        return len(done)

    app.run(a, id="t")
    app.signal("t", "go", 1)
    assert app.resume("t", a).status == "completed"
    assert done == [value, value] and [type(one) for one in done] == 2 * [type(value)]


Name = NewType("Name", Ok | Err)


@pytest.mark.parametrize(
    ("value", "kind", "found"),
    [
        ({"n": 1}, Name, Ok(1)),
        ({"n": 1}, Annotated[Ok | Err, "either"], Ok(1)),
        ({"n": 1, "more": 2}, Ok | Err, Ok(1)),
        ([{"why": "x"}], Sequence[Ok | Err], [Err("x")]),
        (None, Mixed | None, None),
    ],
)
def test_json_is_made_what_is_declared(value, kind, found):
    assert convert(value, kind, "it") == found


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ({"x": 1}, Ok | Err),
        ([{"n": 1}], tuple[Ok | Err, Ok | Err]),
        ({"either": {"n": 1}}, Row),
        ("z", Mixed),
        ({"either": {"n": 1}}, Holder),
        ({"id": 5}, Charge),
    ],
)
def test_json_that_does_not_fit_is_refused_with_its_place(value, kind):
    with pytest.raises(holdfast.InvalidInput, match="it"):
        convert(value, kind, "it")


@dataclass
class Fancy(Ok):
    more: int = 0


class Hidden(pydantic.BaseModel):
    name: str
    password: pydantic.SecretStr
    note: str = pydantic.Field(default="", exclude=True)


@dataclass
class Growing:
    n: int

    def __post_init__(self) -> None:
        self.n += 1


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Ok, Fancy(1, 2)),
        (Ok | Same, Same(1)),
        (Hidden, Hidden(name="a", password=pydantic.SecretStr("x"))),
        (Hidden, Hidden(name="a", password=pydantic.SecretStr("**********"), note="kept out")),
        (Growing, Growing(1)),
    ],
)
def test_a_value_that_its_own_class_would_change_is_refused(app, kind, value, texts):
    def give():
        return value

    give.__annotations__["return"] = kind

    @agent
    def a(task):
        return task.step(give)

    failed = app.run(a)
    assert failed.failure is not None and failed.failure.type == "StepFailed"
    texts.check(failed.failure.message)


def test_an_annotation_that_is_imported_for_checkers_only_leaves_the_others(app):
    @tool(effect="read")
    def half(of: Ok) -> Fraction: ...

    with pytest.warns(holdfast.UnresolvedType, match="returns 'Fraction'"):
        assert half.parameters.types == {"of": Ok}


def test_types_of_the_function_around_it_are_found(app):
    @dataclass
    class Local:
        n: int

    @agent
    def a(task: Task, n: int) -> Local:
        return Local(n)

    assert app.run(a, {"n": 3}).result == Local(3)
    with pytest.raises(holdfast.InvalidInput):
        app.run(a, {"n": "three"})


def test_a_result_of_the_wrong_type_fails_the_task_and_is_not_its_result(app):
    @agent
    def a(task) -> int:
        return "x"  # pyright: ignore[reportReturnType]

    failed = app.run(a, id="t")
    assert failed.status == "failed" and "the result of a() does not fit" in failed.failure.message
    with pytest.raises(holdfast.TaskFailed):
        a.read_result(failed)


def test_bytes_can_be_the_result_of_a_reconciled_and_of_a_settled_call(app):
    @tool(effect="once", reconcile=lambda call: Happened(b"\xff\x00"), reconcile_after=0)
    def label() -> bytes:
        raise ConnectionError("lost")

    @tool(effect="once")
    def photo() -> bytes:
        raise ConnectionError("lost")

    @agent(tools=[photo])
    def a(task):
        first = label()
        return [first == b"\xff\x00", photo() == b"\x01"]

    assert app.run(a, id="t").status == "waiting"
    app.settle("t", "photo#1", happened=True, result=b"\x01", by="ana")
    assert app.resume("t", a).result == [True, True]


# Hooks


@step
def probe(text: str) -> str:
    return text


def test_an_observer_that_calls_a_step_makes_no_step_of_the_agent(app):
    seen = []

    def observe(log, events):
        seen.extend(probe(one.event.key) for one in events if type(one.event).__name__ == "StepCompleted")
        app.get(log)

    app.on_events(observe)

    @agent
    def a(task):
        return [probe("one"), probe("two")]

    assert app.run(a, id="t").result == ["one", "two"]
    assert seen == ["probe#1", "probe#2"] == [one.key for one in app.steps("t")]


@pytest.mark.parametrize("option", ["definite", "retry_on"])
def test_a_test_of_errors_that_calls_a_step_makes_no_step_of_the_agent(app, option):
    def judge(error):
        return probe("hook") == "hook"

    @tool(effect="once", **{option: judge})
    def send() -> int:
        raise ConnectionError("x")

    @agent
    def a(task):
        with pytest.raises(StepFailed):
            send()
        found = probe("body")
        task.wait("go")
        return found

    app.run(a, id="t")
    app.signal("t", "go", 1)
    assert app.resume("t", a).result == "body"
    assert [one.key for one in app.steps("t")] == ["send#1", "probe#1", "wait:go#1"] or app.step("t", "probe#1")


def test_blocks_in_generators_may_be_left_in_any_order(app):
    def rows(id):
        with app.task("export", id=id):
            for number in range(2):
                yield probe(str(number))

    assert list(zip(rows("a"), rows("b"), strict=True)) == [("0", "0"), ("1", "1")]
    assert probe("plain") == "plain" and app.get("a").status == app.get("b").status == "completed"


# Calls outside of tasks


def test_many_awaited_calls_leave_the_pool_of_threads_free_and_async_tools_stay_on_the_loop(app):
    begun, go = threading.Barrier(21, timeout=20), threading.Event()

    @tool(effect="once")
    def slow(n: int) -> int:
        begun.wait()
        go.wait(20)
        return n

    @tool(effect="once")
    async def on_loop() -> bool:
        return asyncio.get_running_loop() is loops[0]

    loops = []

    async def program():
        loops.append(asyncio.get_running_loop())
        calls = [asyncio.create_task(app.aio.call(slow, n=n, key=str(n))) for n in range(20)]
        await asyncio.get_running_loop().run_in_executor(None, begun.wait)
        assert await asyncio.wait_for(app.aio.find("none"), 10) is None, "other verbs go on"
        go.set()
        assert await asyncio.gather(*calls) == list(range(20))
        assert await app.aio.call(on_loop, key="k") is True
        assert await app.aio.call(slow, n=3, key="3") == 3, "it is recorded, and not made again"
        with pytest.raises(holdfast.StepChanged, match="another key"):
            await app.aio.call(slow, n=4, key="3")

    asyncio.run(program())
    assert app.call(slow, n=5, key="5") == 5


def test_a_call_in_doubt_names_what_to_do_and_is_settled(app):
    @tool(effect="once")
    async def lose() -> int:
        raise ConnectionError("lost")

    for call in (lambda: app.call(lose, key="k"), lambda: asyncio.run(app.aio.call(lose, key="k"))):
        with pytest.raises(holdfast.Suspended, match="holdfast inbox"):
            call()
    app.settle("call.lose.k", "lose#1", happened=True, result=7, by="ana")
    assert app.call(lose, key="k") == 7 == asyncio.run(app.aio.call(lose, key="k"))


def test_rows_are_awaited_as_a_list_or_gone_through(app):
    app.start("a", id="t")

    async def program():
        assert [one.kind for one in await app.aio.events("t")] == ["task_created"]
        assert [one.kind async for one in app.aio.events("t")] == ["task_created"]

    asyncio.run(program())


def test_as_completed_replays_in_the_order_it_ran(app):
    @step
    async def work(n: int) -> int:
        await asyncio.sleep(0)
        return n

    @agent
    async def a(task):
        found = [await one for one in asyncio.as_completed([work(n) for n in range(40)])]
        await task.wait("go")
        return found

    app.run(a, id="t")
    app.signal("t", "go", 1)
    done = app.resume("t", a)
    assert done.status == "completed" and sorted(done.result) == list(range(40))


@pytest.mark.parametrize("kind", ["step", "tool"])
def test_a_plain_call_that_is_not_awaited_is_named_as_it_is_written(app, kind):
    @(step if kind == "step" else tool)
    async def send() -> int:
        return 1

    @agent
    async def a(task):
        send()

    assert "send was not awaited" in app.run(a).failure.message


# Schemas


def schema_tool(**rules):
    return Tool(lambda **given: given, name="t", schema={"type": "object", "properties": {"n": rules}})


@pytest.mark.parametrize(
    ("rules", "value"),
    [
        ({"type": "number"}, 1e16),
        ({"type": "number"}, -1e17),
        ({"type": "integer"}, 3.0),
        ({"type": "array", "items": [{"type": "string"}, {"type": "integer"}]}, ["a", 1, None]),
        ({"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "integer"}}, ["a", 1]),
        (
            {"type": "object", "patternProperties": {"^x": {"type": "integer"}}, "additionalProperties": False},
            {"x1": 1},
        ),
    ],
)
def test_a_schema_takes_what_it_allows(rules, value):
    assert schema_tool(**rules).parameters.check({"n": value}) == {"n": value}


@pytest.mark.parametrize(
    ("rules", "value"),
    [
        ({"type": "integer"}, float("inf")),
        ({"type": "array", "items": [{"type": "string"}]}, [1]),
        ({"patternProperties": {"^x": {"type": "integer"}}, "additionalProperties": False}, {"y": 1}),
        ({"patternProperties": {"^x": {"type": "integer"}}}, {"x": "a"}),
    ],
)
def test_a_schema_refuses_what_it_does_not_allow(rules, value):
    with pytest.raises(holdfast.InvalidInput):
        schema_tool(**rules).parameters.check({"n": value})


@pytest.mark.parametrize(
    "rules", [{"properties": 5}, {"enum": 5}, {"minimum": "x"}, {"pattern": "("}, {"anyOf": [3]}, {"items": 4}]
)
def test_a_malformed_schema_is_refused_when_it_is_declared(rules, texts):
    with texts.raises(holdfast.InvalidValue):
        schema_tool(**rules)


# Input


def test_odd_input_of_verbs_is_refused_by_name(app, texts):
    app.start("a", id="t")

    @tool(effect="read")
    def look(n: int) -> int:
        return n

    for odd in (
        lambda: app.start(look),
        lambda: app.start(None),
        lambda: app.start("a", priority="high"),
        lambda: app.start("a", by=5),
        lambda: app.start("a", goal=5),
        lambda: app.call(look, 5, key="k"),
        lambda: app.call(look, {"n": 1}, n=2, key="k"),
        lambda: app.list(limit="five"),
        lambda: app.list(limit=2.5),
        lambda: app.list(order=None),
        lambda: app.list(include=5),
        lambda: app.list(interrupted="yes"),
        lambda: app.list(changed_since=date(2026, 1, 2)),
        lambda: app.watch(after=5),
        lambda: app.audit(after=5),
        lambda: app.audit(limit="x"),
        lambda: app.audit(tool=5),
        lambda: list(app.events("t", after="x")),
        lambda: app.follow("t", after=-1),
        lambda: app.step("t", 5),
        lambda: app.steps("t", turn="x"),
        lambda: app.diff("t", "a", 1),
        lambda: app.fork("t", at="x"),
        lambda: app.fetch(5),
        lambda: app.worker(5),
        lambda: holdfast.open("memory:", agents=look),
        lambda: app.on_events(5),
        lambda: tool(look),
        lambda: step(5),
    ):
        with texts.raises(holdfast.InvalidValue):
            odd()
    with texts.raises(holdfast.InvalidUrl):
        holdfast.open(5)
    assert [one.seq for one in app.events("t", after="0")] == [1], "a header of HTTP is text"


def test_a_tool_is_not_a_method(texts):
    with texts.raises((holdfast.InvalidValue, RuntimeError)):

        class Till:
            @tool
            def push(self, amount: int) -> None: ...


def test_rows_say_all_their_fields_on_every_store(app):
    app.start("a", id="t")
    row = json.loads(app.row("t").to_json())
    assert row["status"] == "pending" and row["queue"] == "default" and "lease_seconds" in row


def test_everything_that_verbs_return_can_be_json(app):
    app.start("a", id="t")
    begin = app.watch().cursor
    app.start("a", id="u")
    change = next(iter(app.watch(after=begin, seconds=5)))
    some = [change, app.counts(), app.stats(), next(iter(app.deltas("t"))), app.verify(), *app.doctor(), *app.depths()]
    for one in [*some, app.gc(older_than="1d"), app.get("t").waiting]:
        found = json.loads(one.to_json())
        assert isinstance(found, dict) and found
