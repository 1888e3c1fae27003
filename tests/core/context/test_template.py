"""Templates: strict about names, blind to Python objects, and never anything but their own errors."""

import pytest
from hypothesis import given, strategies as st

import holdfast
from holdfast import InvalidTemplate, UnknownName
from holdfast.core.context.template import escape, render
from tests.legal import json_values

KNOWN = {
    "name": "Ana",
    "address": {"city": "Oslo", "zip.code": 7},
    "items": ["a", {"b": [1.5, None, True]}],
    "brace": "{state.name}",
    "none": None,
}
ROOTS = {"state": lambda: KNOWN, "turn": lambda: 3, "stage": lambda: None}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("", ""),
        ("plain", "plain"),
        ("Hello {state.name}!", "Hello Ana!"),
        ("{state.address.city}/{state.address.zip.code}", "Oslo/7"),
        ("{state.items.0}{state.items.1.b.0}", "a1.5"),
        ("{state.items.1}", '{"b":[1.5,null,true]}'),
        ("{state.none}", "null"),
        ("{turn}", "3"),
        ("{state.brace}", "{state.name}"),
        ("{{{turn}}} {{state.name}}", "{3} {state.name}"),
    ],
)
def test_a_template_is_filled_in(template, text):
    assert render(template, ROOTS) == text


@pytest.mark.parametrize(
    "template",
    [
        *("{", "}", "{}", "{ }", "{turn", "turn}", "{{}", "{a{b}}", "{0}", "{state.name!r}", "{state.name:>9}"),
        *("{state.__class__}", "{state.name.__class__}", "{turn.real}", "{state.items.-1}", "{state.items.99}"),
        *("{state.items.²}", "{state.items.append}", "{state[name]}", "{state.}", "{.state}", "{State.name}"),
        *("{stage}", "{stage.x}", "{user.name}", "{state.name.0}", "{state.items.1.b.0.x}", "{state.items.00}"),
    ],
)
def test_what_leads_nowhere_is_refused_with_a_remedy(template):
    with pytest.raises(InvalidTemplate) as refused:
        render(template, ROOTS)
    assert refused.value.hint and refused.value.code in ("invalid-template", "unknown-name")


def test_an_unknown_name_says_what_is_there_and_what_may_have_been_meant(texts):
    with texts.raises(UnknownName) as refused:
        render("Hello {state.nmae}", ROOTS)
    assert "did you mean 'name'?" in refused.value.hint and "address" in refused.value.hint
    assert refused.value.details["name"] == "state.nmae"
    with texts.raises(UnknownName):
        render("{sate.name}", ROOTS)


def test_a_template_is_text():
    for template in (None, 3, b"{turn}", ["{turn}"]):
        with pytest.raises(InvalidTemplate):
            render(template, ROOTS)


@given(st.text(alphabet="{}.ab0_ stenamiu"))
def test_random_text_is_filled_in_or_refused_by_name(template):
    try:
        text = render(template, ROOTS)
    except InvalidTemplate:
        return
    assert isinstance(text, str)


@given(st.text())
def test_escaped_text_comes_out_as_it_was(text):
    assert render(escape(text), {}) == text


@given(st.dictionaries(st.text(alphabet="abc_", min_size=1), json_values, min_size=1), st.data())
def test_every_value_can_be_named(values, data):
    key = data.draw(st.sampled_from(sorted(values)))
    shown = render(f"<{{state.{key}}}>", {"state": lambda: values})
    value = values[key]
    assert shown[1:-1] == (value if isinstance(value, str) else holdfast.core.codec.text(value))
