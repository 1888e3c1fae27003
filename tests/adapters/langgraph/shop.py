"""A shop: an agent whose model charges a card, then ships and mails at once, then is done. Each effect is a line.

As a program, it works on the thread until it is done, however often it is killed: `python -m … DIRECTORY URL MODE`.
"""

import asyncio
import sys
import uuid
from pathlib import Path

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command

import holdfast
from holdfast.adapters.langgraph import HoldfastSaver, once_calls
from tests.adapters.orders import EFFECTS, REPLIES, line, lines


class Model(BaseChatModel):
    """A model that calls the tools in turn. Each reply has new call ids, as those of real models do."""

    log: Path

    @property
    def _llm_type(self):
        return "scripted"

    def bind_tools(self, tools, **kwargs):
        return self

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        turn = sum(isinstance(one, AIMessage) for one in messages)
        line(self.log / "model", str(turn))
        calls = [{"name": name, "args": args, "id": f"call_{uuid.uuid4().hex}"} for name, args in REPLIES[turn]]
        message = AIMessage("" if calls else "done", tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=message)])


def tools_of(log):
    @tool
    def charge(euros: int) -> str:
        """Charge the card."""
        line(log / "charge", str(euros))
        return f"charged {euros}"

    @tool
    def ship(item: str) -> str:
        """Ship an item."""
        line(log / "ship", item)
        return f"shipped {item}"

    @tool
    def mail(to: str) -> str:
        """Send a mail."""
        line(log / "mail", to)
        return f"mailed {to}"

    return [charge, ship, mail]


def agent_of(log, app, *, calls=True, saver=None):
    """With create_agent: one task of the graph for each tool call."""
    middleware = [once_calls(app, effects=dict.fromkeys(EFFECTS, "once"))] if calls else []
    return create_agent(Model(log=log), tools_of(log), middleware=middleware, checkpointer=saver or HoldfastSaver(app))


def graph_of(log, app, tools, replies_of=None, **options):
    """With ToolNode: all tool calls of a reply in one task of the graph."""
    model = replies_of or Model(log=log)
    builder = StateGraph(MessagesState)
    builder.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
    builder.add_node("tools", ToolNode(tools, **options))
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", tools_condition)
    builder.add_edge("tools", "model")
    return builder.compile(checkpointer=HoldfastSaver(app))


CONFIG = {"configurable": {"thread_id": "order-7"}}


def settled(asked, log):
    """What a person answers who looks whether it happened."""
    happened = bool(lines(log / asked["tool"]))
    return {**asked, "happened": happened, "result": "found" if happened else None, "by": "ana"}


async def noisily(graph, given):
    """Invoke it after more asyncio tasks than before, in one of its own, with a time limit it did not have."""
    graph.step_timeout = 60
    await asyncio.gather(*(asyncio.create_task(asyncio.sleep(0)) for _ in range(3)))
    return await asyncio.create_task(graph.ainvoke(given, CONFIG))


def work(log, app, mode):
    """Invoke the graph, and answer what it asks, until it is done."""
    graph = agent_of(log, app, calls="control" not in mode)
    given = {"messages": [("user", "one book")]} if graph.get_state(CONFIG).values == {} else None
    while True:
        if "noisy" in mode:
            state = asyncio.run(noisily(graph, given))
        else:
            state = asyncio.run(graph.ainvoke(given, CONFIG)) if "async" in mode else graph.invoke(given, CONFIG)
        asked = list(state.get("__interrupt__", ()))
        if not asked:
            assert state["messages"][-1].content == "done"
            line(log / "done", "done")
            return
        line(log / "asked", asked[0].value["tool"])
        given = Command(resume={one.id: settled(one.value, log) for one in asked})


if __name__ == "__main__":
    directory, url, mode = sys.argv[1:]
    with holdfast.open(url) as opened:
        work(Path(directory), opened, mode)
