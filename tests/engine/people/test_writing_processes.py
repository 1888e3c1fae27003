"""Processes that read, modify and write the same at once: every change counts, or its writer is told."""

import signal
import subprocess
import sys
import textwrap

import pytest

import holdfast
from tests.engine.both import kinds

STORES = ("sqlite", "postgres")

ROUNDS = 40
WRITERS = {
    "update from outside": """
        from holdfast import agent
        for _ in range(ROUNDS):
            app.user("ana").state.update("n", lambda n: (n or 0) + 1)
            wrote += 1
    """,
    "update in tasks": """
        from holdfast import agent
        @agent
        def worker(task, rounds: int):
            for _ in range(rounds):
                task.user.state.update("n", lambda n: (n or 0) + 1)
        done = app.run(worker, {"rounds": ROUNDS}, id=f"t{number}", user="ana")
        wrote += ROUNDS if done.status == "completed" else 0
    """,
    "update in async tasks": """
        from holdfast import agent
        @agent
        async def worker(task, rounds: int):
            for _ in range(rounds):
                await task.user.state.update("n", lambda n: (n or 0) + 1)
        done = app.run(worker, {"rounds": ROUNDS}, id=f"t{number}", user="ana")
        wrote += ROUNDS if done.status == "completed" else 0
    """,
    "read and set in tasks": """
        from holdfast import PatchConflict, agent
        @agent
        def worker(task, rounds: int):
            for _ in range(rounds):
                task.user.state.n = task.user.state.get("n", 0) + 1
                try:
                    task.checkpoint("set")
                    task.state.increment("wrote")
                except PatchConflict:
                    task.state.increment("lost")
        done = app.run(worker, {"rounds": ROUNDS}, id=f"t{number}", user="ana")
        assert done.status == "completed", done.failure
        wrote, lost = done.state.get("wrote", 0), done.state.get("lost", 0)
    """,
    "expect of the user": """
        from holdfast import PatchConflict, StatePatch
        ana = app.user("ana")
        for _ in range(ROUNDS):
            seen = ana.get()
            try:
                ana.patch(StatePatch(set={"n": seen.state.get("n", 0) + 1}), expect=seen.seq)
                wrote += 1
            except PatchConflict:
                lost += 1
    """,
    "expect of a task": """
        from holdfast import PatchConflict, StatePatch
        for _ in range(ROUNDS):
            seen = app.get("shared")
            try:
                app.patch("shared", StatePatch(set={"n": seen.state.get("n", 0) + 1}), expect=seen.seq)
                wrote += 1
            except PatchConflict:
                lost += 1
    """,
    "require of a task": """
        from holdfast import PatchConflict, StatePatch
        for _ in range(ROUNDS):
            n = app.get("shared").state.get("n")
            try:
                app.patch("shared", StatePatch(require={"n": n}, set={"n": (n or 0) + 1}))
                wrote += 1
            except PatchConflict:
                lost += 1
    """,
}
PROGRAM = """
import sys
import holdfast
ROUNDS, number, wrote, lost = int(sys.argv[2]), int(sys.argv[3]), 0, 0
with holdfast.open(sys.argv[1]) as app:
    print("ready", flush=True)
    sys.stdin.readline()
{body}
print(wrote, lost)
"""


@pytest.mark.parametrize("writer", WRITERS)
def test_three_processes_that_read_modify_and_write_lose_nothing(url, writer):
    program = PROGRAM.format(body=textwrap.indent(textwrap.dedent(WRITERS[writer]), "    "))
    with holdfast.open(url) as app:
        app.start("a", id="shared")
        app.user("ana").state.begun = True
        command = [sys.executable, "-c", program, url, str(ROUNDS)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        writers = [subprocess.Popen([*command, str(number)], **pipes) for number in range(3)]
        for one in writers:
            assert one.stdout.readline() == "ready\n"
        ends = [one.communicate("go\n", timeout=120)[0].split() for one in _at_once(writers)]
        wrote, lost = (sum(int(end[index]) for end in ends) for index in (0, 1))
        counted = (app.get("shared") if "of a task" in writer else app.user("ana").get()).state["n"]
        assert counted == wrote and wrote + lost == 3 * ROUNDS, (counted, ends)
        if "update" in writer:
            assert wrote == 3 * ROUNDS
        assert app.verify().ok


def _at_once(writers):
    for one in writers:
        one.stdin.write("go\n")
        one.stdin.flush()
    return writers


KILLED = """
import os, signal, sys
import holdfast
from holdfast import PatchConflict, StatePatch, agent

@agent
def worker(task):
    n = task.user.state.n
    if sys.argv[2] == "first":
        app.user("ana").patch(StatePatch(set={"n": 50}), by="ben")
    task.user.state.n = n + 1
    try:
        task.step(print, "stepped", name="one")
    except PatchConflict as conflict:
        print(conflict.details["theirs"], flush=True)
        if sys.argv[2] == "first":
            os.kill(os.getpid(), signal.SIGKILL)
    made = task.user.state.update("n", lambda n: print("called", flush=True) or n + 1)
    if sys.argv[2] == "second":
        os.kill(os.getpid(), signal.SIGKILL)
    return [n, made]

with holdfast.open(sys.argv[1]) as app:
    print(app.run(worker, id="t", user="ana").result)
"""


def test_a_killed_process_leaves_a_refusal_and_an_update_that_the_next_one_finds(url):

    def run(life):
        return subprocess.run([sys.executable, "-c", KILLED, url, life], capture_output=True, text=True, timeout=60)

    with holdfast.open(url) as app:
        app.user("ana").state.n = 1
    first, second, third = run("first"), run("second"), run("third")
    assert first.returncode == second.returncode == -signal.SIGKILL, (first, second)
    assert first.stdout == "set 50\n" and second.stdout == "set 50\ncalled\n"
    assert third.stdout == "set 50\n[1, 51]\n", third
    with holdfast.open(url) as app:
        assert app.user("ana").state.n == 51 and kinds(app).count("patch_refused") == 1 and app.verify().ok
