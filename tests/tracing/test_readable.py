"""Spans as OpenTelemetry's own objects, through its own exporter, and on the wire as its own encoder writes them."""

import subprocess
import sys

import pytest
from msgspec.structs import fields
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import holdfast
from holdfast import InvalidId, InvalidValue, MissingExtra, TaskNotFound, agent, tool, tracing
from holdfast.core import codec, events as ev
from holdfast.core.events.changes import Changes
from holdfast.core.events.kinds import BY_KIND
from holdfast.core.state.history import _ONLY_BESIDE
from holdfast.core.traces.fold import TraceFold
from holdfast.engine.telemetry.encoding import encode_span, request
from holdfast.tracing.readable import readable, task_spans
from tests.histories.test_histories import LOGS

STORES = ("memory", "sqlite", "postgres")


@tool(effect="read")
def look(city: str) -> str:
    return f"sunny in {city}"


@agent
def trip(task, city: str) -> str:
    task.stage("looking")
    return look(city)


def exported(spans):
    """What an exporter of OpenTelemetry's has been given."""
    memory = InMemorySpanExporter()
    memory.export(spans)
    return memory.get_finished_spans()


def test_the_spans_of_a_task_go_through_an_exporter_and_are_the_same_every_time(url):
    with holdfast.open(url) as app:
        app.run(trip, {"city": "Oslo"}, id="trip-7")
        found = {span.name: span for span in exported(tracing.spans(app, "trip-7"))}
        assert {*found} == {"execute_tool look", "holdfast.life 1", "invoke_agent trip"}
        root, life, call = (found[name] for name in ("invoke_agent trip", "holdfast.life 1", "execute_tool look"))
        assert root.parent is None and life.parent.span_id == root.context.span_id
        assert call.parent.span_id == life.context.span_id
        assert f"{root.context.trace_id:032x}" == tracing.trace_id(app, "trip-7")
        assert call.attributes["gen_ai.tool.name"] == "look" and "Oslo" not in str(found)
        again = tracing.spans(app, "trip-7")
        assert [one.to_json() for one in again] == [one.to_json() for one in tracing.spans(app, "trip-7")]
        assert "Oslo" in str([one.to_json() for one in tracing.spans(app, "trip-7", content=True)])


def test_odd_arguments_are_refused_by_name():
    with holdfast.open("memory:") as app:
        app.start("trip", id="trip-7")
        with pytest.raises(InvalidValue, match="content"):
            tracing.spans(app, "trip-7", content="yes")
        with pytest.raises(TaskNotFound):
            tracing.spans(app, "trip-8")
        with pytest.raises(InvalidId):
            tracing.spans(app, "@user/ana")


def test_without_the_extra_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with holdfast.open("memory:") as app:
        app.start("trip", id="trip-7")
        with pytest.raises(MissingExtra, match="opentelemetry-sdk") as missing:
            tracing.spans(app, "trip-7")
        assert "holdfast[otel]" in missing.value.hint


def sample(cls):
    """An event of a class, with the least that it needs."""
    one, boom = codec.pack(1), ev.Failure("ValueError", "no")
    known = {"key": "pay#1", "name": "pay", "wait": "person", "why": "person", "failure": boom, "patch": Changes()}
    known |= {"result": one, "value": one, "choice": one, "data": one, "hot": one, "steps": ("a",), "covers": ((0, 1),)}
    needed = [field for field in fields(cls) if field.required]
    return cls(**{one.name: known.get(one.name, 1 if one.type in (int, "int") else "x") for one in needed})


BEGINS = {
    "step_started": "holdfast.step",
    "attempt_failed": "holdfast.step",
    "step_completed": "holdfast.step",
    "step_failed": "holdfast.step",
    "step_doubted": "holdfast.in_doubt",
    "wait_started": "holdfast.wait",
    "approval_asked": "holdfast.approval",
    "task_claimed": "holdfast.life",
    "task_completed": "invoke_agent",
    "task_failed": "invoke_agent",
    "task_cancelled": "invoke_agent",
}
"""Kinds that have a span of their own. Every other kind, a new one too, is an event of the life or of the root."""


@pytest.mark.parametrize("kind", sorted(set(BY_KIND) - _ONLY_BESIDE))
def test_every_kind_of_event_is_seen_by_an_exporter(kind):
    event, begun = sample(BY_KIND[kind]), (ev.TaskCreated(agent="trip"), ev.TaskClaimed(holder="w1"))
    before = {"task_created": (), "task_forked": begun}.get(kind, begun)
    events = (*before, event, ev.TaskClaimed(holder="w2", taken="proven"), ev.TaskCancelled())
    fold, found = TraceFold("store", "trip-7"), []
    for seq, one in enumerate(events, start=1):
        found += fold.add(seq, seq, one)
    spans = exported(readable(found))
    seen = {(at.name, at.attributes["holdfast.seq"]) for span in spans for at in span.events}
    place = len(before) + 1
    if kind in BEGINS:
        ends = [span for span in spans if span.name.startswith(BEGINS[kind])]
        assert any(
            place in (span.attributes["holdfast.seq"], span.attributes.get("holdfast.last_seq")) for span in ends
        )
    else:
        assert (f"holdfast.{kind}", place) in seen


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
@pytest.mark.parametrize("content", [False, True])
def test_what_is_sent_is_what_opentelemetrys_own_encoder_writes(path, content):
    with holdfast.open("memory:") as app:
        app.import_(path)
        for row in app.list(limit=None):
            ours = list(task_spans(app, row.id, content=content))
            if not ours:
                continue
            theirs = encode_spans(tracing.spans(app, row.id, content=content))
            sent = ExportTraceServiceRequest.FromString(request({"service.name": "holdfast"}, map(encode_span, ours)))
            expected = {span.span_id: span for span in theirs.resource_spans[0].scope_spans[0].spans}
            (scope,) = sent.resource_spans[0].scope_spans
            assert scope.scope.name == "holdfast" and len(scope.spans) == len(expected) == len(ours)
            for span in scope.spans:
                other = expected[span.span_id]
                for one in (other, *other.links):
                    one.flags = 0  # what a span's context says of sampling; ours says nothing
                if not other.status.ByteSize():
                    other.ClearField("status")  # an empty one says as much as none
                span.ClearField("dropped_events_count")
                assert span == other


def test_nothing_of_it_is_imported_by_an_app_that_does_not_ask_for_it():
    program = """
import sys, holdfast
from holdfast import agent
app = holdfast.open("memory:")
@agent
def trip(task): return task.step(lambda: 1, name="one")
assert app.run(trip, id="t").result == 1
app.close()
odd = [name for name in sys.modules if "telemetry" in name or "holdfast.tracing" in name or "core.traces" in name]
assert not odd and "http.client" not in sys.modules, odd
import threading
assert not [one.name for one in threading.enumerate() if "telemetry" in one.name]
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
