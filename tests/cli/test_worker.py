"""`holdfast worker` as people and supervisors use it: real processes that are signalled and killed."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path

import pytest

import holdfast
from holdfast import events as ev
from holdfast.cli.failures.refusal import FAILED, STORE, USAGE
from holdfast.cli.show.style import bare
from tests.cli import worker_agents as agents
from tests.cli.test_terminal import COMMAND, ENVIRONMENT, Terminal
from tests.postgres_server import Server, binaries
from tests.waiting import until

LONG = 60
STORES = ("sqlite", "postgres")


@pytest.fixture
def folder(tmp_path):
    shutil.copy(agents.__file__, tmp_path / "agents.py")
    return tmp_path


@pytest.fixture
def app(folder):
    with holdfast.open(folder / "holdfast.db") as opened:
        yield opened


class Process:
    """A command that goes on until it is stopped."""

    def __init__(self, folder, *arguments, **environment):
        self._out = (folder / f"out-{time.monotonic_ns()}").open("w+b")
        self._err = (folder / f"err-{time.monotonic_ns()}").open("w+b")
        given = {"cwd": folder, "env": ENVIRONMENT | environment, "stdin": subprocess.DEVNULL}
        self.process = subprocess.Popen([*COMMAND, *arguments], stdout=self._out, stderr=self._err, **given)
        self._out.close()
        self._err.close()

    @property
    def out(self):
        return Path(self._out.name).read_text()

    @property
    def err(self):
        return Path(self._err.name).read_text()

    @property
    def lines(self):
        return [json.loads(line) for line in self.out.splitlines()]

    def says(self, text, *, times=1):
        until(lambda: self.err.count(text) >= times or self.process.poll() is not None)
        assert self.err.count(text) >= times, self.err

    def ends(self, number=signal.SIGTERM):
        if number:
            self.process.send_signal(number)
        return self.process.wait(LONG)


@pytest.fixture
def start(folder):
    """Starts commands; none of them outlives the test."""
    begun = []

    def begin(*arguments, **environment):
        begun.append(Process(folder, *arguments, **environment))
        return begun[-1]

    yield begin
    for one in begun:
        if one.process.poll() is None:
            children = pids_of_children(one.process.pid)
            one.process.kill()
            one.process.wait()
            for pid in children:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
    for terminal in Terminal.opened:
        terminal.process.kill()
        terminal.process.wait()
    Terminal.opened.clear()


def run(folder, *arguments, code=0, **environment):
    given = {"cwd": folder, "env": ENVIRONMENT | environment, "capture_output": True, "text": True, "timeout": LONG}
    done = subprocess.run([*COMMAND, *arguments], stdin=subprocess.DEVNULL, **given)
    assert done.returncode == code, done
    return done


def pids_of_children(pid):
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, IndexError):
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[1]) == pid and fields[0] != "Z":
                found.append(int(path.parent.name))
    return found


def gone(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def all_are(app, status, *ids):
    return lambda: all(app.get(id).status == status for id in ids)


# At work


def test_a_worker_serves_a_file_says_what_it_does_and_stops_when_asked(folder, app, start, texts):
    app.start(agents.quick, {"x": 21}, id="q")
    app.start(agents.quick, {"x": 4}, id="m", queue="mail")
    app.start(agents.failer, id="f")
    worker = start("worker", "agents.py", "--concurrency", "7")
    until(all_are(app, "completed", "q", "m"))
    until(all_are(app, "failed", "f"))
    assert worker.ends() == 0
    assert app.get("q").result == 42 and worker.out == ""
    first = worker.err.splitlines()[0]
    assert "slow, stuck, quick, failer" in first and "mail, default" in first
    texts.check(first)
    assert re.search(r"completed +q \(quick\)  \d+", worker.err) and "this is no data" in worker.err
    assert re.search(r"failed +f \(failer\) .* ValueError: no such city", worker.err)
    texts.check(worker.err.splitlines()[-1])


def test_schedules_of_a_file_are_served(folder, app, start):
    with (folder / "agents.py").open("a") as file:
        file.write('\n\nfrom holdfast import Schedule\n\noften = Schedule("often", quick, "every 1s", {"x": 3})\n')
    worker = start("worker", "agents.py")
    worker.says("schedules often")
    until(lambda: len(app.list(status="completed", agent="quick")) >= 2)
    assert worker.ends() == 0 and "completed" in worker.err
    assert all(re.fullmatch(r"often/20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", one.id) for one in app.list())
    assert {app.get(one.id).result for one in app.list(status="completed")} == {6}


def test_programs_read_lines_or_one_document(folder, app, start):
    app.start(agents.quick, id="q")
    worker = start("worker", "agents.py:quick,failer", "--jsonl", "--queue", "default", "--health", "0")
    until(lambda: any(one["event"] == "task" for one in worker.lines))
    assert worker.ends(signal.SIGINT) == 0
    told = [one for one in worker.lines if one["event"] != "stopping"]
    assert [one["event"] for one in told] == ["started", "task", "stopped"]
    began, task, ended = told
    assert (began["agents"], began["queues"], began["namespaces"]) == (["quick", "failer"], ["default"], [])
    assert began["health"].startswith("http://127.0.0.1:")
    assert (task["task"], task["agent"], task["outcome"], task["why"]) == ("q", "quick", "completed", "")
    assert (
        ended["counts"]["completed"] == 1
        and ended["held"] == 0
        and {one["pid"] for one in worker.lines} == {worker.process.pid}
    )
    app.start(agents.quick, id="r")
    worker = start("worker", "agents.py", "--json", "--quiet")
    until(all_are(app, "completed", "r"))
    assert worker.ends() == 0
    assert json.loads(worker.out)["counts"]["completed"] == 1


def test_living_workers_are_listed_and_so_is_what_nobody_serves(folder, app, start, texts):
    app.start(agents.quick, id="q", queue="mail")
    assert json.loads(run(folder, "workers", "--json").stdout) == []
    texts.check(run(folder, "workers").stderr)
    listed = run(folder, "list")
    assert "holdfast worker FILE\n" in listed.stderr
    texts.check(listed.stdout)
    texts.check(listed.stderr)
    texts.check(run(folder, "show", "q").stdout)
    worker = start("worker", "agents.py:slow")
    worker.says("concurrency 100")
    app.start(agents.slow, {"steps": 3000}, id="s")
    until(all_are(app, "running", "s"))
    [row] = json.loads(run(folder, "workers", "--json").stdout)
    assert (row["pid"], row["busy"], row["concurrency"]) == (worker.process.pid, 1, 100)
    assert row["agents"] == {"slow": [""]} and row["queues"] == ["mail", "default"]
    assert re.search(r"-\d+ +1/100 +slow +mail, default +(now|\d+ s ago)", run(folder, "workers").stdout)
    [why] = [one["why"] for one in json.loads(run(folder, "list", "--json").stdout) if one["id"] == "q"]
    texts.check(why)
    stats = run(folder, "stats")
    assert re.search(r"mail +1 +0 +0", stats.stdout) and re.search(r"default +0 +1 +0", stats.stdout)
    queues = json.loads(run(folder, "stats", "--json").stdout)["queues"]
    assert {one["queue"]: (one["ready"], one["running"]) for one in queues} == {"default": (0, 1), "mail": (1, 0)}
    assert worker.ends() == 0 and run(folder, "workers").stderr


def test_health_is_served_on_loopback_and_a_port_in_use_is_refused(folder, start, texts):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = run(folder, "worker", "agents.py", "--health", str(port), "--json", code=USAGE)
        error = json.loads(refused.stderr)["error"]
        assert error["code"] == "invalid-value"
        texts.check(error["message"])
    texts.check(run(folder, "worker", "agents.py", "--health", "203.0.113.7:9100", code=USAGE).stderr)
    worker = start("worker", "agents.py", "--health", str(port))
    worker.says(f"health http://127.0.0.1:{port}")
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz") as answer:
        assert json.load(answer)["status"] == "ok"
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        assert b"holdfast_store_up 1" in answer.read()
    assert worker.ends() == 0


def probe(address, path):
    try:
        with urllib.request.urlopen(f"{address}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_an_address_that_other_machines_reach_serves_nothing_but_health(folder, start, texts):
    worker = start("worker", "agents.py", "--health", "0.0.0.0:0")
    worker.says("/livez and /readyz only, as other machines can ask")
    [port] = re.findall(r"health http://0\.0\.0\.0:(\d+)", worker.err)
    address = f"http://127.0.0.1:{port}"
    until(lambda: probe(address, "/readyz") == (200, '{"status":"ok"}'))
    assert probe(address, "/livez") == (200, '{"status":"ok"}')
    for path in ("/metrics", "/healthz", "/", "/api/v1/tasks"):
        assert probe(address, path) == (404, "/livez or /readyz\n")
    assert worker.ends() == 0


PATIENT = """
import time
from pathlib import Path
from holdfast import Task, agent

