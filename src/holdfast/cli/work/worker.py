"""A worker at the command line: what it is to serve, what it says, and how it stops."""

from __future__ import annotations

import errno
import gc
import os
import signal
import socket
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import Any

from msgspec import Struct

from holdfast import App, Retention
from holdfast.cli.environment import Environment
from holdfast.cli.failures.refusal import INTERRUPTED
from holdfast.cli.input.agents import FoundAgents, nearest, served, split
from holdfast.cli.input.suggestions import resume_command
from holdfast.cli.show.formatting import length, times
from holdfast.cli.show.screen import Screen
from holdfast.cli.show.style import clean, cut
from holdfast.cli.work.task import warnings_on
from holdfast.core import limits
from holdfast.core.errors import InvalidValue, StoreError
from holdfast.engine.maintenance.retention import Collected
from holdfast.engine.reading import values
from holdfast.engine.telemetry.gauges import StoreGauges
from holdfast.engine.workers.health import Health, HealthAddress
from holdfast.engine.workers.worker import Worked, Worker

MOST_PROCESSES = 256
LOOK_SECONDS = 0.05
"""How often one looks whether the worker must stop."""

DRAIN_SECONDS = 0.2
"""How often one looks whether anything is left to do."""

SAY_SECONDS = 1.0
"""How long a process that is to end at once tries to say so: its reader may be stuck."""

WORDS = {
    "taken_over": "taken over",
    "quarantined": "quarantined",
    "released": "released",
    "lease_lost": "lost",
    "store_errors": "no store",
    "errors": "error",
}
TONES = {"completed": "good", "failed": "bad", "quarantined": "bad", "errors": "bad", "store_errors": "bad"}
LET_GO = ("released", "lease_lost", "store_errors", "errors")
"""What may come of a task that was worked on and neither ended nor waits."""


class ServeOptions(Struct, frozen=True, kw_only=True):
    """What was asked for."""

    target: str | None
    found: FoundAgents
    queues: tuple[str, ...]
    concurrency: int
    processes: int
    namespaces: tuple[str, ...]
    all_namespaces: bool
    health: HealthAddress | None
    grace: float
    drain: bool
    quiet: bool
    child: int | None
    gc: Retention | None
    traces: bool
    metrics: bool
    rare_gc: bool


def wanted(environment: Environment, target: str | None, **given: Any) -> ServeOptions:
    """Check the options, and refuse what can't be done before anything begins."""
    asked: dict[str, Any] = {
        **given,
        "concurrency": limits.WORKER_CONCURRENCY if given["concurrency"] is None else given["concurrency"],
    }
    asked["grace"] = values.seconds(given["grace"], "--grace")
    asked["gc"] = _retention(*(asked.pop(f"gc_{name}") for name in ("every", "older_than", "keep")))
    for name, most in (("concurrency", 100_000), ("processes", MOST_PROCESSES)):
        if not 1 <= asked[name] <= most:
            raise InvalidValue(
                f"--{name} {asked[name]} is not allowed; nothing was started", hint=f"give 1 to {most:,}"
            )
    asked["health"] = None if given["health"] is None else health_address(given["health"], asked["processes"])
    if asked["namespaces"] and asked["all_namespaces"]:
        raise InvalidValue("--namespace and --all-namespaces exclude each other", hint="give one of them")
    if asked["processes"] > 1 and environment.url.startswith("memory:"):
        raise InvalidValue(
            "each process would have a memory: store of its own; nothing was started", hint="give --store with a file"
        )
    found = served(target)
    _known_queues(target, found, asked["queues"])
    return ServeOptions(target=target, found=found, **asked)


def health_address(given: str, processes: int) -> HealthAddress:
    """Read PORT or HOST:PORT; an IPv6 address stands in brackets."""
    host, colon, port = given.rpartition(":")
    first = int(port) if port.isascii() and port.isdigit() else -1
    if not 0 <= first <= first + processes - 1 <= 65_535:
        raise InvalidValue(
            f"--health {given} is not a port for {times(processes, 'process')}; nothing was started",
            hint="give one below 65536, or 0 for any that is free; each process takes the next one",
        )
    if not colon:
        return HealthAddress(port=first)
    if not host or (":" in host and not (host.startswith("[") and host.endswith("]"))):
        raise InvalidValue(
            f"--health {given} names no host; nothing was started",
            hint="give 127.0.0.1:9100, or 0.0.0.0:9100 if other machines ask, or [::]:9100",
        )
    return HealthAddress(host.strip("[]"), first)


