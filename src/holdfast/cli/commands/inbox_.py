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

DECLARE = (
    "to answer this without a person: @tool(reconcile=…) asks the destination, definite=[…] names errors that mean it "
    "did nothing"
)
"""Shown with a call that raised and may have happened."""


@command("inbox", lines=True)
@click.option("--doubts", is_flag=True, help="Only calls in doubt: they may have happened.")
@click.option("--questions", is_flag=True, help="Only questions.")
@click.option("--approvals", is_flag=True, help="Only calls that wait for approval.")
@click.option("--budgets", is_flag=True, help="Only budgets that are used up.")
@click.option("--set-aside", is_flag=True, help="Only tasks that are quarantined, or whose log has lost events.")
@click.option("--no-worker", is_flag=True, help="Only tasks that no worker takes.")
@click.option("--follow", "-f", is_flag=True, help="Print new entries as they come, from any process.")
@click.option("--for", "seconds", metavar="TIME", help="With --follow: at most for so long.")
@click.option("--webhook", metavar="URL", help="With --follow: send new entries there, signed.")
def inbox_(environment: Environment, follow: bool, seconds: str | None, webhook: str | None, **only: bool) -> None:
    """List tasks waiting for a person, each with its reason and the command that helps.

    Questions, approvals, calls in doubt, budgets, quarantined tasks, tasks blocked by another task's call in doubt, and
    tasks that no worker takes. Of several commands the first one helps. Tasks that sleep, or wait for a signal or for a
    child, are not listed: holdfast list --status waiting. --webhook takes an https address, and signs with
    HOLDFAST_WEBHOOK_SECRET; what is in the inbox already is not sent.

    Example: holdfast inbox --follow --approvals
    """
    if not follow and (seconds is not None or webhook is not None):
        odd = "--for" if seconds is not None else "--webhook"
        raise InvalidValue(f"{odd} is for --follow, which was not given", hint="add --follow")
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
        _show(environment, app, found, by)


def _kinds(
    *, doubts: bool, questions: bool, approvals: bool, budgets: bool, set_aside: bool, no_worker: bool
) -> set[str]:
    """The kinds of entries that were asked for; all if none was."""
    chosen = {"doubt": doubts, "blocked": doubts, "question": questions, "approval": approvals, "budget": budgets}
    chosen |= dict.fromkeys(("quarantined", "diverged", "damaged"), set_aside) | {"no_worker": no_worker}
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


def _show(environment: Environment, app: App, found: Iterator[InboxItem], by: str) -> None:
    """Print entries for people."""
    from holdfast.cli.input.suggestions import LABELS, asked, commands
    from holdfast.cli.show.formatting import age, clock
    from holdfast.cli.show.style import clean, held

    empty = True
    for one in found:
        empty = False
        until = f", until {clock(one.until_us)} UTC" if one.until_us else ""
        head = environment.style.paint(f"{one.task}  {LABELS[one.kind]}", "bold") + f"  {clean(one.key)}"
        environment.lines([f"{head}  {held(f'({age(one.since_us, app.clock.now_us())}{until})')}"])
        environment.lines(
            [
                f"  {clean(asked(one))}",
                *(environment.style.paint(f"  {line}", "head") for line in commands(one, by, environment.options)),
                *([f"  {DECLARE}"] if one.kind == "doubt" and one.prompt is not None else []),
                "",
            ]
        )
    if empty:
        environment.say(f"the inbox is empty: {environment.where}")
