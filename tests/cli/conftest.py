"""What tests of the command line share."""

import shutil
import sys

import pytest

from tests.cli import cli_agents


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty place with agents.py in it."""
    monkeypatch.chdir(tmp_path)
    for name in ("HOLDFAST_URL", "FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOLDFAST_BY", "ana")
    monkeypatch.setattr(sys, "path", list(sys.path))
    shutil.copy(cli_agents.__file__, tmp_path / "agents.py")
    return tmp_path
