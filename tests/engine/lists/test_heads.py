"""How far many tasks or threads have come, in one question."""

import asyncio

import pytest

import holdfast
from holdfast import InvalidId, InvalidValue, StatePatch

STORES = ("memory", "sqlite", "postgres")


def test_the_heads_of_tasks_and_threads_are_those_of_their_logs(app):
    app.start("recap", id="one")
    app.start("recap", id="two")
    app.patch("two", StatePatch(set={"n": 1}))
    app.fork("two", id="three")
    app.thread("two").message({"role": "user", "content": "hi"})
    found = app.heads(["two", "one", "none", "three", "two"])
    assert found == {"two": app.head("two"), "one": 1, "none": 0, "three": app.head("three")}
    assert app.heads(iter(["two", "one"]), of="threads") == {"two": app.thread("two").seq, "one": 0}
    assert app.heads([]) == {} and asyncio.run(app.aio.heads(["one"])) == {"one": 1}


def test_heads_are_those_of_the_namespace(app, url):
    app.start("recap", id="ours")
    if url.startswith("memory"):
        pytest.skip("a memory store can't be opened a second time")
    with holdfast.open(url, namespace="theirs") as tenant:
        assert tenant.heads(["ours"]) == {"ours": 0} and tenant.start("recap", id="ours").seq == 1
        app.patch("ours", StatePatch(set={"n": 1}))
        assert tenant.heads(["ours"]) == {"ours": 1} and app.heads(["ours"]) == {"ours": 2}


def test_odd_questions_are_refused(app):
    for ids, of, error in (
        (["@user/ana"], "tasks", InvalidId),
        ("one", "tasks", InvalidValue),
        ([], "users", InvalidValue),
    ):
        with pytest.raises(error):
            app.heads(ids, of=of)
