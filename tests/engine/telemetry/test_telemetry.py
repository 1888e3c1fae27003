"""Traces, metrics and log lines of an app, sent in the background to collectors that work and ones that do not."""

import logging
import threading
import time

import pytest

import holdfast
from holdfast import InvalidValue, agent, tool, tracing
from holdfast.core import limits
from holdfast.tracing import Otlp
from tests.engine.telemetry.collectors import collecting, refusing_endpoint
from tests.waiting import until

STORES = ("memory", "sqlite", "postgres")


@tool(effect="once")
def pay(euros: int) -> str:
    return "paid"


@agent
def shop(task, steps: int) -> int:
    for number in range(steps):
        task.step(abs, number, name="count")
    pay(euros=7)
    return steps


@agent
def flaky(task):
    tries = []

    def look():
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionError("no")
        return 1

    return task.step(look, retry=holdfast.Retry(attempts=3, first="1ms"))


@agent
def asking(task):
    return task.ask("who?")


def names(spans):
    return sorted(span.name for span in spans)


def test_what_an_app_does_is_sent_once_and_a_second_run_sends_nothing(url):
    with collecting() as collector:
        for _ in range(2):
            with holdfast.open(url, traces=Otlp(endpoint=collector.endpoint, service="shop")) as app:
                assert app.run(shop, {"steps": 3}, id="s-1").status == "completed"
                if url == "memory:":
                    assert app.run(shop, {"steps": 3}, id="s-1").status == "completed"
            if url == "memory:":
                break
        found = collector.spans()
        steps = ["holdfast.step count"] * 3
        assert names(found) == ["execute_tool pay", "holdfast.life 1", *steps, "invoke_agent shop"]
        with_ids = {span.span_id for span in found}
        assert len(with_ids) == len(found) and len({span.trace_id for span in found}) == 1
        assert all(span.parent_span_id in with_ids for span in found if span.parent_span_id)


def test_what_is_sent_live_is_what_the_log_gives_afterwards(url):
    with collecting() as live, collecting() as later:
        with holdfast.open(url, traces=Otlp(endpoint=live.endpoint)) as app:
            app.run(shop, {"steps": 2}, id="s-1")
            app.run(flaky, id="f-1")
            app.run(asking, id="a-1")
            app.answer("a-1", "ask#1", "ana")
            app.run(asking, id="a-1")
            tracing.export(app, to=Otlp(endpoint=later.endpoint))
        assert sorted(one.SerializeToString() for one in live.spans()) == sorted(
            one.SerializeToString() for one in later.spans()
        )
        assert "holdfast.wait ask" in names(live.spans())


def test_what_ends_between_lives_is_given_out_once_by_the_life_that_follows(tmp_path):
    url = str(tmp_path / "store.db")
    with collecting() as collector:
        for _ in range(2):
            with holdfast.open(url, traces=Otlp(endpoint=collector.endpoint)) as app:
                app.run(asking, id="a-1")
        with holdfast.open(url) as other:  # a process that tells nothing ends the wait
            other.answer("a-1", "ask#1", "ana")
        assert "holdfast.wait ask" not in names(collector.spans())
        with holdfast.open(url, traces=Otlp(endpoint=collector.endpoint)) as app:
            assert app.run(asking, id="a-1").status == "completed"
        assert names(collector.spans()).count("holdfast.wait ask") == 1
        ids = [span.span_id for span in collector.spans()]
        assert len(ids) == len({*ids})


def test_content_is_sent_only_if_it_is_asked_for(url):
    for content in (False, True):
        with collecting() as collector:
            to = Otlp(endpoint=collector.endpoint, content=content, headers={"x-token": "t-1"})
            with holdfast.open(url, traces=to) as app:
                app.run(asking, id=f"a-{content}")
                app.answer(f"a-{content}", "ask#1", "c4n4ry")
                app.run(asking, id=f"a-{content}")
            sent = b"".join(body for _, body in collector.requests)
            assert (b"c4n4ry" in sent) is content
            assert collector.headers[0]["x-token"] == "t-1"


