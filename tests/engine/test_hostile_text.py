"""Text that no store can hold: refused by name where it is given, before anything is written or done."""

import inspect

import pytest

import holdfast
from holdfast import Budget, Machine, Queue, Schedule, StatePatch, agent, events as ev, tool

STORES = ("memory", "sqlite", "postgres")
LONE = "a\ud800b"
TALK = {"role": "user", "content": "hi"}


@agent
def idle(task):
    return 1


@tool(effect="once")
def pay(note: str = "") -> str:
    return "paid"


FROM_OUTSIDE = {
    "task id": lambda app: app.start("a", id=LONE),
    "user id": lambda app: app.start("a", user=LONE),
    "thread id": lambda app: app.start("a", thread=LONE),
    "goal": lambda app: app.start("a", goal=LONE),
    "stages": lambda app: app.start("a", stages=[LONE]),
    "queue": lambda app: app.start("a", queue=LONE),
    "key": lambda app: app.start("a", key=LONE),
    "agent's name": lambda app: app.start(LONE),
    "input": lambda app: app.start("a", {"x": LONE}),
    "name in the input": lambda app: app.start("a", {LONE: 1}),
    "contract": lambda app: app.start("a", contract={"goal": LONE}),
    "constraint": lambda app: app.start("a", contract={"goal": "g", "constraints": [LONE]}),
    "phases": lambda app: app.start("a", phases=Machine({LONE: []})),
    "run": lambda app: app.run(idle, id=LONE),
    "namespace": lambda app: holdfast.open("memory:", namespace=LONE),
    "user": lambda app: app.user(LONE),
    "user's state": lambda app: app.user("u").patch(StatePatch(set={LONE: 1})),
    "user's patch by": lambda app: app.user("u").patch(StatePatch(set={"a": 1}), by=LONE),
    "user's patch why": lambda app: app.user("u").patch(StatePatch(set={"a": 1}), why=LONE),
    "erase by": lambda app: app.user("u").erase(by=LONE),
    "erase why": lambda app: app.user("u").erase(why=LONE),
    "thread": lambda app: app.thread(LONE),
    "thread's message": lambda app: app.thread("th").message({"role": "user", "content": LONE}),
    "thread's message by": lambda app: app.thread("th").message(TALK, by=LONE),
    "signal": lambda app: app.signal("t", LONE),
    "signal's value": lambda app: app.signal("t", "s", LONE),
    "signal by": lambda app: app.signal("t", "s", by=LONE),
    "cancel by": lambda app: app.cancel("t", by=LONE),
    "cancel why": lambda app: app.cancel("t", why=LONE),
    "patch by": lambda app: app.patch("t", StatePatch(set={"a": 1}), by=LONE),
    "patch why": lambda app: app.patch("t", StatePatch(set={"a": 1}), why=LONE),
    "patch set": lambda app: app.patch("t", StatePatch(set={LONE: 1})),
    "patch append": lambda app: app.patch("t", StatePatch(append={LONE: 1})),
    "patch increment": lambda app: app.patch("t", StatePatch(increment={LONE: 1})),
    "patch delete": lambda app: app.patch("t", StatePatch(delete=[LONE])),
    "patch flag": lambda app: app.patch("t", StatePatch(raise_flags=[LONE])),
    "patch plan": lambda app: app.patch("t", StatePatch(replace_plan=[LONE])),
    "patch question": lambda app: app.patch("t", StatePatch(add_questions=[LONE])),
    "patch fact": lambda app: app.patch("t", StatePatch(append_facts=[{"key": LONE, "value": 1}])),
    "patch artifact": lambda app: app.patch("t", StatePatch(add_artifacts=[{"artifact_id": LONE, "type": "x"}])),
    "fork's id": lambda app: app.fork("t", id=LONE),
    "fork by": lambda app: app.fork("t", by=LONE),
    "budget by": lambda app: app.raise_budget("t", Budget(steps=5), by=LONE),
    "budget why": lambda app: app.raise_budget("t", Budget(steps=5), why=LONE),
    "rollback's label": lambda app: app.rollback("t", to=LONE),
    "rollback by": lambda app: app.rollback("t", to=1, by=LONE),
    "rollback why": lambda app: app.rollback("t", to=1, why=LONE),
    "resume by": lambda app: app.resume("failed", idle, by=LONE),
    "resume why": lambda app: app.resume("failed", idle, why=LONE),
    "append": lambda app: app.append("t", ev.LogWritten(text=LONE)),
    "gc why": lambda app: app.gc(keep=0, why=LONE),
    "answer": lambda app: app.answer("t", LONE, 1),
    "approve": lambda app: app.approve("t", LONE),
    "settle": lambda app: app.settle("t", LONE, happened=True),
    "get": lambda app: app.get(LONE),
    "list agent": lambda app: app.list(agent=LONE),
    "list stage": lambda app: app.list(stage=LONE),
    "list user": lambda app: app.list(user=LONE),
    "list after": lambda app: app.list(after=LONE),
    "step": lambda app: app.step("t", LONE),
    "audit": lambda app: list(app.audit(task=LONE)),
    "worker's name": lambda app: app.worker([idle], name=LONE),
    "worker's queue": lambda app: app.worker([idle], queues=[LONE]),
    "declared queue": lambda app: Queue(LONE),
    "declared agent": lambda app: agent(name=LONE)(idle.fn),
    "declared version": lambda app: agent(name="v", version=LONE)(idle.fn),
    "declared tool": lambda app: tool(name=LONE)(pay.fn),
    "declared risk": lambda app: tool(risk=LONE)(pay.fn),
    "schedule": lambda app: Schedule(LONE, idle, "every 1h"),
    "export": lambda app: app.export("t", LONE),
    "backup": lambda app: app.backup(LONE),
    "address": lambda app: holdfast.open(LONE),
}


