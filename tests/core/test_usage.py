"""What replies say of their tokens, under the names of every provider that is known."""

import ast

import pytest

from holdfast.core import usage
from holdfast.core.events import Usage
from holdfast.core.messages.tokens import Count, reported
from holdfast.core.state import budget
from holdfast.core.usage import TokenReport, reported_tokens
from tests.shape.test_shape import MODULES, name_of, nodes_of

CHAT = {
    "prompt_tokens": 12,
    "completion_tokens": 9,
    "total_tokens": 21,
    "completion_tokens_details": {"reasoning_tokens": 4},
}
RESPONSES = {"input_tokens": 12, "output_tokens": 9, "output_tokens_details": {"reasoning_tokens": 4}}
ANTHROPIC = {
    "input_tokens": 12,
    "output_tokens": 9,
    "cache_read_input_tokens": 100,
    "cache_creation_input_tokens": 20,
}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (CHAT, TokenReport(12, 0, 9, 4)),
        (RESPONSES, TokenReport(12, 0, 9, 4)),
        (ANTHROPIC, TokenReport(12, 120, 9, 0)),
        ({"prompt_tokens": 0, "input_tokens": 12}, TokenReport(12, 0, None, 0)),
        ({"prompt_tokens": 0}, TokenReport(0, 0, None, 0)),
        ({"prompt_tokens": True, "completion_tokens": "9"}, TokenReport(None, 0, None, 0)),
        ({"prompt_tokens": -1, "completion_tokens": 9.5}, TokenReport(None, 0, None, 0)),
        ({"output_tokens": 9, "output_tokens_details": [4]}, TokenReport(None, 0, 9, 0)),
        ({}, TokenReport(None, 0, None, 0)),
    ],
)
def test_usage_is_read_under_the_names_of_every_provider(given, told):
    assert reported_tokens({"role": "assistant", "usage": given}) == told


@pytest.mark.parametrize("reply", [None, 7, "usage", [], {}, {"usage": None}, {"usage": 7}, {"usage": [1]}])
def test_what_has_no_usage_reports_none(reply):
    assert reported_tokens(reply) is None
    assert budget.reported(reply) is None


def test_budgets_count_cached_input_and_messages_leave_out_what_was_only_thought():
    said = {"role": "assistant", "content": "x", "model": "m"}
    assert budget.reported({**said, "usage": ANTHROPIC}) == Usage(132, 9, model="m")
    assert budget.reported({**said, "usage": {"total_tokens": 7}}) is None
    assert reported({**said, "usage": CHAT}) == reported({**said, "usage": RESPONSES}) == Count(4 + 5, "reported")


def test_the_names_of_providers_stand_in_one_module():
    """Our own `input_tokens` and `output_tokens` are like some of them; the others are theirs alone."""
    own = {"input_tokens", "output_tokens"}
    theirs = {*usage.INPUT, *usage.OUTPUT, *usage.CACHED, *usage.DETAILS, usage.THOUGHT} - own
    found = {
        name_of(path)
        for path in MODULES
        for node in nodes_of(path)
        if isinstance(node, ast.Constant) and node.value in theirs
    }
    assert found == {"core.usage", "testing.fake_openai"}, "read usage with reported_tokens of core/usage.py"
