"""Agents written once and declared twice: as `def` and as `async def`. A body yields what its verbs give.

@either()
def worker(task):
    first = yield task.step(look, name="look")
    return [first, (yield task.ask("who?"))]
"""

import functools
import inspect

from holdfast import agent

KINDS = ("def", "async")


class Crash(BaseException):
    """The process dies here."""


def declarer(kind):
    """A decorator like `@agent(…)` for bodies that yield."""

    def declare(**options):
        def decorate(body):
            return agent(**options)(_plain(body) if kind == "def" else _async(body))

        return decorate

    return declare


def _plain(body):
    @functools.wraps(body)
    def fn(*args, **kwargs):
        work = body(*args, **kwargs)
        if not inspect.isgenerator(work):
            return work
        try:
            given = work.send(None)
            while True:
                given = work.send(given)
        except StopIteration as done:
            return done.value

    return fn


def _async(body):
    @functools.wraps(body)
    async def fn(*args, **kwargs):
        work = body(*args, **kwargs)
        if not inspect.isgenerator(work):
            return work
        try:
            wanted = work.send(None)
            while True:
                try:
                    value = await wanted
                except BaseException as error:
                    wanted = work.throw(error)
                else:
                    wanted = work.send(value)
        except StopIteration as done:
            return done.value

    return fn


def kinds(app, id="t"):
    """The kinds of a task's events, in order."""
    return [record.kind for record in app.events(id)]


def events(app, kind, id="t"):
    """A task's events of one kind."""
    return [record.event for record in app.events(id) if record.kind == kind]
