"""`holdfast test`."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.command import command
from holdfast.cli.completion import files
from holdfast.cli.environment import Environment
from holdfast.cli.failures.refusal import FAILED

if TYPE_CHECKING:
    from holdfast import Agent


@command("test", store=False)
@click.argument("target", metavar="[FILE][:AGENT]", required=False, shell_complete=files)
@click.option("-p", "params", multiple=True, metavar="KEY=TEXT|KEY:=JSON", help="A value for the agent; repeatable.")
@click.option("--input", "file", metavar="FILE", help="A JSON object for the agent; - is stdin.", shell_complete=files)
@click.option("--mock", is_flag=True, help="Let tools be answered by their mocks: nothing outside is touched.")
@click.option("--crash", is_flag=True, help="Crash it everywhere, and see that it survives each time.")
@click.option("--sample", type=click.IntRange(min=1), metavar="N", help="With --crash: only so many places.")
@click.option("--user", help="The person it is for.")
def test_(
    environment: Environment,
    target: str | None,
    params: tuple[str, ...],
    file: str | None,
    mock: bool,
    crash: bool,
    **more: Any,
) -> None:
    """Try an agent in a throw-away store: with mocks, or crashed everywhere.

    Runs it, runs it again and sees that nothing is done twice, and verifies the log. With --crash it is crashed at
    every place where it could be, and must come to the same end each time. Ends with 1 if it does not pass. Without
    --mock tools are called: use it where they may be.

    Example: holdfast test agents.py:recap --mock -p notes="q3 went well"
    """
    from holdfast.cli.input import agents, values
    from holdfast.cli.show.screen import Screen

    if more["sample"] is not None and not crash:
        raise click.UsageError("--sample is for --crash, which was not given")
    environment.runs_agents()
    input = values.parameters(params, file)
    agent, known = agents.agent_named(target)
    values.check(agent, input, params)
    with Screen().prints():
        facts = _tried(agent, known, input, mock, more["user"])
        if crash and facts["passed"]:
            facts |= _crashed(agent, known, input, mock, more)
    if environment.as_json:
        environment.data(facts)
    else:
        _tell(environment, facts)
    if not facts["passed"]:
        raise click.exceptions.Exit(FAILED)


def _tried(agent: Agent, known: list[Agent], input: dict[str, Any], mock: bool, user: str | None) -> dict[str, Any]:
    """Run it twice; the second time nothing may be done."""
    import holdfast

    with tempfile.TemporaryDirectory() as folder, holdfast.open(f"{folder}/test.db", agents=known) as app:
        given: dict[str, Any] = {"id": "test", "mock": mock, "user": user}
        first = app.run(agent, input, **given)
        again = app.run(agent, input, **given)
        checks = {
            "ended": first.status == "completed" or first.waiting is not None,
            "nothing done twice": (again.seq, again.status) == (first.seq, first.status),
            "log intact": app.verify().ok,
        }
        why = f"{first.failure.type}: {first.failure.message}" if first.failure is not None else ""
        waits = [] if first.waiting is None else [f"{one['kind']} {one['key']}" for one in first.waiting.on]
        steps = [step.to_dict() for step in first.all_steps()]
        return {
            "agent": agent.name,
            "mock": mock,
            "status": first.status,
            "result": first.result,
            "failure": why,
            "waits": waits,
            "steps": steps,
            "checks": checks,
            "passed": all(checks.values()),
            "crash": None,
        }


def _crashed(
    agent: Agent, known: list[Agent], input: dict[str, Any], mock: bool, more: dict[str, Any]
) -> dict[str, Any]:
    """Crash it everywhere."""
    from holdfast import App
    from holdfast.engine.reading import values as plain
    from holdfast.testing import CrashFailed, crash_everywhere

    def drive(app: App) -> Any:
        return app.run(agent, input, id="crash-test", mock=mock, user=more["user"])

    drive.__name__ = agent.name
    try:
        report = crash_everywhere(drive=drive, agents=known, sample=more["sample"])
    except CrashFailed as failed:
        return {"passed": False, "crash": {"survived": False, "told": str(failed)}}
    return {"crash": {"survived": True, "told": str(report), **plain.as_json(report)}}


def _tell(environment: Environment, facts: dict[str, Any]) -> None:
    from holdfast.cli.show.formatting import times

    style, steps = environment.style, times(len(facts["steps"]), "step")
    environment.lines([f"{facts['agent']}{' (mock)' if facts['mock'] else ''} is {facts['status']}: {steps}"])
    if facts["failure"]:
        environment.lines([f"  {style.paint(facts['failure'], 'bad')}"])
    environment.lines(f"  waits for {one}" for one in facts["waits"])
    for name, passed in facts["checks"].items():
        told = "ends or waits" if name == "ended" else name
        environment.lines([f"  {style.paint('ok  ', 'good') if passed else style.paint('FAIL', 'bad')}  {told}"])
    if facts["crash"] is not None:
        environment.lines([facts["crash"]["told"]])
