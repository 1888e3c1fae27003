"""Arguments that are of the wrong type: each is refused by name, before anything is written, and the task can end."""

import pytest

import holdfast
from holdfast import StatePatch, agent

STORES = ("memory",)


INSIDE = {
    "decide: question": lambda task: task.decide(5, 5),
    "decide: why": lambda task: task.decide("a", 5, why=5),
    "decide: options": lambda task: task.decide("a", 5, options=5),
    "fact: key": lambda task: task.fact(5, 1),
    "fact: source": lambda task: task.fact("a", 1, source=5),
    "question": lambda task: task.question(5),
    "artifact: summary": lambda task: task.artifact(1, summary=5),
    "artifact: step": lambda task: task.artifact(1, step=5),
    "note": lambda task: task.note(5, 1),
    "flag": lambda task: task.flag([]),
    "goal": lambda task: task.goal(5),
    "log": lambda task: task.log(5),
    "patch: why": lambda task: task.patch({"set": {"a": 1}}, why=5),
    "patch": lambda task: task.patch(5),
    "compensate": lambda task: task.compensate(5),
    "message: form": lambda task: task.message({"role": "user", "content": "a"}, form={}),
    "window: pinned": lambda task: task.messages.window(pinned=5),
    "window: a name pinned": lambda task: task.messages.window(pinned=["first"]),
    "render": lambda task: task.messages.render({}),
    "map": lambda task: task.map(len, 5),
    "state.get": lambda task: task.state.get([]),
    "state.set": lambda task: task.state.set([], 1),
    "state.append": lambda task: task.state.append({}, 1),
    "state.increment": lambda task: task.state.increment([]),
    "del state": lambda task: task.state.__delitem__([]),
    "user.state.get": lambda task: task.user.state.get([]),
    "user.state.set": lambda task: task.user.state.set([], 1),
    "thread.state.append": lambda task: task.thread.state.append({}, 1),
    "thread.state.increment": lambda task: task.thread.state.increment([]),
}


@pytest.mark.parametrize("name", INSIDE)
def test_a_task_that_catches_the_refusal_completes(app, name):
    @agent
    def odd(task):
        try:
            INSIDE[name](task)
        except holdfast.HoldfastError as refused:
            return refused.hint
        return None

    done = app.run(odd, id="t", user="ana", thread="th")
    assert done.status == "completed" and done.result, "it was refused, with a hint"
    assert app.verify().problems == []


OUTSIDE = {
    "user.state.set": lambda app: app.user("ana").state.set([], 1),
    "user.state.get": lambda app: app.user("ana").state.get([]),
    "user.state.append": lambda app: app.user("ana").state.append({}, 1),
    "user.state.increment": lambda app: app.user("ana").state.increment([]),
    "del user.state": lambda app: app.user("ana").state.__delitem__([]),
    "user.patch: name": lambda app: app.user("ana").patch({1: 2}),
    "user.tasks: limit": lambda app: app.user("ana").tasks(limit="x"),
    "user.tasks: many": lambda app: app.user("ana").tasks(limit=10**30),
    "user.tasks: status": lambda app: app.user("ana").tasks(status=5),
    "user.at": lambda app: app.user("ana").at("x"),
    "user.erase: by": lambda app: app.user("ana").erase(by=5),
    "user.erase: why": lambda app: app.user("ana").erase(why=5),
    "user.rollback": lambda app: app.user("ana").rollback(to="x"),
    "patch: facts": lambda app: app.patch("t", StatePatch(append_facts={"a": 1})),
    "patch: a fact": lambda app: app.patch("t", StatePatch(append_facts=["a"])),
    "patch: delete": lambda app: app.patch("t", StatePatch(delete=5)),
    "patch: delete text": lambda app: app.patch("t", StatePatch(delete="abc")),
    "thread.add: form": lambda app: app.thread("th").add([{"role": "user", "content": "x"}], form={}),
    "thread.render": lambda app: app.thread("th").render({}),
    "thread.window": lambda app: app.thread("th").window(pinned=5),
    "thread.page": lambda app: app.thread("th").page(limit=10**30),
    "window": lambda app: holdfast.window(5, max_tokens=5),
    "artifact": lambda app: app.artifact("t", []),
    "context": lambda app: app.get("t").context("\ud800"),
    "audit": lambda app: list(app.audit(limit=10**30)),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_what_is_asked_from_outside_is_refused_with_a_hint(app, name):
    app.run(agent(lambda task: 1, name="one"), id="t", user="ana", thread="th")
    app.user("ana").state.city = "Oslo"
    app.thread("th").message({"role": "user", "content": "x"})
    before = app.user("ana").get().seq, app.thread("th").seq, app.get("t").seq
    with pytest.raises(holdfast.HoldfastError) as refused:
        OUTSIDE[name](app)
    assert refused.value.hint
    assert (app.user("ana").get().seq, app.thread("th").seq, app.get("t").seq) == before


def test_a_log_line_may_have_a_field_of_any_name(app):
    @agent
    def logs(task):
        task.log("paid", text="all", self=1)

    app.run(logs, id="t")
    (line,) = [one.event for one in app.events("t") if one.kind == "log_written"]
    assert line.text == "paid" and set(line.fields) == {"text", "self"}
