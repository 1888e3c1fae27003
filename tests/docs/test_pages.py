"""The pages hang together: navigation, links, what is made of the code, the picture, and the site built of them."""

import doctest
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from tools.reference import __main__ as reference
from tools.reference.llms import llms_page

import holdfast
from holdfast.cli.main import ALIASES, COMMANDS
from tests.docs import demo_picture, site
from tests.docs.typist import blocks

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
LISTED = [page for page in PAGES if page.parent != DOCS / "errors"]
"""Pages that stand in the navigation; those of errors are reached from errors.md."""
BESIDE = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CHANGELOG.md", "benchmarks/README.md")]
LANGUAGES = {"console", "diff", "json", "pycon", "python", "sh", "text", "toml", "yaml"}


def prose(page):
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.S | re.M)


def anchors(page):
    """Where a page can be linked to: its headings, as GitHub and the site name them."""
    headings = [re.sub(r"[`*]|\]\([^)]*\)|\[", "", text) for text in re.findall(r"^#+ (.+)$", prose(page), re.M)]
    return {re.sub(r"[^\w\s-]", "", text.lower()).strip().replace(" ", "-") for text in headings}


def links(page):
    """Relative links of a page, as (target, anchor)."""
    found = re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", prose(page)))
    return [link.partition("#")[::2] for link in found if not re.match(r"[a-z]+:", link)]


def entries(nav):
    for entry in nav:
        for what in entry.values():
            yield from [what] if isinstance(what, str) else entries(what)


@pytest.mark.parametrize("page", [*PAGES, *BESIDE], ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_and_anchor_leads_somewhere(page):
    for target, anchor in links(page):
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), f"{page.name} links to {target}"
        if page.is_relative_to(DOCS):
            assert path.is_relative_to(DOCS), f"{page.name} links to {target}, which is not on the site"
        if anchor:
            assert anchor in anchors(path), f"{page.name} links to {target}#{anchor}: there is {sorted(anchors(path))}"


def test_every_page_is_in_the_navigation_once_and_can_be_reached_from_the_first():
    project = tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))["project"]
    listed = list(entries(project["nav"]))
    assert sorted(listed) == sorted(str(page.relative_to(DOCS)) for page in LISTED)
    assert project["theme"]["font"] is False, "or pages would fetch fonts from elsewhere"
    reached, todo = set(), [DOCS / "index.md"]
    while todo:
        page = todo.pop()
        if page not in reached:
            reached.add(page)
            todo += [(page.parent / target).resolve() for target, _ in links(page) if target.endswith(".md")]
    assert set(PAGES) <= reached


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_is_of_a_kind_that_the_tests_know(page):
    found = blocks(page)
    assert len(found) * 2 == len(re.findall(r"^ *```", page.read_text("utf-8"), re.M)) - 2 * unnamed(page)
    assert {block.language for block in found} <= LANGUAGES
    if any(block.title for block in found):
        assert any(block.language in ("console", "sh") for block in found), "files are written where commands are typed"


def unnamed(page):
    """How many blocks have no language: what is only to be looked at."""
    return len(
        re.findall(
            r"^```\n.*?^```$", re.sub(r"^```\w.*?^```$", "", page.read_text("utf-8"), flags=re.S | re.M), re.S | re.M
        )
    )


def test_the_examples_of_the_python_reference_run():
    names = {name: getattr(holdfast, name) for name in holdfast.__all__}
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    found = [block for block in blocks(DOCS / "api.md") if block.language == "pycon"]
    for block in found:
        runner.run(doctest.DocTestParser().get_doctest(block.text, dict(names), "api.md", "api.md", block.line))
    assert len(found) >= 7 and runner.summarize(verbose=False).failed == 0


def test_the_python_reference_has_every_public_name():
    page = (DOCS / "api.md").read_text("utf-8")
    headings = set(re.findall(r"^#+ (.+)$", page, re.M))
    for name in holdfast.__all__:
        assert name in headings or f"`{name}`" in page or f"holdfast.{name}" in page or name == "__version__", name
    for owner, shown in ((holdfast.App, "app"), (holdfast.Task, "task"), (holdfast.TaskState, "state")):
        for name, value in vars(owner).items():
            if not name.startswith("_"):
                listed = f"{shown}.{name}" in headings or f"TaskState.{name}" in headings
                assert listed or (isinstance(value, property) and f"- `.{name}`" in page), f"{shown}.{name}"


