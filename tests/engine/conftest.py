"""What tests of the engine share."""

import threading

import pytest

from holdfast.engine.drivers.abandonable import ABANDONED
from tests.waiting import until


@pytest.fixture
def late():
    """What hangs waits for this. It ends with the test, and so do all threads that were abandoned."""
    said = threading.Event()
    yield said
    said.set()
    until(lambda: not len(ABANDONED))
