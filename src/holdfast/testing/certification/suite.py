"""The conformance suite on a server, each test in schemas of its own."""

from __future__ import annotations

import contextlib
import io
import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import Struct

from holdfast.core.errors import InvalidValue
from holdfast.store.postgres.store import PostgresStore
from holdfast.testing.certification.place import TrialServer
from holdfast.testing.conformance import StoreConformance
from holdfast.testing.conformance.samples import Opener

PARTS = {
    "StoreConformance": "logs",
    "QueueConformance": "queues",
    "TenantsConformance": "tenants",
    "TransactConformance": "transactions",
    "RecordConformance": "records",
    "ReadingConformance": "lists",
    "ChunkConformance": "chunks",
}
"""What each part of the suite is about, by the class that holds it."""


class Part(Struct, frozen=True):
    """A part of the suite: how many tests passed, and those that did not, each with its error."""

    name: str
    passed: int
    failed: dict[str, str]


_servers: list[TrialServer] = []
"""Where the tests take place: pytest makes them without arguments."""


class TestServer(StoreConformance):
    """The suite, for the server that is being certified."""

    @pytest.fixture
    def opener(self) -> Iterator[Opener]:
        with _servers[-1].store() as url:
            yield lambda: PostgresStore(url)


class _Results:
    """Notes how each test went. Known to pytest as a plugin."""

    def __init__(self, only: str) -> None:
        self._only = only
        self._parts: dict[str, str] = {}
        self.passed: Counter[str] = Counter()
        self.failed: dict[str, dict[str, str]] = {}

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = [one for one in items if self._only in one.name]
        for one in items:
            owner = one.function.__qualname__.partition(".")[0]
            self._parts[one.nodeid] = PARTS[owner]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        part = self._parts[report.nodeid]
        if report.failed:
            name = report.nodeid.rpartition("::")[2]
            lines = report.longreprtext.strip().splitlines()
            errors = [line.removeprefix("E").strip() for line in lines if line.startswith("E ")]
            self.failed.setdefault(part, {}).setdefault(name, (errors or lines or ["it failed"])[0])
        elif report.when == "call":
            self.passed[part] += 1

    def parts(self) -> list[Part]:
        names = [one for one in PARTS.values() if one in self._parts.values()]
        return [Part(name, self.passed[name], self.failed.get(name, {})) for name in names]


def run(server: TrialServer, only: str = "") -> list[Part]:
    """Run the suite, or the tests whose names have a text, and return how each part went. pytest prints nothing."""
    results, silent = _Results(only), io.StringIO()
    _servers.append(server)
    before = os.environ.get("PYTEST_DISABLE_PLUGIN_AUTOLOAD")
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # what else is installed need not meet this suite
    options = ["-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", os.path.dirname(__file__)]
    try:
        with contextlib.redirect_stdout(silent), contextlib.redirect_stderr(silent):
            ended = pytest.main([*options, f"{__file__}::TestServer"], plugins=[results])
    finally:
        _servers.pop()
        if before is None:
            del os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"]
        else:
            os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = before
    if ended == pytest.ExitCode.INTERRUPTED:  # pytest keeps Ctrl-C to itself
        raise KeyboardInterrupt
    if ended == pytest.ExitCode.NO_TESTS_COLLECTED and only:
        raise InvalidValue(f"no conformance test has {only!r} in its name", hint="leave --only out, to run all of them")
    if ended not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise RuntimeError(f"the suite did not run:\n{silent.getvalue()}")
    return results.parts()
