"""`holdfast budget`."""

from __future__ import annotations

from collections.abc import Container, Sequence

import click

from holdfast.cli.command import by_options, command, task_argument
from holdfast.cli.environment import Environment


@command("budget")
@task_argument
@click.argument("limits", nargs=-1, metavar="[LIMIT=NUMBER]...")
@by_options
def budget_(environment: Environment, id: str, limits: tuple[str, ...], by: str, why: str) -> None:
    """Show a task's budget, or raise or add a limit.

    LIMIT is turns, steps, calls, tokens, cost (in dollars) or wall_time ("5m"). NUMBER is the new limit. It must be
    above the present one, if there is one.

    Example: holdfast budget clean-1 tokens=200000 --by ana
    """
    from holdfast.cli.input.changes import changed, limits_given
    from holdfast.cli.show.live import bar

    if limits:
        allowed = limits_given(limits)
        before = environment.app().get(environment.task(id)).budget.limits
        changed(
            environment,
            id,
            lambda app, id: app.raise_budget(id, allowed, by=by, why=why),
            _done(limits, before),
        )
        return
    from holdfast.engine.reading import values

    state = environment.app().get(environment.task(id))
    if environment.as_json:
        environment.data({"id": state.id, **values.as_json(state.budget.to_dict()), "left": state.budget.left})
        return
    known, used = state.budget.limits, state.budget.used
    counts = {
        name: f"  {used[name]:,.6g} of {most:,.6g}" if environment.style.terminal else ""
        for name, most in known.items()
    }
    environment.lines(f"{bar(name, used[name], most, environment.style)}{counts[name]}" for name, most in known.items())
    if not known:
        environment.say(f"{state.id} has no budget")


def _done(limits: Sequence[str], before: Container[str]) -> str:
    """Return what was done: limits that were there are raised, new ones are added.

    >>> _done(["tokens=200", "cost=1"], ["tokens"])
    'raised the limit: tokens=200; added the limit: cost=1'
    """
    raised = [one for one in limits if one.partition("=")[0] in before]
    added = [one for one in limits if one not in raised]
    words = {"raised": raised, "added": added}
    return "; ".join(
        f"{did} the limit{'s' if len(some) > 1 else ''}: {' '.join(some)}" for did, some in words.items() if some
    )
