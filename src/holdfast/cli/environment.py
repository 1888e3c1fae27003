"""What a command works with: the store it was given and where that came from, its agents, its ways of printing."""

from __future__ import annotations

import glob
import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.show.style import Style, clean, err_look, escaped, fold, is_terminal, out_look, tame
from holdfast.core.errors import HoldfastError, InvalidValue, MissingExtra, NotAStore, StoreReadOnly, TaskNotFound

if TYPE_CHECKING:
    from holdfast import Agent, App, Queue, Webhook

DEFAULT = "holdfast.db"
LAST = "@last"


class Environment:
    """The surroundings of one command."""

    def __init__(
        self,
        store: str | None,
        *,
        namespace: str | None = None,
        as_json: bool = False,
        jsonl: bool = False,
        debug: bool = False,
        looks: bool = False,
    ) -> None:
        """`looks` says that nothing is to be written: then a file that can only be read will do."""
        self.url, self.source = store_of(store)
        self.namespace, self.namespace_source = namespace_of(namespace)
        self.as_json, self.jsonl, self.debug, self.looks = as_json, jsonl, debug, looks
        self.style: Style = out_look()
        self.out: Any = None  # stdout as it is, or what was set apart for data
        self._open, self._streams = ExitStack(), ExitStack()
        self._app: App | None = None
        self.agents: tuple[Agent, ...] = ()

    @property
    def where(self) -> str:
        """The store and why it is this one, without its password."""
        tenant = f", namespace {self.namespace} ({self.namespace_source})" if self.namespace else ""
        return f"{self.shown} ({self.source}){tenant}"

    @property
    def shown(self) -> str:
        """The store's address, without its password."""
        return clean(redacted(self.url))

    @property
    def options(self) -> str:
        """The options that the next command needs in order to find the same tasks."""
        usual = self.url == DEFAULT and not os.environ.get("HOLDFAST_URL")
        told = {"--store": redacted(self.url)} if self.source == "--store" and not usual else {}
        told |= {"--namespace": self.namespace} if self.namespace_source == "--namespace" else {}
        if not told:
            return ""
        from holdfast.cli.show.formatting import quoted

        return " ".join(f"{name} {quoted(value)}" for name, value in told.items())

    def app(
        self,
        *,
        make: bool = False,
        agents: Iterable[Agent] = (),
        queues: Iterable[Queue] = (),
        webhook: Webhook | None = None,
        url: str | None = None,
        telemetry: Mapping[str, Any] | None = None,
    ) -> App:
        """The store, opened once. One that is not there is made only by a command that is to `make` it.

        `url`: the same store with other options of its address.
        """
        if self._app is None:
            import holdfast

            self.agents = tuple(agents)
            if not make:
                self.refuse_missing()
            try:
                app = holdfast.open(
                    url or self.url,
                    agents=self.agents,
                    queues=tuple(queues),
                    namespace=self.namespace,
                    webhook=webhook,
                    **(telemetry or {}),
                )
            except StoreReadOnly:
                if not self.looks or self.path is None:
                    raise
                app = holdfast.open(self.url, namespace=self.namespace, read_only=True, webhook=webhook)
            self._app = self._open.enter_context(app)
        return self._app

    def tenant(self, namespace: str) -> App:
        """The store of `app` once more, for a tenant."""
        import holdfast

        try:
            app = holdfast.open(self.url, agents=self.agents, namespace=namespace)
        except StoreReadOnly:
            app = holdfast.open(self.url, namespace=namespace, read_only=True)
        return self._open.enter_context(app)

    @property
    def path(self) -> str | None:
        """The file of a store that is one."""
        from holdfast.engine.reading.values import path_of

        return path_of(self.url)

    def page_link(self, id: str = "") -> str | None:
        """The address of a task, or of the workers, on the page of this store, if one is up; else None.

        The page's code is loaded only if one seems to be up.
        """
        cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        if not os.path.exists(f"{cache}/holdfast" if self.path is None else self.path):
            return None
        if self.path is not None and not glob.glob(f"{glob.escape(self.path)}-page*"):
            return None
        with suppress(MissingExtra):
            from holdfast.web import serving

            return serving.task_link(self.url, self.namespace, id)
        return None

    def refuse_missing(self) -> None:
        """A command that only looks makes no store. Name the stores that lie beside the one that is missing."""
        missing = not os.path.exists(self.path) if self.path is not None else self._is_empty_server()
        if not missing:
            return
        beside = [] if self.path is None else stores_beside(self.path)
        hint = "`holdfast run` creates one; --store or HOLDFAST_URL names another one"
        if beside:
            from holdfast.cli.show.formatting import quoted

            named = ", ".join(beside[:MOST_BESIDE])
            more = f" and {len(beside) - MOST_BESIDE} more" if len(beside) > MOST_BESIDE else ""
            hint = f"stores in that folder: {named}{more}; to look into one: holdfast list --store {quoted(beside[0])}"
        raise NotAStore(f"there is no store at {redacted(self.url)!r}; nothing was written", hint=hint)

    def _is_empty_server(self) -> bool:
        """Return whether it is a database without our schema: a command that only reads must not add one."""
        from holdfast.engine.reading.schema import schema_of
        from holdfast.engine.reading.values import is_server

        if not is_server(self.url):
            return False

        return schema_of(self.url, None).found == 0

    def close_store(self) -> None:
        """Close the store."""
        self._open.close()

    def close(self) -> None:
        """Close the store and the streams."""
        self.close_store()
        self._streams.close()

    def task(self, id: str) -> str:
        """The id of a task: as given, or the newest one without a parent."""
        if id != LAST:
            return id
        after: str | None = None
        while page := self.app().list(after=after, limit=100):
            for row in page:
                if row.parent is None:
                    return row.id
            after = page[-1].id
        raise TaskNotFound(LAST)

    def suggesting(self, error: TaskNotFound) -> TaskNotFound:
        """An error about an id that is not there, with the one that may have been meant."""

        return error if self._app is None else suggesting(error, self._app)

    # Printing

    def runs_agents(self) -> None:
        """From now on the user's code is executed, which may print: stdout is set apart for data."""
        from holdfast.cli.streams import apart

        self.out = self._streams.enter_context(apart())

    @property
    def for_programs(self) -> bool:
        """True if stdout is read by a program."""
        return self.as_json or self.jsonl

    def data(self, value: Any) -> None:
        """One document on stdout, for programs."""
        from holdfast.engine.reading import values

        self.json(values.text(value))

    def json(self, text: str) -> None:
        """JSON on stdout: as it is for a program, without what steers a terminal where there is one."""
        shown = escaped(text) if is_terminal(sys.stdout if self.out is None else self.out) else text
        click.echo(shown, file=self.out)

    def lines(self, lines: Iterable[str]) -> None:
        """Text on stdout, for people: folded between words where there is a terminal."""
        for line in lines:
            for part in tame(line).split("\n"):
                for folded in fold(part, self.style.width):
                    click.echo(folded, file=self.out, color=True)

    def rows(self, found: Iterable[Mapping[str, Any]]) -> None:
        """The same rows for programs: one document, or one line each."""
        if self.jsonl:
            for row in found:
                self.data(row)
        else:
            self.data(list(found))

    def say(self, text: str, tone: str = "plain") -> None:
        """Something beside the data, on stderr, if it can be written."""
        style = err_look()
        with suppress(OSError):  # a full disk too
            for line in tame(text).split("\n"):
                for part in fold(line, style.width):
                    click.echo(style.paint(part, tone), err=True, color=True)

    def say_store(self) -> None:
        """Say which store is used."""
        self.say(f"store: {self.where}", "dim")

    def may(self, question: str, doing: str, *, yes: bool) -> None:
        """Ask before something is taken away; without a terminal there is no one to ask, so `--yes` is needed."""
        if yes:
            return
        if not sys.stdin.isatty():
            raise InvalidValue(
                f"{doing} needs confirmation, and there is no terminal; nothing was written", hint="add --yes"
            )
        try:
            agreed = click.confirm(question, err=True)
        except click.Abort:
            self.say("\nNothing was written.")
            raise
        if not agreed:
            self.say("Nothing was written.")
            raise click.exceptions.Exit(1)


