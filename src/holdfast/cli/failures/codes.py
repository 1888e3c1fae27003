"""What each error code means: what is on record after it, and what to do, as commands."""

from __future__ import annotations

from typing import NamedTuple


class Code(NamedTuple):
    """What was written when this error comes, and what to type or to change. `{id}` and the like are its details."""

    written: str
    do: tuple[str, ...] = ()


NOTHING = "Nothing was written."
_CALL = "Nothing was done and nothing was written about this call."
_STEP = "Everything before this step is on record; the step itself has no result."
_FAILS = "The task is recorded as failed with this reason; everything it did before is kept."
_SAFE = f"What was acknowledged before is safe. {NOTHING}"
_UNTOUCHED = "The store was not touched."

CODES: dict[str, Code] = {
    "holdfast": Code(
        "What was acknowledged is on record.", ("holdfast doctor   checks the store and its environment",)
    ),
    "task-not-found": Code(
        NOTHING,
        ("holdfast list   lists the tasks of this store", "holdfast list --store PATH   lists those of another store"),
    ),
    "task-exists": Code(NOTHING, ("choose another --id, or leave it out to get a new one",)),
    "task-collected": Code(NOTHING, ("start new work under a new --id: an old id is never used again",)),
    "task-failed": Code(
        NOTHING,
        (
            "holdfast show {id}   shows how far it got, and why it has no result",
            "holdfast resume {id} FILE   tries the failed step again",
        ),
    ),
    "task-finished": Code(
        NOTHING,
        (
            "holdfast resume {id} FILE   resumes a failed task, unless it was compensated",
            "holdfast fork {id} --at SEQ   starts a new task from any event of it",
        ),
    ),
    "queue-full": Code(
        NOTHING,
        (
            "holdfast stats   shows how full the queues are",
            "holdfast worker FILE   starts another worker; or raise max_ready= of the queue",
        ),
    ),
    "thread-busy": Code(
        NOTHING,
        (
            "holdfast log {id} --follow   follows the task that is running",
            "holdfast cancel {id}   cancels it",
        ),
    ),
    "thread-not-found": Code(
        NOTHING,
        ("holdfast list   lists the tasks of this store",),
    ),
    "export-failed": Code(
        "Nothing of the store was changed. Spans that the collector took stay there; sending again doubles none.",
        ("holdfast traces export --endpoint http://HOST:4318   sends to another collector",),
    ),
    "task-busy": Code(
        NOTHING,
        (
            "holdfast log {id} --follow   follows the task while its worker works on it",
            "holdfast resume {id} FILE --wait 1m   waits for that worker",
            "holdfast cancel {id}   cancels the task",
        ),
    ),
    "input-conflict": Code(
        NOTHING,
        (
            "holdfast resume {id} FILE   resumes it with its first input, unless it has ended",
            "choose another --id for other work",
        ),
    ),
    "step-failed": Code(
        "The failed step and its attempts are on record.",
        (
            "holdfast resume {id} FILE   tries the step again",
            "in the agent: catch StepFailed to continue without the step",
        ),
    ),
    "approval-denied": Code(
        "The rejection is on record. The call was not made, and stays rejected.",
        (
            "in the agent: catch ApprovalDenied to continue without the call",
            "holdfast fork {id} --at SEQ   starts a new task from an event before the request",
        ),
    ),
    "step-changed": Code(
        "Nothing was run, and the recorded step is kept. If the agent does not catch this, the task fails.",
        (
            "keep the recorded result: @agent(on_change='keep')",
            "run the step again: @agent(on_change='rerun')",
            "holdfast fork {id} --at SEQ   tries the new code in a fork first",
        ),
    ),
    "replay-diverged": Code(
        "The new step was not run, and what is recorded is kept. If the agent does not catch this, the task fails.",
        (
            "start branches in the same order as when the task began; in new tasks, give the call a key=…",
            "holdfast resume {id} FILE   tries again with the corrected code",
            "run the step again: @agent(on_change='rerun')",
        ),
    ),
    "self-approval": Code(
        NOTHING,
        (
            "holdfast inbox   shows the request; a person decides, with --by and their own name",
            "in a program: decide outside of agents, steps and tools, on behalf of a person whose name you give",
        ),
    ),
    "nested-step": Code(_STEP, ("use the verb in the agent's own body, or spawn a child task there",)),
    "effect-conflict": Code(_CALL, ("give other work another key: @tool(unique=…)",)),
    "unnamed-thread": Code(_STEP, ("give each step in a thread its own name=, or use task.map",)),
    "not-recorded": Code(
        _CALL, ("holdfast fork {parent} --effects ask   makes a fork that asks before it makes the call",)
    ),
    "no-mock": Code(_CALL, ("declare the tool's mock: @tool(mock=…)",)),
    "resume-expired": Code(NOTHING, ("holdfast resume {id} FILE --anyway   resumes it in spite of its age",)),
    "tool-exited": Code(_STEP, ("let the tool raise an error instead of ending the process",)),
    "not-done": Code(
        "It is on record that nothing happened, so the call may be tried again.",
        ("a tool raises it when it is sure; retry=… tries again",),
    ),
    "time-limit": Code(
        "What was done in time is on record; a `once` call that was cut off is in doubt.",
        (
            "allow more time: timeout= of the step, deadline= of the task",
            "holdfast inbox   lists the calls in doubt",
        ),
    ),
    "retries-exhausted": Code(
        "Nothing was written: outside of a task nothing is recorded.",
        ("try again later, or allow more attempts; in an agent, task.step(fn, retry=…) is recorded",),
    ),
    "turn-limit": Code(_FAILS, ("raise max_turns= of the agent, then resume the task: holdfast resume {id} FILE",)),
    "seq-out-of-range": Code(NOTHING, ("holdfast log {id}   shows every seq",)),
    "step-not-found": Code(NOTHING, ("holdfast log {id}   shows the steps; in a loop a key has its turn: 3/draft#1",)),
    "conflict": Code(NOTHING, ("read the task again and decide again: another writer was first",)),
    "patch-conflict": Code(NOTHING, ("holdfast show {id}   shows the values as they are now; then decide again",)),
    "state-mutated": Code(
        NOTHING, ("write with the verb that the error names: task.state.append, task.state.set, task.state.update",)
    ),
    "key-taken": Code(NOTHING, ("use the result of the call that has the key, or another key",)),
    "invalid-event": Code(
        NOTHING, ("holdfast show {id}   shows its status and what it waits for", "holdfast log {id}   shows its events")
    ),
    "invalid-transition": Code(NOTHING, ("holdfast show {id}   shows stage and phase; declare the transition",)),
    "invalid-value": Code(NOTHING, ("the error names the value; the command's --help says what it takes",)),
    "invalid-input": Code(
        NOTHING,
        ("give the agent's parameters: -p name=value, or --input file.json",),
    ),
    "invalid-id": Code(NOTHING, ("use letters, digits and any of _.:/~#+=,- in an id",)),
    "invalid-message": Code(_STEP, ("correct the part of the message that the path in the error names",)),
    "window-too-small": Code(_STEP, ("give the window more tokens, or let it summarise",)),
    "invalid-url": Code(_UNTOUCHED, ("write holdfast.db, sqlite:///relative.db or sqlite:////absolute.db",)),
    "web-open": Code(
        _UNTOUCHED,
        (
            "holdfast ui   serves this machine only",
            "to serve others: export HOLDFAST_UI_TOKEN=…, put a proxy with TLS before it, and add --behind-proxy",
            "in a program: holdfast.web.asgi(app, authorize=who_asks)",
        ),
    ),
    "invalid-state": Code(
        NOTHING, ("correct the field that the path in the error names; state= of the agent says its type",)
    ),
    "state-not-migrated": Code(NOTHING, ("declare how a version becomes the next: @agent.upcast(1, 2)",)),
    "invalid-template": Code(NOTHING, ("write {{name}} for a value, and {{{{ for a brace",)),
    "unknown-name": Code(NOTHING, ("use a name that exists: an argument, a fact, a note, or a name of the state",)),
    "budget-exceeded": Code(
        _FAILS,
        (
            "holdfast budget {id} {limit}=MORE   raises the limit",
            "holdfast resume {id} FILE   resumes it after that",
        ),
    ),
    "unknown-price": Code(_STEP, ("give the model's price: holdfast.open(…, prices=…)",)),
    "not-serializable": Code(NOTHING, ("replace the value that the path in the error names: it is not JSON",)),
    "unknown-event": Code(NOTHING, ("upgrade Holdfast: a newer version wrote this store",)),
    "log-corrupt": Code(
        "Nothing was changed.",
        (
            "holdfast verify   lists every damaged log",
            "holdfast copy copy.db   copies the undamaged logs to a new store",
        ),
    ),
    "value-damaged": Code(NOTHING, ("holdfast verify   lists the events that refer to it",)),
    "store-error": Code(_SAFE, ("holdfast doctor   checks the store and its environment",)),
    "not-a-store": Code(_UNTOUCHED, ("holdfast config   shows which store is used, and why",)),
    "store-too-new": Code(_UNTOUCHED, ("upgrade Holdfast: a newer version wrote this store",)),
    "store-read-only": Code(_UNTOUCHED, ("check the owner, the mode and the file system of the path",)),
    "store-full": Code(
        _SAFE, ("holdfast gc --older-than 30d   removes old tasks that have ended", "or free some disk space")
    ),
    "store-busy": Code(_SAFE, ("holdfast doctor   shows whether other processes lock the store", "try again")),
    "store-unreachable": Code(
        _SAFE,
        ("holdfast config   shows which address is used, and why", "check that the server is running"),
    ),
    "store-poisoned": Code(
        "Everything that was acknowledged before is safe.",
        ("run the command again: it reads what is stored",),
    ),
    "diverged": Code(
        "The loss is on record, and the task is frozen.",
        (
            "holdfast log {id}   shows what is left, and which calls may have happened",
            "holdfast settle {id} CALL --did-not-happen   for each such call; or --happened",
            "holdfast resume {id} FILE --anyway   resumes it from what is left; or use rollback, fork or cancel",
            "holdfast reopen {id} --anyway   lets a worker resume it from what is left",
        ),
    ),
    "store-closed": Code(_SAFE, ("open the store again; a forked process opens its own",)),
    "missing-extra": Code(_UNTOUCHED, ("install the extra that the error names",)),
    "usage": Code(NOTHING, ("read the command's --help",)),
    "lease-lost": Code(
        "What was recorded before is kept; nothing more is written here.",
        ("holdfast log {id} --follow   follows the task while the other worker works on it",),
    ),
    "unexpected": Code(
        "What was acknowledged is on record.", ("run it again with --debug; if it is a bug of Holdfast, report it",)
    ),
}
"""Every code of the tree of errors, and three of the command line itself."""

OWN = {
    "usage": "The command line was not understood.",
    "lease-lost": "Another worker has taken the task.",
    "unexpected": "An error that is not one of Holdfast's.",
}
"""Codes of the command line itself, and when they come."""


def remedies(code: str, details: dict[str, object]) -> list[str]:
    """Return the remedies of an error, with its own values filled in."""
    names = {name: str(value) for name, value in details.items() if isinstance(value, str | int)}
    does = CODES.get(code, CODES["unexpected"]).do
    if code == "task-finished" and names.get("status", "failed") != "failed":
        does = does[1:]  # only what has failed can be resumed
    return [line.format_map(_Named(names)) for line in does]


class _Named(dict[str, str]):
    """Values by name; one that is not there stays a word in capitals."""

    def __missing__(self, key: str) -> str:
        return key.upper()
