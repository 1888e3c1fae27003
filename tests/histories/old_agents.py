"""Agents whose tasks were under way when version 0.1 was at b36c681: `store-0.1.db` was written by it, running this.

Every version can run this file: `python old_agents.py store.db` begins the tasks, and dies in the middle of three.
"""

import os
import signal
import sys

from holdfast import Secret, agent, open as open_store, tool

TOKEN = "tok-4711"
CALLS = []
"""What the tools of this process were called with: their key, if they have one."""


@tool(effect="once", redact=["token"])
def send(to: str, token: str, *, idempotency_key: str) -> str:
    CALLS.append(("send", idempotency_key))
    return f"sent to {to}"


@tool(effect="idempotent", redact=["token"])
def charge(order: int, token: str, *, idempotency_key: str) -> str:
    CALLS.append(("charge", idempotency_key))
    _die("charge")
    return f"charged {order}"


@tool(effect="once", on_doubt="retry")
def pay(order: int, *, idempotency_key: str) -> str:
    CALLS.append(("pay", idempotency_key))
    _die("pay")
    return f"paid {order}"


@tool(effect="once", unique="mail-{number}", redact=["token"])
def mail(number: int, token: str) -> str:
    CALLS.append(("mail", number))
    return f"mailed {number}"


@tool(effect="once", risk="money")
def refund(cents: int, *, idempotency_key: str) -> str:
    CALLS.append(("refund", idempotency_key))
    return f"refunded {cents}"


def _die(at):
    if os.environ.get("DIE_AT") == at:
        os.kill(os.getpid(), signal.SIGKILL)


@agent
def sender(task, to: str):
    sent = task.call(send, to=to, token=Secret(TOKEN))
    return [sent, task.wait("go")]


@agent
def charger(task):
    task.step(int, "1", name="~odd/name")
    return task.call(charge, order=7, token=TOKEN)


@agent
def payer(task):
    return task.call(pay, order=7)


@agent
def mailer(task):
    return task.call(mail, number=1, token=TOKEN)


@agent(required_for_risk_levels=["money"])
def refunder(task):
    return task.call(refund, cents=44)


@agent
async def racer(task):
    import asyncio

    async def line(name):
        found = await task.step(lambda: name, name="look")
        return [found, await task.wait(f"go {name}")]

    return await asyncio.gather(line("a"), line("b"))


AGENTS = (sender, charger, payer, mailer, refunder, racer)


def main(path):
    """Begin a task of each kind. One process a task: three of them die."""
    for one, input in ((sender, {"to": "ana"}), (mailer, {}), (refunder, {}), (racer, {})):
        with open_store(path) as app:
            app.run(one, input, id=one.name)
    for one, at in ((charger, "charge"), (payer, "pay")):
        pid = os.fork()
        if pid == 0:
            os.environ["DIE_AT"] = at
            with open_store(path) as app:
                app.run(one, id=one.name)
            os._exit(1)
        os.waitpid(pid, 0)
    with open_store(path) as app:
        app.approve("refunder", "refund#1", by="ana")


if __name__ == "__main__":
    main(sys.argv[1])
