"""Waiting until something holds, in place of sleeping for as long as it usually takes."""

import asyncio
import time
from datetime import UTC, datetime

from holdfast import StoreError

PATIENCE_SECONDS = 120.0
PAUSE_SECONDS = 0.01


def until(holds, seconds=PATIENCE_SECONDS, why="it did not come to pass"):
    """Wait until a condition holds, and return what it gave. `why` is what the failure says, or a function of it."""
    end = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < end, why() if callable(why) else why
        time.sleep(PAUSE_SECONDS)
    return found


def until_past(moment):
    """Wait until a moment, such as a deadline, has passed."""
    until(lambda: datetime.now(UTC) > moment)


async def auntil(holds, seconds=PATIENCE_SECONDS, why="it did not come to pass"):
    """Wait as `until` does, and let the event loop go on meanwhile."""
    end = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < end, why() if callable(why) else why
        await asyncio.sleep(PAUSE_SECONDS)
    return found


def again(work, seconds=PATIENCE_SECONDS):
    """Do what may be done twice, as often as it takes a store to come back."""
    end = time.monotonic() + seconds
    while True:
        try:
            return work()
        except StoreError:
            assert time.monotonic() < end, "the store did not come back"
            time.sleep(PAUSE_SECONDS)
