"""What people do on the page. Each act is a verb of the public face, by the session's person, done once for its key.

The request can't say who acts: that is known from the session. Nothing here runs an agent; workers do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast import App, Budget, StatePatch
from holdfast.core.errors import Conflict, HoldfastError, InvalidEvent, InvalidValue, TaskFinished
from holdfast.engine.reading.task_state import TaskState
from holdfast.web.access.gate import Denied
from holdfast.web.reading import tasks
from holdfast.web.requests.shapes import (
    Act,
    AnswerAct,
    ApprovalAct,
    BudgetAct,
    CodeBody,
    ForkAct,
    PageAnswer,
    PageCall,
    PatchAct,
    PlainAct,
    ReconcileAct,
    ResumeAct,
    RollbackAct,
    SettleAct,
    SignalAct,
    StartAct,
)
from holdfast.web.requests.site import DestinationAnswer

LOOKED_BACK = 50
"""How many of the last events are looked at for who was first."""


def answer(call: PageCall) -> PageAnswer:
    """Answer a question."""
    given = call.read(AnswerAct)
    return _done(
        call,
        given,
        given.question,
        lambda app, id, by: app.answer(id, given.question, given.value, by=by, why=given.why),
    )


def approve(call: PageCall) -> PageAnswer:
    """Approve a call, once, for exactly the arguments that were seen."""
    given = call.read(ApprovalAct)

    def act(app: App, id: str, by: str) -> TaskState:
        _refuse_unseen(app, id, given)
        return app.approve(id, given.call, bound=given.bound, by=by, why=given.why, expires=given.expires)

    return _done(call, given, given.call, act)


def reject(call: PageCall) -> PageAnswer:
    """Reject a call, for good."""
    given = call.read(ApprovalAct)

    def act(app: App, id: str, by: str) -> TaskState:
        _refuse_unseen(app, id, given)
        return app.reject(id, given.call, bound=given.bound, by=by, why=given.why)

    return _done(call, given, given.call, act)


def _refuse_unseen(app: App, id: str, given: ApprovalAct) -> None:
    """The store refuses another digest in any case; here the answer says that it changed, and not only that."""
    asked = next((one for one in app.inbox(id) if one.kind == "approval" and given.call in (one.key, one.name)), None)
    if asked is not None and asked.bound != given.bound:
        told = f"{given.call} asks for other arguments now than those you saw; nothing was decided"
        raise Denied(409, "approval-changed", told, "Look at them again, then decide.", call=given.call)


def settle(call: PageCall) -> PageAnswer:
    """Record whether a call in doubt happened."""
    given = call.read(SettleAct)
    return _done(
        call,
        given,
        given.call,
        lambda app, id, by: app.settle(
            id, given.call, happened=given.happened, result=given.result, by=by, why=given.why
        ),
    )


def reconcile(call: PageCall) -> PageAnswer:
    """Ask the destination of a call in doubt once more; only with the file that declares its tool."""
    given = call.read(ReconcileAct)

    def act(app: App, id: str, by: str) -> TaskState:
        asked = next((one for one in app.inbox(id) if given.call in (one.key, one.name)), None)
        tool = None if asked is None else call.site.known.tools.get(asked.tool)
        try:
            found = app.reconcile(id, given.call, tool, by=by)
        except HoldfastError as error:
            if asked is not None and error.__cause__ is not None:  # it was asked, and raised
                _heard(call, asked.key, by, f"{type(error.__cause__).__name__}: {error.__cause__}")
            raise
        if asked is not None and any(one.key == asked.key and one.kind == asked.kind for one in app.inbox(id)):
            _heard(call, asked.key, by, "it can't tell")
        return found

    return _done(call, given, given.call, act)


def _heard(call: PageCall, key: str, by: str, told: str) -> None:
    at_ms = call.app.clock.now_us() // 1000
    call.site.heard(call.at["id"], key, DestinationAnswer(at_ms=at_ms, by=by, told=told))


def start(call: PageCall) -> PageAnswer:
    """Start a task of an agent of the file that the page was given. It is pending until a worker takes it."""
    given, known = call.read(StartAct), call.site.known.agents
    if given.agent not in known:
        hint = f"it knows {', '.join(sorted(known))}" if known else "start the page with a file: holdfast ui agents.py"
        raise InvalidValue(f"this page knows no agent {given.agent!r}", hint=hint)
    more: dict[str, Any] = {name: getattr(given, name) or None for name in ("id", "user", "thread", "deadline")}
    agent = known[given.agent]
    return _once(
        call, lambda: call.app.start(agent, given.input, queue=given.queue, by=call.person.id, **more), given.id or ""
    )


def demo(call: PageCall) -> PageAnswer:
    """Run the demo in this store, in processes of its own: an agent is killed, and another process continues."""
    call.read(PlainAct)
    check_may_act(call)
    begin = call.site.known.demo
    if begin is None:
        raise Denied(403, "not-allowed", "The demo can't be run on this page.", "Run it beside: holdfast demo --ui")
    if call.app.counts().tasks:
        raise Denied(409, "not-empty", "This store has tasks.", "Give the demo a store of its own: holdfast demo --ui")
    return PageAnswer(call.site.once(call.person.id, call.key, call.asked, lambda: {"task": begin()}))


def budget(call: PageCall) -> PageAnswer:
    """Allow a task more."""
    given = call.read(BudgetAct)
    known = {name for name in Budget.__struct_fields__ if name != "on_exceed"}
    if not {*given.limits} <= known:
        odd = sorted({*given.limits} - known)[0]
        raise InvalidValue(f"{odd!r} is not a limit", hint=f"use some of {', '.join(sorted(known))}")
    more: dict[str, Any] = dict(given.limits)
    return _done(call, given, "", lambda app, id, by: app.raise_budget(id, Budget(**more), by=by, why=given.why))


def resume(call: PageCall) -> PageAnswer:
    """Make a failed or quarantined task pending for workers, or one that has lost events. It is not executed here."""
    given = call.read(ResumeAct)
    more: dict[str, Any] = {"why": given.why, "anyway": given.anyway, "deadline": given.deadline}
    return _done(call, given, "", lambda app, id, by: app.reopen(id, by=by, **more))


def cancel(call: PageCall) -> PageAnswer:
    """Cancel a task and its children."""
    given = call.read(PlainAct)
    return _done(call, given, "", lambda app, id, by: app.cancel(id, why=given.why, by=by))


def rollback(call: PageCall) -> PageAnswer:
    """Take a task back by steps, to a seq or to a checkpoint."""
    given = call.read(RollbackAct)
    return _done(call, given, "", lambda app, id, by: app.rollback(id, given.steps, to=given.to, by=by, why=given.why))


def signal(call: PageCall) -> PageAnswer:
    """Send a signal to a task."""
    given = call.read(SignalAct)
    return _done(call, given, "", lambda app, id, by: app.signal(id, given.name, given.value, by=by))


def patch(call: PageCall) -> PageAnswer:
    """Change what a task knows."""
    given = call.read(PatchAct)
    wanted = StatePatch.from_json(given.patch)
    return _done(
        call,
        given,
        "",
        lambda app, id, by: app.patch(id, wanted, expect=given.expect, by=by, why=given.why),
        check=False,
    )


def fork(call: PageCall) -> PageAnswer:
    """Begin a new task whose past is this one's, up to a seq."""
    given = call.read(ForkAct)
    wanted = StatePatch.from_json(given.patch) if isinstance(given.patch, dict) else None
    return _done(
        call,
        given,
        "",
        lambda app, id, by: app.fork(id, at=given.at, id=given.id, patch=wanted, effects=given.effects, by=by),
    )


