r"""An agent that frees disk space: it looks, asks a person before it deletes, and looks again.

    python examples/disk_space.py [--approve]

Shows the ready loop over a model, approval for calls of a certain risk, a budget. It works only in ./disk-space-files,
on pretend logs that it makes there. The model is a script, or a real one if OPENAI_API_KEY is set. Kill it (Ctrl-\, or
kill -9) while it deletes, and run it again.
"""

import json
import os
import sys
import time
from pathlib import Path

import holdfast
from holdfast import Budget, tool
from holdfast.llm import ScriptedModel, loop_agent, say, use

FOLDER = Path("disk-space-files")
PAUSE = 0.5  # seconds that a deletion takes: time to kill it


@tool(effect="read")
def old_files(days: int) -> list[str]:
    """List the files that have not changed for so many days."""
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


SCRIPT = [use("old_files", days=30), delete_logs, use("old_files", days=30), say("The old logs are gone.")]
model = "gpt-5-mini" if os.environ.get("OPENAI_API_KEY") else ScriptedModel(SCRIPT)
bounds = {"required_for_risk_levels": ["write_local"], "budget": Budget(turns=12, tokens=50_000)}
cleaner = loop_agent("cleaner", model, [old_files, delete], "Free space; delete logs only.", **bounds)

if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name in () if Path("disk_space.db").exists() else ("app.log.1", "app.log.2", "orders.csv"):
        (FOLDER / name).write_bytes(bytes(100_000))
        os.utime(FOLDER / name, (0, 0))
    with holdfast.open("disk_space.db") as app:
        done = app.run(cleaner, {"goal": "Free some space."}, id="clean-1")
        if done.waiting and "--approve" in sys.argv:
            for one in done.waiting.on:
                app.approve(done.id, one["key"], by="you")
            done = app.resume(done.id, cleaner)
        print(f"{done.id} is {done.status} in turn {done.turn}: {done.waiting or done.result}")
