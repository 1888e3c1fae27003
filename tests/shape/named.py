"""What a page about the code names: paths, places in them, and names that belong to a path."""

import ast
import re

from tests.shape.test_shape import SOURCE, tree_of

ROOT = SOURCE.parents[1]
PATH = r"(?:[\w.-]+/)*[\w.-]+\.(?:py|md|txt|toml|json)|(?:[a-z_]+/)+[a-z_]+/?|Makefile"
NAME = r"[A-Za-z_]\w*(?:\.\w+)*"


def quoted(text):
    """Everything between backticks."""
    return re.findall(r"`([^`\n]+)`", text)


def paths(text):
    """The paths that a text names, without the place in them."""
    return [one.partition(":")[0] for one in quoted(text) if re.fullmatch(rf"(?:{PATH})(?::{NAME})?", one)]


def places(text):
    """The functions, classes and constants that a text names by their path: `core/state/fold.py:evolve`."""
    return [one for one in quoted(text) if re.fullmatch(rf"[\w/]+\.py:{NAME}", one)]


def names(text):
    """What else it names that stands in code: not a command, an option or a value."""
    found = [one for one in quoted(text) if re.fullmatch(NAME, one) and one not in paths(text)]
    return [one for one in found if not re.fullmatch(r"def|once|step|call|stage|fact|reconcile|url", one)]


def found_at(path):
    """Where a path is: under src/holdfast, or in the repository. None if it is not there."""
    return next((base / path for base in (SOURCE, ROOT) if (base / path).exists()), None)


def defines(path, name):
    """Whether a module has a function, class or constant of that name, or a class a method or field."""
    body = tree_of(found_at(path)).body
    for part in name.split("."):
        one = next((node for node in body if part in _defined(node)), None)
        if one is None:
            return False
        body = getattr(one, "body", [])
    return True


def _defined(node):
    if isinstance(node, ast.Assign):
        return [ast.unparse(target) for target in node.targets]
    return [ast.unparse(node.target)] if isinstance(node, ast.AnnAssign) else [getattr(node, "name", "")]


def has_word(path, name):
    """Whether a file, or one in a folder, has the last part of a name as a word, or as the beginning of one."""
    place = found_at(path)
    files = [place] if place.is_file() else place.rglob("*.py")
    word = re.compile(rf"\b{re.escape(name.rpartition('.')[2])}")
    return any(word.search(one.read_text("utf-8")) for one in files)
