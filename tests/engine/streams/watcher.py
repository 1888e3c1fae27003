"""A process that only watches: `python -m tests.engine.streams.watcher URL`. It prints each thing as a line of JSON."""

import asyncio
import sys

import holdfast


async def main(url):
    with holdfast.open(url) as app:
        async for one in app.aio.follow("t", chunks=True, seconds=60):
            print(one.to_json(), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
