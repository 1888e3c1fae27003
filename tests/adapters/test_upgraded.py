"""A run that is killed under an old version of its framework, and ended under a newer one, which works otherwise.

The second life has the newest version, starts three more asyncio tasks before the agent runs, and gives its tools (the
steps of a graph) a time limit that they did not have. Still every effect happens once. `HOLDFAST_LOWEST` names the
Python that has the lowest versions; `make test-adapters` makes it.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import until

LOWEST = os.environ.get("HOLDFAST_LOWEST", "")
FRAMEWORKS = {"langgraph": "langgraph", "openai_agents": "openai-agents", "pydantic_ai": "pydantic-ai-slim"}
ONCE = {"charge": 1, "ship": 1, "mail": 1}
MOMENTS = ("model", 1), ("charge", 1), ("model", 2), ("ship", 1), ("mail", 1), ("model", 3)
"""The process is killed when a file has so many lines."""


@pytest.mark.skipif(not LOWEST, reason="HOLDFAST_LOWEST names no Python with the lowest versions")
@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: f"{moment[0]}-{moment[1]}")
def test_every_effect_happens_once_although_the_framework_is_newer_and_works_otherwise(framework, moment, tmp_path):
    module, store = f"tests.adapters.{framework}.shop", tmp_path / "store.db"
    command = ["-m", module, str(tmp_path), str(store)]
    old, new = versions(LOWEST, framework), versions(sys.executable, framework)
    assert old != new
    first = subprocess.Popen([LOWEST, *command, "slow"], stderr=subprocess.PIPE, text=True)
    try:
        until(lambda: count(tmp_path / moment[0]) >= moment[1] or first.poll() is not None, seconds=60)
        assert first.poll() is None, first.communicate()
    finally:
        first.send_signal(signal.SIGKILL)
        first.communicate()
    second = subprocess.run([sys.executable, *command, "noisy"], capture_output=True, text=True, check=False)
    assert second.returncode == 0, second.stderr
    assert {name: count(tmp_path / name) for name in ONCE} == ONCE
    assert count(tmp_path / "model") <= 4 and count(tmp_path / "done") == 1


def versions(python, framework):
    program = f"from importlib.metadata import version; print(version({FRAMEWORKS[framework]!r}))"
    return subprocess.run([python, "-c", program], capture_output=True, text=True, check=True).stdout


def count(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0
