"""Mistakes of those who write agents: named, with a remedy, and without harm."""

import asyncio
import contextlib
import dataclasses
import functools
import signal
import subprocess
import sys
import textwrap
import threading

import msgspec
import pytest

import holdfast
from holdfast import agent, tool
from holdfast.testing.crash.everywhere import MovableClock
from tests.engine.both import KINDS, declarer, kinds

CLOCK = MovableClock


def test_an_agent_without_a_task_is_refused(texts):
    for fn in (lambda: None, lambda *, task: None):
        with texts.raises(holdfast.InvalidValue):
            agent(name="x")(fn)


def test_what_is_no_agent_or_no_tool_is_refused(app, texts):
    with texts.raises(holdfast.HoldfastError):
        app.run(lambda task: 1, id="t")
    failed = app.run(agent(name="x")(lambda task: task.call(print)), id="t")
    texts.check(failed.failure.message)
    failed = app.run(agent(name="x")(lambda task: task.spawn(print)), id="u")
    texts.check(failed.failure.message)


def test_agents_and_tools_are_functions_that_a_plain_test_may_call():
    """No store, no app: what is decorated can be called with a stand-in for the task."""

    @tool
    def twice(x: int) -> int:
        return 2 * x

    @agent
    def worker(task, x: int):
        return task.call(twice, x=x) + 1

    class Plain:
        def call(self, one, **arguments):
            return one(**arguments)

    assert twice(4) == 8 and worker(Plain(), 4) == 9 and worker(Plain(), x=1) == 3


@pytest.mark.parametrize(
    "declare",
    [
        lambda: agent(stages="abc", name="x")(lambda task: 1),
        lambda: agent(stages=["a", "a"], name="x")(lambda task: 1),
        lambda: agent(accepts="12", name="x")(lambda task: 1),
        lambda: agent(accepts=[1], name="x")(lambda task: 1),
        lambda: tool(effect="read", unique="k", name="x")(lambda: 1),
        lambda: tool(effect="read", reconcile=print, name="x")(lambda: 1),
        lambda: tool(unique="k-{x}", name="x")(lambda y: 1),
        lambda: agent(name="a")(lambda task: 1).read_state(7),
        lambda: tool(unique="k-{", name="x")(lambda y: 1),
    ],
)
def test_a_declaration_that_means_nothing_is_refused(declare, texts):
    with texts.raises(holdfast.InvalidValue) as refused:
        declare()
    assert refused.value.hint


def test_a_step_that_cannot_be_called_like_that_says_how(app, either):
    def add(a, *, b):
        return a + b

    @either()
    def worker(task):
        caught = []
        for wrong in (lambda: task.step(add, 1, c=2), lambda: task.step(add, 1, 2, b=3)):
            try:
                yield wrong()
            except holdfast.InvalidInput as error:
                caught.append(str(error))
        return caught

    done = app.run(worker, id="t")
    assert done.status == "completed" and len(done.result) == 2, done.failure
    assert all("add" in told and "(a, *, b)" in told for told in done.result) and not done.steps


def test_an_unknown_stage_and_an_impossible_phase_are_named_and_harm_nothing(app, either, texts):
    @either(stages=["a", "b"])
    def worker(task):
        caught = []
        for wrong in (lambda: task.stage("c"), lambda: task.phase("done"), lambda: task.phase("nonsense")):
            try:
                wrong()
            except holdfast.InvalidTransition as error:
                caught.append((str(error), bool(error.hint)))
        task.stage("b")
        task.phase("planning")
        yield task.step(lambda: 1, name="one")
        return caught

    done = app.run(worker, id="t")
    assert (done.stage, app.at("t", done.seq - 1).phase, done.phase) == ("b", "planning", "done")
    assert all(hint for _, hint in done.result) and len(done.result) == 3
    for said, _ in done.result:
        texts.check(said)


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"a": [1, object()]}, "['a'][1]"),
        ({1: 2}, ""),
        (float("nan"), ""),
        ([{"deep": {1, 2} | {object()}}], "[0]['deep']"),
    ],
)
def test_an_unserialisable_result_names_the_step_and_the_path(app, either, value, path, texts):
    @either()
    def worker(task):
        yield task.step(lambda: value, name="make")

    failed = app.run(worker, id="t")
    assert "make#1" in failed.failure.message and path in failed.failure.message
    texts.check(failed.failure.message)


def test_an_unserialisable_argument_names_the_parameter(app, either):
    @either()
    def worker(task):
        yield task.step(lambda thing: 1, {"deep": object()}, name="use")

    failed = app.run(worker, id="t")
    assert "use(thing)['deep']" in failed.failure.message and kinds(app)[-2:] == ["task_claimed", "task_failed"]


