"""`holdfast demo`: an agent is killed at the worst moment, started again, and what it did in the world is counted."""

from __future__ import annotations

import shlex
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import click

import holdfast
from holdfast import App
from holdfast.cli.command import Command
from holdfast.cli.demo import agent as demo_agent
from holdfast.cli.demo.files import cleared
from holdfast.cli.demo.page import WatchedPage, watched
from holdfast.cli.demo.story import Say, Story, timeline
from holdfast.cli.demo.world import DemoWorld
from holdfast.cli.failures.refusal import refusing
from holdfast.cli.show.formatting import times
from holdfast.cli.show.style import Style, out_look
from holdfast.engine.reading import values

TASK = demo_agent.TASK
AGENT_FILE = demo_agent.__file__
LOOK_EVERY_SECONDS = 0.02
PATIENCE_SECONDS = 30.0


@click.command(cls=Command)
@click.option("--store", "path", default="holdfast-demo.db", show_default=True, help="The demo's store, a file.")
@click.option("--json", "as_json", is_flag=True, help="Print what happened as one JSON document.")
@click.option("--ui", "with_page", is_flag=True, help="Watch it on the page, at a slower pace; Ctrl-C ends it.")
@click.option("--no-open", is_flag=True, help="With --ui: print the link, and open no browser.")
@click.pass_context
def demo(ctx: click.Context, path: str, as_json: bool, with_page: bool, no_open: bool) -> None:
    """Kill an agent with SIGKILL after it charged a card, and see that it is charged once.

    Needs no API key and no network, and takes three seconds. The store of an earlier demo is replaced.

    Example: holdfast demo --ui --store /some/where/demo.db
    """
    style = out_look()
    ctx.color = style.colour
    if ctx.get_parameter_source("path") is click.core.ParameterSource.DEFAULT:
        before: dict[str, str | None] = ctx.find_root().obj or {}
        path = before.get("store") or path
    say: Say = (lambda line: None) if as_json else click.echo
    with ExitStack() as stack:
        stack.enter_context(refusing(as_json=as_json))
        world, app = stack.enter_context(cleared(path)), stack.enter_context(holdfast.open(path))
        page = stack.enter_context(watched(path, opens=not no_open)) if with_page else None
        began = time.monotonic()
        say("An agent handles an order in nine steps. It charges a card, and it is killed before it can")
        say("write that down. Then it is started again.\n")
        say(f"  the agent  {_short(AGENT_FILE)}\n  its log    {path}")
        say(f"  the world  {path}-world, what a pretend bank and mail server have seen")
        story = Story(app, TASK, say, style)
        ends = _work_twice(app, path, story, world, say, page)
        facts = _facts(app, path, story, world, ends) | {"seconds": round(time.monotonic() - began, 3)}
        if as_json:
            click.echo(values.text(facts))
        else:
            _conclude(app, path, facts, style)
        if page is not None:
            with suppress(KeyboardInterrupt):  # from the moment in which it says so
                say("\nThe page stays up until Ctrl-C.")
                page.wait()
    if not (facts["once"] and facts["intact"]):
        ctx.exit(1)


# The two processes


def _work_twice(
    app: App, path: str, story: Story, world: DemoWorld, say: Say, page: WatchedPage | None
) -> list[dict[str, Any]]:
    """Let a process work until it is killed, and another one continue; return how each ended."""
    pace = [] if page is None else ["--slow"]
    first = _work(app, [path, "--crash", *pace], story, say, "works on it", page)
    if first["returncode"] != -signal.SIGKILL:
        raise _odd_end(first)
    killed = f"Process {first['pid']} was killed with SIGKILL (return code {first['returncode']})"
    say(story.style.paint(f"{killed}: after the charge, before it was recorded.", "bad"))
    say(f"     the bank has {times(world.count('charge'), 'charge')}; the log has an announcement, and no outcome")
    if page is not None:
        page.pause()
    second = _work(app, [path, *pace], story, say, "runs the same file, on the same task")
    if second["returncode"] != 0 or app.get(TASK).status != "completed":
        raise _odd_end(second)
    return [first, second]


