"""What steps stream can be watched while they run. Only the end result is in the log."""

import asyncio
import threading
import time

import pytest

import holdfast
from holdfast import (
    AsyncTask,
    Chunk,
    ChunksCut,
    ChunksDropped,
    InvalidValue,
    Retry,
    Secret,
    StepFailed,
    Task,
    TaskFailed,
    agent,
    current_call,
    step,
    streaming,
    tool,
)
from holdfast.core import limits
from holdfast.store.chunks import ChunkBatch
from holdfast.store.memory.store import MemoryStore
from tests.waiting import PATIENCE_SECONDS, until

STORES = ("memory", "sqlite", "postgres")
WORDS = ["It ", "is ", "sunny."]


@pytest.fixture
def app(url):
    with holdfast.open(url) as opened:
        yield opened


class Watching:
    """A watcher in a thread: what it was given, in order."""

    def __init__(self, app, id="t", **options):
        self.seen = []
        self._new = threading.Condition()
        self._thread = threading.Thread(target=self._watch, args=(app, id, options), daemon=True)
        self._thread.start()

    def _watch(self, app, id, options):
        for one in app.follow(id, chunks=True, seconds=30, **options):
            with self._new:
                self.seen.append(one)
                self._new.notify_all()

    def until(self, found, seconds=10):
        with self._new:
            assert self._new.wait_for(lambda: found(self.seen), seconds), self.seen

    def end(self):
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive(), "the watcher ends with the task"
        return self.seen


def chunks(seen, step=None):
    return [one.data for one in seen if isinstance(one, Chunk) and step in (None, one.step)]


def kinds(seen):
    return [getattr(one, "kind", type(one).__name__) for one in seen]


def has(*data):
    return lambda seen: chunks(seen) == list(data)


def started(app, agent, id="t", **input):
    """A task that is worked on in another thread."""
    app.start(agent, input, id=id)
    watching = Watching(app, id)
    work = threading.Thread(target=app.run, args=(agent, input), kwargs={"id": id})
    work.start()
    return watching, work


def test_chunks_are_seen_while_the_step_runs_and_only_the_result_is_recorded(app, either):
    go_on = threading.Event()

    def say():
        yield WORDS[0]
        assert go_on.wait(PATIENCE_SECONDS)
        yield from WORDS[1:]

    @either()
    def speaker(task):
        return (yield task.stream(say))

    watching, work = started(app, speaker)
    watching.until(has("It "))
    assert app.get("t").status == "running", "the step is under way"
    go_on.set()
    work.join()
    seen = watching.end()
    assert [(one.task, one.step, one.attempt, one.number) for one in seen if isinstance(one, Chunk)] == [
        ("t", "say#1", 1, number) for number in (1, 2, 3)
    ]
    assert chunks(seen) == WORDS and app.get("t").result == "It is sunny."
    assert app.get("t").steps["say#1"].result == "It is sunny."
    assert kinds(seen).index("Chunk") < kinds(seen).index("step_completed"), "the end of a step comes after its chunks"
    assert "ChunksDropped" not in kinds(seen)
    assert kinds(one for one in seen if not isinstance(one, Chunk)) == [one.kind for one in app.events("t")]
    assert all("sunny" not in str(one.event) for one in app.events("t") if one.kind == "step_started")


def test_an_async_generator_streams_in_both_kinds_of_agents(app, either):
    async def say():
        for word in WORDS:
            await asyncio.sleep(0)
            yield word

    @either()
    def speaker(task):
        return (yield task.stream(say))

    app.start(speaker, id="t")
    watching = Watching(app)
    assert app.run(speaker, id="t").result == "It is sunny."
    assert chunks(watching.end()) == WORDS


