"""The shape of the code: layers, sizes, and what is deliberately absent."""

import ast
import functools
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import holdfast

SOURCE = Path(holdfast.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))
PURE = {
    *(
        "__future__",
        "backports",
        "base64",
        "collections",
        "compression",
        "datetime",
        "difflib",
        "hashlib",
        "threading",
        "itertools",
        "math",
        "msgspec",
        "operator",
    ),
    *("re", "struct", "sys", "traceback", "typing", "bisect", "unicodedata", "zoneinfo"),
}
MAX_FUNCTION_LINES = 50


def name_of(path):
    return str(path.relative_to(SOURCE)).removesuffix(".py").replace("/", ".")


@functools.cache
def tree_of(path):
    return ast.parse(path.read_text("utf-8"))


@functools.cache
def nodes_of(path):
    return list(ast.walk(tree_of(path)))


def imports_of(path):
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def functions_of(path):
    found = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [node for node in nodes_of(path) if isinstance(node, found)]


def every_module(check):
    """Make one test of a check of a module. A test a module would cost more than the check: there are thousands."""

    def test():
        wrong = {}
        for path in MODULES:
            try:
                check(path)
            except AssertionError as error:
                wrong[name_of(path)] = str(error)
        assert not wrong, "\n".join(f"{name}: {why}" for name, why in wrong.items())

    test.__name__, test.__doc__ = check.__name__, check.__doc__
    return test


@every_module
def test_the_core_is_pure(path):
    """It does no IO, reads no clock, draws nothing at random."""
    if name_of(path).startswith("core"):
        for name in imports_of(path):
            parsers = ("urllib.parse", "email.utils.parsedate_to_datetime")
            known = name.split(".")[0] in PURE or name.startswith(("holdfast.core", *parsers))
            assert known, f"the core is pure: {name}"


@every_module
def test_only_the_codec_serializes(path):
    if name_of(path) in ("testing.auditor.__init__",) or name_of(path).startswith("core.codec."):
        return
    names = set(imports_of(path))
    assert not names & {"json", "pickle", "marshal", "shelve", "yaml"}
    text = path.read_text("utf-8")
    assert "msgspec.json" not in text and "msgspec.msgpack" not in text


@every_module
def test_nothing_is_executed_from_data(path):
    for node in nodes_of(path):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in ("eval", "exec", "compile", "__import__")
    names = set(imports_of(path))
    assert not any(name.split(".")[0] in ("pickle", "marshal", "shelve", "dill") for name in names)
    if "importlib" in names:
        assert name_of(path) == "cli.main", "only the command line imports by name, from a closed list of its own"


@every_module
def test_only_stores_hold_sql(path):
    if name_of(path).startswith("store.") or name_of(path).startswith("testing."):
        return
    sql = re.compile(
        r"\s*(select\s.+\sfrom\s|insert\s+into\s|update\s+\w+\s+set\s|delete\s+from\s|create\s+table\s)", re.I
    )
    for node in nodes_of(path):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            assert not sql.match(node.value), node.value


@every_module
def test_sql_is_never_built_from_values(path):
    if not name_of(path).startswith("store."):
        return
    for node in nodes_of(path):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "execute":
            assert not isinstance(node.args[0], ast.JoinedStr | ast.BinOp), ast.dump(node)


@every_module
def test_functions_fit_on_a_screen(path):
    """The list of parameters does not count: the verbs that begin a task name each of them, one a line."""
    for function in functions_of(path):
        length = function.end_lineno - function.body[0].lineno + 1
        assert length <= MAX_FUNCTION_LINES, f"{function.name} has {length} lines"


@every_module
def test_no_function_is_written_twice_for_async(path):
    bodies = {}
    for function in functions_of(path):
        text = ast.unparse(ast.Module(function.body, [])).replace("await ", "")
        if len(text.splitlines()) >= 3:
            assert bodies.get(text, type(function)) is type(function), f"{function.name} is a twin"
            bodies[text] = type(function)


@every_module
def test_every_module_says_what_it_is_for(path):
    assert ast.get_docstring(tree_of(path))


def test_public_names_are_pinned():
    """Adding a name is a decision; taking one away breaks users."""
    methods = [f"App.{name}" for name in vars(holdfast.App) if not name.startswith("_")]
    pinned = Path(__file__).with_name("public_names.txt").read_text().split()
    assert sorted([*holdfast.__all__, *methods]) == pinned


def test_every_error_is_public_has_a_code_and_stands_in_the_tree():
    from holdfast.core import errors

    classes = [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, errors.HoldfastError)]
    codes = [one.code for one in classes]
    assert len(set(codes)) == len(codes)
    for one in classes:
        assert getattr(holdfast, one.__name__) is one
        assert one.__doc__ and one.__name__ in errors.__doc__


@pytest.mark.parametrize(("code", "most"), [("import holdfast", 30), ("from holdfast import agent, open, tool", 80)])
def test_importing_holdfast_is_light(code, most):
    """Only what is not ours is counted: how many files our own code is cut into says nothing about its weight."""
    script = f"import sys; before = set(sys.modules); {code}; print(*sorted(set(sys.modules) - before))"
    loaded = subprocess.run(
        [sys.executable, "-I", "-c", script], capture_output=True, text=True, check=True
    ).stdout.split()
    heavy = {"asyncio", "psycopg", "click", "jsonpatch", "apsw", "logging", "hypothesis", "pytest", "backports.zstd"}
    assert not heavy & set(loaded)
    others = [name for name in loaded if not name.startswith("holdfast")]
    assert len(others) <= most, f"{len(others)} modules: {others}"


def test_every_public_name_is_there():
    for name in holdfast.__all__:
        assert getattr(holdfast, name) is not None


DIALECTS = sorted(one.name for one in (SOURCE / "store" / "sql").iterdir() if one.is_dir() and one.name[0] != "_")


def test_migrations_are_numbered_without_a_gap_and_begin_with_prose():
    from holdfast.store.migrations import migrations

    assert {"postgres", "sqlite"} <= {*DIALECTS}
    for dialect in DIALECTS:
        assert migrations(dialect), f"store/sql/{dialect} has no migration"
        for number, migration in enumerate(migrations(dialect), start=1):
            assert migration.version == number
            assert migration.sql.startswith("-- ")


def test_a_migration_that_was_released_is_never_edited():
    from holdfast.store.migrations import migrations

    pinned = Path(__file__).with_name("migrations.txt").read_text().splitlines()
    found = [
        f"{dialect}/{one.version:04}_{one.name} {one.checksum}" for dialect in DIALECTS for one in migrations(dialect)
    ]
    assert found == pinned, "edit no migration: add a new file, and its line in tests/shape/migrations.txt"


def test_what_is_not_covered_has_a_reason_in_a_sentence():
    reasons = tomllib.loads((SOURCE.parents[1] / "tests" / "coverage_reasons.toml").read_text("utf-8"))
    assert 90 <= reasons["default"]["floor"] < 100
    for name, one in reasons.items():
        assert name == "default" or (SOURCE / name).is_file(), f"there is no module {name}"
        assert 0 < one["floor"] < 100 and one["why"].endswith(".") and len(one["why"]) > 20, name
