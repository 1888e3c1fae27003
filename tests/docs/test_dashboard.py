"""The dashboard for Grafana: its JSON has the keys that it needs, and it asks for metrics that there are.

No Grafana takes part. The schema below was written by hand, for this dashboard: it finds a panel without a place, a
target or a datasource, and a key that is misspelt. It does not prove that a Grafana imports the file.
"""

import json
import re

import jsonschema
import pytest

from holdfast.engine.telemetry.exposition import name_of
from holdfast.engine.telemetry.instruments import Histogram
from holdfast.engine.telemetry.measures import Measures
from tests.docs.dashboard_picture import DASHBOARD, PICTURE, drawn, measured

TEXT = {"type": "string", "minLength": 1}
PLACE = {
    "type": "object",
    "required": ["x", "y", "w", "h"],
    "properties": {
        "x": {"type": "integer", "minimum": 0, "maximum": 23},
        "y": {"type": "integer", "minimum": 0},
        "w": {"type": "integer", "minimum": 1, "maximum": 24},
        "h": {"type": "integer", "minimum": 1},
    },
    "additionalProperties": False,
}
TARGET = {
    "type": "object",
    "required": ["refId", "expr"],
    "properties": {"refId": TEXT, "expr": TEXT, "legendFormat": TEXT, "exemplar": {"type": "boolean"}},
    "additionalProperties": False,
}
PANEL = {
    "type": "object",
    "required": ["id", "type", "title", "datasource", "gridPos", "targets", "fieldConfig", "options"],
    "properties": {
        "id": {"type": "integer", "minimum": 1},
        "type": {"enum": ["timeseries", "stat"]},
        "title": TEXT,
        "datasource": {"const": {"type": "prometheus", "uid": "${datasource}"}},
        "gridPos": PLACE,
        "targets": {"type": "array", "minItems": 1, "items": TARGET},
        "fieldConfig": {"type": "object", "required": ["defaults", "overrides"]},
        "options": {"type": "object"},
    },
    "additionalProperties": False,
}
SCHEMA = {
    "type": "object",
    "required": ["title", "uid", "schemaVersion", "panels", "templating", "time"],
    "properties": {
        "title": TEXT,
        "uid": {"type": "string", "pattern": "^[a-zA-Z0-9_-]{1,40}$"},
        "schemaVersion": {"type": "integer", "minimum": 36},
        "panels": {"type": "array", "minItems": 10, "items": PANEL},
        "templating": {"type": "object", "required": ["list"]},
        "time": {"type": "object", "required": ["from", "to"]},
    },
}
"""The keys that this dashboard uses, and what may be in them; not a schema of Grafana's."""


@pytest.fixture(scope="module")
def dashboard():
    return json.loads(DASHBOARD.read_text("utf-8"))


@pytest.fixture(scope="module")
def text():
    return measured()


def test_panels_have_all_their_keys_and_do_not_overlap(dashboard):
    jsonschema.validate(dashboard, SCHEMA)
    ids = [one["id"] for one in dashboard["panels"]]
    assert len(ids) == len({*ids})
    places = [(one["gridPos"]["x"] + one["gridPos"]["w"]) for one in dashboard["panels"]]
    assert max(places) <= 24
    taken = set()
    for one in dashboard["panels"]:
        place = one["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken, one["title"]
        taken |= cells


def test_it_asks_for_metrics_that_there_are_and_for_all_that_are_measured(dashboard, text):
    asked = {
        name for one in dashboard["panels"] for at in one["targets"] for name in re.findall(r"holdfast_\w+", at["expr"])
    }
    known = {name_of(one) for one in Measures().all() if not isinstance(one, Histogram)}
    hists = {name_of(one) for one in Measures().all() if isinstance(one, Histogram)}
    served = set(re.findall(r"^# TYPE (\w+)", text, re.M))
    for name in asked:
        assert name in known | served or re.sub("_(bucket|count|sum)$", "", name) in hists, name
    shown = {re.sub("_(bucket|count|sum)$", "", name) for name in asked}
    assert (known | hists | served) - shown <= {"holdfast_otlp_spans_sent_total"}


def test_labels_that_legends_name_are_there(dashboard, text):
    labels = set(re.findall(r'[{,](\w+)="', text))
    for one in dashboard["panels"]:
        for at in one["targets"]:
            assert {*re.findall(r"\{\{(\w+)\}\}", at["legendFormat"])} <= labels, one["title"]


def test_the_picture_is_drawn_of_it(dashboard, text):
    assert drawn(dashboard, text) == PICTURE.read_text("utf-8"), "python -m tests.docs.dashboard_picture"
