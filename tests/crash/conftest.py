"""What tests of crashes share: the world that agents change, what was acknowledged, threads that take turns fast."""

import sys

import pytest

from holdfast.testing import World
from tests.crash.writer import Acks


@pytest.fixture
def world():
    with World() as started:
        yield started


@pytest.fixture
def acks(tmp_path):
    opened = Acks(tmp_path / "acks")
    yield opened
    opened.close()


@pytest.fixture
def hasty_threads():
    """Threads that take turns in the middle of everything."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)
