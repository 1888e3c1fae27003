"""Fixtures for pytest, there as soon as holdfast is installed: `holdfast_app`, `world` and `crash_everywhere`.

def test_the_shop_survives_a_crash_anywhere(crash_everywhere, world):
    crash_everywhere(shop_on(world), {"order": 17}, world=world)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from holdfast.engine.app import App
    from holdfast.testing.crash.everywhere import CrashReport
    from holdfast.testing.crash.world import World


@pytest.fixture
def holdfast_app() -> Iterator[App]:
    """An app over a store in memory, of this test's own."""
    import holdfast

    with holdfast.open("memory:") as opened:
        yield opened


@pytest.fixture
def world() -> Iterator[World]:
    """An outside world that records every request, in a process of its own."""
    from holdfast.testing.crash.world import World

    with World() as started:
        yield started


@pytest.fixture
def crash_everywhere(tmp_path: Path) -> Callable[..., CrashReport]:
    """`holdfast.testing.crash_everywhere`, with its files in the test's own directory."""
    from holdfast.testing.crash import everywhere

    return partial(everywhere.crash_everywhere, directory=tmp_path)
