"""`holdfast ui`."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING

import click

from holdfast.cli.command import by_option, command
from holdfast.cli.completion import files
from holdfast.cli.environment import DEFAULT, Environment, stores_beside
from holdfast.core.errors import InvalidValue, StoreReadOnly

if TYPE_CHECKING:
    from holdfast.cli.demo.here import DemoHere
    from holdfast.web.asgi import PageApp
    from holdfast.web.namespaces import NamespacesApp
    from holdfast.web.requests.site import Known


@command("ui")
@click.argument("target", metavar="[FILE[:AGENT]]", required=False, shell_complete=files)
@click.option(
    "--port", type=int, metavar="N", help="The port; 0 takes any free port. Default: 7433, or the next free one."
)
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="The address to listen on.")
@click.option("--read-only", is_flag=True, help="Only show tasks; buttons show the command to type.")
@by_option
@click.option("--no-open", is_flag=True, help="Print the link without opening a browser.")
@click.option("--link", "link_only", is_flag=True, help="Print a new link for a page that is running.")
@click.option("--behind-proxy", is_flag=True, help="With --host: the page is behind a proxy with TLS.")
@click.option(
    "--allow-host",
    "names",
    multiple=True,
    metavar="NAME",
    help="With --behind-proxy: a host name that people use; repeatable.",
)
@click.option("--all-namespaces", is_flag=True, help="Show the tasks of every tenant, and a page for each of them.")
@click.option("--for", "seconds", metavar="TIME", help="Stop after this time.")
def ui_(
    environment: Environment,
    target: str | None,
    port: int | None,
    host: str,
    read_only: bool,
    by: str,
    no_open: bool,
    link_only: bool,
    behind_proxy: bool,
    names: tuple[str, ...],
    all_namespaces: bool,
    seconds: str | None,
) -> None:
    """See and control tasks in a browser, on this machine.

    The page shows tasks while they run: steps, workers, the state after any event, and the inbox. What you do there is
    recorded with your name. The printed link logs in once; --link prints a new one. With FILE you can start tasks of
    its agents, and ask the destinations of calls in doubt again. Agents themselves run in workers.

    Example: holdfast ui agents.py --store holdfast.db
    """
    from holdfast.engine.reading import values
    from holdfast.web import serving
    from holdfast.web.access.gate import is_loopback
    from holdfast.web.requests.site import Known, Settings

    if link_only:
        found = serving.new_link(serving.address_file(environment.url, environment.namespace))
        environment.data({"link": found}) if environment.as_json else environment.lines([found])
        return
    _refuse_odd(environment, all_namespaces=all_namespaces)
    known = _known(environment, target)
    host = host.strip("[]")
    lasts = None if seconds is None else values.seconds(seconds, "--for")
    token = os.environ.get(serving.TOKEN, "")
    serving.check_host(host, token, behind_proxy=behind_proxy)
    makes = not read_only and _makes_store(environment, target)
    settings = Settings(
        store=environment.shown,
        namespace=environment.namespace,
        read_only=_is_read_only(environment, makes=makes) or read_only,
        by=by,
        login="token" if token else "link",
        loopback=is_loopback(host),
        debug=environment.debug,
    )
    alone = not all_namespaces and not environment.namespace
    demo = _demo(environment) if alone and settings.loopback and not settings.read_only else None
    known = Known(known.agents, known.tools, None if demo is None else demo.begin)
    with ExitStack() as stack:
        listening = stack.enter_context(serving.listening(host, port))
        bound = listening[0].getsockname()[1]
        if demo is not None:
            stack.callback(demo.end)
        tenants = environment.tenant if all_namespaces else None
        made = serving.page_app(
            environment.app(), settings, host, bound, token=token, names=names, known=known, tenants=tenants
        )
        server = serving.PageServer(made, listening, serving.shown_url(host, bound), lasts, behind_proxy=behind_proxy)
        _serve(environment, made, server, opens=not no_open)


def _refuse_odd(environment: Environment, *, all_namespaces: bool) -> None:
    """Refuse what can't be meant: one namespace and all of them, and a store that is in no other process."""
    from holdfast.engine.reading import values

    if all_namespaces and environment.namespace:
        raise InvalidValue("--namespace and --all-namespaces exclude each other", hint="give one of them")
    if environment.path is None and not values.is_server(environment.url):
        told = f"a page of {environment.url} would have a store of its own, with nothing in it"
        raise InvalidValue(told, hint="give a file or a server, or mount holdfast.web.asgi(app) in your program")


def _known(environment: Environment, target: str | None) -> Known:
    """The agents and tools of the file that was named; none without one."""
    from holdfast.web.requests.site import Known

    if target is None:
        return Known()
    from holdfast.cli.input import agents

    environment.runs_agents()
    named, found = agents.agents_for(target)
    chosen = found if named is None else [named]
    tools = agents.tools_of(target)
    if not chosen and not tools:
        told = f"{target} declares no agent and no tool, so it is of no use to the page"
        raise InvalidValue(told, hint="leave it out, or give the file your agents are in")
    return Known({one.name: one for one in chosen}, tools)


def _demo(environment: Environment) -> DemoHere | None:
    """The demo that a person can begin on the page, where the store is a file."""
    if environment.path is None:
        return None
    from holdfast.cli.demo.here import DemoHere

    return DemoHere(environment.path)


def _makes_store(environment: Environment, target: str | None) -> bool:
    """Whether the page may begin with a new store: tasks can be started there, or no one has named another."""
    if environment.path is None or os.path.exists(environment.path):
        return False
    return target is not None or (environment.url == DEFAULT and not stores_beside(environment.path))


def _is_read_only(environment: Environment, *, makes: bool) -> bool:
    """Whether the store's file may only be read: then the page only shows."""
    from holdfast.web import serving

    try:
        environment.app(make=makes, url=serving.page_url(environment.url))
    except StoreReadOnly:
        environment.looks = True
        return True
    return environment.path is not None and not os.access(environment.path, os.W_OK)


def _serve(environment: Environment, made: PageApp | NamespacesApp, server: object, *, opens: bool) -> None:
    from holdfast.web import serving

    assert isinstance(server, serving.PageServer) and made.site.sessions is not None
    sessions, url = made.site.sessions, server.url
    file = serving.address_file(environment.url, environment.namespace)
    address = serving.PageAddress(url, sessions.key, os.getpid())

    def ready() -> None:
        link = serving.link(url, sessions.code())
        told = {"link": link, "url": url, "read_only": made.site.settings.read_only}
        environment.data(told) if environment.as_json else environment.lines([link])
        environment.say(f"serving {environment.where}; Ctrl-C ends it")
        if opens:
            _open(link)

    try:
        serving.publish(file, address)
    except OSError as error:  # a directory that may only be read: the page works, others don't find it
        environment.say(f"{file} can't be written ({error.strerror}): --link will not find this page", "warn")
    try:
        server.serve(ready)
    finally:
        serving.withdraw(file, address)


def _open(link: str) -> None:
    """Open the browser, in the background; without one the link is enough."""
    import threading
    import webbrowser

    threading.Thread(target=webbrowser.open, args=(link,), daemon=True).start()
