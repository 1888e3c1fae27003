"""What type checkers must find out, without an `Any`. Checked by pyright and mypy, both strict; never executed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Generator, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TypedDict, assert_type

import holdfast
from holdfast import (
    Agent,
    App,
    AsyncTask,
    Chunk,
    ChunksCut,
    ChunksDropped,
    Step,
    Task,
    TaskState,
    Tool,
    agent,
    step,
    tool,
)
from holdfast.core.codec import LoggedEvent


@dataclass
class Draft:
    subject: str
    at: datetime


class Receipt(TypedDict):
    number: int


@step
def draft(notes: str) -> Draft:
    raise NotImplementedError


@step(retry=3, timeout="10s")
async def draft_slowly(notes: str) -> Draft:
    raise NotImplementedError


def undecorated(notes: str, *, loud: bool = False) -> list[Draft]:
    raise NotImplementedError


async def undecorated_async(notes: str) -> Draft:
    raise NotImplementedError


@tool
def look_up(city: str) -> int:
    raise NotImplementedError


@tool(effect="once", risk="high")
def charge(order: str, euros: int) -> Receipt:
    raise NotImplementedError


@tool(effect="idempotent")
async def send(to: str) -> bytes:
    raise NotImplementedError


def texts(notes: str) -> Iterator[str]:
    yield notes


def counted(notes: str) -> Generator[str, None, int]:
    yield notes
    return 1


def told(notes: str) -> Generator[str, None, None]:
    yield notes


async def texts_later(notes: str) -> AsyncIterator[str]:
    yield notes


@agent
def recap(task: Task, to: str, notes: str) -> str:
    assert_type(draft(notes), Draft)
    assert_type(draft.fn(notes), Draft)
    assert_type(look_up(city=to), int)
    assert_type(charge("order-7", euros=3), Receipt)
    assert_type(task.step(draft, notes), Draft)
    assert_type(task.step(undecorated, notes, loud=True, name="again", retry=2), list[Draft])
    assert_type(task.step(undecorated_async, notes), Draft)
    assert_type(task.stream(texts, notes), str)
    assert_type(task.stream(told, notes), str)
    assert_type(task.stream(counted, notes, name="again", retry=2), int)
    assert_type(task.stream(texts_later, notes), str)
    assert_type(task.call(look_up, city=to), int)
    assert_type(task.call(charge, {"order": "order-7", "euros": 3}, key="charge"), Receipt)
    assert_type(task.map(draft, [notes]), list[Draft])
    assert_type(task.map(look_up, [{"city": to}]), list[int])
    assert_type(task.map(count, [{"upto": 3}]), list[int])
    assert_type(task.spawn(count, {"upto": 3}), int)
    assert_type(task.spawn(greet, {"name": to}), Draft)
    assert_type(task.approve("really?"), bool)
    return "done"


@agent(stages=["counting"], deadline="10m")
def count(task: Task, upto: int) -> int:
    return upto


@agent(loop=True)
async def greet(task: AsyncTask, name: str) -> Draft:
    assert_type(await draft_slowly(name), Draft)
    assert_type(await send(to=name), bytes)
    assert_type(task.step(draft, name), Awaitable[Draft])
    assert_type(await task.step(draft, name), Draft)
    assert_type(await task.step(undecorated_async, name), Draft)
    assert_type(await task.stream(texts_later, name), str)
    assert_type(task.stream(counted, name), Awaitable[int])
    assert_type(await task.call(send, to=name), bytes)
    assert_type(await task.call(look_up, city=name), int)
    assert_type(await task.map(undecorated_async, [name]), list[Draft])
    assert_type(await task.spawn(count, {"upto": 3}), int)
    assert_type(await task.approve("really?"), bool)
    return await draft_slowly(name)


def declared() -> None:
    assert_type(recap, Agent[[str, str], str]) if False else None
    typed_agent: Agent[..., str] = recap
    typed_async: Agent[..., Draft] = greet
    typed_tool: Tool[..., Receipt] = charge
    typed_step: Step[[str], Draft] = draft
    untyped: list[Agent] = [recap, greet, typed_agent, typed_async]
    print(typed_tool, typed_step, untyped)


def outside(app: App) -> None:
    assert_type(app.run(recap, {"to": "ana", "notes": ""}), TaskState[str])
    assert_type(app.run(recap, {"to": "ana", "notes": ""}).result, str)
    assert_type(app.run(recap, {"to": "ana", "notes": ""}).unwrap(), str)
    assert_type(app.run(greet, {"name": "ana"}).result, Draft)
    assert_type(app.start(count, {"upto": 3}, id="count").result, int)
    assert_type(app.resume("count", count).unwrap(), int)
    assert_type(count.read_result(app.wait("count")), int)
    assert_type(app.call(charge, {"order": "order-7", "euros": 3}, key="order-7"), Receipt)


async def awaited(app: App) -> None:
    assert_type((await app.arun(greet, {"name": "ana"})).result, Draft)
    assert_type((await app.aio.run(recap, {"to": "ana", "notes": ""})).result, str)
    assert_type((await app.aio.get("count")).status, str)
    assert_type((await app.aio.find("count")) is None, bool)


def opened() -> App:
    return holdfast.open("memory:")


def watched(app: App) -> None:
    for event in app.follow("t"):
        assert_type(event, LoggedEvent)
    for one in app.follow("t", chunks=True):
        assert_type(one, LoggedEvent | Chunk | ChunksDropped | ChunksCut)


async def watched_later(app: App) -> None:
    async for event in app.aio.follow("t"):
        assert_type(event, LoggedEvent)
    async for one in app.aio.follow("t", chunks=True):
        assert_type(one, LoggedEvent | Chunk | ChunksDropped | ChunksCut)
