"""The agent of `holdfast demo`: it handles an order in nine steps, with nothing but what every program can use.

python demo_agent.py demo.db --crash     kills itself in step 6: charged, and not recorded
python demo_agent.py demo.db             resumes from there; once more, and nothing is left to do
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

import holdfast
from holdfast import Call, DidNotHappen, Happened, Task, agent, tool
from holdfast.cli.demo.world import DemoWorld

STORE = sys.argv[1] if sys.argv[1:] else "holdfast-demo.db"
TASK = "order-7"
world = DemoWorld(f"{STORE}-world")


@agent(stages=["checking", "paying", "telling"], deadline="10m")
def handle_order(task: Task, number: int) -> str:
    task.plan(["check", "charge", "tell the customer"])
    task.stage("checking")
    order = task.step(read_order, number)  # 1
    stock = task.call(check_stock, item=order["item"])  # 2
    task.fact("stock", stock, source="the warehouse")
    prices = task.step(ask_carriers, order["city"])  # 3
    carrier = min(prices, key=lambda name: prices[name])
    task.decide("which carrier?", carrier, why="the cheapest", options=list(prices))
    invoice = task.step(draft_invoice, order, prices[carrier])  # 4

    task.done("check")
    task.stage("paying")
    task.state.reservation = task.call(reserve_goods, item=order["item"], count=order["count"])  # 5
    task.state.receipt = task.call(charge_card, card=order["card"], euros=invoice["euros"])  # 6
    task.done("charge")

    task.stage("telling")
    text = task.step(write_email, order, task.state.receipt)  # 7
    message = task.call(send_email, to=order["to"], text=text)  # 8
    task.done("tell the customer")
    task.note("told", order["to"])
    return task.step(file_order, number, task.state.receipt, message)  # 9


def ask_the_world(call: Call) -> Happened | DidNotHappen:
    """Reconcile: the log does not know whether this call happened, so ask the destination."""
    receipt = world.receipt(call.idempotency_key)
    return DidNotHappen() if receipt is None else Happened(receipt)


@tool(effect="once", risk="payment", reconcile=ask_the_world, reconcile_after="500ms")
def charge_card(card: str, euros: int, *, idempotency_key: str) -> str:
    work()
    receipt = world.happen("charge", idempotency_key, f"{euros} EUR from card {card}")
    if "--crash" in sys.argv:
        os.kill(os.getpid(), signal.SIGKILL)  # the worst moment: the money is gone, and no record of it
    return receipt


@tool(effect="once", risk="external_action", reconcile=ask_the_world, reconcile_after="500ms")
def send_email(to: str, text: str, *, idempotency_key: str) -> str:
    work()
    return world.happen("email", idempotency_key, f"to {to}: {text}")


@tool(effect="idempotent")
def reserve_goods(item: str, count: int, *, idempotency_key: str) -> str:
    work()
    known = world.receipt(idempotency_key)
    return known or world.happen("reserve", idempotency_key, f"{count} {item}s")


@tool(effect="read")
def check_stock(item: str) -> int:
    work()
    return 12


def read_order(number: int) -> dict[str, Any]:
    work()
    return {"item": "lamp", "count": 2, "euros": 20, "city": "Oslo", "to": "ana@example.com", "card": "4242"}


def ask_carriers(city: str) -> dict[str, int]:
    work()
    return {"post": 4, "courier": 11}


def draft_invoice(order: dict[str, Any], shipping: int) -> dict[str, int]:
    work()
    return {"euros": order["count"] * order["euros"] + shipping}


def write_email(order: dict[str, Any], receipt: str) -> str:
    work()
    return f"{order['count']} {order['item']}s are on their way ({receipt})"


def file_order(number: int, receipt: str, message: str) -> str:
    work()
    return f"filed with {receipt} and {message}"


def work() -> None:
    time.sleep(1.0 if "--slow" in sys.argv else 0.12)  # here an agent of yours would call a model, or a service


if __name__ == "__main__":
    with holdfast.open(STORE) as app:
        done = app.run(handle_order, {"number": 7}, id=TASK)
        print(f"{done.id} is {done.status}: {done.result}")
