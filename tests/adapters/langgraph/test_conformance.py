"""The published conformance suite of LangGraph, on every store."""

import asyncio

from langgraph.checkpoint.conformance import checkpointer_test, validate

import holdfast
from holdfast.adapters.langgraph import HoldfastSaver

STORES = ("memory", "sqlite", "postgres")
CAPABILITIES = {
    "put": 17,
    "put_writes": 10,
    "get_tuple": 10,
    "list": 16,
    "delete_thread": 5,
    "delete_for_runs": 7,
    "copy_thread": 8,
    "prune": 8,
}


def test_every_capability_is_there_and_passes_all_of_its_tests(url):
    @checkpointer_test(name="HoldfastSaver")
    async def ours():
        with holdfast.open(url) as app:
            yield HoldfastSaver(app)

    report = asyncio.run(validate(ours))
    assert {name: result.tests_passed for name, result in report.results.items() if result.detected} == CAPABILITIES
    assert not [failure for result in report.results.values() for failure in result.failures or ()]
    with holdfast.open(url) as app:
        assert app.verify().ok
