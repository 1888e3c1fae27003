"""What follows from an effect: the table in core/events/effects.py, and that code asks it, not for names."""

import ast
from typing import get_args

import pytest

from holdfast.core.events import effects
from tests.shape.test_shape import MODULES, name_of, nodes_of

NAMES = get_args(effects.Effect)


def test_every_effect_has_a_row_in_the_table():
    assert tuple(effects.EFFECTS) == NAMES


@pytest.mark.parametrize(
    ("effect", "changes", "repeats", "transacts", "announced"),
    [
        ("read", False, True, False, False),
        ("idempotent", True, True, False, False),
        ("once", True, False, False, True),
        ("transaction", True, False, True, False),
    ],
)
def test_an_effect_means_what_the_docs_say(effect, changes, repeats, transacts, announced):
    asked = (effects.CHANGING, effects.REPEATABLE, effects.TRANSACTIONAL, effects.ANNOUNCED)
    assert [effect in one for one in asked] == [changes, repeats, transacts, announced]


def test_code_asks_what_an_effect_means_and_never_for_its_name():
    """A comparison with a name would be one more place to find for a new effect."""
    found = []
    for path in MODULES:
        for node in nodes_of(path):
            if isinstance(node, ast.Compare):
                sides = [ast.unparse(one) for one in (node.left, *node.comparators)]
                names = [one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and one.value in NAMES]
                if names and any(one.endswith("effect") for one in sides):
                    found.append(f"{name_of(path)}:{node.lineno} asks for {names}")
            elif isinstance(node, ast.Match) and ast.unparse(node.subject).endswith("effect"):
                found.append(f"{name_of(path)}:{node.lineno} matches names")
    assert not found, f"ask `effect in ev.ANNOUNCED` and the like, see core/events/effects.py: {found}"
