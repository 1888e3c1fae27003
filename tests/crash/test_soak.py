"""A process that does many tasks one after the other keeps no memory, descriptor or thread of any of them."""

import json
import subprocess
import sys

import pytest

from tests.conftest import ALL

STORES = ("sqlite", "postgres")
TASKS = 20_000 if ALL else 800
PROGRAM = """
import json, os, resource, sys, threading
import holdfast
from holdfast import agent, tool

url, tasks, kind = sys.argv[1], int(sys.argv[2]), sys.argv[3]

@tool(effect="once")
def pay(n: int) -> int:
    return n

@agent
def payer(task, n: int):
    task.state.n = n
    task.fact("n", n)
    task.step(str, "x" * 3_000, name="text")
    return task.call(pay, n=n)

@agent
async def apayer(task, n: int):
    await task.step(lambda: "x" * 3_000, name="text")
    return await task.call(pay, n=n)

def now():
    with open("/proc/self/statm") as file:
        resident = int(file.read().split()[1]) * resource.getpagesize()
    return {"bytes": resident, "descriptors": len(os.listdir("/proc/self/fd")), "threads": threading.active_count()}

app = holdfast.open(url, durability="process", cache_bytes=1_000_000)
made = payer if kind == "def" else apayer
seen = []
for quarter in range(4):
    for number in range(tasks // 4):
        done = app.run(made, {"n": number}, id=f"t{quarter}-{number}")
        assert done.status == "completed"
    seen.append(now())
print(json.dumps(seen))
app.close()
"""
MOST_BYTES = 12_000_000
FEW = 3  # of a pool's; a leak would be one for each task


@pytest.mark.parametrize("kind", ["def", "async"])
def test_many_tasks_leave_nothing_behind_in_their_process(url, kind):
    command = [sys.executable, "-c", PROGRAM, url, str(TASKS), kind]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1_800)
    assert done.returncode == 0, done.stderr
    _, second, third, last = json.loads(done.stdout)
    assert last["descriptors"] <= second["descriptors"] + FEW
    assert last["threads"] <= second["threads"] + FEW
    grown = last["bytes"] - second["bytes"]
    print(
        f"\n{kind} on {url.partition(':')[0]}: {TASKS} tasks, {last['bytes'] / 1e6:.0f} MB, grew {grown / 1e6:.1f} MB"
    )
    assert grown < MOST_BYTES, (second, third, last)
