"""Agents for `holdfast ui FILE`: questions of every type, a payment whose bank can be asked, and one to start."""

import os
from dataclasses import dataclass
from typing import Literal

import msgspec

from holdfast import Call, DidNotHappen, Happened, Task, Unknown, agent, tool

print("this file prints when it is loaded")  # which must not reach stdout


class Seat(msgspec.Struct):
    row: int
    side: Literal["window", "aisle"] = "aisle"


def ask_bank(call: Call):
    """The bank says what a file beside the store says."""
    with open(os.environ["BANK"]) as file:
        says = file.read().strip()
    if says == "down":
        raise ConnectionError("504 Gateway Timeout")
    return {"yes": Happened("t-7"), "no": DidNotHappen()}.get(says, Unknown())


@tool(effect="once", risk="payment", reconcile=ask_bank, reconcile_after="0s")
def transfer(to: str, euros: int) -> str:
    raise OSError("504 Gateway Timeout")


@agent
def wire(task: Task, euros: int) -> str:
    return task.call(transfer, to="DE02", euros=euros)


@agent
def greet(task: Task, name: str, loud: bool = False, times: int = 1, tags: list[str] | None = None) -> str:
    """Say hello."""
    return f"{name} {loud} {times} {tags}"


@dataclass
class Trip:
    seat: Literal["window", "aisle"] = "aisle"
    nights: int = 1


@agent(state=Trip)
def travels(task: Task) -> str:
    """Go somewhere."""
    task.state.nights = 2
    return task.step(str, task.state.seat, name="book")


@agent
def asks(task: Task, kind: str) -> object:
    types = {"bool": bool, "int": int, "text": str, "choice": Literal["window", "aisle"], "struct": Seat, "any": None}
    return task.ask("Which one?", answer=types[kind], name="q")
