r"""Repair a service: try one cause after the other, and undo what did not help, last things first.

    python examples/incident_triage.py

Shows `compensate`, child tasks, decisions and facts. The cloud is a file, ./incident-cloud.log, a line for each change.
Kill it (Ctrl-\, or kill -9), also while it undoes, and run it again: every line comes once, in the same order.
"""

import time
from pathlib import Path

import holdfast
from holdfast import StepFailed, Task, agent, tool

CLOUD = Path("incident-cloud.log")
BEFORE = {"release": "v42", "replicas": "2", "new_search": "on"}
CAUSES = {"the release": {"release": "v41", "replicas": "6"}, "the new search": {"new_search": "off"}}
PAUSE = 0.5  # seconds that a change takes: time to kill it


@tool(effect="read")
def look() -> dict[str, str]:
    return BEFORE | dict(line.split() for line in (CLOUD.read_text().splitlines() if CLOUD.exists() else ()))


@tool(effect="idempotent")
def change(what: str, to: str) -> None:
    time.sleep(PAUSE)
    if look.fn()[what] != to:  # set, not added to: to do it again changes nothing
        with CLOUD.open("a") as cloud:
            cloud.write(f"{what} {to}\n")
        print(f"  {what} = {to}")


@agent
def attempt(task: Task, changes: dict[str, str]) -> None:
    before = look()
    for what, to in changes.items():
        task.compensate(change, what=what, to=before[what])  # undone if the task fails, last things first
        change(what=what, to=to)
    assert look()["new_search"] == "off", "the error rate is still 12 %"


@agent
def triage(task: Task, service: str) -> str:
    task.fact("error rate", 12, source="monitoring")
    for cause, changes in CAUSES.items():
        task.decide("what is the cause?", cause, options=list(CAUSES))
        try:
            return task.spawn(attempt, {"changes": changes}) or f"{service} is well, it was {cause}"
        except StepFailed as failed:
            task.note(cause, failed.message)
    return "nothing helped: a person is needed"


if __name__ == "__main__":
    with holdfast.open("incident_triage.db") as app:
        done = app.run(triage, {"service": "checkout"}, id="incident-7")
        print(*done.notes.items(), f"{done.id} is {done.status}: {done.result}. Run it again.", sep="\n")
