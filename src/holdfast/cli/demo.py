"""`holdfast demo`: a task whose process is killed in the middle, seen from its log."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import click

import holdfast
from holdfast import App
from holdfast import events as ev
from holdfast.core import codec

AGENT = "holdfast demo"
TASK = "trip-1"
DEMO_TASKS = 2
STEPS = ["read the request", "search flights", "compare prices", "pick a flight", "draft the mail", "file the receipt"]
KILLED_AFTER = 3


@click.command()
@click.option("--store", "path", default="holdfast-demo.db", show_default=True, help="Where to keep the demo's log.")
def demo(path: str) -> None:
    """Kill a working process with SIGKILL, and see that nothing it acknowledged is gone.

    Example: holdfast demo --store /some/where/demo.db
    """
    _start_over(path)
    click.echo(f"A pretend agent works through {len(STEPS)} steps. Its log is kept in {path}.\n")
    acknowledged = _work_until_killed(path)
    with holdfast.open(path) as app:
        _show_the_wreck(app, acknowledged)
        _go_on(app)
        _look_around(app)
    click.echo("\nNext:")
    click.echo("  change the steps in src/holdfast/cli/demo.py and run it again")
    shown = f"import holdfast; print(holdfast.open({path!r}).get({TASK!r}).to_dict())"
    click.echo(f"  {shlex.quote(sys.executable)} -c {shlex.quote(shown)}")
    click.echo(f"  rm {shlex.quote(path)}*      removes everything the demo left")


def _start_over(path: str) -> None:
    """Remove what an earlier demo left, and nothing else."""
    with holdfast.open(path) as app:
        strangers = [task.id for task in app.list() if task.agent != AGENT]
        busy = [task.id for task in app.list(status="running") if task.holder and app.store.alive(task.holder)]
        many = app.stats().tasks > DEMO_TASKS
    if busy:
        raise holdfast.TaskBusy(busy[0], "another demo")
    if strangers or many:
        raise holdfast.InvalidValue(f"{path!r} holds other tasks", hint="give the demo a file of its own")
    for suffix in ("", "-wal", "-shm", "-holders"):
        Path(path + suffix).unlink(missing_ok=True)


def _work_until_killed(path: str) -> int:
    """Run the worker as a process of its own and kill it as soon as it has acknowledged a few steps."""
    command = [sys.executable, "-m", "holdfast.cli.demo", path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as worker:
        assert worker.stdout is not None
        done = 0
        for line in worker.stdout:
            click.echo(f"  worker {worker.pid}: {line.rstrip()}")
            done += 1
            if done == KILLED_AFTER:
                break
        if done < KILLED_AFTER:
            raise holdfast.StoreError(
                f"the worker ended by itself after {done} steps", hint="read what it printed above"
            )
        os.kill(worker.pid, signal.SIGKILL)
    click.secho(f"  kill -9 {worker.pid}   (in the middle of step {done + 1})\n", fg="red")
    return done


def _show_the_wreck(app: App, acknowledged: int) -> None:
    state = app.get(TASK)
    whose = f"{state.status}, but its holder is dead" if state.interrupted else state.status
    click.echo(f"The log says: task {TASK} is {whose}; stage {state.stage!r}, seq {state.seq}.")
    lost = acknowledged - len(state.steps)
    click.echo(f"  acknowledged {acknowledged} steps, found {len(state.steps)}, lost {max(lost, 0)}")
    found = app.verify(TASK)
    click.echo(f"  chain of {found.events} events: {'intact' if found.ok else found.problems[0].why}\n")


def _go_on(app: App) -> None:
    """Do what is not done yet, in this process."""
    done = len(app.get(TASK).steps)
    _work(app, pause=0.02)
    click.secho(f"Process {os.getpid()} went on: {done} steps were there, {len(STEPS) - done} ran.\n", fg="green")


def _look_around(app: App) -> None:
    for record in app.events(TASK):
        named = ("name", "stage", "holder", "key", "agent")
        what = next((getattr(record.event, one) for one in named if getattr(record.event, one, "")), "")
        click.echo(f"  {record.seq:>3}  {record.at:%H:%M:%S.%f}  {record.kind:<15} {what}".rstrip())
    earlier, step = (app.step(TASK, f"{name}#1") for name in STEPS[KILLED_AFTER - 2 : KILLED_AFTER])
    before, after = app.at(TASK, earlier.after), app.at(TASK, step.after)
    click.echo(f"\nTime travel: before {step.name!r} it knew {list(before.facts)}, after it {list(after.facts)}.")
    fork = app.fork(TASK, at=step.after, patch=holdfast.StatePatch(set={"budget": 500}))
    click.echo(
        f"Fork: {fork.id} begins after {step.name!r} with a budget of {fork.state['budget']}; {TASK} is as it was."
    )
    result = app.get(TASK).result
    click.echo(f"Done: {TASK} is {app.get(TASK).status} with {result!r}, each step recorded once.")


def _work(app: App, pause: float) -> None:
    """Walk through the steps, leaving out those the log has."""
    log = app.logs.load(TASK)
    log.claim()
    for number, name in enumerate(STEPS, start=1):
        key = f"{name}#1"
        if key in log.state.steps:
            continue
        started_us = app.clock.now_us()
        time.sleep(pause)
        log.append(
            [
                ev.StageSet(stage=name),
                ev.FactLearned(key=f"finding {number}", value=codec.pack(number * 100), source=name),
                ev.StepCompleted(key=key, name=name, result=codec.pack({"ok": True}), started_us=started_us),
            ]
        )
        if not sys.stdout.isatty() and __name__ == "__main__":
            print(f"step {number} of {len(STEPS)} done: {name}", flush=True)
    log.append([ev.TaskCompleted(result=codec.pack("flight booked"))])


if __name__ == "__main__":
    with holdfast.open(sys.argv[1]) as opened:
        if not opened.list(limit=1):
            opened.start(AGENT, {"to": "Oslo"}, id=TASK)
        _work(opened, pause=0.15)