def test_the_list_for_language_models_is_that_of_the_pages():
    text = (DOCS / "llms.txt").read_text("utf-8")
    assert text == llms_page(DOCS), "python -m tools.reference docs"
    listed = re.findall(r"\]\(([^)]+\.md)\): .{10,}\.$", text, re.M)
    assert sorted(listed) == sorted(str(page.relative_to(DOCS)) for page in LISTED)


def test_writing_the_generated_pages_anew_changes_nothing(tmp_path):
    shutil.copytree(DOCS, tmp_path / "docs")
    shutil.copy(ROOT / "zensical.toml", tmp_path)
    reference.write(str(tmp_path / "docs"))
    for path in sorted((tmp_path / "docs").rglob("*")):
        if path.is_file():
            assert path.read_bytes() == (DOCS / path.relative_to(tmp_path / "docs")).read_bytes(), path.name


def test_pages_speak_of_commands_and_options_that_exist():
    import click

    from holdfast.cli.main import cli

    top = click.Context(cli)
    for page in [ROOT / "README.md", *(page for page in PAGES if page.name != "usage.md")]:
        for name, rest in re.findall(
            r"(?:`|^\$ )holdfast ([a-z]+(?:-[a-z]+)*)([^`\n]*)", page.read_text("utf-8"), re.M
        ):
            assert name in (*COMMANDS, *ALIASES), f"{page.name}: holdfast {name}"
            known = {option for one in cli.get_command(top, name).params for option in (*one.opts, *one.secondary_opts)}
            given = set(re.findall(r"(?<=\s)--[a-z][a-z-]*", rest.partition("|")[0]))
            assert given <= known | {"--help"}, f"{page.name}: holdfast {name}{rest}"


def test_the_readme_is_short():
    text = (ROOT / "README.md").read_text("utf-8")
    assert len(text.splitlines()) < 90 and "docs/demo.svg" in text and "docs/comparison.md" in text


def test_the_picture_shows_what_the_demo_does(tmp_path, monkeypatch):
    """Where bars begin and end differs from one time to the next; what they say does not."""

    def said(svg):
        return [re.sub(r"\d+ ms|process \d+|\d\.\d s", "~", text) for text in re.findall(r">([^<]+)</t", svg)]

    given = [str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(given))
    fresh, kept = demo_picture.picture(*demo_picture.played(tmp_path)), (DOCS / "demo.svg").read_text("utf-8")
    assert [text for text in said(fresh) if text != "~"] == [text for text in said(kept) if text != "~"]
    assert fresh.count("<rect") == kept.count("<rect") and "http" not in kept.replace("http://www.w3.org/2000/svg", "")


def zensical():
    ours = ROOT / ".venv-docs" / "bin" / "zensical"
    return str(ours) if ours.exists() else os.environ.get("HOLDFAST_TEST_ZENSICAL") or shutil.which("zensical")


@pytest.mark.skipif(zensical() is None, reason="the builder is not installed: make docs")
def test_the_site_is_built_without_a_warning_and_asks_nobody_for_anything(tmp_path):
    shutil.copytree(DOCS, tmp_path / "docs")
    shutil.copy(ROOT / "zensical.toml", tmp_path)
    done = subprocess.run([zensical(), "build", "--strict", "--clean"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    site.finish(DOCS, tmp_path / "site")
    assert list(site.problems(tmp_path / "site")) == []
    assert len(list((tmp_path / "site").rglob("*.html"))) == len(PAGES) + 1


def test_a_site_that_fetches_from_elsewhere_or_links_to_nothing_is_found(tmp_path):
    (tmp_path / "a.html").write_text(
        '<p id="x"><a href="b.html"><a href="#y"><a href="#x"><img src="https://e.org/p.png">'
    )
    (tmp_path / "a.css").write_text('@import "https://e.org/f.css"; p { background: url(//e.org/q.png) }')
    assert len(list(site.problems(tmp_path))) == 5
