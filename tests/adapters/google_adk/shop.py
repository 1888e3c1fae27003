"""A shop, as in the tests of the other frameworks: a model that charges, then ships and mails at once, then is done."""

import asyncio
import warnings

from google.adk.agents import LlmAgent
from google.adk.apps.app import App, ResumabilityConfig
from google.adk.models import BaseLlm, LlmResponse
from google.adk.runners import Runner
from google.genai import types
from pydantic import Field

from holdfast import Suspended
from holdfast.adapters.google_adk import HoldfastPlugin, HoldfastSessionService
from tests.adapters.orders import EFFECTS, REPLIES, line, lines

NAMES = {"app_name": "shop", "user_id": "ana", "session_id": "order-7"}
WHERE = {"user_id": "ana", "session_id": "order-7"}


class Replies(BaseLlm):
    """A model that gives these replies in turn: tool calls, or a text. It counts the answers of tools it has seen."""

    model: str = "scripted"
    replies: tuple = ()
    asked: list = Field(default_factory=list)
    seen: list = Field(default_factory=list)

    async def generate_content_async(self, llm_request, stream=False):
        self.seen[:] = [
            part.function_response.response
            for content in llm_request.contents
            for part in content.parts
            if part.function_response
        ]
        answered, turn = len(self.seen), 0
        while answered > 0:
            answered -= len(self.replies[turn])
            turn += 1
        self.asked.append(turn)
        self.on_asked(turn)
        reply = self.replies[turn]
        parts = [types.Part(function_call=types.FunctionCall(name=name, args=args)) for name, args in reply]
        yield LlmResponse(content=types.Content(role="model", parts=parts or [types.Part(text="done")]))

    def on_asked(self, turn):
        pass


class ShopModel(Replies):
    """Writes a line for each request."""

    log: object = None

    def on_asked(self, turn):
        line(self.log / "model", str(turn))


def tools_of(log):
    def charge(euros: int) -> str:
        """Charge the card."""
        line(log / "charge", str(euros))
        return f"charged {euros}"

    async def ship(item: str) -> dict:
        """Ship an item."""
        line(log / "ship", item)
        return {"shipped": item}

    async def mail(to: str) -> str:
        """Send a mail."""
        line(log / "mail", to)
        return f"mailed {to}"

    return [charge, ship, mail]


def runner_of(model, tools, service, *plugins):
    agent = LlmAgent(name="shop", model=model, tools=tools)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ADK says that resuming is experimental
        resumable = ResumabilityConfig(is_resumable=True)
    return Runner(
        app=App(name="shop", root_agent=agent, plugins=list(plugins), resumability_config=resumable),
        session_service=service,
    )


async def run(runner, service, text="one book"):
    """Run the last invocation of the session again, or begin the first; gives its last text."""
    session = await service.get_session(**NAMES)
    if session is None:
        session = await service.create_session(**NAMES)
    given = {"new_message": types.Content(role="user", parts=[types.Part(text=text)])}
    if session.events:
        given = {"invocation_id": session.events[-1].invocation_id}
    async for _ in runner.run_async(**WHERE, **given):
        pass
    events = (await service.get_session(**NAMES)).events
    texts = [part.text for one in events if one.content for part in one.content.parts if part.text]
    return texts[-1]


def work(log, app, mode):
    """Run the agent, and settle what is in doubt, until it is done."""
    plugins = [] if mode == "control" else [HoldfastPlugin(app, effects=dict.fromkeys(EFFECTS, "once"))]
    service = HoldfastSessionService(app)
    while True:
        model = ShopModel(replies=REPLIES, log=log)
        try:
            last = asyncio.run(run(runner_of(model, tools_of(log), service, *plugins), service))
            break
        except Suspended:
            for item in list(app.inbox()):
                line(log / "asked", item.tool)
                happened = bool(lines(log / item.tool))
                app.settle(item.task, item.key, happened=happened, result="found" if happened else None, by="ana")
    assert last == "done", last
    line(log / "done", "done")
