"""A shop, as in the tests of LangGraph: a model that charges, then ships and mails at once, then is done."""

import asyncio
import sys
import uuid
from pathlib import Path

from pydantic_ai import Agent
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.toolsets import FunctionToolset

import holdfast
from holdfast.adapters.pydantic_ai import HoldfastAgent, HoldfastDurability
from tests.adapters.orders import line, lines

REPLIES = ((("charge", {"euros": 5}),), (("ship", {"item": "book"}), ("mail", {"to": "ana"})), ())


def model_of(log):
    def reply(messages, info):
        turn = sum(isinstance(one, ModelResponse) for one in messages)
        line(log / "model", str(turn))
        calls = [ToolCallPart(name, args, tool_call_id=f"call_{uuid.uuid4().hex}") for name, args in REPLIES[turn]]
        return ModelResponse(parts=calls or [TextPart("done")])

    return FunctionModel(reply)


def tools_of(log, timeout):
    tools = FunctionToolset(id="shop", timeout=timeout)
    for name, argument in (("charge", "euros"), ("ship", "item"), ("mail", "to")):
        tools.add_function(tool_of(log, name, argument), name=name, metadata={"holdfast": {"effect": "once"}})
    return tools


def tool_of(log, name, argument):
    if name == "charge":

        async def charge(euros: int) -> str:
            """Charge the card."""
            line(log / "charge", str(euros))
            return f"charged {euros}"

        return charge
    if name == "ship":

        def ship(item: str) -> str:
            """Ship an item."""
            line(log / "ship", item)
            return f"shipped {item}"

        return ship

    async def mail(to: str) -> str:
        """Send a mail."""
        line(log / "mail", to)
        return f"mailed {to}"

    return mail


def agent_of(log, timeout=None, **options):
    return Agent(model_of(log), name="shop", toolsets=[tools_of(log, timeout)], **options)


class Noise(AbstractCapability):
    """Starts more asyncio tasks around everything, as a newer version of the framework, or a timeout, might."""

    async def wrap_run(self, ctx, *, handler):
        await asyncio.gather(*(asyncio.create_task(asyncio.sleep(0)) for _ in range(3)))
        return await asyncio.create_task(handler())


def work(log, app, mode):
    """Run the agent, and settle what is in doubt, until it is done."""
    if "control" in mode:
        assert agent_of(log).run_sync("one book").output == "done"
        line(log / "done", "done")
        return
    later = "noisy" in mode and app.find("order-7") is not None
    capabilities = [*([Noise()] if later else []), HoldfastDurability()]
    shop = HoldfastAgent(agent_of(log, 60 if later else None, capabilities=capabilities), app)
    while True:
        done = shop.run_sync("one book", id="order-7")
        if done.status == "completed":
            assert done.result == "done"
            line(log / "done", "done")
            return
        for item in list(app.inbox("order-7")):
            line(log / "asked", item.tool)
            happened = bool(lines(log / item.tool))
            app.settle("order-7", item.key, happened=happened, result="found" if happened else None, by="ana")


if __name__ == "__main__":
    directory, url, mode = sys.argv[1:]
    with holdfast.open(url) as opened:
        work(Path(directory), opened, mode)
