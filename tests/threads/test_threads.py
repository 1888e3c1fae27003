"""`Threads(app, agents)`: a program written for hosted assistants, over Holdfast."""

import threading

import pytest

import holdfast
from holdfast import Budget, InvalidValue, TaskNotFound, ThreadBusy, ThreadNotFound, agent, tool
from holdfast.threads import Threads

STORES = ("memory", "sqlite", "postgres")


@tool(effect="read")
def look(what: str) -> str:
    return f"{what} is fine"


def model(messages):
    return {"role": "assistant", "content": f"I have read {len(messages)}"}


@agent
def support(task):
    task.call(look, what="disk")
    task.message(task.step(model, task.messages))
    return "done"


@agent
def asking(task):
    return task.ask("who?", name="who")


@agent
def failing(task):
    raise RuntimeError("broken")


@agent
def sleeping(task):
    task.sleep("1h")


@agent(budget=Budget(steps=1))
def greedy(task):
    for _ in range(3):
        task.step(model, [])


@agent(deadline=1)
def slow(task):
    task.wait("never")


AGENTS = [support, asking, failing, sleeping, greedy, slow]


@pytest.fixture
def threads(app):
    return Threads(app, AGENTS)


def test_a_conversation_as_hosted_assistants_have_it(threads, app):
    thread = threads.create(messages=[{"role": "user", "content": "My lamp is broken."}], metadata={"plan": "gold"})
    assert threads.retrieve(thread.id) == thread and thread.metadata == {"plan": "gold"}
    said = threads.messages.create(thread.id, role="user", content="Hello?")
    assert (said.role, said.content, said.run_id) == ("user", "Hello?", None) and said.created_at
    run = threads.runs.create(thread.id, "support")
    assert (run.status, run.assistant_id, run.thread_id) == ("queued", "support", thread.id)
    worker = app.worker(AGENTS)
    at_work = threading.Thread(target=worker.run)
    at_work.start()
    done = threads.runs.wait(run.id, thread_id=thread.id, timeout=20)
    worker.stop()
    at_work.join()
    assert (done.status, done.result, done.last_error) == ("completed", "done", None)
    assert done.completed_at >= done.created_at
    newest = threads.messages.list(thread.id).data[0]
    assert (newest.role, newest.content, newest.run_id) == ("assistant", "I have read 2", run.id)
    assert [one.content for one in threads.messages.list(thread.id, order="asc").data][:2] == [
        "My lamp is broken.",
        "Hello?",
    ]
    steps = threads.runs.steps(run.id, thread_id=thread.id)
    assert [(one.type, one.name, one.status) for one in steps] == [
        ("tool_call", "look", "completed"),
        ("step", "model", "completed"),
    ]
    assert steps[0].input == {"what": "disk"} and steps[0].output == "disk is fine"
    assert [one.id for one in threads.runs.list(thread.id).data] == [run.id]


def test_messages_are_paged_both_ways(threads):
    thread = threads.create(messages=[{"role": "user", "content": str(number)} for number in range(5)])
    first = threads.messages.list(thread.id, limit=2)
    assert [one.content for one in first.data] == ["4", "3"] and first.has_more
    second = threads.messages.list(thread.id, limit=2, after=first.last_id)
    assert [one.content for one in second.data] == ["2", "1"]
    third = threads.messages.list(thread.id, limit=2, after=second.last_id)
    assert [one.content for one in third.data] == ["0"] and not third.has_more
    upwards = threads.messages.list(thread.id, limit=2, order="asc", after=third.first_id)
    assert [one.content for one in upwards.data] == ["1", "2"]
    assert threads.messages.retrieve(first.first_id, thread_id=thread.id).content == "4"


