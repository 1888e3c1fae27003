"""What tests of the MCP server share: agents, tasks that wait for every kind of decision, clients, servers."""

import contextlib
import os
import signal
import subprocess
import sys
from typing import Any, Literal

import mcp_types as types
from mcp import StdioServerParameters
from mcp.client.extension import ClientExtension, ResultClaim
from pydantic import ConfigDict

from holdfast import Budget, Task, agent, tool
from holdfast.mcp.task_handles import IDENTIFIER

ASK = {"human_in_the_loop": {"required_for_risk_levels": ["external_action", "payment"]}}
MODES = ("auto", "legacy")


@tool(effect="once", risk="payment")
def pay(euros: int) -> str:
    return f"paid {euros}"


@tool(effect="once", risk="external_action")
def mail(to: str) -> str:
    return f"sent to {to}"


@tool(effect="once")
def lose(euros: int) -> str:
    raise OSError("connection lost")


@tool(effect="once", risk="external_action")
def post(to: str) -> str:
    raise OSError("connection lost")


@agent
def payer(task: Task, euros: int) -> str:
    return task.call(pay, euros=euros)


@agent
def mailer(task: Task, to: str) -> str:
    return task.call(mail, to=to)


@agent
def loser(task: Task, euros: int) -> str:
    return task.call(lose, euros=euros)


@agent
def poster(task: Task, to: str) -> str:
    return task.call(post, to=to)


@agent
def asker(task: Task) -> str:
    return task.ask("seat?", name="seat")


@agent(budget=Budget(steps=1, on_exceed="ask"))
def spender(task: Task) -> int:
    return task.step(len, "a", name="one") + task.step(len, "b", name="two")


def fill(app):
    """Tasks that wait for each kind of decision, and one that is pending."""
    app.run(payer, {"euros": 3}, id="pays", contract={"constraints": ASK})
    app.run(mailer, {"to": "sam"}, id="mails", contract={"constraints": ASK})
    app.run(loser, {"euros": 4}, id="lost")
    app.run(asker, id="asks")
    app.run(spender, id="spends")
    app.start("recap", {"n": 1}, id="job/1", goal="write a recap", thread="chat")


def answering(content=None, action="accept", seen=None):
    """A host whose person fills in every form so."""

    async def answer(ctx, params):
        if seen is not None:
            seen.append(params)
        return types.ElicitResult(action=action, content=content if action == "accept" else None)

    return answer


def stdio(store, *options):
    """How a client starts `holdfast mcp`."""
    return StdioServerParameters(
        command=sys.executable, args=["-m", "holdfast", "mcp", "--store", str(store), *options]
    )


async def said(client, tool, **arguments):
    """What a tool gives; asserts that it did not fail."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    return result.structured_content


async def refused(client, tool, **arguments):
    """Why a tool fails, in the words a model reads."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, result.content
    assert "Traceback" not in result.content[0].text
    return f"{result.structured_content['code']}: {result.content[0].text}"


class Handle(types.Result):
    """What a tool call gives in place of its result."""

    result_type: Literal["task"]
    task_id: str
    status: str
    status_message: str | None = None
    created_at: str
    last_updated_at: str
    ttl_ms: int | None
    poll_interval_ms: int | None = None


class KnowsHandles(ClientExtension):
    """A client that declares the tasks extension, and keeps handles as they are."""

    identifier = IDENTIFIER

    def claims(self):
        return [ResultClaim(result_type="task", model=Handle, resolve=self.resolve)]

    async def resolve(self, handle, ctx):
        raise AssertionError("handles are kept here")


class TaskRequest(types.Request[dict[str, Any], str]):
    """A request about a handle. Over HTTP its id is in a header too."""

    name_param = "taskId"


class Answered(types.Result):
    """Any result, as it came."""

    model_config = ConfigDict(extra="allow")


async def started(client, tool, **arguments):
    """The handle that a tool gives."""
    handle = await client.session.call_tool(tool, arguments, allow_claimed=True)
    assert isinstance(handle, Handle), handle
    return handle


async def about(client, method, task, **params):
    """What the server answers about a handle."""
    request = TaskRequest(method=method, params={"taskId": task, **params})
    return (await client.session.send_request(request, Answered)).model_extra


def http_server(store, *options, env=None, command=(sys.executable, "-m", "holdfast")):
    """A real `holdfast mcp --http 0`; gives its address and its process."""
    return served([*command, "mcp", "--store", str(store), "--http", "0", *options], env)


@contextlib.contextmanager
def served(command, env=None):
    """A process that says on stderr at which address it serves; gives the address and the process."""
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **(env or {})}
    )
    try:
        line = process.stderr.readline()
        assert " at http://" in line, line + process.stderr.read()
        yield line.rsplit(" at ", 1)[1].strip(), process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.communicate()
