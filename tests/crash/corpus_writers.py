"""Agents that are not alone: another writer changes what they have read. The corpus, continued."""

from holdfast import PatchConflict, StatePatch, agent
from holdfast.engine.app import App
from tests.crash.corpus import cast, of_kind, tools_of

ANA = "@user/ana"


def writers(world):
    """A task whose change is refused, which then updates what it wanted to set, and its own state inside."""
    return _writers(world, False)


def async_writers(world):
    """The same on an event loop."""
    return _writers(world, True)


def _writers(world, is_async):
    tools, open_apps = tools_of(world), {}

    def move():
        """Another writer changes the user's state."""
        open_apps["app"].user("ana").patch(StatePatch(set={"n": 50}), by="ben")

    def stale(task, n):
        task.user.state.n = n + 1
        task.user.state.city = "Oslo"
        task.state.set("prefs.seat", "aisle")
        task.state.append("prefs.likes", "trains")

    def plus_one(n):
        return (n or 0) + 1

    @agent(name="writer")
    def plain(task):
        n = task.user.state.n
        task.step(move)
        stale(task, n)
        try:
            task.call(tools.pay, amount=1)
        except PatchConflict as conflict:
            task.state.refused = conflict.details["theirs"]
        made = task.user.state.update("n", plus_one)
        task.state.update("prefs.trips", plus_one)
        task.patch(StatePatch(require={"prefs.trips": 1}, set={"sent": True}))
        paid = task.call(tools.pay, amount=made)
        return [n, made, task.user.state.n, paid]

    @agent(name="writer")
    async def looping(task):
        n = task.user.state.n
        await task.step(move)
        stale(task, n)
        try:
            await task.call(tools.apay, amount=1)
        except PatchConflict as conflict:
            task.state.refused = conflict.details["theirs"]
        made = await task.user.state.update("n", plus_one)
        await task.state.update("prefs.trips", plus_one)
        task.patch(StatePatch(require={"prefs.trips": 1}, set={"sent": True}))
        paid = await task.call(tools.apay, amount=made)
        return [n, made, task.user.state.n, paid]

    worker = looping if is_async else plain

    def begin(app):
        app.user("ana").state.n = 1

    def write(app):
        open_apps["app"] = app
        return app.run(worker, id="t", user="ana")

    def nothing_lost(state, world):
        bag = App(state._logs.store, state._logs.clock).user("ana").state.all()
        assert bag == {"n": 51, "city": "Oslo"}, f"the user's state is {bag}"
        prefs = {"seat": "aisle", "likes": ["trains"], "trips": 1}
        assert state.state == {"prefs": prefs, "refused": "set 50", "sent": True}, dict(state.state)
        assert len(of_kind(state, "patch_refused")) == 1, "one change was refused, once"
        said = [one.patch for one in of_kind(state, "user_patched")]
        told = [one.patch for one in of_kind(state, "state_patched", ANA) if one.task == "t"]
        assert said == told and len(said) == 2, "what a task says of its user stands in the user's log, once"

    result = [1, 51, 51, 51 if is_async else "pay-1"]
    given = {"drive": write, "id": "t", "agents": [worker], "setup": begin}
    return cast({"pay": 1}, result=result, also=nothing_lost, **given)


CORPUS = [writers, async_writers]