def test_every_status_has_its_name(threads, app, clock):
    thread = threads.create().id

    def status(id):
        return threads.runs.retrieve(id, thread_id=thread).status

    asked = threads.runs.create_and_wait(thread, "asking", id="asking", when_busy="allow")
    assert asked.status == "requires_action" and asked.required_action[0]["name"] == "who"
    app.answer("asking", "who", "ana")
    assert status("asking") == "queued"
    assert threads.runs.create_and_wait(thread, "failing", id="failing", when_busy="allow").status == "failed"
    assert status("failing") == "failed"
    assert threads.runs.retrieve("failing", thread_id=thread).last_error == "RuntimeError: broken"
    app.run(sleeping, id="sleeping", thread=thread, hold=0)
    assert status("sleeping") == "in_progress"
    assert threads.runs.cancel("sleeping", thread_id=thread).status == "cancelled"
    app.run(greedy, id="greedy", thread=thread)
    assert status("greedy") == "incomplete"
    app.run(slow, id="slow", thread=thread)
    clock.advance(5)
    app.resume("slow", slow)
    assert status("slow") == "expired"
    app.run(asking, id="left", thread=thread, expire="1h")
    clock.advance(3601)
    app.gc()
    assert status("left") == "expired" and app.get("left").status == "cancelled"


def test_a_second_run_is_refused_while_one_works(threads, app):
    thread = threads.create().id
    threads.runs.create_and_wait(thread, "asking", id="one")
    with pytest.raises(ThreadBusy):
        threads.runs.create(thread, "support")
    threads.runs.cancel("one", thread_id=thread)
    assert threads.runs.create_and_wait(thread, support).status == "completed"


def test_threads_are_listed_changed_and_deleted(threads):
    ids = [threads.create(id=f"t{number}").id for number in range(3)]
    page = threads.list(limit=2)
    assert [one.id for one in page.data] == ids[:2] and page.has_more
    assert [one.id for one in threads.list(after=page.last_id).data] == ids[2:]
    assert threads.update("t1", metadata={"a": 1}).metadata == {"a": 1}
    assert threads.delete("t1") is True
    with pytest.raises(ThreadNotFound):
        threads.retrieve("t1")


def test_what_is_not_there_is_named(threads, app):
    thread = threads.create().id
    for verb in (threads.delete, threads.messages.list, threads.runs.list):
        with pytest.raises(ThreadNotFound):
            verb("nowhere")
    with pytest.raises(ThreadNotFound):
        threads.runs.create("nowhere", "support")
    with pytest.raises(InvalidValue, match="there is no assistant 'none'"):
        threads.runs.create(thread, "none")
    with pytest.raises(InvalidValue):
        threads.messages.retrieve("msg_99", thread_id=thread)
    with pytest.raises(InvalidValue):
        threads.messages.list(thread, order="up")
    app.run(support, id="elsewhere", thread="other")
    for verb in (threads.runs.retrieve, threads.runs.cancel, threads.runs.steps):
        with pytest.raises(TaskNotFound):
            verb("elsewhere", thread_id=thread)
    with pytest.raises(InvalidValue):
        Threads(app, [print])
    assert holdfast.__version__


def test_a_thread_is_created_with_its_messages_or_not_at_all(app):
    threads = Threads(app, [])
    said = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]
    with pytest.raises(holdfast.InvalidMessage):
        threads.create(id="t", messages=[*said, {"role": "nonsense"}], metadata={"a": 1})
    assert not app.thread("t").exists
    for _ in range(2):  # whose answer was lost calls again
        assert threads.create(id="t", messages=said, metadata={"a": 1}).id == "t"
    assert [one["content"] for one in app.thread("t").messages] == ["one", "two"]
    app.thread("t").pop()
    threads.create(id="t", messages=said)
    assert [one["content"] for one in app.thread("t").messages] == ["one"]
    with pytest.raises(holdfast.InvalidValue, match="began with other messages"):
        threads.create(id="t", messages=[{"role": "user", "content": "three"}])


@pytest.mark.parametrize(
    "make",
    [
        lambda app: Threads(5, []),
        lambda app: Threads(app, 5),
        lambda app: Threads(app, [5]),
        lambda app: Threads(app).create(messages=5),
        lambda app: Threads(app).create(messages=[5]),
        lambda app: Threads(app).runs.create("t", []),
        lambda app: Threads(app).runs.create("t", "unknown"),
    ],
)
def test_what_is_not_an_app_an_agent_or_a_message_is_refused(app, make):
    app.thread("t").create()
    with pytest.raises(holdfast.HoldfastError) as refused:
        make(app)
    assert refused.value.hint
