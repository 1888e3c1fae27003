"""Threads: one conversation of several tasks, seen the same on every replay."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import AsyncTask, InvalidId, InvalidMessage, Task, agent
from holdfast.engine.app import App
from holdfast.testing import crash_everywhere


@pytest.fixture(params=["memory:", "sqlite"])
def app(request: pytest.FixtureRequest, tmp_path: Path):
    with holdfast.open(request.param if request.param == "memory:" else tmp_path / "a.db") as app:
        yield app


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def texts(messages: Any) -> list[str]:
    return [one["content"] for one in messages]


def reply(messages: list[Any]) -> dict[str, str]:
    return {"role": "assistant", "content": f"I have read {len(messages)}"}


@agent
def answering(task: Task, question: str) -> str:
    task.message(user(question))
    answer = task.step(reply, task.messages)
    task.message(answer)
    return answer["content"]


def test_a_conversation_spans_tasks(app: App):
    first = app.run(answering, {"question": "one"}, id="a", thread="talk")
    second = app.run(answering, {"question": "two"}, id="b", thread="talk")
    assert (first.result, second.result) == ("I have read 1", "I have read 3")
    talk = app.thread("talk")
    assert texts(talk.messages) == ["one", "I have read 1", "two", "I have read 3"]
    assert talk.tasks == ["a", "b"] and len(talk) == 4 and repr(talk) == "<thread talk of 4 messages>"
    assert texts(second.messages) == ["two", "I have read 3"], "a task's own messages stay its own"
    assert [one.id for one in app.list()] == ["b", "a"], "a thread is no task"
    assert app.verify().problems == []


def test_a_task_sees_others_only_up_to_its_turn_or_its_own_last_message(app: App):
    talk = app.thread("talk")
    talk.message(user("before"), by="ana")
    seen: list[list[str]] = []

    @agent
    def listening(task: Task) -> None:
        seen.append(texts(task.messages))
        task.step(reply, [], name="one")
        if len(seen) == 1:
            talk.message(user("between"), by="bo")
        seen.append(texts(task.messages))
        task.message({"role": "assistant", "content": "mine"})
        seen.append(texts(task.messages))
        task.step(reply, [], name="two")
        seen.append(texts(task.messages))
        if len(seen) == 4:
            talk.message(user("after"), by="bo")
        task.wait("go")
        seen.append(texts(task.messages))

    app.run(listening, id="l", thread="talk")
    expected = [["before"], ["before"], ["before", "mine"], ["before", "between", "mine"]]
    assert seen == expected
    app.signal("l", "go", None)
    assert app.resume("l", listening).status == "completed"
    assert seen[4:] == [*expected, ["before", "between", "mine"]]
    assert texts(talk.messages) == ["before", "between", "mine", "after"]


def test_a_new_turn_sees_what_was_said_meanwhile(app: App):
    talk = app.thread("talk")
    seen: list[list[str]] = []

    @agent(loop=True)
    async def turns(task: AsyncTask) -> str | None:
        if task.turn == 1:
            task.message(user("hello"))
        answer = await task.step(reply, task.messages.window(max_tokens=10_000), name="model")
        task.message(answer)
        await task.step(reply, [], name="more")
        seen.append(texts(task.messages))
        if task.turn == 1:
            await asyncio.to_thread(talk.message, user("are you there?"))
        return "done" if task.turn == 2 else None

    assert app.run(turns, id="t", thread="talk").status == "completed"
    assert seen == [
        ["hello", "I have read 1"],
        ["hello", "I have read 1", "are you there?", "I have read 3"],
    ]


def test_two_tasks_speak_at_once_and_every_message_is_there_once(app: App):
    @agent
    async def chatty(task: AsyncTask, name: str) -> int:
        for number in range(10):
            task.message(user(f"{name} {number}"))
            await task.step(reply, task.messages)
        return len(task.messages)

    async def both() -> list[Any]:
        runs = (app.arun(chatty, {"name": name}, id=name, thread="talk") for name in ("x", "y", "z"))
        return await asyncio.gather(*runs)

    done = asyncio.run(both())
    assert all(one.status == "completed" for one in done), [one.failure for one in done]
    said = texts(app.thread("talk").messages)
    assert sorted(said) == sorted(f"{name} {number}" for name in "xyz" for number in range(10))
    for name in "xyz":
        assert [one for one in said if one.startswith(name)] == [f"{name} {number}" for number in range(10)]


def test_a_fork_sees_the_thread_as_its_parent_did_and_does_not_speak_in_it(app: App):
    @agent
    def speaking(task: Task) -> list[str]:
        task.message(user("one"))
        task.step(reply, task.messages, name="first")
        task.message(user("two"))
        task.step(reply, task.messages, name="second")
        return texts(task.messages)

    app.thread("talk").message(user("zero"))
    done = app.run(speaking, id="s", thread="talk")
    fork = app.fork("s", at=done.steps["first#1"].after, id="f")
    assert fork.status == "pending"
    assert app.resume("f", speaking).result == ["zero", "one", "two"]
    assert texts(app.thread("talk").messages) == ["zero", "one", "two"]


def test_a_child_speaks_in_the_thread_of_its_parent(app: App):
    @agent
    def parent(task: Task) -> None:
        task.message(user("from the parent"))
        task.spawn(answering, {"question": "from the child"})

    assert app.run(parent, id="p", thread="talk").status == "completed"
    assert texts(app.thread("talk").messages) == ["from the parent", "from the child", "I have read 2"]


def test_what_is_no_message_is_refused_and_nothing_is_written(app: App):
    talk = app.thread("talk")
    for wrong in ({"role": "tool", "tool_call_id": "x", "content": "orphan"}, {"content": "nobody"}, "text"):
        with pytest.raises(InvalidMessage):
            talk.message(wrong)  # pyright: ignore[reportArgumentType]
    assert talk.seq == 0 and talk.messages == [] and talk.tasks == [] and list(talk.events()) == []
    with pytest.raises(InvalidId):
        app.thread("a b")


def test_large_messages_are_whole_in_the_thread_of_a_user(app: App):
    large = "long " * 3_000
    done = app.run(answering, {"question": large}, id="a", thread="talk", user="ana")
    assert done.status == "completed"
    assert texts(app.thread("talk").messages) == [large, "I have read 1"]
    assert app.thread("talk").render("anthropic")[0]["role"] == "user"
    assert app.user("ana").erase() > 4
    assert app.thread("talk").messages == [] and app.verify().problems == []
    assert app.run(answering, {"question": "again"}, id="b", thread="talk", user="ana").result == "I have read 1"


@agent(loop=True)
async def looped(task: AsyncTask) -> int | None:
    task.message(user("hi" if task.turn == 1 else "bye"))
    task.message(await task.step(reply, task.messages.window(max_tokens=1_000), name="model"))
    task.user.state.increment("turns")
    return task.user.state.turns if task.turn == 2 else None


def looped_through(app: App) -> Any:
    done = app.run(looped, id="t", user="ana", thread="talk")
    assert texts(app.thread("talk").messages) == ["hi", "I have read 1", "bye", "I have read 3"]
    assert app.user("ana").state.turns == 2
    return done


@pytest.mark.parametrize("store", ["sqlite", "memory:"])
def test_a_crash_anywhere_says_nothing_twice_and_forgets_nothing(store: Any):
    report = crash_everywhere(drive=looped_through, agents=[looped], id="t", store=store, crashes=2)
    assert report.survived == report.points > 15