def test_a_function_that_gives_a_stream_is_drained_also_if_it_must_be_awaited(app, either):
    class Pieces:
        async def __aiter__(self):
            for word in WORDS:
                yield word

    async def ask(question: str):
        return Pieces()

    def told():
        return iter(WORDS)

    @either()
    def speaker(task):
        return [(yield task.stream(ask, "weather?")), (yield task.stream(told))]

    assert app.run(speaker, id="t").result == ["It is sunny.", "It is sunny."]
    assert app.get("t").steps["ask#1"].input == {"question": "weather?"}


def test_the_result_is_what_a_generator_returns_else_its_chunks(app, either):
    def counted():
        yield "a"
        return {"words": 1}

    def numbers():
        yield from (1, 2, {"x": None})

    def silent():
        return
        yield

    @either()
    def speaker(task):
        return [(yield task.stream(counted)), (yield task.stream(numbers)), (yield task.stream(silent))]

    wanted = [{"words": 1}, [1, 2, {"x": None}], ""]
    assert app.run(speaker, id="t").result == wanted
    assert app.run(speaker, id="t").result == wanted, "again, from the log"


def test_a_declared_result_comes_back_as_its_type_also_on_replay(app):
    from collections.abc import Generator
    from datetime import date

    def dated() -> Generator[str, None, date]:
        yield "today"
        return date(2026, 1, 2)

    made = []

    @agent
    def speaker(task: Task) -> str:
        made.append(task.stream(dated))
        task.wait("go")
        return str(made[-1])

    app.run(speaker, id="t")
    app.signal("t", "go")
    assert app.resume("t", speaker).result == "2026-01-02"
    assert made == [date(2026, 1, 2)] * 2


def test_replay_streams_nothing(app, either):
    calls = []

    def say():
        calls.append(1)
        yield from WORDS

    @either()
    def speaker(task):
        said = yield task.stream(say)
        yield task.wait("go")
        return said

    app.run(speaker, id="t")
    app.signal("t", "go")
    watching = Watching(app, after=app.head("t"))
    assert app.resume("t", speaker).result == "It is sunny."
    assert chunks(watching.end()) == [] and calls == [1]


def test_a_step_and_a_tool_stream_by_themselves(app, either):
    @tool(effect="read")
    def look_up(city: str) -> str:
        streaming().send({"found": city})
        streaming().send("!")
        return city

    @step
    def think() -> int:
        streaming().send(current_call().attempt)
        return 7

    @either(tools=[look_up])
    def speaker(task):
        return [(yield task.call(look_up, city="Rome")), (yield task.step(think))]

    app.start(speaker, id="t")
    watching = Watching(app)
    assert app.run(speaker, id="t").result == ["Rome", 7]
    seen = watching.end()
    assert [(one.step, one.number, one.data) for one in seen if isinstance(one, Chunk)] == [
        ("look_up#1", 1, {"found": "Rome"}),
        ("look_up#1", 2, "!"),
        ("think#1", 1, 1),
    ]


def test_steps_that_stream_at_once_are_told_apart(app):
    async def say(word: str):
        for number in range(3):
            yield f"{word}{number}"
            await asyncio.sleep(0.01)

    @agent
    async def speaker(task: AsyncTask) -> list[str]:
        return list(await asyncio.gather(*(task.stream(say, word, key=word) for word in "ab")))

    app.start(speaker, id="t")
    watching = Watching(app)
    assert app.run(speaker, id="t").result == ["a0a1a2", "b0b1b2"]
    seen = watching.end()
    assert chunks(seen, "a") == ["a0", "a1", "a2"] and chunks(seen, "b") == ["b0", "b1", "b2"]


