"""The program of Temporal's workers and of the pump: `python -m tests.places.temporal_shop worker`."""

import asyncio
import logging
import sys
import time

from temporalio.client import Client

from holdfast import on_temporal
from tests.places.shop import BROKER, open_shop


async def connected():
    until = time.monotonic() + 60
    while True:
        try:
            return await Client.connect(BROKER)
        except RuntimeError:
            assert time.monotonic() < until
            await asyncio.sleep(0.2)


async def main(what):
    logging.basicConfig(level=logging.INFO)
    client = await connected()
    with open_shop() as app:
        print("ready.", flush=True)
        if what == "worker":
            await on_temporal.worker(client, app, concurrency=16).run()
        else:
            await on_temporal.pump(client, app, heartbeat="3s", again="2s")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
