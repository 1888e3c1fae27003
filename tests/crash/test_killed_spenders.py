"""Real agents with budgets in real processes, killed with SIGKILL while a model is asked: nothing is counted twice."""

import json
import random
import subprocess
import sys
import textwrap
import time

import pytest

import holdfast
from holdfast.testing.auditor import audit

SPENDER = textwrap.dedent(
    """
    import os, pathlib, signal, sys, time
    import holdfast
    from holdfast import Budget, Usage, agent, report_usage

    HERE, KILL_AT, ROUNDS = pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])

    def note(where, what):
        with open(HERE / where, "a") as file:
            file.write(what + "\\n")

    def die(where):
        killed = (HERE / "killed").read_text().splitlines() if (HERE / "killed").exists() else []
        if where == KILL_AT and len(killed) < ROUNDS:
            note("killed", where)
            os.kill(os.getpid(), signal.SIGKILL)

    def model(prompt):
        die("before the model hears of it")
        note("world", prompt)
        die("while the model answers")
        if KILL_AT == "anywhere":
            time.sleep(0.02)
        report_usage(input_tokens=20, output_tokens=5)
        die("when the answer is there")
        return prompt

    @agent
    def child(task):
        return task.step(model, "child", name="model", estimate=Usage(7, 4))

    @agent(budget=Budget(tokens=1_000))
    def spender(task):
        said = [task.step(model, f"say {n}", name="model", estimate=Usage(7, 4)) for n in range(3)]
        die("between the steps")
        said.append(task.spawn(child))
        die("after the child")
        task.user.state.increment("tasks")
        task.checkpoint("counted")
        die("before the end")
        return said

    print(holdfast.open(HERE / "a.db").run(spender, id="t", user="ana").status)
    """
)
WANTED = ["say 0", "say 1", "say 2", "child"]


def life(tmp_path, kill_at, rounds):
    script = tmp_path / "spender.py"
    script.write_text(SPENDER)
    return [sys.executable, str(script), str(tmp_path), kill_at, str(rounds)]


def look(tmp_path):
    """What the task has recorded and what it lists as unknown, in tokens; and what the model heard."""
    with holdfast.open(tmp_path / "a.db") as app:
        done, told = app.get("t"), app.get("t").budget
        assert app.verify().ok and app.user("ana").state.get("tasks", 0) == (1 if done.status == "completed" else 0)
        assert told.used["tokens"] == told.usage.input_tokens + told.usage.output_tokens + 11 * len(told.unknown)
        recorded = [
            record
            for row in app.list()
            for record in app.events(row.id)
            if record.kind == "step_completed" and record.event.usage is not None
        ]
        assert told.usage.input_tokens == 20 * len(recorded) and told.usage.output_tokens == 5 * len(recorded)
        result = done.result
    assert audit(tmp_path / "a.db") == []
    heard = (tmp_path / "world").read_text().splitlines() if (tmp_path / "world").exists() else []
    return result, len(recorded), [one["tokens"] for one in told.unknown], heard


@pytest.mark.parametrize(
    ("kill_at", "lost", "heard"),
    [
        ("before the model hears of it", 3, 4),
        ("while the model answers", 3, 7),
        ("when the answer is there", 3, 7),
        ("between the steps", 0, 4),
        ("after the child", 0, 4),
        ("before the end", 0, 4),
    ],
)
def test_what_a_killed_agent_used_up_counts_once_and_what_nobody_knows_is_listed(tmp_path, kill_at, lost, heard):
    command = life(tmp_path, kill_at, 3)
    for _ in range(3):
        assert subprocess.run(command, capture_output=True).returncode == -9
        with holdfast.open(tmp_path / "a.db") as app:
            assert app.get("t").interrupted, "nothing is reported finished while work remains"
    last = subprocess.run(command, capture_output=True, text=True)
    assert last.stdout == "completed\n", last.stderr
    result, recorded, unknown, world = look(tmp_path)
    assert (result, recorded) == (WANTED, 4)
    assert unknown == [11] * lost and len(world) == heard
    assert len(world) <= recorded + len(unknown), "a call of the model is neither recorded nor listed"


def test_a_spender_killed_at_any_time_hides_nothing(tmp_path):
    chance = random.Random(4)
    command = life(tmp_path, "anywhere", 0)
    killed = 0
    for _ in range(8):
        spender = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            spender.wait(chance.uniform(0.12, 0.4))
        except subprocess.TimeoutExpired:
            spender.kill()
            killed += 1
        spender.communicate()
    deadline = time.monotonic() + 30
    while subprocess.run(command, capture_output=True, text=True).stdout != "completed\n":
        assert time.monotonic() < deadline
    result, recorded, unknown, world = look(tmp_path)
    assert (result, recorded) == (WANTED, 4) and sorted(set(world)) == sorted(WANTED)
    assert len(world) <= recorded + len(unknown) <= len(world) + killed, json.dumps([world, unknown, killed])