def store_of(given: str | None) -> tuple[str, str]:
    """The address of the store, and where it was found."""
    if given is not None:
        if not given:
            raise click.UsageError("--store is empty: give a path or an address, or leave it out")
        return given, "--store"
    if os.environ.get("HOLDFAST_URL"):
        return os.environ["HOLDFAST_URL"], "HOLDFAST_URL"
    return DEFAULT, "the default"


MOST_BESIDE = 5
"""Number of stores named beside a missing one."""

LOOKED_INTO = 50
"""Number of files beside a missing store that are looked into."""


def stores_beside(path: str) -> list[str]:
    """Holdfast's files in the folder of a missing store, last changed first; each as it can be typed."""
    from holdfast.engine.reading.schema import schema_of

    folder, stores = os.path.dirname(path), list[str]()
    try:
        with os.scandir(folder or os.curdir) as found:
            files = [(one.stat().st_mtime_ns, one.name) for one in found if one.is_file()]
    except OSError:  # the folder is missing too, or may not be read
        return []
    for _, name in sorted((one for one in files if one[1].endswith((".db", ".sqlite"))), reverse=True)[:LOOKED_INTO]:
        beside = os.path.join(folder, name)
        with suppress(HoldfastError, OSError):  # another program's file, or a damaged one
            stores += [beside] if schema_of(beside, beside).found else []
    return stores


def namespace_of(given: str | None) -> tuple[str, str]:
    """The tenant whose tasks are meant, and where it was set; none if it was not."""
    if given:
        return given, "--namespace"
    named = os.environ.get("HOLDFAST_NAMESPACE", "")
    return named, "HOLDFAST_NAMESPACE" if named else ""


def is_same(url: str, other: str) -> bool:
    """Return whether two addresses are, for all one can see, of the same store."""
    from holdfast.engine.reading.values import path_of

    paths = path_of(url), path_of(other)
    if None in paths:
        return url == other and not url.startswith("memory:")
    return os.path.realpath(str(paths[0])) == os.path.realpath(str(paths[1]))


def redacted(url: str) -> str:
    """An address without its password.

    >>> redacted("postgresql://app:geheim@db:5432/agents")
    'postgresql://app:***@db:5432/agents'
    """
    from holdfast.engine.reading.values import urls

    return urls.shown(url)


def whoami() -> str:
    """Return the person who types: HOLDFAST_BY, or the login name."""
    if os.environ.get("HOLDFAST_BY"):
        return os.environ["HOLDFAST_BY"]
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return ""


LOOKED_AT = 1000
"""How many of the newest tasks are compared."""


def suggesting(error: TaskNotFound, app: App) -> TaskNotFound:
    """The same error; its remedy names the id that is most like the one that was not found."""
    import difflib

    wanted = str(error.details.get("id", ""))
    try:
        close = difflib.get_close_matches(wanted, [row.id for row in app.list(limit=LOOKED_AT)], 1)
    except HoldfastError:  # the store has just gone: nothing can be added
        return error
    if close:
        error.hint = f"did you mean {close[0]}?"
    return error