def test_a_failed_attempt_is_dropped_and_the_next_begins_anew(app, either):
    go_on = threading.Event()

    def say():
        yield "wrong"
        if current_call().attempt == 1:
            assert go_on.wait(PATIENCE_SECONDS)
            raise ConnectionError("the model hung up")
        yield "right"

    @either()
    def speaker(task):
        return (yield task.stream(say, retry=Retry(2, first=0)))

    watching, work = started(app, speaker)
    watching.until(has("wrong"))
    go_on.set()
    work.join()
    seen = [one for one in watching.end() if isinstance(one, Chunk | ChunksDropped)]
    assert [(type(one).__name__, one.attempt) for one in seen] == [
        ("Chunk", 1),
        ("ChunksDropped", 1),
        ("Chunk", 2),
        ("Chunk", 2),
    ]
    assert [one.number for one in seen if isinstance(one, Chunk)] == [1, 1, 2]
    assert app.get("t").result == "wrongright"


def test_watchers_learn_of_a_failed_attempt_before_the_next_one_streams(app, either):
    go_on, again = threading.Event(), threading.Event()

    def say():
        if current_call().attempt == 2:
            assert again.wait(PATIENCE_SECONDS)
            return "done"
        streaming().send("wrong")
        assert go_on.wait(PATIENCE_SECONDS)
        raise ConnectionError("the model hung up")

    @either()
    def speaker(task):
        return (yield task.step(say, retry=Retry(2, first=0)))

    watching, work = started(app, speaker)
    watching.until(has("wrong"))
    go_on.set()
    watching.until(lambda seen: "ChunksDropped" in kinds(seen))
    assert app.get("t").status == "running"
    again.set()
    work.join()
    assert kinds(watching.end()).count("ChunksDropped") == 1


def test_a_step_that_fails_for_good_leaves_no_chunk_standing(app, either):
    seen_it = threading.Event()

    def say():
        yield "wrong"
        assert seen_it.wait(PATIENCE_SECONDS)
        raise ValueError("no")

    @either()
    def speaker(task):
        try:
            yield task.stream(say)
        except StepFailed:
            return "failed"

    watching, work = started(app, speaker)
    watching.until(has("wrong"))
    seen_it.set()
    work.join()
    (dropped,) = [one for one in watching.end() if isinstance(one, ChunksDropped)]
    assert (dropped.task, dropped.step, dropped.attempt, dropped.why) == ("t", "say#1", 1, "the attempt failed")


def test_an_attempt_that_runs_out_of_time_is_dropped(app, either):
    def say():
        yield "slow"
        time.sleep(1)
        yield "too late"

    @either()
    def speaker(task):
        try:
            yield task.stream(say, timeout=0.4)
        except StepFailed:
            return "failed"

    app.start(speaker, id="t")
    watching = Watching(app)
    app.run(speaker, id="t")
    seen = watching.end()
    assert chunks(seen) == ["slow"] and "ChunksDropped" in kinds(seen)


def test_a_watcher_that_comes_late_gets_what_was_streamed_so_far(app, either):
    go_on = threading.Event()

    def say():
        yield from WORDS[:2]
        assert go_on.wait(PATIENCE_SECONDS)
        yield WORDS[2]

    @either()
    def speaker(task):
        return (yield task.stream(say))

    first, work = started(app, speaker)
    first.until(has(*WORDS[:2]))
    late, later = Watching(app), Watching(app, after=app.head("t"))
    for one in (late, later):
        one.until(has(*WORDS[:2]))
    go_on.set()
    work.join()
    assert chunks(late.end()) == chunks(later.end()) == WORDS


def test_who_comes_after_the_step_has_ended_gets_its_record_and_no_chunk(app):
    def say():
        yield from WORDS

    @agent
    def speaker(task: Task) -> str:
        said = task.stream(say)
        task.wait("go")
        return said

    app.run(speaker, id="t")
    after = app.head("t")
    late = app.follow("t", after=after, chunks=True, seconds=0.3)
    assert chunks(late) == []


def test_chunks_are_deleted_after_their_step(app, either):
    def say():
        yield from WORDS

    @either()
    def speaker(task):
        return (yield task.stream(say))

    app.run(speaker, id="t")
    until(lambda: not app.store.chunks.read("t", {}), seconds=10, why="chunks are deleted when their step has ended")


