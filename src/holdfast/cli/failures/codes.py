"""What each error's code means: what is on record after it, and what to do, as commands."""

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
_SAFE = "What was acknowledged before is safe; this write was not made."
_UNTOUCHED = "The store was not touched."

CODES: dict[str, Code] = {
    "holdfast": Code("What was acknowledged is on record.", ("holdfast doctor   looks at the store and its place",)),
    "task-not-found": Code(
        NOTHING,
        ("holdfast list   shows the tasks of this store", "holdfast list --store PATH   looks in another store"),
    ),
    "task-exists": Code(NOTHING, ("choose another --id, or leave it out to get a new one",)),
    "task-collected": Code(NOTHING, ("start new work under a new --id: an old id never acts again",)),
    "task-failed": Code(
        NOTHING,
        (
            "holdfast show {id}   shows how far it came, and why it has no result",
            "holdfast resume {id} FILE   lets a failed task go on",
        ),
    ),
    "task-finished": Code(
        NOTHING,
        (
            "holdfast resume {id} FILE   lets a failed task go on, unless it was undone",
            "holdfast fork {id} --at SEQ   goes on from any point of it",
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
            "holdfast log {id} --follow   watches the task that is under way",
            "holdfast cancel {id}   ends it",
        ),
    ),
    "thread-not-found": Code(
        NOTHING,
        ("holdfast list --thread ID   lists the tasks of a thread",),
    ),
    "export-failed": Code(
        "Nothing of the store was changed. Spans that the collector took stay there; sending again doubles none.",
        ("holdfast traces export --endpoint http://HOST:4318   sends to another collector",),
    ),
    "task-busy": Code(
        NOTHING,
        (
            "holdfast log {id} --follow   watches the worker that has it",
            "holdfast run … --wait 1m   waits for it",
            "holdfast cancel {id}   stops it",
        ),
    ),
    "input-conflict": Code(
        NOTHING,
        (
            "holdfast resume {id} FILE   goes on with its first input, unless it has ended",
            "other work needs another --id",
        ),
    ),
    "step-failed": Code(
        "The failed step and its attempts are on record.",
        ("in the agent: catch StepFailed to go on without it", "holdfast resume ID FILE   tries the step afresh"),
    ),
    "approval-denied": Code(
        "The refusal is on record; the call was not made, and stays refused.",
        ("in the agent: catch ApprovalDenied to go on without it",),
    ),
    "step-changed": Code(
        "Nothing was run, and the recorded step is kept as it was; a task that does not catch it fails.",
        (
            "keep the recorded result: @agent(on_change='keep')",
            "do it again: @agent(on_change='rerun'); to try that in a copy: holdfast fork ID --at SEQ",
        ),
    ),
    "replay-diverged": Code(
        "The new step was not done, and what is recorded is kept; a task that does not catch it fails.",
        (
            "start branches in the same order as when the task began; in new tasks, give the call a key=…",
            "holdfast resume {id} FILE   tries again with the corrected code",
            "do it again: @agent(on_change='rerun')",
        ),
    ),
    "self-approval": Code(
        NOTHING,
        (
            "holdfast inbox   shows what a person is asked; that person decides, with --by and their own name",
            "in a program: decide outside of agents, steps and tools, for a person whose name you give",
        ),
    ),
    "nested-step": Code(_STEP, ("use the verb in the agent's own body, or spawn a child task there",)),
    "effect-conflict": Code(_CALL, ("give other work another key: @tool(unique=…)",)),
    "unnamed-thread": Code(_STEP, ("give each step of a thread its own name=, or use task.map",)),
    "not-recorded": Code(_CALL, ("holdfast fork ID --at SEQ --effects ask   asks before it makes the call",)),
    "no-mock": Code(_CALL, ("declare what answers for the tool: @tool(mock=…)",)),
    "resume-expired": Code(NOTHING, ("holdfast resume ID FILE --anyway   resumes it all the same",)),
    "tool-exited": Code(_STEP, ("let the tool raise an error instead of ending the process",)),
    "not-done": Code(
        "That nothing happened is on record: the call may be tried again.",
        ("a tool raises it when it is sure; retry=… tries again",),
    ),
    "time-limit": Code(
        "What was done in time is on record; a call that can be done only once is in doubt.",
        ("give it more time: timeout= of the step, deadline= of the task", "holdfast inbox --doubts"),
    ),
    "retries-exhausted": Code(
        "Nothing was written: outside of a task nothing is recorded.",
        ("try again later, or allow more attempts; in an agent, task.step(fn, retry=…) is recorded",),
    ),
    "turn-limit": Code(_FAILS, ("raise max_turns= of the agent, then: holdfast resume {id} FILE",)),
    "seq-out-of-range": Code(NOTHING, ("holdfast log {id}   shows every seq there is",)),
    "step-not-found": Code(NOTHING, ("holdfast log {id}   names the steps; in a loop a key has its turn: 3/draft#1",)),
    "conflict": Code(NOTHING, ("another writer was first: look at the task again, and decide anew",)),
    "patch-conflict": Code(NOTHING, ("holdfast show {id}   shows what others made of it; then decide anew",)),
    "state-mutated": Code(
        NOTHING, ("write with the verb that the error names: task.state.append, task.state.set, task.state.update",)
    ),
    "key-taken": Code(NOTHING, ("use the result of the call that has the key, or another key",)),
    "invalid-event": Code(NOTHING, ("holdfast show {id}   shows what the task waits for", "holdfast log {id}")),
    "invalid-transition": Code(NOTHING, ("holdfast show {id}   names stage and phase; declare the way there",)),
    "invalid-value": Code(NOTHING, ("the help beside it says what fits; holdfast COMMAND --help",)),
    "invalid-input": Code(
        NOTHING, ("holdfast run … -p name=text, -p name:=JSON or --input file.json   gives an agent what it takes",)
    ),
    "invalid-id": Code(NOTHING, ("letters, digits and any of _.:/~#+=,- make an id",)),
    "invalid-message": Code(_STEP, ("the path in the error names the part of the message that no provider takes",)),
    "window-too-small": Code(_STEP, ("give the window more tokens, or let it summarise",)),
    "invalid-url": Code(_UNTOUCHED, ("--store agents.db, sqlite:///relative.db, sqlite:////absolute.db",)),
    "web-open": Code(
        _UNTOUCHED,
        (
            "holdfast ui   without --host serves this machine only",
            "export HOLDFAST_UI_TOKEN=…, put a proxy with TLS before it, and add --behind-proxy",
            "in a program: holdfast.web.asgi(app, authorize=who_asks)",
        ),
    ),
    "invalid-state": Code(NOTHING, ("the path in the error names the field; the agent's state= says what fits",)),
    "state-not-migrated": Code(NOTHING, ("declare how the versions become each other: @agent.upcast(1, 2)",)),
    "invalid-template": Code(NOTHING, ("{{name}} stands for a value; write {{{{ for a brace",)),
    "unknown-name": Code(NOTHING, ("holdfast show ID   shows the names there are",)),
    "budget-exceeded": Code(
        _FAILS,
        ("holdfast budget {id} {limit}=MORE --by you   allows more; then holdfast resume {id} FILE",),
    ),
    "unknown-price": Code(_STEP, ("say what the model costs: holdfast.open(…, prices=…)",)),
    "not-serializable": Code(NOTHING, ("the path in the error names the value that is not JSON",)),
    "unknown-event": Code(NOTHING, ("upgrade holdfast: a newer one has written here",)),
    "log-corrupt": Code(
        "Nothing was changed.",
        (
            "holdfast verify   names every damaged log",
            "holdfast copy NEW.db   takes along what is whole",
        ),
    ),
    "value-damaged": Code(NOTHING, ("holdfast verify   names the events that refer to it",)),
    "store-error": Code(_SAFE, ("holdfast doctor   looks at the store and its place",)),
    "not-a-store": Code(_UNTOUCHED, ("holdfast config   says which store is used, and why",)),
    "store-too-new": Code(_UNTOUCHED, ("upgrade holdfast",)),
    "store-read-only": Code(_UNTOUCHED, ("check the owner, the mode and the file system of the place",)),
    "store-full": Code(_SAFE, ("free some space and go on", "holdfast gc --older-than 30d   removes what has ended")),
    "store-busy": Code(_SAFE, ("try again", "holdfast doctor   tells whether others hold the store")),
    "store-unreachable": Code(
        _SAFE,
        ("check the address, and that the server is up", "holdfast config   says which store is used, and why"),
    ),
    "store-poisoned": Code(
        "Whether the last write is there is not known; everything acknowledged is.",
        ("run the command again: it reads what is there",),
    ),
    "diverged": Code(
        "Acknowledged events are gone. That is on record; what is left of the log is safe, and the task is frozen.",
        (
            "holdfast log {id}   shows what is left, and which calls may have happened",
            "holdfast settle {id} CALL --happened | --did-not-happen   for each of them that you know of",
            "holdfast resume {id} FILE --anyway   goes on from there; or holdfast rollback, fork, cancel",
        ),
    ),
    "store-closed": Code(_SAFE, ("open it again; a forked process opens its own",)),
    "missing-extra": Code(_UNTOUCHED, ("from a checkout of Holdfast: pip install 'path/to/holdfast[…]'",)),
    "usage": Code(NOTHING, ("holdfast COMMAND --help",)),
    "lease-lost": Code(
        "What was recorded before is kept; nothing more is written here.",
        ("holdfast log {id} --follow   watches the worker that took the task",),
    ),
    "unexpected": Code(
        "What was acknowledged is on record.", ("run it again with --debug; if it is a bug of ours, report it",)
    ),
}
"""Every code of the tree of errors, and three of the command line itself."""

OWN = {
    "usage": "The command was given something it does not understand.",
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
