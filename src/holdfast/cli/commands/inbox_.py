"""`holdfast inbox`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from holdfast.cli.command import command
from holdfast.cli.environment import Environment
from holdfast.core.errors import InvalidValue

if TYPE_CHECKING:
    from holdfast import App, Webhook
    from holdfast.engine.reading.inbox import InboxItem

SECRET = "HOLDFAST_WEBHOOK_SECRET"
"""The environment variable that holds what webhooks are signed with."""


@command("inbox", lines=True)
@click.option("--doubts", is_flag=True, help="Only calls in doubt.")
@click.option("--questions", is_flag=True, help="Only questions.")
@click.option("--approvals", is_flag=True, help="Only approvals.")
@click.option("--budgets", is_flag=True, help="Only used-up budgets.")
@click.option(
    "--quarantined", is_flag=True, help="Only quarantined tasks, and tasks whose log is damaged or has lost events."
)
@click.option("--set-aside", is_flag=True, hidden=True)  # the name of --quarantined in 0.1
@click.option("--no-worker", is_flag=True, help="Only tasks that no worker serves.")
@click.option("--follow", "-f", is_flag=True, help="Keep running, and print new entries as they appear.")
@click.option("--for", "seconds", metavar="TIME", help="With --follow: for how long.")
@click.option("--webhook", metavar="URL", help="With --follow: also send new entries to this https address.")
def inbox_(environment: Environment, follow: bool, seconds: str | None, webhook: str | None, **only: bool) -> None:
    """List tasks that need a person, each with the reason and the command to type.

    Lists questions, approvals, calls in doubt, used-up budgets, quarantined tasks, tasks blocked by another task's call
    in doubt, and tasks that no worker serves. Tasks that only sleep, or wait for a signal or a child, are not listed;
    see `holdfast list --status waiting`.

    --webhook signs with HOLDFAST_WEBHOOK_SECRET. Entries that were in the inbox before the command started are
    not sent.

    Example: holdfast inbox --follow --approvals
    """
    if not follow and (seconds is not None or webhook is not None):
        odd = "--for" if seconds is not None else "--webhook"
        raise InvalidValue(f"{odd} needs --follow", hint="add --follow")
    from holdfast.cli.environment import whoami
    from holdfast.cli.input.suggestions import entry_json

    app, by, store = environment.app(webhook=_webhook(webhook)), whoami(), environment.options
    kinds = _kinds(**only)
    every = app.follow_inbox(seconds=seconds) if follow else app.inbox()
    found = (one for one in every if one.kind in kinds)
    if environment.jsonl or (environment.as_json and follow):
        for one in found:
            environment.data(entry_json(one, by, store))
    elif environment.as_json:
        environment.data([entry_json(one, by, store) for one in found])
    else:
        _show(environment, app, found, by, follow=follow)


def _kinds(
    *,
    doubts: bool,
    questions: bool,
    approvals: bool,
    budgets: bool,
    quarantined: bool,
    set_aside: bool,
    no_worker: bool,
) -> set[str]:
    """The kinds of entries that were asked for; all if none was."""
    chosen = {"doubt": doubts, "blocked": doubts, "question": questions, "approval": approvals, "budget": budgets}
    chosen |= dict.fromkeys(("quarantined", "diverged", "damaged"), quarantined or set_aside) | {"no_worker": no_worker}
    return {kind for kind, wanted in chosen.items() if wanted} or set(chosen)


def _webhook(url: str | None) -> Webhook | None:
    if url is None:
        return None
    import os

    from holdfast import Webhook

    secret = os.environ.get(SECRET, "")
    if not secret:
        raise InvalidValue("--webhook needs a secret to sign with", hint=f"set {SECRET} to 16 characters or more")
    return Webhook(url, secret)


def _together(found: Iterator[InboxItem], *, follow: bool) -> Iterator[tuple[InboxItem, int]]:
    """Return entries, each with how many more are the same: tasks of an agent that no worker takes need one worker."""
    waiting: dict[tuple[str, ...], list[InboxItem]] = {}
    for one in found:
        if one.kind != "no_worker" or follow:
            yield one, 0
        else:
            waiting.setdefault((one.agent, one.name, str(one.prompt)), []).append(one)
    for first, *others in waiting.values():
        yield first, len(others)


def _show(environment: Environment, app: App, found: Iterator[InboxItem], by: str, *, follow: bool) -> None:
    """Print entries for people."""
    from holdfast.cli.input.suggestions import LABELS, asked, commands, notes
    from holdfast.cli.show.formatting import age, clock
    from holdfast.cli.show.style import clean, held

    empty = True
    for one, others in _together(found, follow=follow):
        empty = False
        until = f", until {clock(one.until_us)} UTC" if one.until_us else ""
        who = f"{others + 1} tasks of {one.agent}" if others else one.task
        head = environment.style.paint(f"{who}  {LABELS[one.kind]}", "bold") + f"  {clean(one.key)}"
        environment.lines([f"{head}  {held(f'({age(one.since_us, app.clock.now_us())}{until})')}"])
        environment.lines(
            [
                f"  {clean(asked(one))}",
                *(
                    environment.style.paint(f"  {line}", "head")
                    for line in commands(one, by, environment.options)[: 1 if others else None]
                ),
                *(f"  {line}" for line in notes(one)),
                "",
            ]
        )
    if empty:
        environment.say(f"the inbox is empty: {environment.where}")
