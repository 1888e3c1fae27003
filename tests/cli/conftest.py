"""What tests of the command line share."""

import shutil
import sys

import pytest

from tests.cli import cli_agents


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty place with agents.py in it."""
    shutil.copy(cli_agents.__file__, tmp_path / "agents.py")
    return worked_in(tmp_path, monkeypatch)


def worked_in(folder, monkeypatch, by="ana"):
    """Let commands run in a folder, as a person's, with nothing set that changes what they print."""
    monkeypatch.chdir(folder)
    for name in ("HOLDFAST_URL", "FORCE_COLOR", "NO_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOLDFAST_BY", by)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return folder


@pytest.fixture(autouse=True)
def own_modules(tmp_path_factory):
    """Forget modules that a test loaded from files of its own: `agents` is also the name of a framework."""
    before, files = dict(sys.modules), str(tmp_path_factory.getbasetemp().parent)
    yield
    for name, module in list(sys.modules.items()):
        if before.get(name) is not module and str(getattr(module, "__file__", "")).startswith(files):
            sys.modules.pop(name)
            if name in before:
                sys.modules[name] = before[name]
