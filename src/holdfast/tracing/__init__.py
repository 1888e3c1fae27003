"""Traces of tasks: spans as a fold of the log, for OpenTelemetry.

`spans(app, id)` gives the spans of a task, `export(app)` sends those of many to an OTLP collector. The same log gives
the same ids, so exporting twice changes nothing. `Otlp` says where a collector is and what is sent to it.
"""

from __future__ import annotations

from holdfast.engine.telemetry.collector import Otlp as Otlp
from holdfast.tracing.context import TaskContext as TaskContext
from holdfast.tracing.exporting import Exported as Exported, export as export, tail as tail
from holdfast.tracing.readable import spans as spans, trace_id as trace_id

__all__ = ["Exported", "Otlp", "TaskContext", "export", "spans", "tail", "trace_id"]
