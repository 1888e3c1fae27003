"""A shop, as in the tests of the other frameworks: a model that charges, then ships and mails at once, then is done."""

import asyncio
import sys
import uuid
from pathlib import Path

from agents import Agent, Model, ModelResponse, RunConfig, Runner, Usage, function_tool
from agents.testing import assistant_message, function_call

import holdfast
from holdfast.adapters.openai_agents import DurableRunner, effect
from tests.adapters.orders import line, lines

REPLIES = ((("charge", {"euros": 5}),), (("ship", {"item": "book"}), ("mail", {"to": "ana"})), ())


class ShopModel(Model):
    """A model that calls the tools in turn. Each reply has new call ids, as those of real models do."""

    def __init__(self, log, noisy=False):
        self._log = log
        self._noisy = noisy

    async def get_response(self, system_instructions, input, *args, **kwargs):
        turn = sum(isinstance(one, dict) and one.get("type") == "function_call_output" for one in input)
        turn = {0: 0, 1: 1, 3: 2}[turn]
        line(self._log / "model", str(turn))
        calls = [function_call(name, args, call_id=f"call_{uuid.uuid4().hex}") for name, args in REPLIES[turn]]
        return ModelResponse(output=calls or [assistant_message("done")], usage=Usage(), response_id=None)

    def stream_response(self, *args, **kwargs):
        raise NotImplementedError


def tools_of(log, timeout=None):
    @effect("once")
    @function_tool(timeout=timeout)
    async def charge(euros: int) -> str:
        """Charge the card."""
        line(log / "charge", str(euros))
        return f"charged {euros}"

    @effect("once")
    @function_tool
    def ship(item: str) -> str:
        """Ship an item."""
        line(log / "ship", item)
        return f"shipped {item}"

    @effect("once")
    @function_tool(timeout=timeout)
    async def mail(to: str) -> str:
        """Send a mail."""
        line(log / "mail", to)
        return f"mailed {to}"

    return [charge, ship, mail]


def agent_of(log, timeout=None):
    return Agent(name="shop", model=ShopModel(log), tools=tools_of(log, timeout))


class NoisyRunner(DurableRunner):
    """Starts more asyncio tasks before the framework does, as a newer version of it, or a timeout, might."""

    async def _turns(self, task, input, given):
        await asyncio.gather(*(asyncio.create_task(asyncio.sleep(0)) for _ in range(3)))
        return await asyncio.create_task(super()._turns(task, input, given))


def work(log, app, mode):
    """Run the agent, and settle what is in doubt, until it is done."""
    if "control" in mode:
        config = RunConfig(tracing_disabled=True)
        assert asyncio.run(Runner.run(agent_of(log), "one book", run_config=config)).final_output == "done"
        line(log / "done", "done")
        return
    later = "noisy" in mode and app.find("order-7") is not None
    shop = NoisyRunner(agent_of(log, timeout=60), app) if later else DurableRunner(agent_of(log), app)
    while True:
        done = shop.run_sync("one book", id="order-7")
        if done.status == "completed":
            assert done.result == "done"
            line(log / "done", "done")
            return
        assert done.status == "waiting", done.failure
        for item in list(app.inbox("order-7")):
            line(log / "asked", item.tool)
            happened = bool(lines(log / item.tool))
            app.settle("order-7", item.key, happened=happened, result="found" if happened else None, by="ana")


if __name__ == "__main__":
    directory, url, mode = sys.argv[1:]
    with holdfast.open(url) as opened:
        work(Path(directory), opened, mode)