def _retention(every: str | None, older_than: str | None, keep: int | None) -> Retention | None:
    """What is removed on a schedule; None if nothing is."""
    if every is None and older_than is None and keep is None:
        return None
    if every is None or (older_than is None and keep is None):
        missing = "--gc-every says how often" if every is None else "--gc-older-than or --gc-keep says what may go"
        raise InvalidValue(
            f"{missing}, and is missing; nothing was started", hint="give both: --gc-every 1h --gc-older-than 30d"
        )
    if keep is not None and keep < 0:
        raise InvalidValue(f"--gc-keep {keep} is not a number of tasks; nothing was started", hint="give 0 or more")
    age = None if older_than is None else values.seconds(older_than, "--gc-older-than")
    return Retention(every=values.seconds(every, "--gc-every", above_zero=True), older_than=age, keep=keep)


def _known_queues(target: str | None, found: FoundAgents, wanted: tuple[str, ...]) -> None:
    """Refuse a queue that the file does not have, if it has any."""
    known = [one.name for one in found.queues]
    odd = next((name for name in wanted if known and name not in (*known, "default")), None)
    if odd is not None:
        raise InvalidValue(
            f"{target or 'the files of pyproject.toml'} declares no queue {odd!r}, but {', '.join(sorted(known))}; "
            "nothing was started",
            hint=f"name one of them: --queue {nearest(odd, known)}",
        )


def worker_of(app: App, wanted: ServeOptions) -> Worker:
    """The worker that was asked for."""
    return app.worker(
        list(wanted.found.agents.values()),
        queues=list(wanted.queues) or None,
        concurrency=wanted.concurrency,
        namespaces="*" if wanted.all_namespaces else list(wanted.namespaces) or None,
        schedules=wanted.found.schedules,
        gc=wanted.gc,
    )


def _drained(worker: Worker, said: WorkerReport, over: threading.Event) -> None:
    """Stop the worker when there is nothing more for it to do, seen twice in a row."""
    idle = 0
    while idle < 2 and not over.wait(DRAIN_SECONDS):
        with suppress(StoreError):
            idle = idle + 1 if worker.is_idle else 0
    said.drained = idle == 2
    worker.stop()


def opened(environment: Environment, wanted: ServeOptions) -> App:
    """The store, for the tenants that are served."""
    if wanted.all_namespaces or wanted.namespaces:
        environment.namespace = environment.namespace_source = ""
    told: dict[str, Any] = {
        "traces": wanted.traces,
        "metrics": wanted.health is not None and not wanted.health.is_public,
    }
    if wanted.metrics:
        from holdfast.tracing import Otlp

        told["metrics"] = Otlp()
    if wanted.processes > 1 and (wanted.traces or wanted.metrics):
        from holdfast.engine.telemetry.telemetry import planned

        planned(**told, logs=False)
        told = {}  # this process only looks after those that work: it checks what they will send, and sends nothing
    return environment.app(make=True, agents=wanted.found.agents.values(), queues=wanted.found.queues, telemetry=told)


def serve(environment: Environment, wanted: ServeOptions) -> None:
    """Work until a signal stops it."""
    if wanted.rare_gc:
        look_for_garbage_less_often()
    app = opened(environment, wanted)
    worker = worker_of(app, wanted)
    with ExitStack() as stack:
        health = None
        if wanted.health is not None:
            health = stack.enter_context(closing(_health(app, worker, wanted.health, wanted.child or 0)))
        screen = Screen()
        said = WorkerReport(environment, wanted, worker, screen)
        stack.enter_context(warnings_on(screen))
        stack.enter_context(screen.prints())
        worker.tell, worker.tell_collected = said.task, said.collected
        worker.at_once = said.at_once
        stack.enter_context(_stopped_by_signals(worker))
        said.began(health)
        over = threading.Event()
        threading.Thread(target=_watch, args=(worker, said, wanted, over), name="holdfast-stop", daemon=True).start()
        if wanted.drain:
            threading.Thread(target=_drained, args=(worker, said, over), name="holdfast-drain", daemon=True).start()
        try:
            worker.run()
        finally:
            over.set()
    said.ended()