def test_a_lone_surrogate_from_outside_is_refused_and_nothing_is_written(app, tmp_path, monkeypatch):
    """One store for all of them: a database a call would take longer than the calls."""
    monkeypatch.chdir(tmp_path)
    app.start("a", id="t")
    app.append("t", ev.LogWritten(text="x"))
    app.start("idle", id="failed")
    app.append("failed", ev.TaskFailed(failure=ev.Failure("ValueError", "no")))
    before, wrong = app.stats().events, {}
    for name, call in FROM_OUTSIDE.items():
        try:
            call(app)
            wrong[name] = "accepted"
        except holdfast.HoldfastError as refused:
            if not refused.hint or not str(refused).isprintable():
                wrong[name] = ascii(str(refused))
        except Exception as error:
            wrong[name] = ascii(error)
        if app.stats().events != before:
            wrong[name] = f"{wrong.get(name, '')} and {app.stats().events - before} events were written"
            before = app.stats().events
    assert not wrong and app.verify().ok


did: list[str] = []


def act(*given, **more):
    did.append("acted")
    return 1


def raises_oddly():
    error = ValueError(LONE)
    error.code = LONE
    error.add_note(LONE)
    raise error


@tool(effect="once", unique="order-{note}")
def order(note: str) -> str:
    did.append("ordered")
    return "ordered"