def test_closing_leaves_no_chunks_behind(url):
    if url == "memory:":
        pytest.skip("nothing outlives a store in memory")

    @agent
    def speaker(task: Task) -> str:
        return task.stream(lambda: iter(WORDS), name="say")

    with holdfast.open(url) as app:
        app.run(speaker, id="t")
    with holdfast.open(url) as app:
        assert app.store.chunks.read("t", {}) == []


def test_chunks_are_written_in_batches_not_one_by_one(app, monkeypatch):
    parts = []
    put = type(app.store.chunks).put
    monkeypatch.setattr(
        type(app.store.chunks), "put", lambda self, batches: (parts.extend(batches), put(self, batches))
    )

    def say():
        for number in range(500):
            yield str(number)
            time.sleep(0.0005)

    @agent
    def speaker(task: Task) -> int:
        return len(task.stream(say))

    app.start(speaker, id="t")
    watching, began = Watching(app), time.monotonic()
    app.run(speaker, id="t")
    took = time.monotonic() - began
    assert chunks(watching.end()) == [str(number) for number in range(500)]
    assert len(parts) <= took / limits.CHUNK_SECONDS + 3, "at most one batch each while, the first and the last"


def test_what_is_beyond_the_limit_of_a_step_is_left_out_and_the_step_goes_on(app, either, monkeypatch):
    monkeypatch.setattr(limits, "MAX_STREAM_BYTES", 20)

    def say():
        for _ in range(5):
            yield "0123456"

    @either()
    def speaker(task):
        return (yield task.stream(say))

    app.start(speaker, id="t")
    watching = Watching(app)
    assert app.run(speaker, id="t").result == "0123456" * 5
    seen = watching.end()
    assert chunks(seen) == ["0123456"] * 2
    (cut,) = [one for one in seen if isinstance(one, ChunksCut)]
    assert (cut.step, cut.attempt, cut.number) == ("say#1", 1, 3)


def test_nothing_of_a_call_with_secrets_is_published(app):
    @tool(effect="read", redact=["token"])
    def look_up(token: str) -> str:
        for letter in token:
            streaming().send(letter)
        return "done"

    @agent(tools=[look_up])
    def speaker(task: Task) -> str:
        return task.call(look_up, token=Secret("sk-12345", label="key"))

    app.start(speaker, id="t")
    watching = Watching(app)
    app.run(speaker, id="t")
    seen = watching.end()
    assert chunks(seen) == [] and "ChunksCut" in kinds(seen), "each letter of a secret is a chunk that hides nothing"


def test_a_store_that_takes_no_chunks_fails_no_step(app, either, monkeypatch):
    def refuse(self, batches):
        raise holdfast.StoreBusy("busy", hint="wait")

    monkeypatch.setattr(type(app.store.chunks), "put", refuse)

    def say():
        yield from WORDS

    @either()
    def speaker(task):
        return (yield task.stream(say))

    assert app.run(speaker, id="t").result == "It is sunny."


def test_a_store_that_is_busy_for_a_while_gets_the_chunks_later(app, monkeypatch):
    put, refused = type(app.store.chunks).put, []

    def refuse_twice(self, batches):
        if len(refused) < 2:
            refused.append(batches)
            raise holdfast.StoreBusy("busy", hint="wait")
        put(self, batches)

    monkeypatch.setattr(type(app.store.chunks), "put", refuse_twice)
    seen_all = threading.Event()

    def say():
        yield from WORDS
        assert seen_all.wait(PATIENCE_SECONDS)

    @agent
    def speaker(task: Task) -> str:
        return task.stream(say)

    watching, work = started(app, speaker)
    watching.until(has(*WORDS))
    seen_all.set()
    work.join()
    watching.end()
    assert len(refused) == 2


