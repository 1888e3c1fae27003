"""No framework sends anything anywhere by itself while an adapter runs it."""

import subprocess
import sys

import pytest

PROGRAM = """
import socket, sys
from pathlib import Path
connect = socket.socket.connect

def refuse(self, address):
    if self.family != socket.AF_UNIX:
        Path(sys.argv[1], "sent").open("a").write(f"{address}\\n")
        raise ConnectionRefusedError("the test has no network")
    return connect(self, address)

socket.socket.connect = socket.socket.connect_ex = refuse
import holdfast
from tests.adapters.FRAMEWORK import shop
with holdfast.open(str(Path(sys.argv[1], "store.db"))) as app:
    shop.work(Path(sys.argv[1]), app, "sync")
"""


@pytest.mark.parametrize("framework", ["langgraph", "openai_agents", "pydantic_ai"])
def test_nothing_is_sent_to_the_network(framework, tmp_path):
    program = PROGRAM.replace("FRAMEWORK", framework)
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "sent").exists() and (tmp_path / "done").exists()
