"""`task.current`: what a task knows of itself, as the branch that asks sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from holdfast.core import events as ev
from holdfast.core.flows.requests import Branch
from holdfast.core.state.shapes import State
from holdfast.engine.execution.execution import Execution
from holdfast.engine.reading.task_state import BudgetState, TaskState, decision_made

if TYPE_CHECKING:
    from holdfast.engine.conversations.conversation import Conversation


class CurrentState(TaskState[Any]):
    """A task's own state, read in its body: the same on every replay.

    It is what the branch sees when it is read: what came with its last waiting verb, and what it has recorded since.
    """

    def __init__(
        self, execution: Execution, here: Callable[[str], Branch], messages: Callable[[], Conversation]
    ) -> None:
        self._execution, self._here, self._conversation = execution, here, messages
        self._logs = execution.logs
        self._typed_result = None
        self.id = execution.log.name

    @property
    def _state(self) -> State:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._execution.see(self._branch)

    @property
    def _branch(self) -> Branch:
        return self._here("reading task.current")

    @property
    def digest(self) -> str:
        """Empty: what the branch sees is not the end of the log."""
        return ""

    @property
    def interrupted(self) -> bool:
        """False: its body runs."""
        return False

    @property
    def budget(self) -> BudgetState:
        """The limits and the usage. Time held counts up to the last event that the branch sees."""
        return BudgetState(self._state, self._state.updated_us)

    @property
    def decisions(self) -> list[dict[str, Any]]:
        """The decisions, with their reasons and the options not taken; this branch's latest are included."""
        branch = self._branch
        made = self._decisions(upto=branch.seen)
        said = [one for one in self._execution.views.own(branch) if isinstance(one, ev.DecisionMade)]
        return made + [decision_made(self._logs, one) for one in said]

    @property
    def messages(self) -> list[Any]:
        """The conversation, as far as the branch sees it."""
        return list(self._conversation())
