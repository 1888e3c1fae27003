"""`holdfast test`."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.command import command, param_option
from holdfast.cli.completion import files
from holdfast.cli.environment import Environment
from holdfast.cli.failures.refusal import FAILED
from holdfast.core.errors import InvalidInput

if TYPE_CHECKING:
    from holdfast import Agent, TaskState


@command("test", store=False)
@click.argument("target", metavar="[FILE][:AGENT]", required=False, shell_complete=files)
@param_option
@click.option(
    "--input",
    "file",
    metavar="FILE",
    help="The agent's input: a file with a JSON object, or - for stdin.",
    shell_complete=files,
)
@click.option("--mock", is_flag=True, help="Call the tools' mocks instead of the tools, so nothing outside is changed.")
@click.option("--crash", is_flag=True, help="Also crash it at every point, and check that it recovers each time.")
@click.option("--sample", type=click.IntRange(min=1), metavar="N", help="With --crash: try only N of the points.")
@click.option("--user", help="The user the task belongs to.")
def test_(
    environment: Environment,
    target: str | None,
    params: tuple[str, ...],
    file: str | None,
    mock: bool,
    crash: bool,
    **more: Any,
) -> None:
    """Test an agent in a temporary store: with mocks, or with crashes.

    Runs the agent twice, checks that the second run repeats nothing, and verifies the log. With --crash the agent is
    also crashed at every point, and must reach the same end each time. Without --mock the real tools are called.

    Without input, the agent's own example is used: @agent(example={"notes": "q3"}, check=lambda done: done.result).
    Without AGENT, every agent of FILE that has an example is tested. Exit code: 1 if a test fails.

    Example: holdfast test agents.py:recap --mock --param notes="q3 went well"
    """
    from holdfast.cli.input import values
    from holdfast.cli.show.screen import Screen

    if more["sample"] is not None and not crash:
        raise click.UsageError("--sample is for --crash, which was not given")
    environment.runs_agents()
    given = values.parameters(params, file)
    chosen, known, several = _chosen(target, has_input=bool(params) or file is not None)
    inputs = [given if file is not None else {**(one.example or {}), **given} for one in chosen]
    inputs = [
        _fitted(one, input, params, is_example=not (params or file)) for one, input in zip(chosen, inputs, strict=True)
    ]
    found: list[dict[str, Any]] = []
    with Screen().prints():
        for one, input in zip(chosen, inputs, strict=True):
            facts = _tried(one, known, input, mock, more["user"])
            if crash and facts["passed"]:
                facts |= _crashed(one, known, input, mock, more)
            found.append(facts)
    if environment.as_json:
        environment.data(found if several else found[0])
    else:
        for facts in found:
            _tell(environment, facts)
    if not all(facts["passed"] for facts in found):
        raise click.exceptions.Exit(FAILED)


def _chosen(target: str | None, *, has_input: bool) -> tuple[list[Agent], list[Agent], bool]:
    """Return the agents to try, all that are known, and whether several were asked for.

    If none is named, those are tried that have an example.
    """
    from holdfast.cli.input import agents

    if not has_input and not agents.split(target or "")[1]:
        known = agents.agents_for(target)[1]
        examples = [one for one in known if one.example is not None]
        if examples and len(known) > 1:
            return examples, known, True
    agent, known = agents.agent_named(target)
    return [agent], known, False


def _fitted(agent: Agent, input: dict[str, Any], params: tuple[str, ...], *, is_example: bool) -> dict[str, Any]:
    """Return input that the agent takes, or refuse it; where there is none, say how to declare an example."""
    from holdfast.cli.input import values

    try:
        return values.fitted(agent, input, params)
    except InvalidInput as error:
        if is_example:
            hint = f"fix example= of {agent.name}" if agent.example is not None else _DECLARE
            raise InvalidInput(error.message, hint=hint, **error.details) from None
        raise


_DECLARE = 'give -p name=value, or declare one: @agent(example={"name": "value"})'


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
        wrong = _wrong(agent, first)
        if agent.check is not None:
            checks["check"] = not wrong
        why = f"{first.failure.type}: {first.failure.message}" if first.failure is not None else ""
        waits = [] if first.waiting is None else [f"{one['kind']} {one['key']}" for one in first.waiting.on]
        steps = [step.to_dict() for step in first.all_steps()]
        return {
            "agent": agent.name,
            "mock": mock,
            "status": first.status,
            "result": first.result,
            "failure": why,
            "wrong": wrong,
            "waits": waits,
            "steps": steps,
            "checks": checks,
            "passed": all(checks.values()),
            "crash": None,
        }


def _wrong(agent: Agent, done: TaskState) -> str:
    """Return what the agent's own check finds wrong; empty if it finds nothing, or if there is none."""
    try:
        return "it returned False" if agent.check is not None and agent.check(done) is False else ""
    except Exception as error:  # noqa: BLE001 — whatever a check raises, it says what is wrong
        return f"{type(error).__name__}: {error}".removesuffix(": ")


def _crashed(
    agent: Agent, known: list[Agent], input: dict[str, Any], mock: bool, more: dict[str, Any]
) -> dict[str, Any]:
    """Crash it everywhere."""
    from holdfast import App
    from holdfast.engine.reading import values as plain
    from holdfast.testing import CrashFailed, crash_everywhere

    def drive(app: App) -> Any:
        return app.run(agent, input, id="crash-test", mock=mock, user=more["user"])

    def check(state: TaskState, world: Any) -> None:
        assert not _wrong(agent, state), _wrong(agent, state)

    drive.__name__ = agent.name
    try:
        report = crash_everywhere(drive=drive, agents=known, sample=more["sample"], check=check)
    except CrashFailed as failed:
        return {"passed": False, "crash": {"survived": False, "told": str(failed)}}
    return {"crash": {"survived": True, "told": str(report), **plain.as_json(report)}}


def _tell(environment: Environment, facts: dict[str, Any]) -> None:
    from holdfast.cli.show.formatting import times
    from holdfast.cli.show.style import clean

    style, steps = environment.style, times(len(facts["steps"]), "step")
    environment.lines([f"{facts['agent']}{' (mock)' if facts['mock'] else ''} is {facts['status']}: {steps}"])
    if facts["failure"]:
        environment.lines([f"  {style.paint(facts['failure'], 'bad')}"])
    environment.lines(f"  waits for {one}" for one in facts["waits"])
    for name, passed in facts["checks"].items():
        told = "ends or waits" if name == "ended" else name
        wrong = f": {clean(facts['wrong'])}" if name == "check" and not passed else ""
        environment.lines([f"  {style.paint('ok  ', 'good') if passed else style.paint('FAIL', 'bad')}  {told}{wrong}"])
    if facts["crash"] is not None:
        environment.lines([facts["crash"]["told"]])
