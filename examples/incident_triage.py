r"""Repair a service: try one cause after the other, and undo what did not help, last things first.

    python examples/incident_triage.py [store.db]

Shows `compensate`, child tasks (each attempt has a log and an undoing of its own), decisions with their reasons, facts
with their sources. The cloud is a file, ./incident-cloud.log: a line for every change. Kill it anywhere (Ctrl-\, or
kill -9), also in the middle of the undoing, and run it again: every line comes once, in the same order.
"""

import sys
import time
from pathlib import Path

import holdfast
from holdfast import Call, StepFailed, Task, agent, tool

CLOUD = Path("incident-cloud.log")
BEFORE = {"release": "v42", "replicas": "2", "new_search": "on"}
CAUSES = {
    "the release": {"why": "it went out an hour ago", "changes": {"release": "v41", "replicas": "6"}},
    "the new search": {"why": "the logs are full of its time-outs", "changes": {"new_search": "off"}},
}
PAUSE = 0.5  # seconds that a change takes: time to kill it


@tool(effect="read")
def look() -> dict[str, str]:
    lines = CLOUD.read_text("utf-8").splitlines() if CLOUD.exists() else []
    return BEFORE | dict(line.split() for line in lines)


@tool(effect="read")
def error_rate() -> int:
    return 12 if look()["new_search"] == "on" else 0


def put_back(call: Call) -> None:
    change.fn(call.arguments["what"], to=call.arguments["before"], before="")  # the plain function


@tool(effect="idempotent", risk="production", compensate=put_back)
def change(what: str, to: str, before: str) -> None:
    time.sleep(PAUSE)
    if look()[what] != to:  # set, not added to: to do it again changes nothing
        with CLOUD.open("a", encoding="utf-8") as cloud:
            cloud.write(f"{what} {to}\n")
        print(f"  {what} = {to}")


@agent
def attempt(task: Task, changes: dict[str, str]) -> int:
    before = task.call(look)
    for what, to in changes.items():
        task.call(change, what=what, to=to, before=before[what])
    rate = task.call(error_rate)
    if rate > 1:
        raise RuntimeError(f"the error rate is still {rate} %")  # the task fails, so what it did is undone
    return rate


@agent
def triage(task: Task, service: str) -> str:
    task.fact("error rate", task.call(error_rate), source="monitoring")
    for cause, known in CAUSES.items():
        task.decide("what is the cause?", cause, why=known["why"], options=list(CAUSES))
        try:
            task.spawn(attempt, {"changes": known["changes"]})
            return f"{service} is well, it was {cause}"
        except StepFailed as failed:
            task.note(cause, failed.message)
    raise RuntimeError("nothing helped: a person is needed")


if __name__ == "__main__":
    with holdfast.open(*sys.argv[1:] or ["incident_triage.db"]) as app:
        done = app.run(triage, {"service": "checkout"}, id="incident-7")
        for made in done.decisions:
            print(f"{made['choice']}, because {made['why']}: {done.notes.get(made['choice'], 'it helped')}")
        print(f"{done.id} is {done.status}: {done.result}. Run it again: nothing is left to do.")
