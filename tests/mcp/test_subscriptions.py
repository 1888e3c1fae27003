"""Subscriptions: what is told, to whom, and that nothing is left behind."""

import asyncio

import anyio
import pytest
from mcp import Client
from mcp.shared.subscriptions import ResourcesListChanged, ResourceUpdated

import holdfast
from holdfast import StatePatch
from holdfast.mcp import server
from holdfast.mcp.changes import ChangeFeed
from holdfast.mcp.reading.scope import Scope
from tests.waiting import auntil

pytestmark = pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")
STORES = ("sqlite", "postgres")
CLOCK = None  # the real one
URI = "state://agents/recap/tasks/t"


async def first_of(events):
    with anyio.fail_after(10):
        return await anext(aiter(events))


def test_a_change_through_another_connection_to_the_store_arrives(app, url):
    app.start("recap", id="t")

    async def check():
        uris = [URI, "state://threads/chat", "state://agents/recap/tasks/none"]
        async with (
            holdfast.open(url).aio as other,
            Client(server(app)) as client,
            client.listen(resource_subscriptions=uris, resources_list_changed=True) as events,
        ):
            await other.patch("t", StatePatch(set={"x": 1}))
            assert await first_of(events) == ResourceUpdated(uri=URI)
            await other.thread("chat").message({"role": "user", "content": "hi"})
            assert await first_of(events) == ResourceUpdated(uri="state://threads/chat")
            await other.start("recap", id="new")
            assert await first_of(events) == ResourcesListChanged()

    asyncio.run(check())


def test_a_client_that_unsubscribed_is_told_no_more_and_the_other_still_is(app):
    app.start("recap", id="t")

    async def check():
        heard = {"stays": 0, "leaves": 0}

        def hearing(name):
            async def hear(message):
                heard[name] += getattr(message, "method", "") == "notifications/resources/updated"

            return hear

        served = server(app)
        async with Client(served, mode="legacy", message_handler=hearing("leaves")) as leaves:
            async with Client(served, mode="legacy", message_handler=hearing("stays")) as stays:
                for client in (leaves, stays):
                    await client.subscribe_resource(URI)
                await leaves.unsubscribe_resource(URI)
                await leaves.unsubscribe_resource(URI)
                await app.aio.patch("t", StatePatch(set={"x": 1}))
                with anyio.fail_after(10):
                    await auntil(lambda: heard["stays"])
            assert heard == {"stays": 1, "leaves": 0}
            await leaves.subscribe_resource(URI)  # the other one went away without a word
            await app.aio.patch("t", StatePatch(set={"x": 2}))
            with anyio.fail_after(10):
                await auntil(lambda: heard["leaves"])
        assert heard == {"stays": 1, "leaves": 1}

    asyncio.run(check())


def test_what_is_left_is_forgotten(app):
    app.start("recap", id="t")

    async def check():
        feed = ChangeFeed(Scope(app=app), interval=0.01)
        told = []

        async def tell(uris):
            told.extend(uris)

        running = asyncio.create_task(feed.run(tell))
        odd = ["state://agents/recap/tasks/none", f"{URI}/at/1", "file:///etc/passwd"]
        assert await feed.watch([URI, *odd, f"{URI}/log"]) == [URI, f"{URI}/log"]
        assert await feed.watch([URI]) == [URI] and await feed.watch(odd) == []
        feed.leave([URI])
        assert len(feed) == 2
        await app.aio.patch("t", StatePatch(set={"x": 1}))
        with anyio.fail_after(10):
            await auntil(lambda: len(told) >= 2)
        assert sorted(told) == [URI, f"{URI}/log"]
        feed.leave([URI, f"{URI}/log"])
        assert len(feed) == 0
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(check())
