"""The conformance suite of LangGraph on every store: as it is published, and as it is on LangGraph's main branch.

For the second, `HOLDFAST_LANGGRAPH` names a checkout of LangGraph's repository.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.adapters.langgraph.conform import conform

STORES = ("memory", "sqlite", "postgres")
CHECKOUT = os.environ.get("HOLDFAST_LANGGRAPH", "")
PUBLISHED = {
    "put": 17,
    "put_writes": 10,
    "get_tuple": 10,
    "list": 16,
    "delete_thread": 5,
    "delete_for_runs": 7,
    "copy_thread": 8,
    "prune": 8,
}


def test_every_capability_is_there_and_passes_all_of_its_tests(url):
    assert conform(url) == (PUBLISHED, [])


@pytest.mark.skipif(not CHECKOUT, reason="HOLDFAST_LANGGRAPH names no checkout of LangGraph")
def test_the_ninth_capability_is_there_too(url):
    suite = Path(CHECKOUT).absolute() / "libs/checkpoint-conformance"
    paths = os.pathsep.join([str(suite), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "tests.adapters.langgraph.conform", url]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    passed, failures = json.loads(done.stdout)
    assert not failures and {**passed, "delta_channel_history": 8} == passed and passed.items() >= PUBLISHED.items()