def test_a_slow_store_does_not_block_the_event_loop(app, monkeypatch):
    put = type(app.store.chunks).put
    monkeypatch.setattr(type(app.store.chunks), "put", lambda self, batches: (time.sleep(0.3), put(self, batches)))

    async def say():
        for word in WORDS:
            yield word
            await asyncio.sleep(0.01)

    @agent
    async def speaker(task: AsyncTask) -> str:
        return await task.stream(say)

    async def main():
        longest, last, done = 0.0, time.monotonic(), asyncio.create_task(app.arun(speaker, id="t"))
        while not done.done():
            await asyncio.sleep(0.005)
            now = time.monotonic()
            longest, last = max(longest, now - last), now
        return longest, await done

    longest, state = asyncio.run(main())
    assert state.result == "It is sunny." and longest < 0.25


def test_a_step_that_does_not_stream_starts_no_thread_and_writes_no_chunk(app, monkeypatch):
    monkeypatch.setattr(type(app.store.chunks), "put", lambda *_: pytest.fail("nothing was streamed"))

    @agent
    def quiet(task: Task) -> int:
        return task.step(len, "abc", name="count")

    app.run(quiet, id="t")
    assert not [one for one in threading.enumerate() if one.name == "holdfast-chunks"]


def test_following_without_chunks_is_as_before(app):
    @agent
    def speaker(task: Task) -> str:
        return task.stream(lambda: iter(WORDS), name="say")

    app.run(speaker, id="t")
    assert [one.kind for one in app.follow("t")] == [one.kind for one in app.events("t")]


def test_async_watchers_get_the_same(app):
    async def say():
        for word in WORDS:
            yield word
            await asyncio.sleep(0.1)

    @agent
    async def speaker(task: AsyncTask) -> str:
        return await task.stream(say)

    async def main():
        await app.aio.start(speaker, id="t")
        work = asyncio.create_task(app.aio.run(speaker, id="t"))
        seen = [one async for one in app.aio.follow("t", chunks=True, seconds=30)]
        await work
        return seen

    assert chunks(asyncio.run(main())) == WORDS


def test_everything_a_watcher_gets_is_a_line_of_json(app):
    from holdfast.core import codec

    seen_it = threading.Event()

    def say():
        yield "two\nlines"
        assert seen_it.wait(PATIENCE_SECONDS)
        raise ValueError("no")

    @agent
    def speaker(task: Task) -> None:
        task.stream(say)

    watching, work = started(app, speaker)
    watching.until(has("two\nlines"))
    seen_it.set()
    work.join()
    lines = [one.to_json() for one in watching.end()]
    assert all("\n" not in line for line in lines)
    read = [codec.load(line.encode(), dict) for line in lines]
    assert {"kind": "chunk", "task": "t", "step": "say#1", "attempt": 1, "number": 1, "data": "two\nlines"} in read
    assert {
        "kind": "chunks_dropped",
        "task": "t",
        "step": "say#1",
        "attempt": 1,
        "why": "the attempt failed",
    } in read
    assert codec.load(ChunksCut("t", "s#1", 1, 4).to_json().encode(), dict)["kind"] == "chunks_cut"


def test_tenants_see_only_chunks_of_their_own(url):
    store_url = url
    if url == "memory:":
        pytest.skip("a store in memory has one app")
    go_on = threading.Event()

    def say():
        yield "mine"
        assert go_on.wait(PATIENCE_SECONDS)

    @agent
    def speaker(task: Task) -> str:
        return task.stream(say)

    with (
        holdfast.open(store_url, namespace="acme") as acme,
        holdfast.open(store_url, namespace="zeta") as zeta,
        holdfast.open(store_url) as plain,
    ):
        for other in (zeta, plain):
            other.start(speaker, id="t")
        watching, work = started(acme, speaker)
        watching.until(has("mine"))
        for other in (zeta, plain):
            assert chunks(other.follow("t", chunks=True, seconds=0.2)) == []
        go_on.set()
        work.join()
        watching.end()


