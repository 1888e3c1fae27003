"""The world that crashing agents change."""

import pytest

from holdfast.testing import World


@pytest.fixture
def world():
    with World() as started:
        yield started
