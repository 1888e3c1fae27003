"""The process that is killed at every write: it runs a three-step agent over a file system that kills it.

    python three_steps.py

It imports everything, opens nothing, and forks a child for each order that comes in, one JSON line each, such as
`["/tmp/x", "def", "reconciled", 17, "before"]`; it answers with the child's exit code. A fork takes a tenth of the
time that a start takes, and before anything is opened there is nothing that a fork could share.
"""

from __future__ import annotations

import asyncio  # noqa: F401 — needed late, by async agents; imported once, here
import json
import os
import signal
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

import apsw

from holdfast import App, DidNotHappen, Happened, agent, tool
from holdfast.store.migrations import migrations
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.crash.faults import KillVFS, Side

TASK = "order"
EAGER_PAGES = 8
PATIENCE_SECONDS = 60


class Place:
    """Where a task lives, apart from the process that works on it: its store, its world, what it was promised."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.db = self.folder / "store.db"
        self.world = self.folder / "world"
        self.acks = self.folder / "acks"
        self.operations = self.folder / "operations"
        self.errors = self.folder / "errors"

    def told(self) -> str:
        """What the last process that failed had to say."""
        return self.errors.read_text() if self.errors.exists() else ""

    def copy(self) -> Place:
        """The store as it lies there, and its acknowledgements, in a folder inside this one."""
        folder = self.folder / "copy"
        folder.mkdir()
        for name in ("store.db", "store.db-wal", "store.db-journal", "acks"):
            if (self.folder / name).exists():
                (folder / name).write_bytes((self.folder / name).read_bytes())
        return Place(folder)


def note(path: Path, **line: Any) -> None:
    """Add a line to a file, with one write: once it returns, the line outlives the process."""
    data = json.dumps(line).encode() + b"\n"
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    assert os.write(file, data) == len(data)
    os.close(file)


def notes(path: Path) -> list[dict[str, Any]]:
    """The lines of a file."""
    return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []


def work(folder: str, kind: str, variant: str, kill_at: int | None = None, side: Side = "before") -> None:
    """Run an agent, from the start or from where it was, until it ends, waits or is killed."""
    place = Place(folder)
    vfs = KillVFS("killing", kill_at=kill_at, side=side)
    apsw.connection_hooks.append(lambda connection: connection.wal_autocheckpoint(EAGER_PAGES))
    app = App(SqliteStore(str(place.db), vfs="killing", exclusive=True))
    shop = Shop(app, place, vfs)
    done = app.run(agent(name="order")(shop.order if kind == "def" else shop.order_async), {"pay": variant}, id=TASK)
    if done.status == "completed":
        shop.acked("", done.result)
    app.close()
    place.operations.write_text(json.dumps([vfs.operations, vfs.writes]))


class Shop:
    """An agent of three steps, and the world it acts on; every result the agent is given, it writes down."""

    def __init__(self, app: App, place: Place, vfs: KillVFS) -> None:
        self.app, self.place, self.vfs = app, place, vfs
        reconciled = {"reconcile": self.find, "reconcile_after": 0}
        declared = {"reconciled": reconciled, "asked": {}, "careless": {"effect": "idempotent"}}
        self.tools = {variant: tool(name="pay", **options)(self.pay) for variant, options in declared.items()}

    def order(self, task: Any, pay: str) -> list[str]:
        """The agent."""
        task.state.increment("visits")
        picked = self.acked("pick#1", task.step(self.act, "pick", name="pick"))
        task.fact("picked", picked)
        task.state.paid = paid = self.acked("pay#1", task.call(self.tools[pay], amount=3))
        packed = self.acked("pack#1", task.step(self.act, "pack", name="pack"))
        task.fact("packed", packed)
        return [picked, paid, packed]

    async def order_async(self, task: Any, pay: str) -> list[str]:
        """The same, awaited."""
        task.state.increment("visits")
        picked = self.acked("pick#1", await task.step(self.act, "pick", name="pick"))
        task.fact("picked", picked)
        task.state.paid = paid = self.acked("pay#1", await task.call(self.tools[pay], amount=3))
        packed = self.acked("pack#1", await task.step(self.act_async, "pack", name="pack"))
        task.fact("packed", packed)
        return [picked, paid, packed]

    def pay(self, amount: int, *, idempotency_key: str) -> str:
        """The call that must not be made twice."""
        return self.act("pay", idempotency_key)

    def find(self, call: Any) -> Happened | DidNotHappen:
        """Ask the world whether a payment was made."""
        receipts = [one["receipt"] for one in notes(self.place.world) if one["key"] == call.idempotency_key]
        return Happened(receipts[0]) if receipts else DidNotHappen()

    def act(self, what: str, key: str = "") -> str:
        """Change the world, as often as it is asked to; each time the receipt is another one."""
        receipt = os.urandom(4).hex()
        note(self.place.world, what=what, key=key, receipt=receipt, operation=self.vfs.operations)
        return receipt

    async def act_async(self, what: str) -> str:
        """The same on the event loop."""
        return self.act(what)

    def acked(self, step: str, result: Any) -> Any:
        """Write down that a verb has returned: from here on its result must be there."""
        head = self.app.store.head(TASK)
        assert head is not None
        note(self.place.acks, log=TASK, seq=head.seq, digest=head.digest.hex(), step=step, result=result)
        return result


def serve() -> None:
    """Fork a child for each order and tell how it ended."""
    migrations("sqlite")  # what is looked up late is looked up once, here
    for line in sys.stdin:
        assert threading.active_count() == 1, "a fork leaves other threads behind, and what they hold locked"
        child = os.fork()
        if not child:
            obey(*json.loads(line))
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def obey(folder: str, *order: Any) -> None:
    """Work, and end the process without a look back; whoever hangs is ended by the alarm."""
    signal.alarm(PATIENCE_SECONDS)
    try:
        work(folder, *order)
    except BaseException:
        Place(folder).errors.write_text(traceback.format_exc())
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    serve()
