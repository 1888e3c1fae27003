"""A server is restored to a point in time while tasks are under way: docs/how-to/restore.md, executed.

What was lost and is remembered is named; calls in doubt are asked about; what nobody remembers is made again with the
same key, as the page says.
"""

import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import psycopg
import pytest

import holdfast
from holdfast import DidNotHappen, Diverged, Happened, Task, agent, tool
from holdfast.testing.auditor import audit
from holdfast.testing.crash.world import World
from tests.docs.typist import blocks
from tests.postgres_server import Server, binaries
from tests.waiting import until

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "restore.md"
BACKUP, RESTORE = (block.text for block in blocks(PAGE) if block.language == "sh")
SETTINGS = dict(re.findall(r"^    (\w+) = '?(.+?)'?$", PAGE.read_text("utf-8"), re.M))
"""What the page puts into postgresql.conf."""
(DIVERGED,) = (block.text for block in blocks(PAGE) if block.language == "text")


def shop_of(world, *gates):
    """An agent that pays, waits for a signal, pays twice, and waits for another; with gates, it stands before those."""

    def find(call):
        found = world.find(call.idempotency_key)
        return Happened(found.receipt) if found else DidNotHappen()

    @tool(effect="once", reconcile=find, reconcile_after=0)
    def pay(n: int, *, idempotency_key: str) -> str:
        return world.request("pay", key=idempotency_key, n=n)["receipt"]

    @agent
    def shop(task: Task) -> list[str]:
        before, after = gates or (None, None)
        paid = [pay(n=1)]
        task.step(before.wait, name="before") if before else task.wait("go")
        paid += [pay(n=2), pay(n=3)]
        task.step(after.wait, name="after") if after else task.wait("more")
        return [*paid, pay(n=4)]

    return shop


@pytest.fixture
def world():
    with World() as started:
        yield started


class Archived:
    """A server that archives its log, and how the page backs it up and restores it."""

    def __init__(self, server, folder):
        self.server, self._archive, self._backup = server, folder / "archive", folder / "backup"
        self._data = server._place / "data"

    def run(self, block, **given):
        """Execute a block of the page as the user of the server."""
        programs = f"{binaries()}{os.pathsep}{os.environ['PATH']}"
        given |= {"DATA": self._data, "BACKUP": self._backup, "ARCHIVE": self._archive, "SERVER": self.server.url()}
        environment = {"PATH": programs, **{name: str(value) for name, value in given.items()}}
        how = {
            name: value for name, value in self.server._as_user().items() if name in ("user", "group", "extra_groups")
        }
        done = subprocess.run(["bash", "-ec", block], env=environment, cwd="/", capture_output=True, text=True, **how)
        assert done.returncode == 0, done.stderr

    def ask(self, statement):
        with psycopg.connect(self.server.url(), autocommit=True) as link:
            return link.execute(statement).fetchone()[0]

    def archive_all(self):
        """Have everything archived that was written so far."""
        last = self.ask("select pg_walfile_name(pg_switch_wal())")
        until(lambda: (self._archive / last).exists(), why="the log is not archived")


@pytest.fixture
def archived():
    found = binaries()
    if found is None or not os.path.exists(f"{found}/pg_basebackup"):
        pytest.skip("there is no PostgreSQL with pg_basebackup: apt-get install postgresql")
    place = Path(
        f"/dev/shm/holdfast-archive-{os.getpid()}"
        if os.path.isdir("/dev/shm")
        else f"/tmp/holdfast-archive-{os.getpid()}"
    )
    archive = place / "archive"
    assert SETTINGS.keys() == {"wal_level", "archive_mode", "archive_command"}
    given = {name: value.replace("/archive/", f"{archive}/") for name, value in SETTINGS.items()}
    server = Server(found, **given)
    try:
        archive.mkdir(parents=True)
        for one in (place, archive):
            os.chmod(one, 0o777)
        yield Archived(server, place)
    finally:
        server.stop()
        subprocess.run(["rm", "-rf", place], check=True)


