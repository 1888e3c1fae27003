"""Agents for the tests of the command line: each waits, fails or works in one way."""

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path

from holdfast import AsyncTask, Budget, Retry, Task, agent, current_call, report_usage, tool


def shout(text: str) -> str:
    report_usage(input_tokens=10, output_tokens=5, cost=0.004)
    return text.upper()


@agent(stages=["greeting", "done"])
def greet(task: Task, name: str, times: int = 1) -> str:
    print("this is no data")
    task.stage("greeting")
    said = task.step(shout, f"hello {name}", name="shout")
    task.decide("how often?", times, why="as asked", options=[1, 2])
    task.state.tone = "loud"
    task.fact("name", name, source="input")
    task.checkpoint("greeted")
    task.stage("done")
    return " ".join([said] * times)


@agent
async def later(task: AsyncTask, name: str) -> str:
    return await task.step(shout, name, name="shout")


@agent
def asker(task: Task) -> str:
    return f"answered {task.ask('Which seat?', name='seat')}"


@dataclass
class Seat:
    row: int = 0


@agent(state=Seat, state_version=2)
def seated(task: Task) -> None:
    task.state.row = 7
    task.wait("left")


@agent
def listener(task: Task) -> str:
    return f"paid {task.wait('paid')['cents']}"


@tool(effect="once", risk="money", mock="receipt-0")
def pay(cents: int) -> str:
    with Path("payments").open("a") as file:
        file.write(f"{cents}\n")
    return "receipt-1"


@agent(required_for_risk_levels=["money"])
def payer(task: Task, cents: int = 4400) -> str:
    return task.call(pay, cents=cents)


@tool(effect="once", timeout=0.05)
def wobble(to: str) -> str:
    time.sleep(0.3)
    return "too late"


@agent
def doubter(task: Task) -> str:
    return task.call(wobble, to="ana")


@agent
def failer(task: Task) -> str:
    task.step(shout, "before", name="shout")
    raise ValueError("no such city")


def sometimes() -> str:
    place = Path("tries")
    tries = len(place.read_text()) if place.exists() else 0
    place.write_text("x" * (tries + 1))
    if tries < 1:
        raise ConnectionError("503")
    return "got it"


@agent
def flaky(task: Task) -> str:
    return task.step(sometimes, retry=Retry(3, first=0.01))


@agent(budget=Budget(steps=2, on_exceed="ask"))
def thrifty(task: Task) -> int:
    for number in range(4):
        task.step(shout, str(number), name="shout")
    return 4


def slow(number: int) -> int:
    with Path("slow").open("a") as file:
        file.write(f"{number}\n")
    time.sleep(0.4)
    return number


@agent
def slowly(task: Task, steps: int = 6) -> int:
    return sum(task.step(slow, number) for number in range(steps))


@agent
async def napping(task: AsyncTask, steps: int = 6) -> int:
    for _ in range(steps):
        await task.step(asyncio.sleep, 0.4, name="nap")
    return steps


@agent
def stuck(task: Task) -> int:
    task.step(shout, "before", name="shout")
    return task.step(time.sleep, 60, name="stuck")


def balky() -> str:
    report_usage(input_tokens=1_000, cost=0.25)
    time.sleep(1.5)
    if current_call().attempt == 1:
        raise ConnectionError("503")
    return "got it"


@agent
def tries(task: Task) -> str:
    return task.step(balky, retry=Retry(2, first=0.01))


@agent
def sleeper(task: Task) -> str:
    task.sleep("50s")
    return "awake"


@agent
def child(task: Task) -> str:
    return task.ask("Well?", name="well")


@agent
def parent(task: Task) -> str:
    return task.spawn(child)