def test_erasing_a_user_deletes_what_their_tasks_stream(app):
    @agent
    def speaker(task: Task) -> str:
        return task.stream(lambda: iter(WORDS), name="say")

    app.run(speaker, id="t", user="ana")
    app.run(speaker, id="u", user="ben")
    for id in ("t", "u"):
        app.store.chunks.put([ChunkBatch(id, "left", 1, "other#1", 1, 1, 0, b'{"first":1,"chunks":["private"]}')])
    app.user("ana").erase(by="admin", why="asked")
    assert app.store.chunks.read("t", {}) == []
    assert "left" in [one.stream for one in app.store.chunks.read("u", {})]


def test_gc_deletes_what_dead_processes_left_and_nothing_else_knows_of_it(url, clock, tmp_path):
    with holdfast.open(url, clock=clock) as app:
        app.start("speaker", id="t")
        left = ChunkBatch("t", "s", 1, "say#1", 1, 1, clock.now_us(), b'{"first":1,"chunks":["left"]}')
        app.store.chunks.put([left])
        assert app.verify("t").ok
        assert "left" not in "".join(map(str, app.export_lines("t")))
        copy = str(tmp_path / "copy.db")
        app.copy_to(copy)
        with holdfast.open(copy) as other:
            assert other.store.chunks.read("t", {}) == []
        app.gc()
        assert app.store.chunks.read("t", {}) == [left], "it may still be alive"
        clock.advance(limits.CHUNKS_STALE_SECONDS + 1)
        app.gc()
        assert app.store.chunks.read("t", {}) == []


# Wrong use


def test_streaming_outside_a_step_says_where_to_use_it(app):
    for use in (streaming, lambda: streaming().send("x")):
        with pytest.raises(InvalidValue, match=r"outside a step.*task\.stream"):
            use()

    @agent
    def speaker(task: Task) -> None:
        streaming()

    with pytest.raises(TaskFailed, match="outside a step"):
        app.run(speaker, id="t").unwrap()


def test_a_chunk_that_is_not_json_is_refused_where_it_is_sent(app):
    @agent
    def speaker(task: Task) -> str:
        return task.stream(lambda: iter([b"bytes"]), name="say")

    with pytest.raises(TaskFailed, match="the chunk is bytes"):
        app.run(speaker, id="t").unwrap()


@pytest.mark.parametrize("given", ["text", {"a": 1}, 7, None, b"x"])
def test_a_function_that_gives_no_stream_is_told_to_be_a_step(given):
    @agent
    def speaker(task: Task) -> str:
        return task.stream(lambda: given, name="say")

    app = holdfast.App(MemoryStore())
    with pytest.raises(TaskFailed, match=r"is not a stream.*task\.step"):
        app.run(speaker, id="t").unwrap()


def test_a_tool_is_not_a_stream():
    @tool(effect="read")
    def look_up() -> str:
        return "x"

    @agent
    def speaker(task: Task) -> str:
        return task.stream(look_up)

    with pytest.raises(TaskFailed, match=r"use task\.call"):
        holdfast.App(MemoryStore()).run(speaker, id="t").unwrap()


def test_a_transaction_tool_is_refused_to_stream(app):
    @tool(effect="transaction")
    def pay(*, connection: holdfast.Connection) -> str:
        streaming().send("paying")
        return "paid"

    @agent(tools=[pay])
    def payer(task: Task) -> str:
        return task.call(pay)

    with pytest.raises(TaskFailed, match="runs in a transaction"):
        app.run(payer, id="t").unwrap()


@pytest.mark.parametrize("given", ["yes", 1, None])
def test_chunks_must_be_true_or_false(given):
    app = holdfast.App(MemoryStore())
    app.start("speaker", id="t")
    with pytest.raises(InvalidValue, match="neither True nor False"):
        app.follow("t", chunks=given)


def test_an_unknown_task_has_no_chunks_to_follow():
    with pytest.raises(holdfast.TaskNotFound):
        holdfast.App(MemoryStore()).follow("nothing", chunks=True)