def test_the_environment_says_where_to_send(monkeypatch):
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20x")
        monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.name=shop,team=a")
        with holdfast.open("memory:", traces=True) as app:
            app.run(shop, {"steps": 1}, id="s-1")
        assert collector.headers[0]["authorization"] == "Bearer x"
        assert b"shop" in collector.requests[0][1] and b"team" in collector.requests[0][1]
        assert len(collector.spans()) == 4


# Collectors that are dead


@pytest.mark.parametrize("how", ["hangs", "refuses", "500", "503"])
def test_a_dead_collector_blocks_nothing_and_what_is_lost_is_counted(how, caplog, monkeypatch):
    monkeypatch.setattr(limits, "TELEMETRY_SECONDS", 0.05)
    monkeypatch.setattr(limits, "TELEMETRY_CLOSE_SECONDS", 0.5)
    monkeypatch.setattr(limits, "OTLP_KEPT", 100)
    status = int(how) if how.isdigit() else 200
    with collecting(status=status, wait=threading.Event() if how == "hangs" else None) as collector:
        endpoint = refusing_endpoint() if how == "refuses" else collector.endpoint
        app = holdfast.open("memory:", traces=Otlp(endpoint=endpoint), metrics=True)
        began = time.monotonic()
        for number in range(20):
            assert app.run(shop, {"steps": 20}, id=f"s-{number}").status == "completed"
        assert time.monotonic() - began < limits.OTLP_TIMEOUT_SECONDS * 10, "it waits for no answer"
        telemetry = app.telemetry
        if how != "hangs":
            until(lambda: telemetry.dropped)
            assert "holdfast_otlp_spans_dropped_total" in app.metrics()
        began = time.monotonic()
        app.close()
        assert time.monotonic() - began < 3 * limits.OTLP_TIMEOUT_SECONDS, "it waits for half a second"
        assert len(telemetry._spans) <= 100 + limits.OTLP_BATCH, "what is kept is bounded"
        if how != "hangs":
            assert telemetry.dropped == 20 * 23, "every span that was made and not taken is counted"
    said = [one.getMessage() for one in caplog.records if one.name == "holdfast"]
    warned = [one for one in said if "does not take what is sent" in one]
    assert len(warned) <= 2, said
    assert how == "500" or any("spans were not exported" in one for one in said), said


def test_a_collector_that_comes_back_gets_what_was_kept(monkeypatch):
    monkeypatch.setattr(limits, "TELEMETRY_SECONDS", 0.05)
    monkeypatch.setattr(limits, "OTLP_PAUSE_SECONDS", 0.1)
    with (
        collecting(status=503) as collector,
        holdfast.open("memory:", traces=Otlp(endpoint=collector.endpoint)) as app,
    ):
        app.run(shop, {"steps": 3}, id="s-1")
        until(lambda: collector.headers)
        collector.status = 200
        until(lambda: len(collector.spans()) == 6)
        assert app.telemetry.dropped == 0


def test_what_does_not_fit_in_memory_is_read_from_the_store_again(monkeypatch, tmp_path):
    monkeypatch.setattr(limits, "TELEMETRY_SECONDS", 30.0)
    monkeypatch.setattr(limits, "TELEMETRY_KEPT", 5)
    monkeypatch.setattr(limits, "TELEMETRY_TASKS", 1)
    with collecting() as collector:
        with holdfast.open(tmp_path / "store.db", traces=Otlp(endpoint=collector.endpoint)) as app:
            for number in range(3):
                app.run(shop, {"steps": 5}, id=f"s-{number}")
        assert len({span.span_id for span in collector.spans()}) == 3 * 8 == len(collector.spans())


# Metrics


