"""The packages of the code: which may import which, how large they are, and what they are called."""

import ast
from collections import defaultdict

import pytest

from tests.shape import rooms
from tests.shape.test_shape import MODULES, SOURCE, every_module, name_of, nodes_of, tree_of

NAMES = {"holdfast." + name_of(path).removesuffix(".__init__").removesuffix("__init__") for path in MODULES}
NAMES = {name.rstrip(".") for name in NAMES}


def room_of(name):
    """The package of a module: `holdfast.core.codec.values` is in core/codec, as is `holdfast.core.codec`."""
    path = name.split(".")[1:]
    while path and not (SOURCE / "/".join(path)).is_dir():
        if path == ["failpoints"]:
            return "failpoints"
        path.pop()
    return "/".join(path)


def modules_imported(node):
    """Our modules that an import statement names: a package, or a module inside one."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names if alias.name.split(".")[0] == "holdfast"]
    if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "holdfast":
        whole = [f"{node.module}.{alias.name}" for alias in node.names]
        return [name if name in NAMES else node.module for name in whole]
    return []


def late_imports(path):
    """Imports inside functions."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    for function in (node for node in nodes_of(path) if isinstance(node, functions)):
        for node in ast.walk(function):
            yield from modules_imported(node)


@every_module
def test_packages_import_only_what_stands_below_them(path):
    """All imports count: those inside functions and those for type checkers too."""
    here = room_of(f"holdfast.{name_of(path)}")
    if here == "":
        return  # the lazy table of public names
    for node in nodes_of(path):
        for name in modules_imported(node):
            there = room_of(name)
            if there != "":  # public names stand at the top, and are loaded when they are asked for
                assert rooms.ORDER.index(there) <= rooms.ORDER.index(here), f"{here} imports {name}"
            else:
                assert here.split("/")[0] in (*rooms.FACES, "testing"), f"{here} is below the public names: {name}"


@every_module
def test_functions_import_late_only_for_what_it_costs(path):
    if name_of(path).startswith("cli."):
        return
    for name in late_imports(path):
        if name != "holdfast":
            assert any(name == late or name.startswith(f"{late}.") for late in rooms.LATE), f"import {name} at the top"


def test_every_reason_for_a_late_import_is_needed():
    late = {name for path in MODULES for name in late_imports(path)}
    for prefix in rooms.LATE:
        assert any(name == prefix or name.startswith(f"{prefix}.") for name in late), f"nothing imports {prefix} late"


@every_module
def test_faces_use_the_public_names_and_the_reading_side(path):
    name = name_of(path).replace(".", "/")
    face = name.split("/")[0]
    if face not in rooms.FACES:
        return
    odd = []
    for node in nodes_of(path):
        for module in modules_imported(node):
            allowed = module == "holdfast" or any(
                module == one or module.startswith(f"{one}.")
                for one in (*rooms.FACES_MAY_IMPORT[1:], f"holdfast.{face}")
            )
            odd += [] if allowed else [module]
    if name in rooms.FACE_EXCEPTIONS:
        assert odd, f"{name} needs no exception any more"
    else:
        assert not odd, f"{name} imports {odd}"


def test_no_face_reaches_into_an_app():
    for path in MODULES:
        name = name_of(path).replace(".", "/")
        if name.split("/")[0] in rooms.FACES and name not in rooms.FACE_EXCEPTIONS:
            for node in nodes_of(path):
                inside = isinstance(node, ast.Attribute) and node.attr in ("logs", "store", "_dispatcher")
                assert not (inside and "app" in ast.unparse(node.value).lower()), f"{name}: {ast.unparse(node)}"


def test_a_package_is_as_large_as_one_can_look_over():
    counted = defaultdict(int)
    for path in MODULES:
        if path.name not in ("__init__.py", "__main__.py"):
            counted[str(path.parent.relative_to(SOURCE))] += 1
    assert {*counted} - {"."} <= {*rooms.ORDER}, "a package that stands in no order"
    for room, modules in counted.items():
        if room not in rooms.LARGE_ROOMS:
            assert modules <= rooms.MOST_MODULES, f"{room} has {modules} modules"
    for room in (one for one in rooms.ORDER if one not in ("", "failpoints", "testing/auditor")):
        inside = [one for one in (SOURCE / room).iterdir() if one.is_dir() and one.name != "__pycache__"]
        assert counted[room] >= 2 or inside, f"{room} has {counted[room]} module: it is a module, or part of another"


def test_a_module_over_six_hundred_lines_says_why():
    large = {
        name_of(path).replace(".", "/") for path in MODULES if path.read_text("utf-8").count("\n") > rooms.MOST_LINES
    }
    assert large == {*rooms.LARGE_MODULES}


def test_no_two_classes_have_one_name():
    found = defaultdict(list)
    for path in MODULES:
        for node in nodes_of(path):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(name_of(path))
    twice = {name: where for name, where in found.items() if len(where) > 1}
    assert {*twice} == {*rooms.SAME_NAME}, twice


@pytest.mark.parametrize("room", [room for room in rooms.ORDER if room not in ("", "failpoints")])
def test_every_package_says_what_it_is_for(room):
    text = ast.get_docstring(tree_of(SOURCE / room / "__init__.py"), clean=False) or ""
    assert text, f"{room}/__init__.py has no docstring"
