"""An event loop that outlives what its tasks do to end the process.

asyncio lets `SystemExit` and `KeyboardInterrupt` of any task out of the loop, which ends everything else on it. Here
they belong to the thread that waits for that task, as every other exception does.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from typing import Any


def run(work: Coroutine[Any, Any, None], outlives_exits: Callable[[], bool]) -> None:
    """`asyncio.run`, but nothing ends it except its work, or Ctrl-C where nothing else handles signals."""
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        main = loop.create_task(work)
        while True:
            try:
                return loop.run_until_complete(main)
            except (SystemExit, KeyboardInterrupt):
                if main.done() or not outlives_exits():
                    raise


class Exited:
    """What a function raised in order to end the process, on its way past the event loop."""

    def __init__(self, error: SystemExit | KeyboardInterrupt) -> None:
        self.error = error


async def caught(work: Coroutine[Any, Any, Any]) -> Any:
    """Return the outcome; an exception that ends the process comes back as `Exited`."""
    try:
        return await work
    except (SystemExit, KeyboardInterrupt) as error:
        return Exited(error)


def die_of(number: int) -> None:
    """End as a process does that handles no signals."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
