"""Traces, metrics and log lines of what this process writes to logs, made and sent in the background.

`telemetry` hears of events and hands them on, `tracer` folds them into spans, `collector` sends, `encoding` is OTLP on
the wire, `instruments` and `measures` count, `gauges` asks the store, `exposition` is what Prometheus reads.
"""