VERBS = {
    "step's name": lambda task: task.step(act, name=LONE),
    "step's argument": lambda task: task.step(act, LONE),
    "step's named argument": lambda task: task.step(act, **{LONE: 1}),
    "call's argument": lambda task: task.call(pay, note=LONE),
    "unique key": lambda task: task.call(order, note=LONE),
    "map's name": lambda task: task.map(act, [1], name=LONE),
    "map's item": lambda task: task.map(act, [LONE]),
    "spawn's name": lambda task: task.spawn(idle, name=LONE),
    "question to a person": lambda task: task.ask(LONE),
    "its name": lambda task: task.ask("?", name=LONE),
    "approval": lambda task: task.approve(LONE),
    "approval's name": lambda task: task.approve("?", name=LONE),
    "signal": lambda task: task.wait(LONE),
    "checkpoint": lambda task: task.checkpoint(LONE),
    "stage": lambda task: task.stage(LONE),
    "phase": lambda task: task.phase(LONE),
    "decision's question": lambda task: task.decide(LONE, 1),
    "decision's choice": lambda task: task.decide("?", LONE),
    "decision's reason": lambda task: task.decide("?", 1, why=LONE),
    "fact's key": lambda task: task.fact(LONE, 1),
    "fact": lambda task: task.fact("k", LONE),
    "fact's source": lambda task: task.fact("k", 1, source=LONE),
    "plan": lambda task: task.plan([LONE]),
    "plan step": lambda task: task.done(LONE),
    "question": lambda task: task.question(LONE),
    "artifact": lambda task: task.artifact(LONE),
    "artifact's type": lambda task: task.artifact("x", type=LONE),
    "artifact's summary": lambda task: task.artifact("x", summary=LONE),
    "artifact's step": lambda task: task.artifact("x", step=LONE),
    "note's key": lambda task: task.note(LONE, 1),
    "note": lambda task: task.note("k", LONE),
    "flag": lambda task: task.flag(LONE),
    "line of the log": lambda task: task.log(LONE),
    "message": lambda task: task.message({"role": "user", "content": LONE}),
    "patch": lambda task: task.patch(StatePatch(set={LONE: 1})),
    "patch's reason": lambda task: task.patch(StatePatch(set={"a": 1}), why=LONE),
    "state": lambda task: setattr(task.state, LONE, 1),
    "state's value": lambda task: setattr(task.state, "k", LONE),
    "state that grows": lambda task: task.state.increment(LONE),
    "list that grows": lambda task: task.state.append(LONE, 1),
    "user's state": lambda task: setattr(task.user.state, LONE, 1),
    "compensation": lambda task: task.compensate(pay, note=LONE),
}


def agents(verb, seen):
    """A `def` and an `async def` agent that survive a refused verb, and go on."""

    @agent(name="sync")
    def one(task):
        try:
            verb(task)
        except holdfast.HoldfastError as error:
            seen.append(error)
        task.step(act, name="after")
        return "done"

    @agent(name="async")
    async def other(task):
        try:
            given = verb(task)
            if inspect.isawaitable(given):
                await given
        except holdfast.HoldfastError as error:
            seen.append(error)
        await task.step(act, name="after")
        return "done"

    return {"def": one, "async def": other}


@pytest.mark.parametrize("kind", ["def", "async def"])
@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
def test_a_lone_surrogate_in_a_verb_is_refused_there_and_the_task_goes_on(kind, verb):
    did.clear()
    seen = []
    with holdfast.open("memory:") as app:
        done = app.run(agents(verb, seen)[kind], id="t", user="ana", hold=0)
        assert app.verify().ok
    assert len(seen) == 1 and seen[0].hint, "the verb itself refused it"
    assert (done.status, done.result, did) == ("completed", "done", ["acted"]), "and nothing was done for it"


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_what_an_exception_holds_is_kept_as_far_as_it_is_text(app, kind):
    seen = []
    done = app.run(agents(lambda task: task.step(raises_oddly), seen)[kind], id="t", user="ana")
    failed = done.steps["raises_oddly#1"].failure
    assert done.status == "completed"
    assert (failed.message, failed.code, failed.notes) == ("a?b", "a?b", ("a?b",))


@pytest.mark.parametrize("given", [{"stages": ["a\0b"]}, {"key": "a\0b"}, {"user": "a\0b"}, {"queue": "a\0b"}])
def test_a_name_with_the_character_nul_is_refused_by_every_store(app, given):
    with pytest.raises(holdfast.InvalidValue):
        app.start("a", **given)
    assert app.stats().events == 0
