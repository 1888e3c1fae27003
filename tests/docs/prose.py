"""What people read: the prose of pages, and the docstrings, comments and messages of modules, by line.

Code is left out: blocks of pages, spans in backticks, names, SQL. What is left is joined over the ends of lines, so
that a phrase is found that was folded.
"""

import ast
import io
import re
import tokenize
from typing import NamedTuple

_SPAN = re.compile(r"`[^`]*`")
_LINK = re.compile(r"\]\([^)]*\)")
_FIELD = re.compile(r"\{[^{}]*\}")


class Text(NamedTuple):
    """A piece of prose and the line it begins in."""

    line: int
    text: str


def of_page(path):
    """The paragraphs of a page: its lines up to an empty one, or up to the next item, row or heading."""
    found, begun, lines, is_code = [], 0, [], False
    for number, line in enumerate([*path.read_text("utf-8").splitlines(), ""], 1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        is_text = not is_code and bool(line.strip()) and not line.startswith("    ") and "```" not in line
        if lines and (not is_text or re.match(r"\s*([-*|#>]|\d+\.) ?", line)):
            found.append(Text(begun, plain(" ".join(lines))))
            lines = []
        if is_text:
            begun = begun if lines else number
            lines.append(line.strip())
    return found


def plain(text):
    """Markdown as it is read: spans of code stand as `x`, links as their text."""
    return _LINK.sub("", _SPAN.sub("`x`", text)).replace("[", "")


def of_module(path):
    """The docstrings, comments and messages of a module."""
    source = path.read_text("utf-8")
    return sorted([*_comments(source), *_strings(ast.parse(source), is_sql=path.name == "queries.py")])


def _comments(source):
    """Comments; those of adjacent lines are one."""
    found = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            line, text = token.start[0], _SPAN.sub("`x`", token.string.lstrip("# "))
            if found and found[-1][0] == line - 1 and found[-1][1] == token.start[1]:
                found[-1] = (line, token.start[1], found[-1][2], f"{found[-1][3]} {text}")
            else:
                found.append((line, token.start[1], line, text))
    return [Text(first, text) for _, _, first, text in found]


def _strings(tree, *, is_sql):
    """Docstrings, and other strings of several words; what is filled into a message is left out."""
    documented = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    within = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            text = "".join(part.value if isinstance(part, ast.Constant) else "{x}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in within:
            text = node.value
        else:
            continue
        if id(node) in documented or (" " in text.strip() and not is_sql):
            yield Text(node.lineno, re.sub(r"\s+", " ", _SPAN.sub("`x`", _FIELD.sub("{x}", text))).strip())


def sentences(text):
    """The sentences of a paragraph. A colon and a semicolon do not end one."""
    cleaned = re.sub(r"^\s*([-*>]|\d+\.|#+)\s+", "", text)
    return [one for one in re.split(r"(?<=[.!?])[)*\"”]*\s+(?=[*(\[“\"`A-Z0-9])", cleaned) if one.strip()]


def words(sentence):
    """The words of a sentence; marks alone are none."""
    return [one for one in sentence.split() if re.search(r"\w", one)]
