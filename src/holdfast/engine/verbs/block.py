"""Block: the verbs around code that is not an agent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast.core import codec
from holdfast.core.flows import lifecycle
from holdfast.engine.drivers.driver import drive
from holdfast.engine.execution.execution import Execution
from holdfast.engine.verbs.task import Task


class Block(Task):
    """The verbs around code that is not an agent: `with app.task("triage", {"ticket": 7}, id="triage-7") as task`."""

    def __init__(self, execution: Execution) -> None:
        super().__init__(execution)
        self.result: Any = None

    def turns(self, *, max: int | None = None) -> Iterator[int]:
        """One pass after the other, from the one it was on; ends when you break out of it."""
        execution = self._execution
        if execution.state.turn and execution.root.turn != execution.state.turn:
            execution.begin_turn()
        else:
            drive(lifecycle.next_turn(execution, max, self._execution.agent.name), execution)
        while True:
            yield execution.state.turn
            if max is not None and execution.state.turn >= max:
                return
            drive(lifecycle.next_turn(execution, max, self._execution.agent.name), execution)

    def finish(self, result: Any) -> None:
        """Complete the task when the block ends."""
        codec.pack(result, "the result")
        self.result = result
