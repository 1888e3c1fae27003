r"""An agent that frees disk space: it plans, looks, asks a person before it deletes, and looks again.

    python examples/disk_space.py [store.db] [--approve]

Shows the ready loop over a model (plan, act, reflect), consent for calls of a certain risk, a budget. It works only in
./disk-space-files, on pretend logs that it makes there. The model is a script, or a real one if OPENAI_API_KEY is set.
Kill it (Ctrl-\, or kill -9) while it deletes, and run it again.
"""

import argparse
import json
import os
import shutil
import time
from pathlib import Path

import holdfast
from holdfast import Budget, tool
from holdfast.llm import ScriptedModel, loop_agent, say, use

FOLDER = Path("disk-space-files")
PAUSE = 0.5  # seconds that a deletion takes: time to kill it


@tool(effect="read")
def disk_usage() -> dict[str, int]:
    """Tell how full the disk is, in percent, and how many bytes the folder takes."""
    disk = shutil.disk_usage(FOLDER)
    return {"percent": 100 * disk.used // disk.total, "folder": sum(file.stat().st_size for file in FOLDER.iterdir())}


@tool(effect="read")
def old_files(days: int) -> list[str]:
    """List the files that nobody has changed for so many days."""
    return sorted(file.name for file in FOLDER.iterdir() if time.time() - file.stat().st_mtime > days * 86_400)


@tool(effect="idempotent", risk="write_local")
def delete(name: str) -> str:
    """Delete a file of the folder."""
    (FOLDER / Path(name).name).unlink(missing_ok=True)  # to do it again changes nothing
    print(f"  deleted {name} …")
    time.sleep(PAUSE)
    return f"{name} is gone"


def delete_logs(messages: list[dict]) -> list[dict]:
    return [use("delete", name=name) for name in json.loads(messages[-1]["content"]) if "log" in name]


SCRIPT = [  # what a model would say; one entry a turn
    {**use("disk_usage"), "content": "Plan: find old files, delete logs, look again."},
    {**use("old_files", days=30), "usage": {"prompt_tokens": 120}},
    delete_logs,
    {**use("disk_usage"), "content": "Did it help?"},
    say("The old logs are gone. I kept orders.csv: old, but no log", usage={"prompt_tokens": 300}),
]
model = "gpt-5-mini" if os.environ.get("OPENAI_API_KEY") else ScriptedModel(SCRIPT)
bounds = {"required_for_risk_levels": ["write_local"], "budget": Budget(turns=12, tokens=50_000)}
cleaner = loop_agent("cleaner", model, [disk_usage, old_files, delete], "Free space; delete logs only.", **bounds)

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("store", nargs="?", default="disk_space.db")
    parser.add_argument("--approve", action="store_true")
    given = parser.parse_args()
    FOLDER.mkdir(exist_ok=True)
    for name, changed in {"app.log.1": 0, "app.log.2": 0, "orders.csv": 0, "app.log": time.time()}.items():
        if not Path(given.store).exists():  # the first time
            (FOLDER / name).write_bytes(bytes(100_000))
            os.utime(FOLDER / name, (changed, changed))
    with holdfast.open(given.store) as app:
        done = app.run(cleaner, {"goal": "Free some space."}, id="clean-1")
        for one in done.waiting.on if done.waiting else []:
            print(f"  may it {one['tool']} {one['arguments']}? {'Yes.' if given.approve else 'Add --approve.'}")
            if given.approve:
                app.approve(done.id, one["key"], by="you")
        done = app.run(cleaner, {"goal": "Free some space."}, id="clean-1")  # goes on, if it may
        print(f"{done.id} is {done.status} in turn {done.turn}: {done.result or 'it is up to you'}. {done.budget}")
