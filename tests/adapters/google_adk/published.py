"""ADK's own tests of session services, with ours in place of theirs: `make test-adk-published ADK=path/to/adk-python`.

Nothing of them is kept here. Tests of one service of theirs (its database, its schema) are left out.
"""

import asyncio
import importlib.util
import inspect
import os
from pathlib import Path

import pytest

import holdfast
from holdfast.adapters.google_adk import HoldfastSessionService

FILE = Path(os.environ["HOLDFAST_ADK"]) / "tests" / "unittests" / "sessions" / "test_session_service.py"
OF_ONE = ("database", "sqlite", "vertex", "rollback", "in_memory", "DatabaseSessionService", "InMemorySessionService")


def theirs():
    spec = importlib.util.spec_from_file_location("adk_published", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PUBLISHED = theirs()
TESTS = {
    name: test
    for name, test in vars(PUBLISHED).items()
    if name.startswith("test_")
    and inspect.iscoroutinefunction(test)
    and not any(word in name or word in inspect.getsource(test) for word in OF_ONE)
}
"""Those about any service. They get it as an argument, or, in older versions, from a function of the module."""


@pytest.mark.parametrize("name", TESTS)
def test_published(name, tmp_path, monkeypatch):
    with holdfast.open(str(tmp_path / "holdfast.db")) as app:
        service = HoldfastSessionService(app)
        monkeypatch.setattr(PUBLISHED, "get_session_service", lambda *args, **kwargs: service)
        wanted = inspect.signature(TESTS[name]).parameters
        given = {"session_service": service, "service_type": None, "tmp_path": tmp_path, "monkeypatch": monkeypatch}
        asyncio.run(TESTS[name](**{one: given[one] for one in wanted}))
