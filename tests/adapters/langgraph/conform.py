"""`python -m tests.adapters.langgraph.conform URL`: LangGraph's conformance suite, as far as it is installed or given.

Prints, as JSON, how many tests of each capability have passed, and what failed.
"""

import asyncio
import json
import sys

from langgraph.checkpoint.conformance import checkpointer_test, validate

import holdfast
from holdfast.adapters.langgraph import HoldfastSaver


def conform(url):
    @checkpointer_test(name="HoldfastSaver")
    async def ours():
        with holdfast.open(url) as app:
            yield HoldfastSaver(app)

    report = asyncio.run(validate(ours))
    with holdfast.open(url) as app:
        assert app.verify().ok
    passed = {name: result.tests_passed for name, result in report.results.items() if result.detected}
    return passed, [failure for result in report.results.values() for failure in result.failures or ()]


if __name__ == "__main__":
    print(json.dumps(conform(sys.argv[1])))
