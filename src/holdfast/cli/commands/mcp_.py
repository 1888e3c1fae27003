"""`holdfast mcp`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import click

from holdfast.cli.command import command
from holdfast.cli.environment import Environment
from holdfast.core.errors import InvalidValue

CONFIG = "config"
HOSTS = ("claude", "vscode", "cursor", "windsurf")


@command("mcp")
@click.argument("words", nargs=-1, metavar="[config HOST]")
@click.option(
    "--http", "port", type=int, metavar="PORT", help="Serve over HTTP on this port instead; 0 takes any free port."
)
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="With --http: the address.")
@click.option(
    "--allow-host",
    "names",
    multiple=True,
    metavar="NAME",
    help="With --http: a host name that clients may use; repeatable.",
)
@click.option(
    "--token-env", metavar="VAR", help="With --http: the environment variable with the token that clients must send."
)
@click.option("--allow-writes", "writes", is_flag=True, help="Let clients start, patch, signal, fork and cancel tasks.")
@click.option(
    "--allow-decisions",
    "decisions",
    is_flag=True,
    help="Let clients answer questions, and let people approve calls in a form of the client.",
)
@click.option("--trust-elicitation", is_flag=True, help="Also accept such forms for calls of risk external_action.")
@click.option(
    "--as", "actor", default="mcp", show_default=True, metavar="NAME", help="The name recorded for what clients do."
)
@click.option("--agent", "agents", multiple=True, metavar="NAME", help="Serve only tasks of this agent; repeatable.")
def mcp_(environment: Environment, words: tuple[str, ...], **given: Any) -> None:
    """Serve tasks to MCP clients: coding agents, desktop apps, other agents.

    Serves over stdin and stdout, or with --http at http://127.0.0.1:PORT/mcp. Clients can only read unless you allow
    more. `holdfast mcp config HOST` prints the settings for claude, vscode, cursor or windsurf, with the options that
    you give.

    Example: holdfast mcp --store holdfast.db --allow-writes --as ana
    """
    if words:
        settings = _config(environment, words, given)
        environment.data(settings) if environment.as_json else environment.lines(_indented(settings))
        return
    import asyncio

    from holdfast.mcp import server, transports

    where = {name: given.pop(name) for name in ("port", "host", "names", "token_env")}
    given["agents"] = given["agents"] or None
    made = server(environment.app(make=given["writes"]), **given)
    if where["port"] is None:
        _refuse_http_options(where)
        asyncio.run(transports.serve_stdio(made))
        return
    token = _token(where["token_env"])
    app = transports.http_app(made, host=where["host"], token=token, allowed=where["names"])
    with transports.bound_socket(where["host"], where["port"]) as listening:
        address = _address(where["host"], where["names"], listening.getsockname()[1])
        environment.say(f"serving {environment.where} at {address}")
        asyncio.run(transports.serve_http(app, listening))


def _address(host: str, names: tuple[str, ...], port: int) -> str:
    """What clients connect to: for a server on all addresses, the first name that it allows."""
    if host in ("0.0.0.0", "::"):
        host = names[0] if names else "127.0.0.1"
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/mcp"


def _refuse_http_options(where: dict[str, Any]) -> None:
    odd = {"--token-env": where["token_env"], "--allow-host": where["names"]}
    for option, value in odd.items():
        if value:
            raise InvalidValue(f"{option} needs --http", hint="add --http PORT")


def _token(variable: str | None) -> str:
    if variable is None:
        return ""
    token = os.environ.get(variable, "")
    if not token:
        raise InvalidValue(f"--token-env {variable} is not set, or empty", hint=f"export {variable}=…")
    return token


# Settings of hosts


def _config(environment: Environment, words: tuple[str, ...], given: dict[str, Any]) -> dict[str, Any]:
    """Return the settings for a host. Paths are absolute, because a desktop app has no shell and another folder."""
    if words[0] != CONFIG or len(words) != 2 or words[1] not in HOSTS:
        raise InvalidValue(
            f"{' '.join(words)!r} is not understood",
            hint=f"write config and one of {', '.join(HOSTS)}: holdfast mcp config claude",
        )
    host, entry = words[1], _entry(environment, words[1], given)
    inside = "servers" if host == "vscode" else "mcpServers"
    return {inside: {"holdfast": entry}}


def _entry(environment: Environment, host: str, given: dict[str, Any]) -> dict[str, Any]:
    if given["port"] is not None:
        if given["port"] == 0:
            raise InvalidValue("--http 0 is another port each time", hint="give the port that the server will have")
        address = _address(given["host"], given["names"], given["port"])
        entry: dict[str, Any] = {"serverUrl": address} if host == "windsurf" else {"type": "http", "url": address}
        variable = f"{'' if host == 'claude' else 'env:'}{given['token_env']}"
        token = {"headers": {"Authorization": f"Bearer ${{{variable}}}"}} if given["token_env"] else {}
        return entry | token
    path = environment.path
    store = environment.url if path is None else str(Path(path).resolve())
    arguments = ["mcp", "--store", store, *_options(environment, given)]
    entry = {"command": _command(), "args": arguments}
    return {"type": "stdio", **entry} if host in ("claude", "vscode") else entry


def _options(environment: Environment, given: dict[str, Any]) -> list[str]:
    flags = {"writes": "--allow-writes", "decisions": "--allow-decisions", "trust_elicitation": "--trust-elicitation"}
    options = [flag for name, flag in flags.items() if given[name]]
    options += [] if given["actor"] == "mcp" else ["--as", given["actor"]]
    options += ["--namespace", environment.namespace] if environment.namespace else []
    return options + [word for agent in given["agents"] for word in ("--agent", agent)]


def _command() -> str:
    """This program, by its absolute path."""
    beside = Path(sys.executable).with_name("holdfast")
    return str(beside) if beside.exists() else str(Path(sys.argv[0]).resolve())


def _indented(value: dict[str, Any], margin: str = "") -> Iterator[str]:
    """JSON to be copied, a line for each entry."""
    from holdfast.cli.show.style import escaped
    from holdfast.engine.reading.values import text

    yield "{" if not margin else ""
    for number, (name, one) in enumerate(value.items(), start=1):
        comma, head = "," if number < len(value) else "", f"{margin}  {text(name)}: "
        if isinstance(one, dict):
            yield head + "{"
            yield from list(_indented(cast("dict[str, Any]", one), margin + "  "))[1:-1]
            yield margin + "  }" + comma
        else:
            yield head + escaped(text(one)) + comma
    yield margin + "}"
