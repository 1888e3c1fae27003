"""A server for the suite's scenarios of the tasks extension: `python -m tests.mcp.conformance.fixtures STORE`.

The suite calls tools of its own reference server. Here each of them starts an agent of that name, by start_task. What
is tested is how Holdfast gives handles, keeps them and ends them.
"""

import asyncio
import sys
import threading
from dataclasses import replace

import holdfast
from holdfast import AsyncTask, agent
from holdfast.mcp import server, transports


@agent
async def slow_compute(task: AsyncTask, seconds: float, label: str = "") -> str:
    if seconds:
        await task.sleep(seconds)
    return label


@agent
async def failing_job(task: AsyncTask) -> None:
    raise ValueError("it always fails")


@agent
async def confirm_delete(task: AsyncTask, filename: str = "") -> str:
    return await task.ask(f"delete {filename}?", name="confirm")


@agent
async def multi_input(task: AsyncTask) -> list:
    return await asyncio.gather(task.ask("first?", name="first"), task.ask("second?", name="second"))


AGENTS = {one.name: one for one in (slow_compute, failing_job, confirm_delete, multi_input)}


async def fixture_tools(ctx, call_next):
    """Translate the suite's calls, and what it fills into every form, whatever the form asks."""
    params = dict(ctx.params or {})
    if ctx.method == "tools/call" and params.get("name") == "greet":
        return {
            "content": [{"type": "text", "text": f"Hello, {params['arguments']['name']}!"}],
            "resultType": "complete",
        }
    if ctx.method == "tools/call" and params.get("name") in AGENTS:
        wanted = {"agent": params["name"], "input": params.get("arguments") or {}}
        params |= {"name": "start_task", "arguments": wanted}
    if ctx.method == "tasks/update":
        yes = {"action": "accept", "content": {"answer": "yes"}}
        params["inputResponses"] = dict.fromkeys(params["inputResponses"], yes)
    return await call_next(replace(ctx, params=params))


def main(store):
    with holdfast.open(store, agents=[*AGENTS.values()]) as app:
        made = server(app, writes=True, decisions=True)
        made.middleware.append(fixture_tools)
        working = app.worker([*AGENTS.values()])
        threading.Thread(target=working.run, daemon=True).start()
        with transports.bound_socket("127.0.0.1", 0) as listening:
            address = f"http://127.0.0.1:{listening.getsockname()[1]}{transports.PATH}"
            print(f"serving {store} at {address}", file=sys.stderr, flush=True)
            asyncio.run(transports.serve_http(transports.http_app(made, host="127.0.0.1"), listening))


if __name__ == "__main__":
    main(sys.argv[1])
