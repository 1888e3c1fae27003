"""Tools declared by a JSON Schema: arguments are checked as it says, and models are shown the same."""

import pytest

import holdfast
from holdfast import InvalidInput, InvalidValue, Tool, agent

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 2, "maxLength": 20, "pattern": "^[A-Z]"},
        "days": {"type": "integer", "minimum": 1, "maximum": 9},
        "unit": {"enum": ["c", "f"]},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
        "at": {"$ref": "#/$defs/point"},
        "who": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "how": {"oneOf": [{"type": "number"}, {"type": "integer"}]},
        "kind": {"const": "weather"},
        "share": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
        "calm": {"not": {"type": "string"}},
        "both": {"allOf": [{"type": "number"}, {"minimum": 3}]},
    },
    "required": ["city"],
    "additionalProperties": False,
    "$defs": {"point": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}},
}


@pytest.fixture
def forecast():
    def forward(**arguments):
        return arguments

    return Tool(forward, name="forecast", schema=SCHEMA, effect="read")


FITS = [
    {"city": "Oslo"},
    {"city": "Oslo", "days": 3, "unit": "c", "tags": ["a"], "at": {"x": 1.5}, "who": None, "how": 1.5},
    {"city": "Oslo", "days": 3.0, "kind": "weather", "share": 0.5, "calm": 1, "both": 4, "at": {"x": 1, "y": "more"}},
]

WRONG = [
    {},
    {"city": 5},
    {"city": "O"},
    {"city": "oslo"},
    {"city": "O" * 21},
    {"city": "Oslo", "days": 0},
    {"city": "Oslo", "days": 10},
    {"city": "Oslo", "days": 1.5},
    {"city": "Oslo", "days": True},
    {"city": "Oslo", "unit": "k"},
    {"city": "Oslo", "tags": ["a", 1]},
    {"city": "Oslo", "tags": ["a", "b", "c"]},
    {"city": "Oslo", "at": {"y": 1}},
    {"city": "Oslo", "who": 5},
    {"city": "Oslo", "how": 1},
    {"city": "Oslo", "kind": "news"},
    {"city": "Oslo", "share": 1},
    {"city": "Oslo", "calm": "x"},
    {"city": "Oslo", "both": 2},
    {"city": "Oslo", "other": 1},
]


@pytest.mark.parametrize("arguments", FITS)
def test_what_fits_is_called_with_and_recorded(app, forecast, arguments):
    @agent
    def worker(task):
        return [task.call(forecast, arguments), forecast(**arguments)]

    done = app.run(worker, id="t")
    assert done.result == [arguments, arguments]
    assert [one.key for one in app.steps("t")] == ["forecast#1", "forecast#2"]


@pytest.mark.parametrize("arguments", WRONG, ids=str)
def test_what_does_not_fit_is_refused_by_name_before_it_is_called(app, forecast, arguments, texts):
    @agent
    def worker(task):
        with texts.raises(InvalidInput):
            task.call(forecast, arguments)

    assert app.run(worker, id="t").status == "completed"
    assert app.steps("t") == []


def test_the_schema_is_shown_as_it_was_given(forecast):
    assert forecast.input_schema == SCHEMA
    assert forecast.takes("city") and not forecast.takes("other")


def test_arguments_without_a_name_go_where_the_schema_lists_them(app, forecast, texts):
    @agent
    def worker(task):
        with texts.raises(InvalidInput):
            forecast(*range(20))
        return forecast("Oslo", 3)

    assert app.run(worker, id="t").result == {"city": "Oslo", "days": 3}


def test_a_model_calls_it_like_any_other(app, forecast):
    reply = {
        "role": "assistant",
        "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "forecast", "arguments": '{"city": "Oslo"}'}},
            {"id": "2", "type": "function", "function": {"name": "forecast", "arguments": '{"city": 5}'}},
        ],
    }

    @agent
    def worker(task):
        task.message(reply)
        return [one["content"] for one in task.call_tools(reply, [forecast])]

    good, bad = app.run(worker, id="t").result
    assert "Oslo" in good and "not string" in bad


@pytest.mark.parametrize("schema", [[], "text", {"type": "array"}, 5])
def test_what_describes_no_object_is_refused(schema, texts):
    with texts.raises(InvalidValue):
        holdfast.tool(name="t", schema=schema)(lambda **given: given)
