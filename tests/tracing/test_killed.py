"""A task that is killed three times is one trace, told live or afterwards, and no span of it is told twice."""

import os
import signal
import subprocess
import sys

import pytest

import holdfast
from holdfast import tracing
from holdfast.tracing import Otlp
from tests.engine.telemetry.collectors import collecting
from tests.tracing.killed_agent import ID

LIVES = 4
ALL = os.environ.get("HOLDFAST_TEST_ALL") == "1"


def killed_three_times(store, endpoint=""):
    """Run the agent until it ends: three processes die of SIGKILL, the fourth completes the task."""
    command = [sys.executable, "-m", "tests.tracing.killed_agent", str(store), *([endpoint] if endpoint else [])]
    codes = [subprocess.run(command, check=False, timeout=120).returncode for _ in range(LIVES)]
    assert codes == [-signal.SIGKILL, -signal.SIGKILL, -signal.SIGKILL, 0]


def tree(spans):
    """Names of spans, each with the name of its parent. Each span is (id, parent, name)."""
    named = {id: name for id, _, name in spans}
    assert len(named) == len(spans), "a span came twice"
    return sorted((name, named.get(parent, "")) for _, parent, name in spans)


TREE = [
    ("chat m-1", "holdfast.life 2"),
    ("execute_tool pay", "holdfast.life 2"),
    ("holdfast.in_doubt pay", "invoke_agent trip"),
    ("holdfast.life 1", "invoke_agent trip"),
    ("holdfast.life 2", "invoke_agent trip"),
    ("holdfast.life 3", "invoke_agent trip"),
    ("holdfast.life 4", "invoke_agent trip"),
    ("holdfast.step look", "holdfast.life 1"),
    ("holdfast.wait timer", "invoke_agent trip"),
    ("invoke_agent trip", ""),
]


def test_killed_three_times_it_is_one_trace_with_right_parents(tmp_path):
    store = tmp_path / "holdfast.db"
    killed_three_times(store)
    with holdfast.open(store) as app:
        spans = tracing.spans(app, ID)
        assert {f"{span.context.trace_id:032x}" for span in spans} == {tracing.trace_id(app, ID)}
    shown = [(one.context.span_id, one.parent.span_id if one.parent else None, one.name) for one in spans]
    assert tree(shown) == TREE
    named = {span.name: span for span in spans}
    for life in range(2, LIVES + 1):
        (link,) = named[f"holdfast.life {life}"].links
        assert link.context.span_id == named[f"holdfast.life {life - 1}"].context.span_id
        assert link.attributes["holdfast.link"] == "taken over from"
    assert named["execute_tool pay"].attributes["holdfast.in_doubt"] is True
    assert [event.name for event in named["holdfast.step look"].events] == ["holdfast.attempt_failed"]


@pytest.mark.skipif(not ALL, reason="it takes seconds; make test-traces")
def test_told_live_no_span_comes_twice_and_exporting_adds_what_died_with_the_processes(tmp_path):
    store = tmp_path / "holdfast.db"
    with collecting() as collector:
        killed_three_times(store, collector.endpoint)
        live = collector.spans()
        shown = tree([(one.span_id, one.parent_span_id, one.name) for one in live])
        assert {*shown} <= {*TREE}, "what a process had not sent when it was killed is missing, and nothing else"
        assert {name for name, _ in shown} >= {"holdfast.life 3", "holdfast.life 4", "invoke_agent trip"}
        assert len({span.trace_id for span in live}) == 1
        with holdfast.open(store) as app:
            done = tracing.export(app, to=Otlp(endpoint=collector.endpoint))
            again = tracing.export(app, [ID], to=Otlp(endpoint=collector.endpoint))
        assert (done.tasks, done.spans, done.dropped) == (1, len(TREE), 0) == (again.tasks, again.spans, again.dropped)
        by_id = {}
        for span in collector.spans():
            assert by_id.setdefault(span.span_id, span) == span, "the same id is the same span, word for word"
        assert tree([(one.span_id, one.parent_span_id, one.name) for one in by_id.values()]) == TREE


@pytest.mark.skipif(not ALL, reason="it takes seconds; make test-traces")
def test_a_tail_sends_what_other_processes_do_and_loses_nothing_of_those_that_are_killed(tmp_path):
    store = tmp_path / "holdfast.db"
    with collecting() as collector, holdfast.open(store):
        command = [sys.executable, "-m", "holdfast", "traces", "tail", "--store", str(store)]
        command += ["--endpoint", collector.endpoint, "--seconds", "60s", "--jsonl"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as tail:
            try:
                assert "as they come" in tail.stderr.readline()
                killed_three_times(store)
                for line in tail.stdout:
                    if f'"spans":{len(TREE)}' in line.replace(" ", ""):
                        break
            finally:
                tail.send_signal(signal.SIGINT)
                tail.communicate(timeout=30)
        assert tree([(one.span_id, one.parent_span_id, one.name) for one in collector.spans()]) == TREE
