"""Fixtures shared by all tests."""

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

import holdfast
from holdfast.testing.clock import FakeClock
from tests.postgres_server import postgres_databases, postgres_url

__all__ = ["postgres_databases", "postgres_url"]

ALL = os.environ.get("HOLDFAST_TEST_ALL") == "1"
settings.register_profile("quick", max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
settings.register_profile("all", max_examples=1000, deadline=None, suppress_health_check=list(HealthCheck))
settings.load_profile("all" if ALL else "quick")


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture(params=["memory", "sqlite"])
def url(request, tmp_path):
    return "memory:" if request.param == "memory" else str(tmp_path / "store.db")


@pytest.fixture
def app(url, clock):
    with holdfast.open(url, clock=clock) as opened:
        yield opened


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as shells leave it to what they run in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)
