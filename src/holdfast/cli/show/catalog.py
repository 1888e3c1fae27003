"""Every command and its one line. A closed list: nothing is imported by a name found in data."""

from __future__ import annotations

SECTIONS: dict[str, dict[str, str]] = {
    "Work": {
        "demo": "Kill an agent with SIGKILL after it charged a card, and see that it is charged once.",
        "worker": "Run a worker: take tasks from queues and work on many at a time.",
        "run": "Start a task, or resume it, and work on it until it ends or waits.",
        "test": "Test an agent in a temporary store: with mocks, or with crashes.",
        "resume": "Resume a task that was interrupted, is waiting or has failed.",
        "cancel": "Cancel a task and its children.",
        "reopen": "Make a failed or quarantined task pending for workers.",
        "ui": "See and control tasks in a browser, on this machine.",
        "mcp": "Serve tasks to MCP clients: coding agents, desktop apps, other agents.",
    },
    "Look": {
        "list": "List tasks, newest first.",
        "show": "Show a task as it is now, or as it was just after an event.",
        "log": "Show the timeline of a task: steps, attempts, waits, decisions, cost.",
        "diff": "Show what changed between two events of a task, or between two tasks.",
        "audit": "Show who did what: by tool, person, decision or time.",
        "workers": "List running workers and what they serve.",
        "stats": "Count tasks, events, bytes and queued tasks.",
        "traces": "Send spans of tasks to an OTLP collector.",
    },
    "People": {
        "inbox": "List tasks that need a person, each with the reason and the command to type.",
        "answer": "Answer a task's question.",
        "approve": "Approve a pending call, once, for exactly these arguments.",
        "reject": "Reject a call that waits for approval, for good.",
        "settle": "Record whether a call in doubt happened.",
        "signal": "Send a signal to a task.",
        "budget": "Show a task's budget, or raise or add a limit.",
    },
    "Time": {
        "fork": "Start a new task from a past event of another task.",
        "rollback": "Roll a task back by steps or state changes, or to an event or checkpoint.",
    },
    "Store": {
        "verify": "Check that no stored event was changed or lost.",
        "export": "Write a task to a file as JSON Lines, lossless.",
        "import": "Read a task from a file that `holdfast export` wrote.",
        "gc": "Remove old tasks that have ended. Their ids are never reused.",
        "migrate": "Update the store's schema, or show what that would do.",
        "migrate-states": "Migrate the typed state of open tasks to their agents' current version.",
        "backup": "Write a consistent copy of the store to a file while others use it.",
        "copy": "Copy everything into another store and verify it there.",
        "doctor": "Check the store and its environment, and name what to fix.",
    },
    "Help": {
        "explain": "Explain an error code.",
        "config": "Show each setting and where it comes from.",
        "completion": "Print the shell completion script.",
    },
}

READING = frozenset(
    (
        *("audit", "diff", "doctor", "explain", "inbox", "list", "log"),
        *("show", "stats", "traces", "verify", "workers"),
    )
)
"""Commands that never write: their errors need not add that nothing was written."""

COMMANDS: dict[str, str] = {name: line for section in SECTIONS.values() for name, line in section.items()}

PLACEHOLDERS: dict[str, str] = {
    "FILE": "the file your agent is in, such as agents.py",
    "VALUE": "your own value",
    "JSON": "a JSON value",
    "YOU": "your own name",
    "WHY": "your own reason",
    "SEQ": "the number of an event; `holdfast log` shows them",
    "TIME": "a length of time, such as 10m",
    "MORE": "a number",
    "ID": "the id of a task; `holdfast list` shows them",
    "CALL": "the key of a call; `holdfast inbox` shows them",
    "NAME": "a name",
    "PATH": "a path",
    "COMMAND": "the name of a command; `holdfast --help` lists them",
}
"""Words that hints use for what only you can know. Pasted as they are, they are refused."""