def elsewhere(url, world, work):
    """Do something in a process of its own."""
    program = (
        "import sys, holdfast\n"
        "from holdfast.testing.crash.world import World\n"
        "from tests.crash.test_restore import shop_of\n"
        f"shop = shop_of(World.at({world.address!r}))\n"
        f"with holdfast.open({url!r}) as app: {work}"
    )
    return subprocess.Popen([sys.executable, "-c", program], cwd=Path(__file__).parents[2])


def done(process):
    assert process.wait(60) == 0


def keys(world):
    """Return how often each payment was made, by task and number."""
    return Counter(":".join((one.key.partition(":")[0], str(one.data["n"]))) for one in world.requests("pay"))


def test_a_server_restored_to_a_point_in_time_names_what_diverged_and_asks_about_calls_in_doubt(archived, world):
    url, shop = archived.server.url() + "?wait_seconds=60", shop_of(world)
    gates, noticed = (threading.Event(), threading.Event()), []
    busy = shop_of(world, *gates)
    with holdfast.open(url) as app:

        def work():
            try:
                app.run(busy, id="working")
            except Diverged as error:
                noticed.append(error)

        for id in ("ended", "living", "finished"):
            assert app.run(shop, id=id).status == "waiting"
        for signal in ("go", "more"):
            app.signal("ended", signal)
        assert app.resume("ended", shop).status == "completed"
        archived.run(BACKUP)
        working = threading.Thread(target=work)
        working.start()
        until(lambda: keys(world)["working:1"] == 1, why="it does not begin")
        app.signal("living", "go")
        world.hang("pay", 30)
        cut = elsewhere(url, world, "app.run(shop, id='cut')")
        until(lambda: keys(world)["cut:1"] == 1, why="the call does not begin")
        cut.kill()
        cut.wait()

        time.sleep(0.1)
        when = archived.ask("select clock_timestamp()::text")
        time.sleep(0.1)
        assert app.resume("living", shop).status == "waiting"
        gates[0].set()
        until(lambda: keys(world)["working:3"] == 1, why="it does not go on")
        done(elsewhere(url, world, "app.signal('finished', 'go'); app.resume('finished', shop)"))
        done(elsewhere(url, world, "app.run(shop, id='later')"))
        assert set(keys(world).values()) == {1} and keys(world)["finished:3"] == keys(world)["living:3"] == 1
        archived.archive_all()
        archived.server.kill()
        archived.run(RESTORE, WHEN=when)
        archived.server.start()
        until(lambda: not archived.ask("select pg_is_in_recovery()"), why="it is not restored")

        gates[1].set()
        working.join(60)
        assert noticed[0].details["calls"] == ["pay#2", "pay#3"], "those that may have happened are named"
        assert app.resume("working", busy, anyway=True, by="ana").status == "completed"
        with pytest.raises(Diverged) as lost:
            app.resume("living", shop)
        assert shown(lost.value.message) == shown(DIVERGED)
        assert app.get("living").waiting.kind == "diverged"
        assert app.resume("living", shop, anyway=True, by="ana").status == "waiting"
        app.signal("living", "more")
        assert app.resume("living", shop).status == "completed"

        assert app.get("ended").status == "completed"
        with pytest.raises(holdfast.TaskNotFound):
            app.get("later")
    with holdfast.open(url) as app:
        assert app.resume("cut", shop).status == "waiting"
        kinds = [record.kind for record in app.events("cut")]
        assert kinds.count("step_settled") == 1, "the world was asked"
        assert set(keys(world).values()) == {1}, "nothing that is known was made twice"

        app.signal("finished", "go")
        assert app.resume("finished", shop).status == "waiting"
        assert {one for one, count in keys(world).items() if count > 1} == {"finished:2", "finished:3"}
        assert len({one.receipt for one in world.requests("pay") if one.data["n"] == 2}) == len(
            {one.key for one in world.requests("pay") if one.data["n"] == 2}
        ), "a destination that honours keys has done it once"
        assert app.verify().ok
    assert audit(archived.server.url()) == []


def shown(message):
    """A message without the numbers of events."""
    return re.sub(r"\d+", "N", message.strip())