def test_metrics_are_measured_and_sent_and_their_exemplars_lead_to_spans(url):
    with collecting() as collector:
        to = Otlp(endpoint=collector.endpoint)
        with holdfast.open(url, traces=to, metrics=to) as app:
            app.run(shop, {"steps": 3}, id="s-1")
            app.run(flaky, id="f-1")
            app.run(asking, id="a-1")
            app.start(shop, {"steps": 1}, id="s-2")
            until(lambda: "holdfast_step_retries_total" in app.metrics() and 'step="look"} 2' in app.metrics())
            text, open_text = app.metrics(), app.metrics(openmetrics=True)
        found = collector.metrics()
        steps = found["holdfast.step.duration"].histogram
        assert sum(point.count for point in steps.data_points) == 5 and steps.aggregation_temporality == 2
        spans = {(span.trace_id, span.span_id) for span in collector.spans()}
        seen = {(one.trace_id, one.span_id) for point in steps.data_points for one in point.exemplars}
        assert seen and seen <= spans
        claims = {
            point.attributes[0].value.string_value: point.as_int
            for point in found["holdfast.task.claims"].sum.data_points
        }
        assert claims == {"no": 3} and found["holdfast.task.claims"].sum.is_monotonic
        assert found["holdfast.commit.duration"].histogram.data_points[0].count >= 10
        statuses = {
            point.attributes[0].value.string_value: point.as_int for point in found["holdfast.tasks"].gauge.data_points
        }
        assert statuses["completed"] == 2 and statuses["waiting"] == 1 and statuses["pending"] == 1
    assert 'holdfast_waits{kind="person",namespace="",queue="default"} 1' in text
    assert "holdfast_waits_age_seconds" in text and 'holdfast_tasks{status="pending"} 1' in text
    assert "# {trace_id=" in open_text and open_text.endswith("# EOF\n") and "# {" not in text


def test_tokens_and_cost_are_counted():
    @agent
    def talking(task):
        reply = {"role": "assistant", "content": "hi", "model": "m-1"}
        return task.step(lambda: {**reply, "usage": {"prompt_tokens": 12, "completion_tokens": 3}}, name="model")

    with holdfast.open("memory:", metrics=True, prices={"m-1": holdfast.Price(input=1, output=1)}) as app:
        app.run(talking, id="t-1")
        app.telemetry.close()
        text = app.metrics()
    assert 'holdfast_budget_tokens_total{model="m-1",type="input"} 12' in text
    assert 'holdfast_budget_tokens_total{model="m-1",type="output"} 3' in text
    assert 'holdfast_budget_cost_total{model="m-1"} 1.5e-05' in text, "12 and 3 tokens at a dollar a million"


def test_calls_in_doubt_are_counted_when_they_become_so_and_shown_until_they_are_settled(url):
    @tool(effect="once")
    def wire(euros: int) -> str:
        raise ConnectionError("the line broke")

    @agent
    def payer(task) -> str:
        return task.call(wire, euros=7)

    with holdfast.open(url, metrics=True) as app:
        assert app.run(shop, {"steps": 1}, id="s-1").status == "completed", "a call that is answered is not in doubt"
        assert "holdfast_calls_in_doubt 0\n" in app.metrics() and "\nholdfast_call_doubts_total " not in app.metrics()
        for id in ("p-1", "p-2"):
            assert app.run(payer, id=id).waiting.kind == "doubt"
        until(lambda: "\nholdfast_calls_in_doubt 2\n" in app.metrics())
        assert "\nholdfast_call_doubts_total 2\n" in app.metrics()
        assert 'holdfast_waits{kind="doubt",namespace="",queue="default"} 2' in app.metrics()
        app.settle("p-1", "wire#1", happened=True, result="receipt", by="ana")
        assert app.run(payer, id="p-1").result == "receipt"
        until(lambda: "\nholdfast_calls_in_doubt 1\n" in app.metrics())
        assert "\nholdfast_call_doubts_total 2\n" in app.metrics(), "settling does not undo that it was in doubt"


