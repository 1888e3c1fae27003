"""Migrating the typed state of many tasks at once, before any of them is worked on again."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from holdfast.core.errors import HoldfastError, InvalidValue, TaskCollected, TaskNotFound
from holdfast.core.events import Event
from holdfast.core.state.shapes import State
from holdfast.engine.control.change import change
from holdfast.engine.definitions.agent import Agent
from holdfast.engine.lists.query import TaskQuery
from holdfast.engine.logs.logs import Logs
from holdfast.store.protocol import Query


class MigratedStates(Struct, frozen=True, kw_only=True):
    """What became of the tasks whose state was of an earlier version, by their ids."""

    version: int
    """The version that their state has now."""
    migrated: tuple[str, ...] = ()
    busy: tuple[str, ...] = ()
    """Those that a worker has: it knows the version it began with."""
    failed: dict[str, str] = {}
    """Those whose state could not be migrated, and why."""


def migrate_states(logs: Logs, agent: Agent) -> MigratedStates:
    """Write the state of an agent's open tasks under its present version."""
    states = agent.states
    if states is None:
        raise InvalidValue(
            f"agent {agent.name!r} declares no state, so there is nothing to migrate",
            hint="declare it: @agent(state=Model, state_version=2)",
        )
    migrated: list[str] = []
    busy: list[str] = []
    failed: dict[str, str] = {}

    def decide(state: State) -> Sequence[Event]:
        if state.ended or state.state_version >= states.version:
            return ()
        if state.summary.holder is not None and logs.store.alive(state.summary.holder, state.summary.lease_seconds):
            busy.append(state.summary.id)
            return ()
        return (states.migration(state, logs.blob),)

    older = TaskQuery(logs, Query(agent=agent.name), state_version_below=states.version)
    for row in older.rows():
        try:
            log = change(logs, row.id, decide)
            if log.state.state_version == states.version and not log.state.ended:
                migrated.append(row.id)
        except (TaskNotFound, TaskCollected):
            continue  # it went away meanwhile
        except HoldfastError as error:
            failed[row.id] = error.message
    return MigratedStates(version=states.version, migrated=tuple(migrated), busy=tuple(busy), failed=failed)
