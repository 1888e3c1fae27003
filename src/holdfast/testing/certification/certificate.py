"""Everything a server is asked to show, line by line, and the verdict."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Callable
from typing import Literal

from msgspec import Struct

import holdfast
from holdfast.core import codec
from holdfast.core.errors import HoldfastError
from holdfast.core.urls import shown
from holdfast.engine.logs.addresses import is_server
from holdfast.testing.certification import storm, suite
from holdfast.testing.certification.place import NoRight, TrialServer, Unreachable
from holdfast.testing.crash.everywhere import CrashFailed, crash_everywhere
from holdfast.testing.crash.world import World

CRASH_POINTS = 60
KILLS = 8
SHOWN = 5
"""How many failures of one kind are described."""


class Line(Struct, frozen=True):
    """One thing that was tried: whether it holds, what was seen, and what failed."""

    what: str
    level: Literal["ok", "fail"]
    text: str
    failures: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [f"{self.level:<5} {self.what:<26} {self.text}", *(f"        {one}" for one in self.failures[:SHOWN])]
        if len(self.failures) > SHOWN:
            lines.append(f"        and {len(self.failures) - SHOWN} more: --json lists all")
        return "\n".join(lines)


class Certificate(Struct, frozen=True):
    """What one server showed."""

    url: str
    server: str
    holdfast: str
    only: str
    """The text in the names of the conformance tests that were run; empty if all were."""

    holds: bool
    seconds: float
    lines: tuple[Line, ...]


def certify(url: str, tell: Callable[[Line], object], *, only: str = "") -> Certificate:
    """Try everything on a server, in schemas that are made for it and dropped; `tell` gets each line as it comes.

    `only`: run the conformance tests whose names contain this text. Default: all.
    """
    began, lines = time.monotonic(), list[Line]()

    def note(line: Line) -> None:
        lines.append(line)
        tell(line)

    server = TrialServer(url)
    version = server.version()
    note(Line("server", "ok", version))
    try:
        if _opens(server, note):
            _try_all(server, only, note)
    except KeyboardInterrupt:
        server.drop_left()
        raise
    left = server.left()
    note(Line("left behind", "fail" if left else "ok", ", ".join(left) or "every schema that was made is dropped"))
    holds = all(one.level == "ok" for one in lines)
    seconds = round(time.monotonic() - began, 1)
    return Certificate(shown(url), version, holdfast.__version__, only, holds, seconds, tuple(lines))


def _try_all(server: TrialServer, only: str, note: Callable[[Line], None]) -> None:
    """Run the conformance suite, then kill agents and workers."""
    for part in suite.run(server, only):
        count = part.passed + len(part.failed)
        failures = tuple(f"{name}: {why}" for name, why in part.failed.items())
        text = f"{part.passed} of {count} tests passed"
        note(Line(f"conformance: {part.name}", "fail" if failures else "ok", text, failures))
    note(_crashes(server))
    note(_stormed("living workers", server, storm.living))
    note(_stormed("killed workers", server, lambda at: storm.killed(at, KILLS)))


def _opens(server: TrialServer, note: Callable[[Line], None]) -> bool:
    """Return whether a store can be made there at all."""
    try:
        with server.store() as url:
            holdfast.open(url).close()
    except NoRight:
        raise
    except (HoldfastError, *Unreachable) as error:
        note(Line("schema", "fail", "no store can be made", (str(error).strip(),)))
        return False
    note(Line("schema", "ok", "a store can be made"))
    return True


def _crashes(server: TrialServer) -> Line:
    """Kill an agent at many points, each in a process of its own."""
    with World() as world, server.store() as url:
        agent = storm.payer(world, 0)
        try:
            report = crash_everywhere(agent, {"count": 4}, world=world, store=url, mode="kill", sample=CRASH_POINTS)
        except CrashFailed as failed:
            why = tuple(str(one) for one in failed.failures)
            return Line("crash points", "fail", f"{len(why)} points were not survived", why)
        except (HoldfastError, *Unreachable) as error:
            return Line("crash points", "fail", "they could not be tried", (str(error).strip(),))
    return Line("crash points", "ok", f"{report.survived} faults survived, {report.duplicates} payments twice")


def _stormed(what: str, server: TrialServer, tried: Callable[[str], tuple[str, list[str]]]) -> Line:
    try:
        with server.store() as url:
            text, failures = tried(url)
    except (HoldfastError, *Unreachable) as error:
        return Line(what, "fail", "it could not be tried", (str(error).strip(),))
    return Line(what, "fail" if failures else "ok", text, tuple(failures))


def main(arguments: list[str] | None = None) -> int:
    """Certify a server from the command line: 0 if everything holds, 1 if not, 2 without a verdict."""
    parser = argparse.ArgumentParser(
        prog="python -m holdfast.testing",
        description="Certify a server for Holdfast: conformance suite, crash points, killed workers, auditor. "
        "It makes schemas named holdfast_certify_… and drops them; it touches nothing else. Takes some minutes.",
    )
    parser.add_argument("url", help="postgresql://…, without schema=; may have presence=lease and wakeups=poll")
    parser.add_argument("--json", action="store_true", help="print the certificate as one JSON object")
    parser.add_argument("--only", default="", metavar="TEXT", help="run only conformance tests with TEXT in their name")
    chosen = parser.parse_args(arguments)
    if not is_server(chosen.url):
        parser.error(f"{chosen.url!r} is not the address of a server: postgresql://…")
    logging.getLogger("holdfast").setLevel(logging.CRITICAL)  # workers die here on purpose
    try:
        done = certify(
            chosen.url, (lambda line: None) if chosen.json else lambda line: print(line, flush=True), only=chosen.only
        )
    except HoldfastError as error:
        return _untried(error.message, error.hint)
    except Unreachable as error:
        return _untried(str(error).strip())
    except KeyboardInterrupt:
        print("interrupted: the schemas that were made are dropped, and there is no verdict", file=sys.stderr)
        return 130
    if chosen.json:
        print(codec.dump(done).decode())
    else:
        verdict = "holds" if done.holds else "does not hold"
        partly = f"; of the conformance suite only tests with {done.only!r} in their name were run" if done.only else ""
        print(f"{done.url}: {verdict} ({done.seconds:.0f} s){partly}")
    return 0 if done.holds else 1


def _untried(why: str, hint: str = "") -> int:
    """Say why there is no verdict."""
    print(f"error: {why}", *([f"help: {hint}"] if hint else []), sep="\n", file=sys.stderr)
    return 2
