"""The session tests that OpenAI publishes, in the source package of its SDK, with our session in place of its own.

`HOLDFAST_OPENAI_AGENTS` names the unpacked package; `make test-adapters` fetches it.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = os.environ.get("HOLDFAST_OPENAI_AGENTS", "")
FILES = ("memory/test_session.py", "memory/test_session_limit.py", "extensions/memory/test_async_sqlite_session.py")


@pytest.mark.skipif(not SOURCE, reason="HOLDFAST_OPENAI_AGENTS names no source package")
def test_openais_own_session_tests_pass_with_our_session():
    plugin = Path(__file__).parent / "published"
    paths = [plugin, Path(SOURCE).absolute().parent / "tools", Path(SOURCE).absolute()]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "holdfast_sessions", "-p", "no:cacheprovider", "-q"]
        + [f"tests/{one}" for one in FILES],
        cwd=SOURCE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-3000:]
    counted = re.search(r"(\d+) passed, (\d+) deselected", done.stdout)
    assert counted and int(counted[1]) >= 60, done.stdout
