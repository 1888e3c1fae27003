"""An agent that is killed in three lives and ends in the fourth: `python -m tests.tracing.killed_agent STORE`."""

import os
import signal
import sys
from pathlib import Path

import holdfast
from holdfast import Retry, agent, tool
from holdfast.tracing import Otlp

ID = "trip-7"


def lives(store):
    """How many lives there were, counted beside the store."""
    beside = Path(f"{store}.lives")
    count = int(beside.read_text() or 0) if beside.exists() else 0
    return beside, count


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def agent_of(store):
    """An agent with a step, a model, a call that can't be repeated and a wait, which dies where its life says."""
    beside, count = lives(store)
    beside.write_text(str(count + 1))

    @tool(effect="once", reconcile=lambda call: holdfast.Happened("paid"), reconcile_after=0)
    def pay(euros: int) -> str:
        if count == 1:
            die()  # nothing of the call's answer is recorded
        return "paid"

    tries = []

    def look(city: str) -> str:
        tries.append(city)
        if len(tries) < 2:
            raise ConnectionError("no route")
        return f"sunny in {city}"

    @agent
    def trip(task, city: str) -> str:
        task.stage("looking")
        task.step(look, city, retry=Retry(attempts=3, first="1ms"))
        if count == 0:
            die()
        usage = {"prompt_tokens": 12, "completion_tokens": 3}
        task.step(lambda: {"role": "assistant", "content": "Go!", "model": "m-1", "usage": usage}, name="model")
        paid = task.call(pay, euros=7)
        if count == 2:
            die()
        task.sleep(0.01)
        return paid

    return trip


def main(store, endpoint=""):
    trip = agent_of(store)
    with holdfast.open(store, agents=[trip], traces=Otlp(endpoint=endpoint) if endpoint else False) as app:
        assert app.run(trip, {"city": "Oslo"}, id=ID).status == "completed"


if __name__ == "__main__":
    main(*sys.argv[1:])
