"""Prose is plain: no terms that made readers stop, named subjects, verbs first, short sentences, one store name."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.docs import prose
from tests.docs.terms import KEPT, TERMS

ROOT = Path(__file__).parents[2]
SOURCES = sorted(path for room in ("src", "tools", "examples") for path in (ROOT / room).rglob("*.py"))
BESIDE = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "SECURITY.md", "benchmarks/README.md")
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), *(ROOT / name for name in BESIDE)]
LISTS = ("CHANGELOG.md", "benchmarks/README.md")
"""Pages whose entries are lists rather than sentences."""
LONGEST_SENTENCE = 40
LONGEST_WITHOUT_CONTENTS = 200


def name(path):
    return path.relative_to(ROOT).as_posix()


@cache
def texts():
    """Everything people read, as (path, line, text)."""
    pages = [(name(path), *one) for path in PAGES for one in prose.of_page(path)]
    return [*pages, *((name(path), *one) for path in SOURCES for one in prose.of_module(path))]


@cache
def findings():
    """Every use of a term, as (path, line, what to write)."""
    found = []
    for path, line, text in texts():
        for term in TERMS:
            for match in term.pattern.finditer(text):
                if (path, match.group().lower()) not in KEPT:
                    around = text[max(0, match.start() - 40) : match.end() + 40]
                    found.append((path, line, f"…{around}… (write: {term.instead})"))
    return found


def test_no_prose_uses_a_term_that_made_readers_stop():
    wrong = [f"{path}:{line}: {what}" for path, line, what in findings()]
    assert not wrong, "\n".join(["", *wrong])


def test_every_kept_term_is_still_there():
    for path, phrase in KEPT:
        assert any(one == path and phrase in text.lower() for one, _, text in texts()), f"{path}: {phrase}"


def test_subjects_have_names():
    vague = re.compile(r"\b(nobody|somebody|whoever)\b", re.IGNORECASE)
    lines = [
        f"{name(path)}:{number}"
        for path in [*SOURCES, *PAGES]
        if name(path).startswith(("src/", "docs/"))
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if vague.search(line)
    ]
    assert len(lines) <= 40, "\n".join(["", *lines])


def test_the_store_has_one_name_in_all_examples():
    """Other names are for copies, backups and examples with a file of their own."""
    other = re.compile(r"\b(agents?|store|tasks?|app|my)\.db\b")
    lines = [
        f"{name(path)}:{number}: {line.strip()}"
        for path in [*PAGES, *(ROOT / "examples").rglob("*.py")]
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if other.search(line)
    ]
    assert not lines, "\n".join(["", *lines])


def test_docstrings_of_functions_begin_with_a_verb():
    """Or with a noun. A question that is not asked ("Whether …") begins one in twenty at the most."""
    trees = [(path, ast.parse(path.read_text("utf-8"))) for path in SOURCES if name(path).startswith("src/")]
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    documented = [
        (f"{name(path)}:{node.lineno}", ast.get_docstring(node) or "")
        for path, tree in trees
        for node in ast.walk(tree)
        if isinstance(node, functions) and ast.get_docstring(node)
    ]
    wrong = [where for where, text in documented if re.match(r"(What|Whether|Who|How|Where)\b", text)]
    assert len(documented) > 2_000 and len(wrong) <= len(documented) / 20, "\n".join(["", *wrong])


@pytest.mark.parametrize("path", [path for path in PAGES if name(path) not in LISTS], ids=name)
def test_no_sentence_of_a_page_is_long(path):
    for line, text in prose.of_page(path):
        for cell in re.split(r"[|·]", text):
            for sentence in prose.sentences(cell):
                count = len(prose.words(sentence))
                assert count <= LONGEST_SENTENCE, f"{name(path)}:{line}: {count} words: {sentence}"


@pytest.mark.parametrize("path", [path for path in PAGES if name(path).startswith("docs/")], ids=name)
def test_a_long_page_begins_with_its_contents(path):
    lines = path.read_text("utf-8").splitlines()
    if len(lines) > LONGEST_WITHOUT_CONTENTS:
        assert any(line.startswith("**On this page:** [") for line in lines), "python -m tools.reference docs"


def test_text_is_found_wherever_people_read_it(tmp_path):
    """Over the ends of lines too; names, code and what is filled in do not count."""
    module = tmp_path / "module.py"
    code = 'x = f"task {goes_on} goes on"\ny = "goes"\nz = "`goes on` is a name"\n'
    module.write_text(f'"""It goes\non."""\n# then it\n# goes on\n{code}')
    assert [one.line for one in prose.of_module(module) if "goes on" in one.text] == [1, 3, 5]
    page = tmp_path / "page.md"
    page.write_text("# It goes on\n\nIt `goes on` and\ngoes on.\n\n```text\ngoes on\n```\n\n- goes\n  on\n")
    assert [one.line for one in prose.of_page(page) if "goes on" in one.text] == [1, 3, 10]


def test_sentences_are_separated():
    text = "One ends here. Two has `x.y` and 3.5 s. *Three* asks? (Four is in brackets.) Five"
    assert len(prose.sentences(text)) == 5
