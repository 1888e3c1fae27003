"""Working on a task from claim to end, or to its next wait."""

from __future__ import annotations

from typing import Any

from holdfast.core import codec
from holdfast.core import events as ev
from holdfast.core.errors import Cancelled, Conflict, InputConflict, Suspended, TurnLimit
from holdfast.core.events import Fields
from holdfast.core.flows import within_time
from holdfast.engine.agent import Agent
from holdfast.engine.drive import HOLD_SECONDS, drive
from holdfast.engine.log import Log, Logs
from holdfast.engine.run import Run, ending
from holdfast.engine.task import Task


def same_input(logs: Logs, log: Log, given: Fields) -> None:
    """The same id with other input is other work."""
    recorded = {name: codec.resolve(raw, logs.blob) for name, raw in log.state.input.items()}
    now = {name: codec.resolve(raw, logs.blob) for name, raw in given.items()}
    if recorded != now:
        shown = [{name: codec.unpack(raw, logs.blob) for name, raw in one.items()} for one in (log.state.input, given)]
        raise InputConflict(log.name, *shown)


def can_go_on(logs: Logs, log: Log) -> bool:
    """Whether there is anything to do now: not ended, and not waiting for something that has not come."""
    summary = log.state.summary
    if log.state.ended:
        return False
    if summary.status != "waiting":
        return True
    return summary.wake_us is not None and summary.wake_us - logs.clock.now_us() <= HOLD_SECONDS * 1_000_000


def claim(log: Log) -> None:
    """Take the task. Others may append meanwhile; what they wrote is read first."""
    while True:
        try:
            return log.claim()
        except Conflict:
            log.refresh()


def work(logs: Logs, log: Log, agent: Agent) -> None:
    """Let the agent work on a task it holds, until it ends or waits."""
    run = Run(logs, log, agent)
    task = Task(run)
    try:
        result = _turns(run, task, agent) if agent.loop else agent.fn(task, **_arguments(run, agent))
        if not run.suspended:
            result_raw = codec.pack(result, f"the result of agent {agent.name!r}")
            run.record((ev.TaskCompleted(result=result_raw),))
    except Cancelled:
        by, why = run.hot.cancel or ("", "")
        run.record((ev.TaskCancelled(by=by, why=why),))
    except Suspended:
        assert run.suspended, "only the driver suspends a task"
    except Exception as error:  # noqa: BLE001 — whatever an agent raises is how its task ends
        if not run.suspended:
            run.record((ending(error),))
    except (KeyboardInterrupt, SystemExit) as stop:
        if not run.suspended:
            run.record((ev.TaskReleased(why=type(stop).__name__),))
        raise


def _turns(run: Run, task: Task, agent: Agent) -> Any:
    """Call a looping agent once a turn until it returns anything but None."""
    while True:
        if run.hot.turn == 0 or _turn_is_over(run):
            if agent.max_turns is not None and run.hot.turn >= agent.max_turns:
                raise TurnLimit(f"{agent.name!r} took {run.hot.turn} turns", hint="raise max_turns, or end sooner")
            drive(within_time(run), run)
            run.record((ev.TurnStarted(turn=run.hot.turn + 1),))
            run.begin_turn()
        result = agent.fn(task, **_arguments(run, agent))
        if result is not None or run.suspended:
            return result
        run.flush()
        run.turn_is_over = True


def _turn_is_over(run: Run) -> bool:
    over, run.turn_is_over = run.turn_is_over, False
    return over


def _arguments(run: Run, agent: Agent) -> dict[str, Any]:
    return agent.parameters.check({name: run.value(raw) for name, raw in run.hot.input.items()})
