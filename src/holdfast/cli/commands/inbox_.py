"""`holdfast inbox`."""

from __future__ import annotations

import click

from holdfast.cli.command import command
from holdfast.cli.environment import Environment

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
def inbox_(
    environment: Environment,
    doubts: bool,
    questions: bool,
    approvals: bool,
    budgets: bool,
    set_aside: bool,
    no_worker: bool,
) -> None:
    """List tasks waiting for a person, each with its reason and the command that helps.

    Questions, approvals, calls in doubt, budgets, quarantined tasks, tasks blocked by another task's call in doubt, and
    tasks that no worker takes. Of several commands the first one helps. Tasks that sleep, or wait for a signal or for a
    child, are not listed: holdfast list --status waiting.

    Example: holdfast inbox --doubts
    """
    from holdfast.cli.environment import whoami
    from holdfast.cli.input.suggestions import LABELS, asked, commands, entry_json
    from holdfast.cli.show.formatting import age, clock
    from holdfast.cli.show.style import clean

    chosen = {"doubt": doubts, "question": questions, "approval": approvals, "budget": budgets}
    chosen |= {"blocked": doubts, "no_worker": no_worker}
    chosen |= dict.fromkeys(("quarantined", "diverged", "damaged"), set_aside)
    kinds = {kind for kind, wanted in chosen.items() if wanted} or set(chosen)
    app, by, store = environment.app(), whoami(), environment.options
    found = (one for one in app.inbox() if one.kind in kinds)
    if environment.for_programs:
        environment.rows(entry_json(one, by, store) for one in found)
        return
    empty = True
    for one in found:
        empty = False
        until = f", until {clock(one.until_us)} UTC" if one.until_us else ""
        head = environment.style.paint(f"{one.task}  {LABELS[one.kind]}", "bold") + f"  {clean(one.key)}"
        environment.lines([f"{head}  ({age(one.since_us, app.clock.now_us())}{until})"])
        environment.lines(
            [
                f"  {clean(asked(one))}",
                *(environment.style.paint(f"  {line}", "head") for line in commands(one, by, store)),
                *([f"  {DECLARE}"] if one.kind == "doubt" and one.prompt is not None else []),
                "",
            ]
        )
    if empty:
        environment.say(f"the inbox is empty: {environment.where}")
