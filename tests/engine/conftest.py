"""What tests of the engine share."""

import threading

import pytest

from holdfast.core import limits
from holdfast.engine.drivers.abandonable import ABANDONED
from tests.waiting import until


@pytest.fixture
def late():
    """What hangs waits for this. It ends with the test, and so do all threads that were abandoned."""
    said = threading.Event()
    yield said
    said.set()
    until(lambda: not len(ABANDONED))


@pytest.fixture
def impatient(monkeypatch):
    """Whoever waits for a unique key looks often, and gives up soon."""
    monkeypatch.setattr(limits, "UNIQUE_POLL_US", 5_000)
    monkeypatch.setattr(limits, "UNIQUE_WAIT_US", 100_000)
