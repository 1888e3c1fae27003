"""Several processes that work, and one that looks after them: starts those that die anew, and ends with them.

Each has a pipe of ours as its stdin. When that is closed, because we want it or because we are gone, it stops.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import click

from holdfast.cli.environment import Environment
from holdfast.cli.failures.refusal import INTERRUPTED, USAGE
from holdfast.cli.show.formatting import times
from holdfast.cli.work import worker
from holdfast.cli.work.worker import ServeOptions
from holdfast.engine.reading import values

LOOK_SECONDS = 0.05
LEAST_PAUSE, MOST_PAUSE = 0.2, 30.0
"""How long one waits before a process is started anew that died at once, the first time and at the most."""

STEADY_SECONDS = 30.0
"""A process that lived so long died of something new."""

SPARE_SECONDS = 5.0
"""How much longer than its grace a process gets to end by itself."""


Say = Callable[[str, str], None]


def _nothing(text: str, tone: str) -> None:
    """Programs hear of it from the processes."""


class WorkerProcess:
    """One process of several."""

    def __init__(self, number: int, arguments: list[str], out: Any) -> None:
        """Write lines to `out`; without one they are kept."""
        self.number = number
        self.pause, self.due, self.starts, self.done = LEAST_PAUSE, 0.0, 0, False
        self.told: list[dict[str, Any]] = []
        self._arguments, self._out = arguments, out
        self._reader: threading.Thread | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self._since = 0.0

    def start(self) -> None:
        """Begin, in a process group of its own: what a terminal sends to all is passed on by us alone."""
        command = [sys.executable, "-m", "holdfast", "worker", *self._arguments, "--child", str(self.number)]
        out = subprocess.PIPE if self._out is None else self._out
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, process_group=0)
        self.starts, self._since = self.starts + 1, time.monotonic()
        if self._out is None:
            self._reader = threading.Thread(target=self._read, args=(self.process,), daemon=True)
            self._reader.start()

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        for line in process.stdout.read().splitlines():
            self.told.append(values.load(line, dict[str, Any]))

    def stop(self) -> None:
        """Ask it to stop."""
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()

    def kill(self) -> None:
        """End it at once."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()

    def died(self) -> int | None:
        """Record an exit code, once. The process begins again after a pause that grows."""
        if self.process is None or self.process.poll() is None:
            return None
        code, self.process = self.process.returncode, None
        self.pause = LEAST_PAUSE if time.monotonic() - self._since > STEADY_SECONDS else self.pause
        self.due, self.pause = time.monotonic() + self.pause, min(MOST_PAUSE, self.pause * 2)
        return code

    def collect(self) -> None:
        """Wait for its last lines."""
        if self._reader is not None:
            self._reader.join(SPARE_SECONDS)


def supervise(environment: Environment, wanted: ServeOptions) -> None:
    """Start the processes, start anew those that die, and end when all have ended."""
    worker.worker_of(worker.opened(environment, wanted), wanted)  # what is wrong with it is reported once, here
    worker.refuse_taken_ports(wanted)
    where = environment.where
    environment.close_store()
    out = None if environment.as_json else environment.out
    children = [WorkerProcess(n, _arguments(environment, wanted), out) for n in range(wanted.processes)]
    say: Say = _nothing if environment.for_programs else environment.say
    say(f"{times(wanted.processes, 'process')} on {where}", "dim")
    try:
        with _signals() as seen:
            odd = _look_after(children, wanted, seen, say)
            code = _end(children, wanted, seen, say) or odd
    finally:
        for child in children:
            child.kill()
    if environment.as_json:
        environment.data({"event": "stopped", "processes": [one for child in children for one in child.told]})
    if code:
        raise click.exceptions.Exit(code)


def _arguments(environment: Environment, wanted: ServeOptions) -> list[str]:
    """The same, for each process."""
    given = [] if wanted.target is None else [wanted.target]
    given += ["--store", environment.url] if environment.source == "--store" else []  # the environment is theirs too
    given += ["--concurrency", str(wanted.concurrency), "--grace", f"{wanted.grace:f}s"]
    given += [part for name in wanted.queues for part in ("--queue", name)]
    given += [part for name in wanted.namespaces for part in ("--namespace", name)]
    given += ["--health", wanted.health.url.removeprefix("http://")] if wanted.health is not None else []
    if wanted.gc is not None:
        given += ["--gc-every", f"{wanted.gc.every}s"]
        given += [] if wanted.gc.older_than is None else ["--gc-older-than", f"{wanted.gc.older_than}s"]
        given += [] if wanted.gc.keep is None else ["--gc-keep", str(wanted.gc.keep)]
    flags = {"--all-namespaces": wanted.all_namespaces, "--quiet": wanted.quiet, "--debug": environment.debug}
    flags |= {"--json": environment.as_json, "--jsonl": environment.jsonl, "--drain": wanted.drain}
    flags |= {"--traces": wanted.traces, "--metrics": wanted.metrics, "--no-rare-gc": not wanted.rare_gc}
    return [*given, *(name for name, on in flags.items() if on)]


@contextmanager
def _signals() -> Generator[list[int], None, None]:
    """The signals that came; taken note of, and nothing else."""
    seen: list[int] = []
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.signal(number, lambda number, frame: seen.append(number)) for number in numbers}
    try:
        yield seen
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _look_after(children: list[WorkerProcess], wanted: ServeOptions, seen: list[int], say: Say) -> int:
    """Until a signal comes, or all are done: start what is due. Gives an exit code if they cannot work at all."""
    while not seen and not all(child.done for child in children):
        for child in children:
            code = child.died()
            if code == USAGE and child.starts == 1:
                return code  # it has reported why, and would do so again
            child.done = child.done or (wanted.drain and code == 0)
            if child.done:
                continue
            if code is not None:
                after = f"in {child.due - time.monotonic():.1f} s"
                say(f"process {child.number} {ended(code)}; it is started again {after}", "warn")
            if child.process is None and time.monotonic() >= child.due:
                child.start()
        time.sleep(LOOK_SECONDS)
    return 0


def _end(children: list[WorkerProcess], wanted: ServeOptions, seen: list[int], say: Say) -> int:
    """Let all of them stop; end those that do not."""
    for child in children:
        child.stop()
    until = time.monotonic() + wanted.grace + SPARE_SECONDS
    running = [child for child in children if child.process is not None]
    codes: list[int] = []
    while running:
        codes += [code for child in running if (code := child.died()) is not None]
        running = [child for child in running if child.process is not None]
        if running and (len(seen) > 1 or time.monotonic() > until):
            say(f"ended at once: {times(len(running), 'process')}; what they held, others take over", "bad")
            return INTERRUPTED
        time.sleep(LOOK_SECONDS)
    for child in children:
        child.collect()
    say(f"stopped: {times(wanted.processes, 'process')}", "good")
    return next((INTERRUPTED for code in codes if code), 0)


def ended(code: int) -> str:
    """Describe how a process ended.

    >>> ended(-9), ended(5)
    ('was killed by SIGKILL', 'ended with 5')
    """
    if code >= 0:
        return f"ended with {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