def hold(seconds: float) -> str:
    Path("holding").touch()
    time.sleep(seconds)
    return "held"

@agent
def patient(task: Task) -> str:
    task.step(hold, 3.0)
    return task.step(hold, 600.0)
"""


def test_a_worker_that_is_stopped_is_alive_and_not_ready_until_its_step_is_done(folder, app, start):
    (folder / "patient.py").write_text(PATIENT)
    app.start("patient", id="p")
    worker = start("worker", "patient.py", "--jsonl", "--health", "127.0.0.1:0", "--grace", "30s")
    address = until(lambda: worker.lines)[0]["health"]
    until(lambda: (folder / "holding").exists() and probe(address, "/readyz")[0] == 200)
    worker.process.terminate()
    until(lambda: probe(address, "/readyz") == (503, '{"status":"stopping"}'))
    assert probe(address, "/livez") == (200, '{"status":"stopping"}')
    assert worker.ends(None) == 0
    steps = [one.event for one in app.events("p") if isinstance(one.event, ev.StepCompleted)]
    assert len(steps) == 1 and app.get("p").status == "pending", "the step was finished and recorded, the task released"


# Stopping and dying


def test_a_stop_leaves_nothing_held_and_no_step_is_done_twice(folder, url, start, texts):
    with holdfast.open(url) as app:
        ids = [f"s{n}" for n in range(5)]
        for id in ids:
            app.start(agents.slow, {"steps": 30}, id=id)
        worker = start("worker", "agents.py", "--store", url)
        until(lambda: (folder / "steps").exists() and len((folder / "steps").read_text().splitlines()) > 12)
        assert worker.ends() == 0
        # A task that is let go of may be taken once more before the worker has stopped.
        texts.check(
            re.sub(r"\b[5-9] tasks worked on \([5-9] rel", "5 tasks worked on (5 rel", worker.err.splitlines()[-1])
        )
        assert {row.status for row in app.list()} == {"pending"} and {row.holder for row in app.list()} == {None}
        second = start("worker", "agents.py", "--store", url, "--quiet")
        until(all_are(app, "completed", *ids))
        assert second.ends() == 0 and len(second.err.splitlines()) in (2, 3)
    did = Counter((folder / "steps").read_text().splitlines())
    assert set(did.values()) == {1} and len(did) == 150


def test_what_a_killed_worker_held_another_finishes(folder, url, start):
    with holdfast.open(url) as app:
        for n in range(3):
            app.start(agents.slow, {"steps": 20}, id=f"s{n}")
        first = start("worker", "agents.py", "--store", url)
        until(lambda: (folder / "steps").exists() and len((folder / "steps").read_text().splitlines()) > 9)
        first.ends(signal.SIGKILL)
        second = start("worker", "agents.py", "--store", url)
        second.says("taken over", times=3)
        until(all_are(app, "completed", "s0", "s1", "s2"))
        assert second.ends() == 0
        taken = [one.event.taken for one in app.events("s0") if isinstance(one.event, ev.TaskClaimed)]
        assert taken == ["", "proven"]
        assert re.search(r"taken over +s\d  ?.*its worker is dead", second.err)
    did = Counter((folder / "steps").read_text().splitlines())
    assert len(did) == 60 and sum(did.values()) <= 63, "only the steps under way were begun again"


@pytest.mark.parametrize("how", ["twice", "grace"])
def test_what_does_not_stop_is_ended_at_once_and_said_so(folder, app, start, how, texts):
    app.start(agents.stuck, id="s")
    worker = start("worker", "agents.py", "--grace", "1s" if how == "grace" else "60s")
    until(lambda: (folder / "stuck").exists())
    worker.process.send_signal(signal.SIGINT)
    if how == "twice":
        worker.says("Ctrl-C again ends at once")
        worker.process.send_signal(signal.SIGINT)
    assert worker.process.wait(LONG) == 130
    why = "a second SIGINT" if how == "twice" else "--grace 1s is over"
    assert why in worker.err
    texts.check(worker.err.splitlines()[-1])
    assert app.get("s").interrupted


def test_processes_that_die_are_started_anew_and_all_stop_with_their_parent(folder, app, start):
    worker = start("worker", "agents.py", "--processes", "2", "--jsonl", "--concurrency", "1")
    until(lambda: len(worker.lines) == 2)
    first, second = pids_of_children(worker.process.pid)
    os.kill(first, signal.SIGKILL)
    until(lambda: len(worker.lines) == 3)
    children = pids_of_children(worker.process.pid)
    assert len(children) == 2 and second in children and first not in children
    for n in range(4):
        app.start(agents.slow, {"steps": 3}, id=f"s{n}")
    until(all_are(app, "completed", *(f"s{n}" for n in range(4))))
    assert {one["pid"] for one in worker.lines if one["event"] == "task"} == set(children)
    assert worker.ends() == 0
    assert Counter(one["event"] for one in worker.lines)["stopped"] == 2
    assert all(gone(pid) for pid in children)


def test_a_parent_says_what_became_of_its_processes(folder, start, texts):
    worker = start("worker", "agents.py", "--processes", "2")
    worker.says("concurrency 100", times=2)
    os.kill(pids_of_children(worker.process.pid)[0], signal.SIGKILL)
    worker.says("concurrency 100", times=3)
    texts.check(next(line for line in worker.err.splitlines() if "SIGKILL" in line))
    assert worker.ends(signal.SIGINT) == 0 and worker.err.endswith("stopped: 2 processes\n")
    worker = start("worker", "agents.py", "--processes", "2", "--json")
    until(lambda: len(json.loads(run(folder, "workers", "--json").stdout)) == 2)
    assert worker.ends() == 0
    assert [one["event"] for one in json.loads(worker.out)["processes"]] == ["stopped", "stopped"]


def test_a_parent_that_is_killed_takes_its_processes_with_it(folder, app, start):
    app.start(agents.slow, {"steps": 3000}, id="s")
    worker = start("worker", "agents.py", "--processes", "2")
    until(all_are(app, "running", "s"))
    children = pids_of_children(worker.process.pid)
    assert len(children) == 2
    worker.ends(signal.SIGKILL)
    until(lambda: all(gone(pid) for pid in children))
    assert app.get("s").status == "pending"


# Looks


def test_lines_fit_a_terminal_of_80_columns(folder, app, start):
    app.start(agents.quick, id="q" * 60)
    app.start(agents.failer, id="f")
    terminal = Terminal(folder, "worker", "agents.py", columns=80)
    terminal.until(r"completed +q+").until(r"failed +f \(failer\)")
    listed = Terminal(folder, "workers", columns=80)
    assert listed.ended() == 0 and re.search(r"0/100 +slow, st", listed.text)
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.ended() == 0
    for line in (*bare(terminal.text).splitlines(), *bare(listed.text).splitlines()):
        assert len(line) <= 80, line
    assert "\x1b[32mcompleted" in terminal.text, "colours at a terminal"


def test_of_several_processes_one_removes_old_tasks_and_says_so(folder, app, start):
    for number in range(5):
        app.run(agents.failer, id=f"t{number}")
    worker = start("worker", "agents.py", "--processes", "2", "--gc-every", "1h", "--gc-keep", "2", "--jsonl")
    until(lambda: [one for one in worker.lines if one["event"] == "gc"])
    until(lambda: len([one for one in worker.lines if one["event"] == "started"]) == 2)
    app.start(agents.quick, id="q")
    assert app.wait("q", timeout=LONG).status == "completed"
    assert worker.ends() == 0
    (found,) = [one for one in worker.lines if one["event"] == "gc"]
    assert (found["tasks"], found["kept_for_forks"]) == (3, 0)
    assert {one.id for one in app.list(limit=None)} == {"t3", "t4", "q"}
    again = start("worker", "agents.py", "--gc-every", "1h", "--gc-keep", "0", "--drain")
    assert again.ends(None) == 0 and "removed" not in again.err, "the hour is not over"
    assert "gc every" in again.err


def test_a_worker_that_removes_tasks_tells_people(folder, app, start):
    app.run(agents.failer, id="t")
    worker = start("worker", "agents.py", "--gc-every", "1h", "--gc-older-than", "0s")
    worker.says("removed 1 task")
    assert worker.ends() == 0


# What is refused


@pytest.mark.parametrize(
    "given",
    [
        ["agents.py:nobody"],
        ["agents.py:quick,nobody"],
        ["empty.py"],
        ["missing.py"],
        [],
        ["agents.py", "--queue", "mial"],
        ["agents.py", "--concurrency", "0"],
        ["agents.py", "--processes", "0"],
        ["agents.py", "--health", "70000"],
        ["agents.py", "--grace", "soon"],
        ["agents.py", "--gc-every", "1h"],
        ["agents.py", "--gc-older-than", "30d"],
        ["agents.py", "--gc-every", "often", "--gc-keep", "1"],
        ["agents.py", "--gc-every", "0s", "--gc-keep", "1"],
        ["agents.py", "--gc-every", "1h", "--gc-keep", "-1"],
        ["agents.py", "--store", "memory:", "--processes", "2"],
        ["agents.py", "--namespace", "a", "--all-namespaces"],
        ["agents.py", "--health", "soon"],
        ["agents.py", "--health", ":9100"],
        ["agents.py", "--health", "::1:9100"],
    ],
)
def test_what_cannot_be_done_is_refused_before_a_store_is_made(folder, given, texts):
    (folder / "empty.py").write_text("x = 1\n")
    refused = run(folder, "worker", *given, code=USAGE)
    assert refused.stdout == "" and "error[invalid-value]" in refused.stderr
    texts.check(refused.stderr)
    assert not (folder / "holdfast.db").exists()


def test_a_store_that_cannot_be_reached_ends_the_command(folder):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        away = f"postgresql://nobody@127.0.0.1:{probe.getsockname()[1]}/none"
    for more in ([], ["--processes", "2"]):
        refused = run(folder, "worker", "agents.py", "--store", away, *more, "--json", code=STORE)
        assert json.loads(refused.stderr)["error"]["code"] == "store-unreachable"
    for command in (["doctor"], ["migrate", "--dry-run"], ["workers"]):
        assert "error[store-unreachable]" in run(folder, *command, "--store", away, code=STORE).stderr


def test_a_wrong_password_ends_the_command_and_is_not_shown(folder):
    pytest.importorskip("psycopg")
    found = binaries()
    if found is None:
        pytest.skip("there is no PostgreSQL")
    server = Server(found, password="right")
    try:
        for password, more in (("mistyped", []), ("mistyped", ["--processes", "2"]), ("", [])):
            wrong = server.url().replace("postgres@", f"postgres:{password}@")
            refused = run(folder, "worker", "agents.py", "--store", wrong, *more, code=STORE)
            assert refused.stdout == "" and "error[store-unreachable]" in refused.stderr
            assert "password" in refused.stderr and "mistyped" not in refused.stderr
            assert "Traceback" not in refused.stderr and "it keeps trying" not in refused.stderr
    finally:
        server.stop()


def test_a_host_that_is_not_there_ends_the_command(folder):
    pytest.importorskip("psycopg")
    refused = run(folder, "worker", "agents.py", "--store", "postgresql://ana:mistyped@db.invalid/x", code=STORE)
    assert "error[store-unreachable]" in refused.stderr and "db.invalid" in refused.stderr
    assert refused.stdout == "" and "mistyped" not in refused.stderr and "Traceback" not in refused.stderr


# People


def test_what_was_set_aside_is_in_the_inbox_with_what_to_type(folder, app, start, texts):
    app.start(agents.quick, {"x": 5}, id="k")
    for n in range(5):
        app.append("k", ev.TaskClaimed(holder=f"nobody-{n}", lease_seconds=30.0, taken="dead"))
    worker = start("worker", "agents.py")
    worker.says("holdfast resume k agents.py:quick")
    assert worker.ends() == 0
    [entry] = json.loads(run(folder, "inbox", "--json").stdout)
    assert (entry["task"], entry["kind"]) == ("k", "quarantined")
    texts.check(entry["asks"])
    assert "holdfast resume k FILE" in entry["commands"]
    for shown in (run(folder, "inbox", "--set-aside").stdout, run(folder, "show", "k").stdout):
        assert "holdfast resume k FILE" in shown
        texts.check(shown)
    assert run(folder, "inbox", "--doubts").stdout == ""
    assert run(folder, "resume", "k", "agents.py").stdout == "10\n"


def test_tenants_are_kept_apart_by_every_command(folder, start, texts):
    made = folder / "holdfast.db"
    run(folder, "run", "agents.py:quick", "--id", "q", "--namespace", "acme")
    assert json.loads(run(folder, "list", "--json").stdout) == []
    [row] = json.loads(run(folder, "list", "--json", HOLDFAST_NAMESPACE="acme").stdout)
    assert row["id"] == "q"
    texts.check(run(folder, "list", "--namespace", "bolt").stderr)
    assert run(folder, "show", "q", code=3).stdout == ""
    with holdfast.open(made, namespace="acme") as acme, holdfast.open(made, namespace="bolt") as bolt:
        acme.start(agents.quick, id="a")
        bolt.start(agents.quick, id="b")
        told = run(folder, "show", "a", "--namespace", "acme").stdout
        assert "holdfast resume a FILE --namespace acme" in told
        worker = start("worker", "agents.py", "--namespace", "acme")
        until(all_are(acme, "completed", "a"))
        assert worker.ends() == 0 and bolt.get("b").status == "pending"
        worker = start("worker", "agents.py", "--all-namespaces")
        until(all_are(bolt, "completed", "b"))
        assert worker.ends() == 0 and re.search(r"completed +bolt: b \(quick\)", worker.err)
        config = json.loads(run(folder, "config", "--json", "--namespace", "acme").stdout)
        assert config["namespace"] == {"value": "acme", "source": "--namespace"}


# Servers


def test_a_server_is_looked_at_by_migrate_and_doctor(folder, postgres_databases, texts):
    url = postgres_databases.new(empty=True)
    try:
        would = json.loads(run(folder, "migrate", "--dry-run", "--json", "--store", url).stdout)
        assert would["from"] == 0 and len(would["steps"]) == would["to"]
        assert "create table" in run(folder, "migrate", "--dump-sql", "--store", url).stdout.lower()
        assert json.loads(run(folder, "migrate", "--dry-run", "--json", "--store", url).stdout) == would
        assert json.loads(run(folder, "migrate", "--json", "--store", url).stdout)["steps"] == would["steps"]
        texts.check(run(folder, "migrate", "--store", url).stdout)
        done = run(folder, "doctor", "--json", "--store", url, code=FAILED)
        found = {one["what"]: one for one in json.loads(done.stdout)}
        assert found["server"]["said"].startswith("PostgreSQL ") and found["fsync"]["level"] == "fail"
        assert found["schema"]["said"].count(str(would["to"])) == 2
        named = ("full_page_writes", "commit", "standbys", "connections", "indexes", "skew", "integrity", "interrupted")
        assert {found[name]["level"] for name in named} == {"ok"}
        assert "alter system set fsync = on" in run(folder, "doctor", "--store", url, code=FAILED).stdout
    finally:
        postgres_databases.drop(url)


def test_a_server_that_is_too_new_or_keeps_us_out_is_named(folder, postgres_url):
    import psycopg

    wrong = postgres_url.replace("postgres@", "nobody-here@")
    for command in ("doctor", "migrate", "worker agents.py"):
        assert 'role "nobody-here" does not exist' in run(folder, *command.split(), "--store", wrong, code=STORE).stderr
    with psycopg.connect(postgres_url, autocommit=True) as link:
        link.execute("insert into holdfast.migrations (version, name, checksum, at) values (999, 'later', '', 0)")
    for command in ("doctor", "migrate", "worker agents.py", "workers"):
        assert "error[store-too-new]" in run(folder, *command.split(), "--store", postgres_url, code=STORE).stderr


def test_several_processes_drain_and_all_end(folder, app):
    for number in range(4):
        app.start(agents.quick, id=f"q{number}")
    ended = run(folder, "worker", "agents.py:quick", "--processes", "2", "--drain", "--grace", "12d")
    assert {row.status for row in app.list()} == {"completed"}
    assert ended.stderr.count("stopped after") == 2 and ended.stderr.endswith("stopped: 2 processes\n")


def test_a_port_in_use_is_refused_before_the_first_of_several_processes_begins(folder, app, texts):
    app.start(agents.quick, id="q")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        refused = run(
            folder, "worker", "agents.py", "--processes", "2", "--health", str(port - 1), "--drain", code=USAGE
        )
    texts.check(refused.stderr)
    assert app.get("q").status == "pending"


THRESHOLDS = """
import gc
import holdfast

@holdfast.agent
def thresholds(task):
    return task.step(lambda: list(gc.get_threshold()), name="look")
"""


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_worker_process_looks_for_garbage_less_often_unless_told_not_to(folder, app, processes):
    (folder / "agents.py").write_text(THRESHOLDS)
    given = ("worker", "agents.py", "--drain", "--processes", processes)
    for number, option in enumerate(("--rare-gc", "--no-rare-gc")):
        app.start("thresholds", id=f"t{number}")
        run(folder, *given, option)
    assert app.get("t0").result[0] > 10 * app.get("t1").result[0] > 0
