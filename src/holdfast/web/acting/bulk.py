"""Acts on many tasks: a job that works through them one by one, each an event of its own, with its progress."""

from __future__ import annotations

import secrets
import threading
from itertools import islice
from typing import Any

from holdfast.core.errors import HoldfastError, InvalidValue
from holdfast.web.access.gate import Denied
from holdfast.web.acting.acts import check_may_act
from holdfast.web.requests.filters import filters_of
from holdfast.web.requests.shapes import BulkAct, PageAnswer, PageCall

MOST_TASKS = 1_000
MOST_JOBS = 20
MOST_TOLD = 20
"""How many refusals a job tells of; the rest are counted."""


class BulkJob:
    """One act on many tasks, under way or done."""

    def __init__(self, verb: str, ids: list[str]) -> None:
        self.id = secrets.token_hex(8)
        self.verb, self.ids = verb, ids
        self.done, self.refused, self.why = 0, 0, list[dict[str, str]]()
        self.over = False

    def told(self) -> dict[str, Any]:
        """Its progress, as JSON."""
        about = {"job": self.id, "verb": self.verb, "total": len(self.ids), "done": self.done}
        return {**about, "refused": self.refused, "why": self.why, "over": self.over}


def begin(call: PageCall) -> PageAnswer:
    """Cancel or resume all tasks that match; refused if there are other tasks than were shown. At most 1,000."""
    given = call.read(BulkAct)
    check_may_act(call)
    return PageAnswer(call.site.once(call.person.id, call.key, call.asked, lambda: _begun(call, given)))


def count(call: PageCall) -> PageAnswer:
    """How many tasks a filter means for an act: what `expected` has to be. Beyond 1,000 it is not counted further."""
    verb = call.text("verb")
    if verb not in ("cancel", "resume"):
        raise InvalidValue(f"verb={verb!r} is not an act on many tasks", hint="use cancel or resume")
    return PageAnswer({"found": len(_matching(call, verb, call.text("q"))), "most": MOST_TASKS})


def _begun(call: PageCall, given: BulkAct) -> dict[str, Any]:
    ids = given.ids or _matching(call, given.verb, given.q)
    if len(ids) != given.expected:
        told = f"{len(ids)} tasks match now, and {given.expected} were shown; nothing was done"
        raise Denied(409, "count-changed", told, "Look at the list again, then decide.", found=len(ids))
    if not ids or len(ids) > MOST_TASKS:
        raise InvalidValue(f"{len(ids)} tasks are not 1 to {MOST_TASKS:,}", hint="narrow the filter")
    job = BulkJob(given.verb, ids)
    call.site.jobs[job.id] = job
    while len(call.site.jobs) > MOST_JOBS:
        call.site.jobs.pop(next(iter(call.site.jobs)), None)
    threading.Thread(target=_work, args=(call, job, given.why), name="holdfast-bulk", daemon=True).start()
    return job.told()


def _matching(call: PageCall, verb: str, q: str) -> list[str]:
    """The tasks of a filter that the act could change."""
    able = ("failed",) if verb == "resume" else ("pending", "running", "waiting")
    fitting = (
        row.id
        for row in filters_of(q).rows(call.app)
        if row.status in able or (verb == "resume" and row.waiting == "quarantined")
    )
    return list(islice(fitting, MOST_TASKS + 1))


def _work(call: PageCall, job: BulkJob, why: str) -> None:
    app, by = call.app, call.person.id
    try:
        for id in job.ids:
            try:
                app.cancel(id, why=why, by=by) if job.verb == "cancel" else app.reopen(id, why=why, by=by)
            except HoldfastError as error:  # one that was changed meanwhile must not stop the others
                job.refused += 1
                if len(job.why) < MOST_TOLD:
                    job.why.append({"task": id, "detail": error.message})
            job.done += 1
    finally:
        job.over = True


def progress(call: PageCall) -> PageAnswer:
    """How far a bulk act is: how many are done, how many were refused, and why."""
    job = call.site.jobs.get(call.at["job"])
    if job is None:
        raise Denied(404, "not-found", "There is no such job; it may be from before the page was started.")
    return PageAnswer(job.told())
