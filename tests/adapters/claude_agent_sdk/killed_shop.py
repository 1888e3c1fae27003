"""A Claude agent that charges an order; in its first life the process is killed inside the tool."""

import asyncio
import os
import signal
import sys
from pathlib import Path

from claude_agent_sdk import create_sdk_mcp_server, tool

import holdfast
from holdfast.adapters.claude_agent_sdk import HoldfastSessionStore, once_hooks
from tests.adapters.claude_agent_sdk.scripted import options_of, scripted, told
from tests.adapters.orders import line, lines

CHARGE = "mcp__shop__charge"


def main(log):
    @tool("charge", "Charge the card.", {"order": str, "euros": int})
    async def charge(given):
        line(log / "charge", str(given["euros"]))
        if len(lines(log / "charge")) == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return {"content": [{"type": "text", "text": "charged"}]}

    with holdfast.open(str(log / "holdfast.db")) as app, scripted((CHARGE, {"order": "o-7", "euros": 5})) as server:
        options = options_of(
            server,
            log / f"home-{len(lines(log / 'lives'))}",
            mcp_servers={"shop": create_sdk_mcp_server("shop", tools=[charge])},
            allowed_tools=[CHARGE],
            session_store=HoldfastSessionStore(app),
            hooks=once_hooks(app, effects={CHARGE: "once"}, unique={CHARGE: "order-{order}"}),
        )
        line(log / "lives", "begun")
        asyncio.run(told("one book", options))
        print(server.results()[0])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
