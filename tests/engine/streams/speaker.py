"""A process that works on a task whose step streams: `python -m tests.engine.streams.speaker URL FOLDER KIND`.

It streams two words, then waits until the file `go` is in the folder.
"""

import asyncio
import sys
import time
from pathlib import Path

import holdfast
from holdfast import agent
from holdfast.core import limits


def waiting(folder):
    until = time.monotonic() + 120
    while not (folder / "go").exists() and time.monotonic() < until:
        yield


def speaker_of(folder, kind):
    def say():
        yield "It "
        yield "is "
        for _ in waiting(folder):
            time.sleep(0.01)
        yield "sunny."

    async def say_async():
        yield "It "
        yield "is "
        for _ in waiting(folder):
            await asyncio.sleep(0.01)
        yield "sunny."

    def plain(task):
        return task.stream(say, name="say")

    async def on_loop(task):
        return await task.stream(say_async, name="say")

    return agent(name="speaker")(plain if kind == "def" else on_loop)


if __name__ == "__main__":
    url, folder, kind = sys.argv[1:]
    # Watchers on a busy machine see the last words too, if these are there for longer.
    limits.CHUNK_FLUSH_SECONDS, limits.CHUNKS_KEPT_SECONDS = 4.0, 5.0
    with holdfast.open(url) as app:
        app.resume("t", speaker_of(Path(folder), kind))
