"""Going back in a task: by steps or changes of its state, to a seq, or to a checkpoint. The history is kept."""

from __future__ import annotations

from holdfast.core import codec, events as ev, names
from holdfast.core.errors import InvalidEvent, InvalidValue
from holdfast.core.state import rules
from holdfast.engine.logs.log import Log
from holdfast.engine.logs.logs import Logs
from holdfast.engine.reading.steps import calls_after, steps


def rollback(logs: Logs, name: str, back: int, versions: int | None, to: int | str | None, *, by: str, why: str) -> Log:
    """Take a task back. What its later calls did to the world stays known."""
    log = logs.load(name)
    rules.refuse_rollback(log.state)
    target = names.seq(_target(logs, log, back, versions, to))
    past = logs.load(name, upto=target)
    state = rules.restored(log.state, past.state, calls_after(logs, name, target))
    event = ev.RolledBack(to=target, hot=codec.raw(codec.dump(state)), by=by, why=why)
    log.check([event])
    log.append([event])
    return log


def _target(logs: Logs, log: Log, back: int, versions: int | None, to: int | str | None) -> int:
    """The seq to go back to: before so many steps or changes of the state, or at a seq, or at a checkpoint.

    Who asks for more steps or changes than there are goes back to before the first.
    """
    for name, count in (("steps", back), ("versions", versions)):
        if count is not None and (type(count) is not int or count < 1):
            raise InvalidValue(f"{name}={count!r} is not a way back", hint="give a whole number of at least 1")
    given = [back != 1, versions is not None, to is not None]
    if sum(given) > 1:
        raise InvalidValue(
            f"steps={back}, versions={versions!r} and to={to!r} name different places", hint="give one of them"
        )
    if isinstance(to, str):
        if to not in log.state.checkpoints:
            raise InvalidValue(
                f"there is no checkpoint {to!r}",
                hint=f"checkpoints: {', '.join(sorted(log.state.checkpoints)) or 'none'}",
            )
        return log.state.checkpoints[to]
    if to is not None:
        return to
    if versions is not None:
        nothing = f"the state of task {log.name!r} has no change that could be taken back"
        changes = [row.seq - 1 for _, row in logs.live_rows(log.name) if row.kind in _CHANGES_STATE]
        return _before(changes, versions, nothing, "give steps=…, or to=…")
    done = sorted((step.after, step.before) for step in steps(logs, log.name) if step.status in ("completed", "failed"))
    nothing = f"task {log.name!r} has done no step that could be taken back"
    return _before([before for _, before in done], back, nothing, "give to=…, or versions=1: by changes of its state")


_CHANGES_STATE = frozenset(
    (
        *("state_set", "state_incremented", "state_appended", "state_deleted", "state_updated", "state_patched"),
        "state_migrated",
    )
)
"""Events that change a task's state: each makes a version of it."""


def _before(places: list[int], back: int, nothing: str, hint: str) -> int:
    if not places:
        raise InvalidEvent(nothing, hint=hint)
    return places[-back] if back <= len(places) else min(places)
