"""The option --quick, which `make quick` gives: no PostgreSQL server is started, and what needs one is left out."""

import subprocess
import sys
from pathlib import Path

from tests.postgres_server import NO_SERVER, binaries

ROOT = Path(__file__).parents[1]


def test_a_quick_run_is_on_the_other_stores_alone():
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--quick",
        "--collect-only",
        "tests/engine/execution/test_lost_answers.py",
    ]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "memory" in listed and "sqlite" in listed and "postgres" not in listed


def test_a_quick_run_finds_no_server_to_start(monkeypatch):
    monkeypatch.setenv("HOLDFAST_TEST_POSTGRES", NO_SERVER)
    assert binaries() is None
