"""No span is given out twice, wherever the process that works on a task is killed."""

import os
from collections import Counter

import holdfast
from holdfast import DidNotHappen, Happened, agent, tool
from holdfast.core import limits
from holdfast.engine.telemetry.telemetry import Telemetry
from holdfast.tracing import Otlp
from tests.engine.telemetry.collectors import collecting

FEW = None if os.environ.get("HOLDFAST_TEST_ALL") == "1" else 6


def test_no_span_of_a_replayed_step_is_given_out_twice_wherever_it_is_killed(crash_everywhere, world, monkeypatch):
    monkeypatch.setattr(limits, "TELEMETRY_SECONDS", 0.005)  # so that much is sent before the kill

    @tool(effect="once", reconcile=lambda call: found(call), reconcile_after=0)
    def pay(amount: int, *, idempotency_key: str) -> str:
        return world.request("pay", key=idempotency_key, amount=amount)["receipt"]

    def found(call):
        seen = world.find(call.idempotency_key)
        return Happened(seen.receipt) if seen else DidNotHappen()

    @agent
    def shop(task, order: int):
        task.step(lambda: world.request("price", order=order) and 3, name="price")
        task.call(pay, amount=3)
        return task.step(lambda: 1, name="last")

    with collecting() as collector:

        def drive(app):
            to = Otlp(endpoint=collector.endpoint)
            app.telemetry = Telemetry(app.logs, traces=to, metrics=None, measured=False, lines=False)
            try:
                return app.run(shop, {"order": 17}, id="crash-test")
            finally:
                app.telemetry.close()

        options = {"agents": [shop], "mode": "kill", "store": "sqlite", "sample": FEW, "exceptions": False}
        report = crash_everywhere(drive=drive, world=world, **options)
        spans = collector.spans()
    assert report.tried >= 6 and report.survived + report.missed == report.tried
    times = Counter((span.trace_id, span.span_id) for span in spans)
    assert max(times.values()) == 1, [span.name for span in spans if times[span.trace_id, span.span_id] > 1]
    traces = {span.trace_id for span in spans}
    roots = Counter(span.trace_id for span in spans if span.name == "invoke_agent shop")
    assert max(roots.values()) == 1 and len(traces) == report.tried + 1, "each trial is one trace with one root"
    # A process that is killed between the end of its task and the next sending takes the root with it.
    assert len(traces) - len(roots) <= 4
    replayed = Counter((span.trace_id, span.name) for span in spans if span.name.startswith("holdfast.step"))
    assert set(replayed.values()) == {1}, "a step that was replayed is told by the life that did it, or not at all"
    links = [link for span in spans for link in span.links]
    assert len(links) > report.tried // 2 and all(link.trace_id in traces for link in links)


def test_the_same_holds_for_an_app_that_is_opened_with_traces(tmp_path):
    """What the trial above sets by hand is what `open` does."""
    with collecting() as collector:
        with holdfast.open(tmp_path / "a.db", traces=Otlp(endpoint=collector.endpoint)) as app:
            assert isinstance(app.telemetry, Telemetry)
            app.run(agent(lambda task: task.step(lambda: 1, name="one"), name="shop"), id="t")
        assert len(collector.spans()) == 3