NESTED = [(kind, verb) for kind in KINDS for verb in ("step", "ask", "wait", "spawn", "fact")]


@pytest.mark.parametrize(("kind", "verb"), NESTED)
def test_verbs_inside_a_step_are_refused(app, kind, verb):
    either = declarer(kind)

    @agent
    def child(task):
        return 1

    uses = {
        "step": lambda task: task.step(lambda: 1, name="inner"),
        "ask": lambda task: task.ask("who?"),
        "wait": lambda task: task.wait("go"),
        "fact": lambda task: task.fact("x", 1),
        "spawn": lambda task: task.spawn(child),
    }

    @either()
    def worker(task):
        def outer():
            found = uses[verb](task)
            if asyncio.iscoroutine(found):
                try:
                    found.send(None)
                finally:
                    found.close()

        yield task.step(outer)

    failed = app.run(worker, id="t")
    assert "NestedStep" in failed.failure.message and "outer#1" in failed.failure.message


def test_a_bare_thread_must_name_its_steps(app):
    errors, results = [], []

    @agent
    def worker(task):
        def unnamed():
            try:
                task.step(len, [1])
            except holdfast.HoldfastError as error:
                errors.append(error)

        def named(n):
            results.append(task.step(lambda: n, name=f"named {n}"))

        threads = [threading.Thread(target=unnamed), *(threading.Thread(target=named, args=(n,)) for n in range(3))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        task.wait("go")
        return sorted(results)

    app.run(worker, id="t")
    assert type(errors[0]).__name__ == "UnnamedThread" and "name=" in errors[0].hint
    before = kinds(app).count("step_completed")
    app.signal("t", "go")
    results.clear()
    assert app.run(worker, id="t").result == [0, 1, 2] and before == 3
    assert kinds(app).count("step_completed") == 3, "threads find their steps again"


def test_what_a_thread_asks_awaits_or_spawns_is_told_apart_by_its_name(app):
    refused = []

    @agent
    def child(task):
        return task.wait("child may go")

    @agent
    def worker(task):
        found = {}

        def unnamed():
            try:
                task.ask("who is this?")
            except holdfast.HoldfastError as error:
                refused.append(error)

        def keep(key, verb, *args, **options):
            with contextlib.suppress(holdfast.Suspended):  # what it ends with is for nobody to see
                found[key] = verb(*args, **options)

        threads = [
            threading.Thread(target=unnamed),
            threading.Thread(target=keep, args=("who", task.ask, "who?"), kwargs={"name": "who"}),
            threading.Thread(target=keep, args=("may", task.approve, "may it?"), kwargs={"name": "may"}),
            threading.Thread(target=keep, args=("bell", task.wait, "bell")),
            threading.Thread(target=keep, args=("child", task.spawn, child), kwargs={"name": "child"}),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return found

    waiting = app.run(worker, id="t", hold=0).waiting
    assert waiting.kind == "person" and refused[0].code == "unnamed-thread"
    assert {one["key"] for one in waiting.on} == {"~who/who#1", "~may/may#1", "~bell/bell#1", "~child/child#1"}
    app.answer("t", "who", "Ana")
    app.approve("t", "may")
    app.signal("t", "bell", 3)
    app.signal("t/~child/child#1", "child may go", 7)
    app.resume("t/~child/child#1", child)
    assert app.run(worker, id="t", hold=0).result == {"who": "Ana", "may": True, "bell": 3, "child": 7}


def test_a_thread_may_have_the_same_name_in_every_turn(app):
    did = []

    @agent(loop=True)
    def worker(task):
        thread = threading.Thread(target=lambda: did.append(task.step(lambda: task.turn, name="work")))
        thread.start()
        thread.join()
        return "done" if task.turn == 3 else None

    assert app.run(worker, id="t").result == "done" and did == [1, 2, 3]


def test_a_thread_whose_step_has_to_wait_long_lets_the_task_wait_and_comes_back(app, clock):
    tried = []

    def flaky():
        tried.append(1)
        if len(tried) == 1:
            raise ValueError("not yet")
        return "done"

    @agent
    def worker(task):
        found = []

        def inside():
            with contextlib.suppress(holdfast.Suspended):  # what it ends with is for nobody to see
                found.append(task.step(flaky, name="inside", retry=holdfast.Retry(2, first=600)))

        thread = threading.Thread(target=inside)
        thread.start()
        thread.join()
        return found

    waiting = app.run(worker, id="t", hold=0)
    assert (waiting.status, waiting.waiting.kind, waiting.result) == ("waiting", "timer", None)
    clock.advance(601)
    assert app.run(worker, id="t", hold=0).result == ["done"] and len(tried) == 2


@pytest.mark.parametrize("effect", ["read", "idempotent", "once", "transaction"])
def test_a_tool_that_exits_does_not_end_the_process(app, either, effect):
    @tool(effect=effect)
    def leave(*, connection) -> None:
        sys.exit(3)

    @either()
    def worker(task):
        yield task.call(leave)

    ended = app.run(worker, id="t")
    if effect == "once":
        assert ended.waiting.kind == "doubt", "it may have had its effect"
    else:
        assert "ToolExited" in ended.failure.message and "3" in ended.failure.message


def test_an_async_tool_that_exits_does_not_end_the_process(app, either):
    @tool
    async def leave() -> None:
        await asyncio.sleep(0)
        sys.exit(3)

    @either()
    def worker(task):
        yield task.call(leave)

    assert "ToolExited" in app.run(worker, id="t").failure.message


def test_arguments_of_a_tool_are_checked_before_it_is_announced(app, either):
    made = []

    @tool
    def pay(amount: int) -> None:
        made.append(amount)

    @either()
    def worker(task, given: dict):
        yield task.call(pay, **given)

    for id, given in {"type": {"amount": "3"}, "missing": {}, "extra": {"amount": 3, "tip": 1}}.items():
        failed = app.run(worker, {"given": given}, id=id)
        assert failed.failure.code == "invalid-input" and made == []
        assert "step_started" not in kinds(app, id)


@pytest.mark.parametrize("limit", [0, -1])
def test_a_map_that_lets_nothing_happen_is_refused(app, either, limit):
    @either()
    def worker(task):
        yield task.map(len, [[1]], limit=limit)

    assert app.run(worker, id="t").failure.code == "invalid-value"


def test_a_map_of_nothing_gives_nothing(app, either):
    @either()
    def worker(task):
        return (yield task.map(len, []))

    assert app.run(worker, id="t").result == []


# What can be a step


class Greeter:
    def __init__(self, word):
        self.word = word

    def greet(self, name: str) -> str:
        return f"{self.word} {name}"

    async def greet_later(self, name: str) -> str:
        await asyncio.sleep(0)
        return f"{self.word} {name}"

    @classmethod
    def of_class(cls, name):
        return f"{cls.__name__} {name}"

    @staticmethod
    def static(name):
        return f"static {name}"

    def __call__(self, name):
        return f"called {name}"


class LaterGreeter:
    async def __call__(self, name):
        await asyncio.sleep(0)
        return f"later {name}"


def logged(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        return fn(*args, **kwargs)

    return wrapper


@logged
def decorated(name):
    return f"decorated {name}"


@logged
async def decorated_later(name):
    return f"decorated later {name}"


def two(first, name):
    return f"{first} {name}"


async def two_later(first, name):
    return f"{first} {name}"


STEPS = {
    "greet": (Greeter("hello").greet, "hello Ana"),
    "greet_later": (Greeter("hello").greet_later, "hello Ana"),
    "of_class": (Greeter.of_class, "Greeter Ana"),
    "static": (Greeter.static, "static Ana"),
    "Greeter": (Greeter("x"), "called Ana"),
    "LaterGreeter": (LaterGreeter(), "later Ana"),
    "decorated": (decorated, "decorated Ana"),
    "decorated_later": (decorated_later, "decorated later Ana"),
    "two": (functools.partial(two, "partial"), "partial Ana"),
    "two_later": (functools.partial(two_later, "partial"), "partial Ana"),
    "len": (len, 3),
    "str": (str, "Ana"),
}


@pytest.mark.parametrize("name", list(STEPS))
def test_whatever_can_be_called_can_be_a_step(app, either, name):
    fn, expected = STEPS[name]

    @either()
    def worker(task):
        value = yield task.step(fn, "Ana")
        yield task.wait("go")
        return value

    waiting = app.run(worker, id="t")
    assert waiting.status == "waiting", waiting.failure
    app.signal("t", "go")
    done = app.run(worker, id="t")
    assert done.result == expected and next(iter(done.steps)) == f"{name}#1"


# Types


class Place(msgspec.Struct, frozen=True):
    city: str
    zip: int = 0


@dataclasses.dataclass
class Order:
    place: Place
    tags: list[str]
    extra: dict[str, Place] = dataclasses.field(default_factory=dict)


def test_typed_values_go_in_and_come_out_of_steps_tools_and_children(app, either):
    seen = []
    order = Order(Place("Oslo", 1), ["a"], {"b": Place("Rome")})

    def improve(order: Order) -> Order:
        assert isinstance(order, Order) and isinstance(order.place, Place)
        return dataclasses.replace(order, tags=[*order.tags, "better"])

    @tool(effect="idempotent")
    def move(order: Order, to: Place) -> Place:
        assert isinstance(order, Order) and isinstance(to, Place)
        return to

    @agent
    def child(task, order: Order) -> list[Place]:
        assert isinstance(order, Order)
        return [order.place]

    @either()
    def worker(task, order: Order):
        better = yield task.step(improve, order)
        moved = yield task.call(move, order=better, to=Place("Bern"))
        places = yield task.spawn(child, {"order": better})
        many = yield task.map(improve, [order, better])
        seen.append([order, better, moved, places, many])
        yield task.wait("go")

    app.run(worker, {"order": order}, id="t")
    app.signal("t", "go")
    done = app.run(worker, {"order": order}, id="t")
    assert done.status == "completed", done.failure
    assert seen[0] == seen[1]
    assert seen[0][1] == dataclasses.replace(order, tags=["a", "better"]) and seen[0][2] == Place("Bern")
    assert seen[0][3] == [Place("Oslo", 1)]


def test_pydantic_models_go_in_and_come_out(app, either):
    pydantic = pytest.importorskip("pydantic")

    class Model(pydantic.BaseModel):
        n: int

    seen = []

    def more(model: Model) -> Model:
        return Model(n=model.n + 1)

    @either()
    def worker(task):
        seen.append((yield task.step(more, Model(n=1))))
        yield task.wait("go")

    app.run(worker, id="t")
    app.signal("t", "go")
    app.run(worker, id="t")
    assert seen == [Model(n=2), Model(n=2)]


def test_schemas_come_from_type_hints():
    @tool(effect="once")
    def send(to: str, place: Place, copies: int = 1, *, idempotency_key: str, connection=None) -> None: ...

    schema = send.input_schema
    assert schema["required"] == ["to", "place"] and set(schema["properties"]) == {"to", "place", "copies"}
    assert schema["properties"]["copies"]["default"] == 1
    assert schema["properties"]["place"]["properties"]["city"] == {"type": "string"}

    @agent
    def worker(task, order: Order, times: int = 2) -> None: ...

    assert worker.input_schema["required"] == ["order"]


# Ctrl-C


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_once_stops_after_the_step_and_twice_at_once(tmp_path, kind, times, texts):
    script = tmp_path / "agents.py"
    is_async, awaited, nap = ("async ", "await ", "asyncio.sleep") if kind == "async" else ("", "", "time.sleep")
    script.write_text(
        textwrap.dedent(
            f"""
            import asyncio, sys, time, holdfast
            from holdfast import agent

            {is_async}def nap():
                print("began", flush=True)
                {awaited}{nap}(float(sys.argv[1]))

            @agent
            {is_async}def worker(task):
                {awaited}task.step(nap)
                {awaited}task.step(print, "second", name="second")
                return "done"

            if __name__ == "__main__":
                holdfast.open({str(tmp_path / "a.db")!r}).run(worker, id="t")
            """
        )
    )
    command = [sys.executable, str(script), "1" if times == 1 else "600"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "began\n"
        process.send_signal(signal.SIGINT)
        if times == 2:
            texts.check(process.stderr.readline())
            process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode != 0 and "second" not in out and "KeyboardInterrupt" in err
    with holdfast.open(tmp_path / "a.db") as app:
        state = app.get("t")
        assert state.status == "pending" or state.interrupted
        finished = "nap#1" in state.steps and state.steps["nap#1"].status == "completed"
        assert finished == (times == 1), err
    again = [sys.executable, str(script), "1" if times == 1 else "0"]
    assert "second" in subprocess.run(again, capture_output=True, text=True, timeout=60, check=True).stdout


def test_options_count_also_when_a_function_is_declared_in_a_call():
    """`tool(fn, effect="read")` is the same as the decorator, and not a tool that does something once."""
    looked = tool(look, effect="read", name="other")
    assert (looked.name, looked.effect) == ("other", tool(effect="read", name="other")(look).effect)
    assert (agent(plain, version="7").version, agent(plain).version) == ("7", "")
    with pytest.raises(TypeError):
        agent(plain, colour="red")


def look(city: str) -> str:
    return city


def plain(task):
    return None