def _done(
    call: PageCall,
    given: Act,
    about: str,
    act: Callable[[App, str, str], TaskState],
    *,
    check: bool = True,
) -> PageAnswer:
    """Do it, once for its key; answer with the task's header. If it was too late, say who was first."""
    id, app = call.at["id"], call.app

    def checked() -> TaskState:
        if check and given.expect is not None and app.head(id) != given.expect:
            raise Conflict(id, given.expect, app.head(id))
        return act(app, id, call.person.id)

    return _once(call, checked, id, about)


def _once(call: PageCall, act: Callable[[], TaskState], id: str, about: str = "") -> PageAnswer:
    app = call.app
    check_may_act(call)

    def once() -> dict[str, Any]:
        try:
            found = act()
        except (InvalidEvent, TaskFinished) as error:
            raise _first(app, id, about, error) from None
        return call.site.went(found.id, lambda went: tasks.header(call.site, found, went, is_now=True))

    return PageAnswer(call.site.once(call.person.id, call.key, call.asked, once))


def check_may_act(call: PageCall) -> None:
    """Refuse an act without a key, and every act of a page that only shows."""
    if not call.key:
        raise InvalidValue("an act needs an Idempotency-Key", hint="send a new random one with each act")
    if call.site.settings.read_only:
        raise Denied(403, "read-only", "This page was opened with --read-only.", "Use the command that it shows.")


def _first(app: App, id: str, about: str, error: HoldfastError) -> Exception:
    """The same error with who was first, if the log tells: the last act of a person about this."""
    after = max(0, app.head(id) - LOOKED_BACK)
    acts = [
        (one.seq, str(getattr(one.event, "by", "")))
        for one in app.events(id, after=after)
        if getattr(one.event, "by", "") and (not about or getattr(one.event, "key", about) == about)
    ]
    if not acts:
        return error
    seq, by = acts[-1]
    return Denied(409, error.code, f"{error.message}; {by} was first, at seq {seq}", error.hint, by=by, seq=seq)


# Logging in


def session(call: PageCall) -> PageAnswer:
    """Exchange the code of a link for a session."""
    sessions = call.site.sessions
    token = None if sessions is None else sessions.exchange(call.read(CodeBody).code)
    if token is None:
        hint = "Print a new link: holdfast ui --link"
        raise Denied(401, "code-used", "This link was used already, or is older than five minutes.", hint)
    return PageAnswer({"token": token})


def link(call: PageCall) -> PageAnswer:
    """Make a new link, for who can read the file beside the store."""
    sessions = call.site.sessions
    if sessions is None or not sessions.has_key(call.read(CodeBody).code):
        raise Denied(403, "not-allowed", "That is not the key of this page.")
    return PageAnswer({"code": sessions.code()})
