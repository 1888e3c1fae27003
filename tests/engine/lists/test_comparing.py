"""Two tasks side by side: their common past, and their later events in pairs."""

from holdfast import StatePatch, agent
from holdfast.engine.lists.comparing import common_past, paired

STORES = ("memory", "sqlite")


@agent
def counts(task):
    task.step(lambda: 1, name="one")
    limit = task.wait("go")
    for number in range(limit):
        task.step(lambda: number, name="count")  # noqa: B023 — called at once
    return limit


def test_a_fork_shares_its_past_and_the_rest_stands_in_pairs(app):
    app.run(counts, id="t")
    app.fork("t", id="f", patch=StatePatch(set={"n": 1}))
    for id, limit in (("t", 1), ("f", 2)):
        app.signal(id, "go", limit)
        app.resume(id, counts)
    one, two = list(app.events("t")), list(app.events("f"))
    same = common_past(one, two)
    assert [event.seq for event in one[:same]] == [event.seq for event in two[:same]] and 0 < same < len(one)
    pairs = list(paired(one[same:], two[same:]))
    both = [(a.kind, b.kind) for a, b in pairs if a is not None and b is not None]
    assert all(a == b for a, b in both) and ("task_completed", "task_completed") in both
    only = [b for a, b in pairs if a is None]
    assert "task_forked" in [event.kind for event in only] and any(
        getattr(b.event, "key", "") == "count#2" for b in only
    )


def test_tasks_with_nothing_in_common_are_compared_too(app):
    app.start("a", id="a")
    app.start("b", id="b")
    assert common_past(list(app.events("a")), list(app.events("b"))) == 0
    assert [(a.seq, b.seq) for a, b in paired(list(app.events("a")), list(app.events("b")))] == [(1, 1)]
