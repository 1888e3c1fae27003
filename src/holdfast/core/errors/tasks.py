"""Errors about tasks, steps, logs and the values they are given."""

from __future__ import annotations

from typing import Any

from holdfast.core.errors.base import HoldfastError, log_words


class TaskNotFound(HoldfastError):
    """No task has this id."""

    code = "task-not-found"

    def __init__(self, id: str) -> None:
        lists = (
            "the threads of this store: app.threads()"
            if id.startswith("@thread/")
            else "the tasks of this store: app.list()"
        )
        super().__init__(f"there is no {log_words(id)}", hint=f"to list {lists}", id=id)


class TaskExists(HoldfastError):
    """A task with this id already exists."""

    code = "task-exists"

    def __init__(self, id: str, *, other_history: bool = False) -> None:
        elsewhere = f"{id!r} has another history there, as if both stores had worked on it; it was not touched"
        super().__init__(
            elsewhere if other_history else f"a task {id!r} already exists; nothing was written",
            hint="compare both, and import the right one into a new store; then use only that store"
            if other_history
            else "choose another id, or leave it out to get a new one",
            id=id,
        )


class TaskCollected(HoldfastError):
    """The task was removed by retention; its id is never used again."""

    code = "task-collected"
    message = "task {id!r} had ended and was removed by gc"
    hint = "start new work under a new id"

    def __init__(self, id: str) -> None:
        self._fill(id=id)


class TaskFailed(HoldfastError):
    """A task has no result: it failed, was cancelled, or has not ended."""

    code = "task-failed"

    def __init__(self, id: str, status: str, why: str) -> None:
        told = f"{status}: {why}" if why and status == "failed" else f"{status} ({why})" if why else status
        hints = {
            "failed": "to try its last step again: app.resume(id, agent)",
            "cancelled": "start it again under another id",
            "waiting": "app.inbox(id) shows what it waits for; app.wait(id) waits until it has ended",
        }
        super().__init__(
            f"task {id!r} has no result: it is {told}",
            hint=hints.get(
                status, "app.wait(id) waits until it has ended; if its worker is dead: app.resume(id, agent)"
            ),
            id=id,
            status=status,
        )


class TaskFinished(HoldfastError):
    """The task has ended and takes no further work."""

    code = "task-finished"

    def __init__(self, id: str, status: str, what: str) -> None:
        again = status == "cancelled" and what == "app.cancel"
        super().__init__(
            f"task {id!r} is already cancelled; nothing was written"
            if again
            else f"task {id!r} is already {status}, so {what} can't change it; nothing was written",
            hint="to resume it, unless it was compensated: app.resume(id, agent)"
            if status == "failed"
            else "to start a new task from any event of it: app.fork(id, at=…)",
            id=id,
            status=status,
        )


class ThreadBusy(HoldfastError):
    """Another task of the thread has not ended."""

    code = "thread-busy"

    def __init__(self, thread: str, task: str, status: str, *, waits_for: str = "") -> None:
        on = {"": status, "person": "waiting for a person's answer"}.get(waits_for, f"waiting ({waits_for})")
        super().__init__(
            f"thread {thread!r} is busy: task {task!r} is {on}; nothing was written",
            hint=f"answer it (app.inbox() shows how), or end it: app.cancel({task!r})"
            if waits_for
            else f'app.wait({task!r}) waits for it, app.cancel({task!r}) ends it; when_busy="queue" lets this one wait',
            thread=thread,
            id=task,
            status=status,
            waits_for=waits_for,
        )


class ThreadNotFound(HoldfastError):
    """No thread has this id, or it was deleted."""

    code = "thread-not-found"
    message = "there is no thread {id!r}"
    hint = "app.threads() shows the threads of this store"

    def __init__(self, id: str) -> None:
        self._fill(id=id)


class QueueFull(HoldfastError):
    """A queue has as many waiting tasks as it may have."""

    code = "queue-full"
    message = "queue {queue!r} is full: it lets {most} {tasks} wait; nothing was written"
    hint = "try again later, start more workers, or raise max_ready= of the queue"

    def __init__(self, queue: str, most: int) -> None:
        self._fill({"tasks": "task" if most == 1 else "tasks"}, queue=queue, most=most)


class TaskBusy(HoldfastError):
    """Another live worker has the task."""

    code = "task-busy"
    message = "task {id!r} is being worked on by the live worker {holder!r}{was}"
    hint = '{first}wait for it: app.run(…, wait="1m")'

    def __init__(self, id: str, holder: str, *, is_cancelled: bool = False) -> None:
        was = ", and was cancelled: it ends after the current step" if is_cancelled else ""
        self._fill({"was": was, "first": "" if is_cancelled else "cancel it, or "}, id=id, holder=holder)


class InputConflict(HoldfastError):
    """A task of this id was started with other input."""

    code = "input-conflict"

    def __init__(self, id: str, recorded: Any, given: Any) -> None:
        super().__init__(
            f"task {id!r} was started with {recorded!r}, not with {given!r}; nothing was written",
            hint="use another id for other work, or give the first input to resume it"
            if given
            else "other work needs another id; to resume it without input: app.resume(id, agent)",
            id=id,
            recorded=recorded,
            given=given,
        )


class ResumeExpired(HoldfastError):
    """The task is older than its agent resumes."""

    code = "resume-expired"
