"""Every text that is kept belongs to a test that checks it: `make texts` drops the others."""

import ast

import pytest

from tests.snapshots import TESTS, load

KEPT = load(TESTS / "texts")


@pytest.mark.parametrize("module", sorted({module for module, _ in KEPT}))
def test_every_text_belongs_to_a_test(module):
    tree = ast.parse((TESTS / module).read_text("utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    checking = {node.name for node in functions if "texts" in [one.arg for one in node.args.args]}
    kept = {name.rpartition("::")[2] for other, name in KEPT if other == module}
    assert kept <= checking, "run `make texts`"