def _work(
    app: App, arguments: list[str], story: Story, say: Say, how: str, page: WatchedPage | None = None
) -> dict[str, Any]:
    """Run the agent's file as a process of its own, and print what appears in the log until it ends."""
    command = [sys.executable, "-P", AGENT_FILE, *arguments]
    until = time.monotonic() + PATIENCE_SECONDS
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True) as process:
        try:
            say(f"\nProcess {process.pid} {how}.")
            while process.poll() is None:
                if time.monotonic() > until:
                    why = f"process {process.pid} of the demo took longer than {PATIENCE_SECONDS:.0f} s"
                    raise holdfast.TimeLimit(why, hint="it was stopped; run the demo again")
                story.tell_news()
                if page is not None and story.seq and page.show(TASK):
                    say(f"     watch it: {page.link(TASK)}")
                time.sleep(LOOK_EVERY_SECONDS)
        finally:
            process.kill()
    story.tell_news()
    code = process.returncode
    name = signal.Signals(-code).name if code < 0 else None
    return {"pid": process.pid, "returncode": code, "signal": name, "last_seq": story.seq}


def _odd_end(process: dict[str, Any]) -> holdfast.HoldfastError:
    why = f"process {process['pid']} of the demo ended with {process['returncode']}, which it should not"
    return holdfast.HoldfastError(why, hint="read what it printed above; was the agent's file changed?")


# What came of it


def _facts(app: App, path: str, story: Story, world: DemoWorld, ends: list[dict[str, Any]]) -> dict[str, Any]:
    """Everything the demo shows, for programs."""
    task, found = app.get(TASK), app.verify(TASK)
    steps = [{"number": story.numbers[step.key], **step.to_dict()} for step in app.steps(TASK)]
    sent = {"charges": world.count("charge"), "emails": world.count("email")}
    return {
        "task": TASK,
        "agent": task.agent,
        "status": task.status,
        "result": task.result,
        "store": path,
        "world": str(world.path),
        "processes": ends,
        "kills": sum(end["signal"] == "SIGKILL" for end in ends),
        "replayed": {"steps": story.replayed.steps, "seconds": story.replayed.took_us / 1_000_000},
        "settled": story.settled,
        "steps": steps,
        "events": found.events,
        "intact": found.ok,
        "sent": sent,
        "once": set(sent.values()) == {1},
    }


def _conclude(app: App, path: str, facts: dict[str, Any], style: Style) -> None:
    first, second = facts["processes"]
    killed = f"-- process {first['pid']} is killed; process {second['pid']} resumes --"
    click.echo(f"\nThe log of {TASK}:")
    for line in timeline(app, TASK, {first["last_seq"]: killed}, style):
        click.echo(line)
    chain = "the chain is intact" if facts["intact"] else "the chain is BROKEN"
    click.echo(f"{facts['events']} events, each chained to the one before: {chain}.\n")
    charges, emails = (_often(facts["sent"][one]) for one in ("charges", "emails"))
    counted = style.paint(f"card charged {charges} · e-mail sent {emails}", "good" if facts["once"] else "bad")
    click.echo(f"{style.paint(counted, 'bold')}   (counted in {path}-world, {facts['seconds']:.1f} s in all)")
    _suggest(path, first["last_seq"])


def _often(count: int) -> str:
    return "once" if count == 1 else f"{count} TIMES"


def _suggest(path: str, killed_at: int) -> None:
    python, agent, store = _python(), shlex.quote(_short(AGENT_FILE)), shlex.quote(path)
    click.echo("\nNext, try:")
    click.echo(f"  cat {agent}")
    click.echo("      read the agent; change it and run the demo again")
    click.echo(f"  {python} {agent} {store}")
    click.echo("      let a third process work on the same task: it is completed, and nothing is done again")
    click.echo(f"  {python} -m holdfast show {TASK} --store {store}")
    click.echo(
        f"      see what the log knows; add --at {killed_at} for the moment of the kill, or try log instead of show"
    )
    click.echo(f"  {python} -m holdfast ui --store {store}")
    click.echo(f"      see it in a browser: {_on_the_page(path)}")
    click.echo(f"To remove everything the demo left: rm {store}*")


def _on_the_page(path: str) -> str:
    """The task's address on the page that is up, or on the one that would be."""
    with suppress(holdfast.MissingExtra):
        from holdfast.web import serving

        return serving.task_link(path, "", TASK) or f"{serving.shown_url('localhost', serving.PORT)}/tasks/{TASK}"
    return f"/tasks/{TASK}; needs the extra ui"


def _python() -> str:
    """The interpreter that has Holdfast, as one would type it."""
    usual = shutil.which("python")
    return "python" if usual == sys.executable else shlex.quote(_short(sys.executable))


def _short(path: str) -> str:
    """A path as seen from here, if it is below."""
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except ValueError:
        return path