def test_an_app_that_measures_nothing_tells_what_the_store_counts(url):
    with holdfast.open(url) as app:
        app.start(shop, {"steps": 1}, id="s-1")
        text = app.metrics()
        assert 'holdfast_tasks{status="pending"} 1' in text and "holdfast_step_duration" not in text
        with pytest.raises(InvalidValue, match="openmetrics"):
            app.metrics(openmetrics=1)


def test_labels_have_a_limit(monkeypatch):
    from holdfast.engine.telemetry import instruments

    monkeypatch.setattr(instruments, "MAX_SERIES", 3)
    counter = instruments.Counter("a", "1", "b")
    for number in range(10):
        counter.add(step=f"s{number}")
    assert len(counter.points) == 4 and counter.points[("step", "other"),] == 7


# Log lines


def test_each_event_is_a_log_line_with_task_step_seq_and_trace(url, caplog):
    caplog.set_level(logging.DEBUG, "holdfast.events")
    with holdfast.open(url, logs=True) as app:
        app.run(shop, {"steps": 1}, id="s-1")
        trace = tracing.trace_id(app, "s-1")
        events = list(app.events("s-1"))
    lines = [one for one in caplog.records if one.name == "holdfast.events"]
    assert [(one.holdfast_seq, one.holdfast_kind) for one in lines] == [(one.seq, one.kind) for one in events]
    assert {(one.holdfast_task, one.trace_id, one.holdfast_trace_id) for one in lines} == {("s-1", trace, trace)}
    assert {one.holdfast_step for one in lines} == {"", "count#1", "pay#1"}
    assert {one.threadName for one in lines} <= {"holdfast-telemetry", "MainThread"}


def test_lines_that_a_program_writes_can_have_the_task_too(caplog):
    with holdfast.open("memory:") as app:
        log = logging.getLogger("shop")
        caplog.handler.addFilter(context := tracing.TaskContext(app))

        @agent
        def talking(task):
            log.warning("in the body")
            task.step(lambda: log.warning("in a step"), name="say")

        try:
            app.run(talking, id="t-1")
            log.warning("outside")
        finally:
            caplog.handler.removeFilter(context)
        told = [(one.getMessage(), one.holdfast_task, one.holdfast_step, one.trace_id) for one in caplog.records]
        trace = tracing.trace_id(app, "t-1")
    assert told == [
        ("in the body", "t-1", "", trace),
        ("in a step", "t-1", "say#1", trace),
        ("outside", "", "", ""),
    ]


# What is refused


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"traces": "yes"}, "traces='yes'"),
        ({"traces": None}, "traces=None"),
        ({"metrics": 1}, "metrics=1"),
        ({"logs": "debug"}, "logs='debug'"),
    ],
)
def test_odd_options_of_open_are_refused_before_anything_is_made(given, says, tmp_path):
    with pytest.raises(InvalidValue, match=says):
        holdfast.open(tmp_path / "store.db", **given)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "given",
    [
        {"endpoint": "localhost:4318"},
        {"endpoint": "ftp://here"},
        {"endpoint": "http://host:port"},
        {"endpoint": 7},
        {"headers": {"a": 1}},
        {"headers": ["a"]},
        {"timeout": 0},
        {"timeout": True},
        {"timeout": "10s"},
        {"content": 1},
        {"service": None},
    ],
    ids=str,
)
def test_an_odd_collector_is_refused(given):
    with pytest.raises(InvalidValue):
        Otlp(**given)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector"),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "collector"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "often"),
    ],
)
def test_an_odd_environment_is_refused_by_name(name, value, monkeypatch):
    monkeypatch.setenv(name, value)
    with pytest.raises(InvalidValue, match=name):
        holdfast.open("memory:", traces=True, metrics=Otlp())


def test_a_password_in_an_address_is_not_shown():
    with pytest.raises(InvalidValue) as refused:
        Otlp(endpoint="ftp://ana:geheim@host")
    assert "geheim" not in str(refused.value)
    assert "geheim" not in Otlp(endpoint="http://ana:geheim@host:4318").shown
