r"""An agent that frees disk space: it plans, looks, asks a person before it deletes, and looks again.

    python examples/disk_space.py [store.db] [--approve]

Shows the ready loop (plan, act, reflect) over a model, consent for calls of a certain risk, a budget of turns and
tokens. It works in ./disk-space-files alone, on pretend logs that it makes there. The model is a script, or a real one
if OPENAI_API_KEY is set. Kill it (Ctrl-\, or kill -9) while it deletes, and run it again.
"""

import argparse
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

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


def delete_logs(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [use("delete", name=name) for name in json.loads(messages[-1]["content"]) if "log" in name]


SCRIPT = [  # what a model would say; one entry a turn
    {**use("disk_usage"), "content": "Plan: find old files, delete logs, look again."},
    {**use("old_files", days=30), "usage": {"prompt_tokens": 120, "completion_tokens": 20}},
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
    for name, days in {"app.log.1": 90, "app.log.2": 120, "app.log": 0, "orders.csv": 400}.items():
        if not Path(given.store).exists():
            (FOLDER / name).write_bytes(bytes(100_000))
            os.utime(FOLDER / name, (time.time() - days * 86_400,) * 2)
    with holdfast.open(given.store, agents=[cleaner]) as app:
        done = app.run(cleaner, {"goal": "Free some space."}, id="clean-1")
        if done.waiting and given.approve:
            done = [app.approve(done.id, one["key"], by="you") for one in done.waiting.on][-1]
            done = app.resume(done.id)
        for one in done.waiting.on if done.waiting else []:
            print(f"  may it {one['tool']} {one['arguments']}? Add --approve")
        print(f"{done.id} is {done.status} in turn {done.turn}, {done.phase}: {done.result}. {done.budget}")
