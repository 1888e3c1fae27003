"""`holdfast worker --traces --metrics` as a real process: what a collector and a Prometheus get from it."""

import os
import re
import shutil
import urllib.request

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

import holdfast
from holdfast import tracing
from holdfast.cli.failures.refusal import USAGE
from tests.cli import worker_agents as agents
from tests.cli.test_worker import Process, pids_of_children
from tests.engine.telemetry.collectors import collecting, refusing_endpoint
from tests.waiting import until

PROMETHEUS = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1"
"""What Prometheus accepts."""

LONG = pytest.mark.skipif(os.environ.get("HOLDFAST_TEST_ALL") != "1", reason="it takes seconds; make test-traces")


@pytest.fixture
def folder(tmp_path):
    shutil.copy(agents.__file__, tmp_path / "agents.py")
    return tmp_path


@pytest.fixture
def app(folder):
    with holdfast.open(folder / "holdfast.db") as opened:
        yield opened


@pytest.fixture
def collector():
    with collecting() as opened:
        yield opened


@pytest.fixture
def worker(folder, collector):
    """Start a worker that sends to the collector; none outlives the test."""
    begun = []

    def begin(*arguments, **environment):
        given = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint, **environment}
        begun.append(Process(folder, "worker", "agents.py", "--jsonl", *arguments, **given))
        return begun[-1]

    yield begin
    for one in begun:
        if one.process.poll() is None:
            one.process.kill()  # its children stop when their pipe to it is closed
            one.process.wait()


def ids_of(app, *tasks):
    """The spans that the log of each task gives, by name and id."""
    return sorted((one.name, f"{one.context.span_id:016x}") for id in tasks for one in tracing.spans(app, id))


def ids_sent(collector):
    return sorted((one.name, one.span_id.hex()) for one in collector.spans())


def counted(collector, name):
    """What each process last reported of a counter: its points by their labels, by the process's id."""
    found = {}
    for path, body in collector.requests:
        for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics if path == "/v1/metrics" else ():
            attributes = {one.key: one.value.string_value for one in resource.resource.attributes}
            for metric in (one for scope in resource.scope_metrics for one in scope.metrics if one.name == name):
                found[attributes["service.instance.id"]] = {
                    tuple(label.value.string_value for label in point.attributes): point.as_int
                    for point in metric.sum.data_points
                }
    return found


def served(url, accept):
    asked = urllib.request.Request(url, headers={"Accept": accept} if accept else {})
    with urllib.request.urlopen(asked, timeout=30) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def test_spans_arrive_while_it_works_and_sigterm_sends_the_rest(folder, app, collector, worker):
    app.start(agents.quick, id="q")
    app.start(agents.slow, {"steps": 3_000}, id="s")
    process = worker("--traces", "--metrics")
    until(lambda: [one.name for one in collector.spans()].count("holdfast.step nap") >= 2)
    until(lambda: "invoke_agent quick" in {one.name for one in collector.spans()})
    assert not collector.metrics(), "they are sent every minute, and it has not worked so long"
    assert "holdfast.life 1" not in {one.name for one in collector.spans() if one.trace_id == trace(app, "s")}
    assert process.ends() == 0
    assert ids_sent(collector) == ids_of(app, "q", "s"), "every span of the log came, once"
    assert [one.name for one in collector.spans() if one.trace_id == trace(app, "s")].count("holdfast.life 1") == 1
    steps = collector.metrics()["holdfast.step.duration"].histogram.data_points
    done = [one for one in ids_of(app, "q", "s") if one[0].startswith("holdfast.step")]
    assert sum(point.count for point in steps) == len(done)
    assert [*counted(collector, "holdfast.task.claims").values()] == [{("no",): 2}]


def trace(app, id):
    return bytes.fromhex(tracing.trace_id(app, id))


@LONG
def test_metrics_arrive_as_often_as_the_environment_says(folder, app, collector, worker):
    process = worker("--metrics", OTEL_METRIC_EXPORT_INTERVAL="100")
    app.start(agents.quick, id="q")
    until(lambda: [*counted(collector, "holdfast.task.ends").values()] == [{("completed",): 1}])
    assert not collector.spans(), "--traces was not given"
    assert process.ends() == 0


def test_each_of_several_processes_sends_its_own_and_has_an_identity_of_its_own(folder, app, collector, worker):
    app.start(agents.slow, {"steps": 3_000}, id="s-1")
    app.start(agents.slow, {"steps": 3_000}, id="s-2")
    process = worker("--processes", "2", "--concurrency", "1", "--traces", "--metrics")
    until(lambda: {one.trace_id for one in collector.spans()} >= {trace(app, "s-1"), trace(app, "s-2")})
    assert len(pids_of_children(process.process.pid)) == 2
    assert process.ends() == 0
    assert ids_sent(collector) == ids_of(app, "s-1", "s-2")
    claims = counted(collector, "holdfast.task.claims")
    assert [*claims.values()] == [{("no",): 1}, {("no",): 1}], "counters of two processes are two series"


@LONG
def test_a_collector_that_is_dead_does_not_keep_it_from_working_or_ending(folder, app, worker):
    app.start(agents.quick, id="q")
    process = worker("--traces", "--metrics", "--drain", OTEL_EXPORTER_OTLP_ENDPOINT=refusing_endpoint())
    assert process.ends(None) == 0
    assert app.get("q").status == "completed"
    assert "spans were not exported" in process.err and "holdfast traces export" in process.err


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_collector_that_cannot_be_reached_that_way_is_refused_once(folder, processes, worker):
    process = worker("--traces", "--processes", processes, OTEL_EXPORTER_OTLP_PROTOCOL="grpc")
    assert process.ends(None) == USAGE
    assert process.err.count("OTEL_EXPORTER_OTLP_PROTOCOL=grpc") == 1


def test_prometheus_gets_openmetrics_with_exemplars_and_others_plain_text(folder, app, collector, worker):
    app.start(agents.quick, id="q")
    process = worker("--traces", "--health", "0")
    until(lambda: any(one["event"] == "task" for one in process.lines))
    address = process.lines[0]["health"] + "/metrics"
    kind, text = until(lambda: answered(address, PROMETHEUS, 'holdfast_step_duration_seconds_count{kind="chain"'))
    assert kind == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert text.endswith("# EOF\n") and text.count("# EOF") == 1
    assert "# TYPE holdfast_task_claims counter" in text and 'holdfast_task_claims_total{taken="no"} 1' in text
    [seen] = set(re.findall(r'# \{trace_id="(\w+)",span_id="(\w+)"\}', text))
    assert seen[0] == tracing.trace_id(app, "q")
    assert ("holdfast.step double", seen[1]) in ids_of(app, "q"), "the exemplar leads to the step's span"
    for accept in ("", "text/plain", "*/*"):
        kind, text = served(address, accept)
        assert kind == "text/plain; version=0.0.4; charset=utf-8"
        assert "# EOF" not in text and "# {" not in text
        assert "# TYPE holdfast_task_claims_total counter" in text
    assert process.ends() == 0


def answered(address, accept, text):
    found = served(address, accept)
    return found if text in found[1] else None