def look_for_garbage_less_often() -> None:
    """Leave what is loaded by now out of it, and let more objects come before each look.

    Live tasks are many objects that stay. Python's collector goes through them again and again: with 8,000 of them,
    that is a third of all CPU time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(limits.GC_OBJECTS, limits.GC_GENERATIONS, limits.GC_GENERATIONS)


@contextmanager
def _stopped_by_signals(worker: Worker) -> Generator[None, None, None]:
    """From the first word on, a signal means a stop, also before the worker handles signals itself."""
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.signal(number, lambda number, frame: worker.stop()) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def refuse_taken_ports(wanted: ServeOptions) -> None:
    """Look, before the first of several processes begins, whether each of them will have its port."""
    first = wanted.health
    if first is None or not first.port:
        return
    for number in range(wanted.processes):
        address = _address_of(first, number)
        try:
            family, where = address.resolved()
            with socket.socket(family) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(where)
        except OSError as error:
            raise _taken(address, error) from None


def _address_of(first: HealthAddress, number: int) -> HealthAddress:
    """Return the address of one of several processes: each has the next port."""
    return first.at(first.port + number if first.port else 0)


def _taken(address: HealthAddress, error: OSError) -> InvalidValue:
    shown = f"--health {address.port if address.host == '127.0.0.1' else address.url.removeprefix('http://')}"
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        return InvalidValue(
            f"{shown}: {address.host} is not an address of this machine: {error.strerror}; nothing was started",
            hint=f"give 0.0.0.0:{address.port} for all its addresses, or {address.port} for this machine alone",
        )
    return InvalidValue(
        f"{shown}: the port is not free: {error.strerror}; nothing was started",
        hint="give another one, or 0 for any that is free",
    )


def _health(app: App, worker: Worker, first: HealthAddress, number: int) -> Health:
    address = _address_of(first, number)
    measured = (lambda: ()) if app.telemetry is None else app.telemetry.metrics
    try:
        return Health(worker, StoreGauges(app.logs, worker.plan.namespaces), address, measured)
    except OSError as error:
        raise _taken(address, error) from None


def _watch(worker: Worker, said: WorkerReport, wanted: ServeOptions, over: threading.Event) -> None:
    """Stop when the process that started this one is gone, and end at once what does not stop in time."""
    if wanted.child is not None:
        threading.Thread(target=_stop_with_parent, args=(worker,), name="holdfast-parent", daemon=True).start()
    while not worker.stopping:
        if over.wait(LOOK_SECONDS):
            return
    said.stopping()
    if not over.wait(wanted.grace):
        said.at_once(0)


def _stop_with_parent(worker: Worker) -> None:
    """Stdin is a pipe of the process that started us: it ends when that wants us to stop, or is gone."""
    while os.read(0, 4096):
        pass
    worker.stop()


class WorkerReport:
    """Reports of a worker: lines for people, or JSON Lines, or one document at the end."""

    def __init__(self, environment: Environment, wanted: ServeOptions, worker: Worker, screen: Screen) -> None:
        self._place, self._wanted, self._worker, self._screen = environment, wanted, worker, screen
        self.drained = False
        self._guard = threading.RLock()
        self._began = time.monotonic()
        self._who = f"[{wanted.child}] " if wanted.child is not None else ""

    def began(self, health: Health | None) -> None:
        """Say what is served, and where."""
        plan = self._worker.plan
        tenants = "*" if plan.namespaces is None else [one for one in plan.namespaces if one]
        facts: dict[str, Any] = {
            "store": self._place.shown,
            "agents": [agent.name for agent in plan.agents],
            "queues": [queue.name for queue in plan.queues],
            "namespaces": tenants,
            "schedules": [one.name for one in plan.schedules],
            "gc": None
            if plan.gc is None
            else {"every": plan.gc.every, "older_than": plan.gc.older_than} | {"keep": plan.gc.keep},
            "concurrency": plan.concurrency,
            "health": None if health is None else health.url,
            "worker": self._worker.name,
        }
        self._json({"event": "started", **facts})
        told = [f"worker {self._worker.name} on {self._place.where}"]
        told += [f"{name} {', '.join(facts[name])}" for name in ("agents", "queues", "schedules") if facts[name]]
        told += [f"namespaces {', '.join(tenants)}"] if tenants else []
        told += [] if plan.gc is None else [f"gc every {length(int(values.seconds(plan.gc.every) * 1_000_000))}"]
        told += [f"concurrency {plan.concurrency}", *([] if health is None else [f"health {facts['health']}"])]
        told += (
            ["/livez and /readyz only, as other machines can ask"] if health is not None and health.is_public else []
        )
        for line in wrapped(told, " · ", self._screen.style.width):
            self._line(line, "dim")
        if link := self._place.page_link():
            self._line(f"on the page: {link}", "dim")

    def task(self, done: Worked) -> None:
        """Say what came of a task."""
        told = {"task": done.id, "agent": done.agent, "outcome": done.outcome, "why": done.why}
        self._json({"event": "task", "namespace": done.namespace, **told, "seconds": round(done.seconds, 3)})
        if self._wanted.quiet:
            return
        word = WORDS.get(done.outcome, done.outcome)
        tenant = f"{done.namespace}: " if done.namespace else ""
        took = "" if done.outcome == "taken_over" else f"  {length(int(done.seconds * 1_000_000))}"
        why = f"  for {done.why}" if done.outcome == "waiting" and done.why else f"  {done.why}" if done.why else ""
        named = f"{tenant}{done.id}" + (f" ({done.agent})" if done.agent else "")
        whole = f"{word:<10} {clean(named)}{took}{clean(why)}"
        width = self._screen.style.width
        self._line(cut(whole, width - len(self._who) if width else 0), TONES.get(done.outcome, "plain"))
        if done.outcome == "quarantined":
            path = split(self._wanted.target or "")[0]
            target = f"{path}:{done.agent}" if path and done.agent else path or None
            resume = resume_command(done.id, target, self._place.options)
            self._line(f"{'':<10} {resume}   when it is fixed")

    def collected(self, found: Collected) -> None:
        """Say what was removed, when it was this worker's turn."""
        counts = {"tasks": found.tasks, "snapshots": found.snapshots, "kept_for_forks": found.kept_for_forks}
        self._json({"event": "gc", **counts})
        if not self._wanted.quiet:
            kept = f"; {found.kept_for_forks} kept for their forks" if found.kept_for_forks else ""
            self._line(f"{'gc':<10} removed {times(found.tasks, 'task')}{kept}", "dim")

    def stopping(self) -> None:
        """Say that no more tasks are taken."""
        busy = times(self._worker.busy, "task")
        self._json({"event": "stopping", "busy": self._worker.busy})
        if self.drained:
            self._line("nothing is left to do")
            return
        more = "; Ctrl-C again ends at once" if self._wanted.child is None else ""
        self._line(f"stopping after the steps under way ({busy}){more}", "warn")

    def at_once(self, number: int) -> None:
        """End the process there and then. The operating system releases what shows that it lives."""
        why = f"a second {signal.Signals(number).name}" if number else f"--grace {self._wanted.grace:g}s is over"
        busy = self._worker.busy
        late = threading.Timer(SAY_SECONDS, os._exit, (INTERRUPTED,))
        late.daemon = True
        late.start()
        try:
            self._json({"event": "ended", "why": why, "held": busy})
            self._line(f"ended at once: {why}; {times(busy, 'task')} held, which others take over", "bad")
        finally:
            os._exit(INTERRUPTED)

    def ended(self) -> None:
        """Say what was done in all."""
        counts = self._worker.counts.all()
        took = length(int((time.monotonic() - self._began) * 1_000_000))
        facts = {"event": "stopped", "worker": self._worker.name, "held": self._worker.busy, "counts": counts}
        self._json(facts)
        if self._place.as_json:
            self._place.data(facts)
        self._line(f"stopped after {took}: {_summary(counts)}; all released", "good")

    def _line(self, text: str, tone: str = "plain") -> None:
        """A line for people, on stderr."""
        if self._place.for_programs:
            return
        with suppress(OSError):  # if the reader has left, tasks continue all the same
            self._screen.line(f"{self._screen.clock()}{self._who}{self._screen.style.paint(text, tone)}")

    def _json(self, facts: dict[str, Any]) -> None:
        """A line for programs, on stdout."""
        if not self._place.jsonl:
            return
        with self._guard, suppress(OSError, ValueError):
            self._place.data({**facts, "pid": os.getpid()})


def _summary(counts: dict[str, int]) -> str:
    """Count the tasks by their outcome."""
    let_go = sum(counts[name] for name in LET_GO)
    told = [f"{counts[name]:,} {name}" for name in ("completed", "failed", "cancelled", "waiting") if counts[name]]
    told += [f"{let_go:,} released"] if let_go else []
    told += [f"{counts['quarantined']:,} quarantined"] if counts["quarantined"] else []
    return f"{times(counts['claimed'], 'task')} worked on" + (f" ({', '.join(told)})" if told else "")


def wrapped(parts: Sequence[str], between: str, width: int) -> list[str]:
    """Parts in as few lines as fit; a width of 0 has no end.

    >>> wrapped(["agents a, b", "queues c"], " · ", 16), wrapped(["a", "b"], ", ", 0)
    (['agents a, b', 'queues c'], ['a, b'])
    """
    lines: list[str] = []
    for part in parts:
        if lines and (not width or len(lines[-1]) + len(between) + len(part) <= width):
            lines[-1] += between + part
        else:
            lines.append(part)
    return lines
