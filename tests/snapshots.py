"""What Holdfast says to people, kept in one place: the files of tests/texts hold every text that a test pins.

A test that pins texts takes the fixture `texts`. `texts.raises(Error)` is `pytest.raises` and pins the error's text;
`texts.check(text)` pins any other. A text is found by the test's name and its place among the texts of that test.
`make texts` writes the files anew, from what the tests see: after a rewording, run it and read the diff.
"""

import contextlib
import difflib
import functools
import itertools
import json
import re
import tomllib
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
HEAD = "# Written by `make texts`. Read the diff, and edit nothing here: tests/snapshots.py says what these are for.\n"


class Texts:
    """The texts of one test."""

    def __init__(self, name, kept, *, writing):
        self._name = name
        self._kept = kept
        self._writing = writing
        self.seen = []

    def check(self, text, **values):
        """Compare a text with the one that is kept. With `port=5432`, what is kept says `<port>` for 5432.

        A text that this test has checked before is the same text: it is kept once.
        """
        __tracebackhide__ = True
        shown = steady(str(text), values)
        if shown in self.seen:
            return
        self.seen.append(shown)
        if self._writing:
            return
        place = len(self.seen)
        if place > len(self._kept):
            pytest.fail(f"text {place} of {self._name} is not kept yet: run `make texts`. It is:\n{shown}")
        kept = self._kept[place - 1]
        if shown != kept:
            lines = difflib.ndiff(kept.splitlines(), shown.splitlines())
            pytest.fail(
                f"text {place} of {self._name} has changed: run `make texts` if it should.\n" + "\n".join(lines)
            )

    @contextlib.contextmanager
    def raises(self, expected, **values):
        """Expect an error of this class, as `pytest.raises` does, and check its text."""
        __tracebackhide__ = True
        with pytest.raises(expected) as caught:
            yield caught
        self.check(caught.value, **values)

    def finish(self):
        """Complain if a test that passed checks fewer texts than are kept."""
        if not self._writing and len(self.seen) < len(self._kept):
            pytest.fail(f"{self._name} checks {len(self.seen)} of {len(self._kept)} texts: run `make texts`")


@pytest.fixture
def texts(request):
    """The texts of this test."""
    return request.config.pluginmanager.get_plugin(Library.NAME).texts_of(request.node)


VARIABLE = [
    (r"/[^\s'\"]*/pytest-of-[^/]+/pytest-\d+/(popen-gw\d+/)?[^/\s'\"]+", "<tmp>"),
    (re.escape(str(TESTS.parent)), "<checkout>"),
    (r"\bholdfast_[0-9a-f]+_[0-9a-f]{6}_\d+\b", "<database>"),
    (r"((?<=127\.0\.0\.1:)|(?<=\bport )|(?<=--health ))\d{4,5}\b", "<port>"),
    (r"\b0x[0-9a-f]{8,}\b", "<address>"),
    (r"(?<=\.py:)\d+\b", "<line>"),
    (r"\b20\d\d-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?)?|\b\d\d:\d\d:\d\d\b", "<date>"),
    (r"(?m) +\d+\.\d{3}(?=  )", " <seconds>"),
    (r"(?m)\bnow(?=\)?$)|\b\d+ (s|min|h) ago\b", "<ago>"),
    (r" *\b\d[\d,]*(\.\d+)? (ms|s)\b", " <time>"),
    (r"\bprocess \d+\b", "process <pid>"),
    (r"\bworker \S+-\d+\b", "worker <name>"),
    (r"(?<=--bound )[0-9a-f]{12}\b", "<digest>"),
]


def steady(text, values):
    """Replace what differs from run to run by a name."""
    for name, value in sorted(values.items(), key=lambda item: -len(str(item[1]))):
        whole = rf"(?<!\d){value}(?!\d)" if str(value).isdigit() else re.escape(str(value))  # 93 is no part of 293
        text = re.sub(whole, f"<{name}>", text)
    for pattern, name in VARIABLE:
        text = re.sub(pattern, name, text)
    return text.rstrip("\n")


class Library:
    """A plugin of pytest: the texts that are kept, and those that the tests of this run see.

    A test is known by its module's path below tests/, its name, and the ids of its parameters.
    """

    NAME = "texts"

    def __init__(self, config, tests=TESTS):
        self._tests = tests
        self._folder = tests / "texts"
        self._writing = config.option.write_texts
        self._modules = set()  # that were collected
        self._selected = set()  # tests that check texts
        self._seen = {}  # a test that passed: its texts
        given = config.option
        if self._writing and (
            given.keyword or given.markexpr or given.quick or any("::" in arg for arg in config.args)
        ):
            raise pytest.UsageError("--write-texts writes the texts of whole files: without -k, -m, --quick and ::")

    @functools.cached_property
    def _kept(self):
        return load(self._folder)

    def _kept_for(self, test):
        module, name, ids = test
        cases = self._kept.get((module, name), {})
        return next((cases[case] for case in _cases(ids) if case in cases), [])

    def texts_of(self, item):
        return Texts(item.nodeid, self._kept_for(_test(item)), writing=self._writing)

    def pytest_collection_modifyitems(self, config, items):
        using = [item for item in items if "texts" in getattr(item, "fixturenames", ())]
        self._modules = {_test(item)[0] for item in items}
        self._selected = set(map(_test, using))
        if self._writing:
            config.hook.pytest_deselected(items=[item for item in items if item not in using])
            items[:] = using

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item):
        result = yield  # raises what the test raised
        texts = getattr(item, "funcargs", {}).get("texts")
        if texts is not None:
            texts.finish()
            self._seen[_test(item)] = texts.seen
        return result

    def pytest_sessionfinish(self, session):
        """Write the files. A process of xdist hands on what it has seen to the one that started it."""
        if not self._writing:
            return
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput[self.NAME] = [self._modules, self._selected, self._seen]
        else:
            save(self._folder, self._rewritten())

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node):
        modules, selected, seen = getattr(node, "workeroutput", {}).get(self.NAME, ((), (), {}))
        self._modules |= set(modules)
        self._selected |= set(selected)
        self._seen |= seen

    def _rewritten(self):
        """Return what is seen. A test that was skipped or failed keeps its texts, and so does a module not run."""
        others = {
            (module, name): cases
            for (module, name), cases in self._kept.items()
            if module not in self._modules and (self._tests / module).exists()
        }
        found = {}
        for test in self._selected:
            module, name, ids = test
            texts = self._seen[test] if test in self._seen else self._kept_for(test)
            found.setdefault((module, name), {})[ids] = texts
        return others | {test: merged(by_ids) for test, by_ids in found.items() if any(by_ids.values())}


def _leaves_tests_out(config):
    given = config.option
    return given.keyword or given.markexpr or given.quick or any("::" in arg for arg in config.args)


def _test(item):
    module, _, name = item.nodeid.partition("::")
    ids = tuple(item.callspec._idlist) if hasattr(item, "callspec") else ()
    return module.removeprefix("tests/"), name.partition("[")[0], ids


# A case is the ids of a test's parameters, with a star for each that makes no difference.
ANY = "*"


def _cases(ids):
    """Return the cases that a test may belong to, the most particular ones first."""
    found = itertools.product(*((id, ANY) for id in ids))
    return [_case(one) for one in sorted(found, key=lambda one: one.count(ANY))]


def _case(ids):
    return "" if set(ids) <= {ANY} else "-".join(ids)


def merged(by_ids):
    """Return the texts of each case of one test, of which each choice of parameters sees these."""
    for place in range(len(next(iter(by_ids)))):
        fewer = {}
        for ids, texts in by_ids.items():
            fewer.setdefault((*ids[:place], ANY, *ids[place + 1 :]), []).append(texts)
        if all(one == texts[0] for texts in fewer.values() for one in texts):
            by_ids = {ids: texts[0] for ids, texts in fewer.items()}
    return {_case(ids): texts for ids, texts in by_ids.items()}


def load(folder):
    """Return the cases of each test in these files, with their texts."""
    return {
        (module, name): {
            case: _listed(texts) for case, texts in (kept if isinstance(kept, dict) else {"": kept}).items()
        }
        for file in sorted(folder.glob("*.toml"))
        for module, tests in tomllib.loads(file.read_text("utf-8")).items()
        for name, kept in tests.items()
    }


def _listed(texts):
    return [texts] if isinstance(texts, str) else texts


def save(folder, kept):
    """Write a file for each folder of tests, in an order that does not depend on the run."""
    files = {}
    for module, name in sorted(kept):
        modules = files.setdefault(Path(module).parts[0].removesuffix(".py"), {})
        modules.setdefault(module, {})[name] = kept[module, name]
    folder.mkdir(exist_ok=True)
    for file in folder.glob("*.toml"):
        file.unlink()
    for stem, modules in files.items():
        tables = [_tables(module, tests) for module, tests in modules.items()]
        (folder / f"{stem}.toml").write_text(HEAD + "".join(tables), "utf-8")


def _tables(module, tests):
    """Write the tests of a module: those with one case, then a table for each of the others."""
    alone = {name: cases[""] for name, cases in tests.items() if list(cases) == [""]}
    text = f"\n[{_quoted(module)}]\n" + "".join(_line(name, texts) for name, texts in alone.items()) if alone else ""
    for name in sorted(set(tests) - set(alone)):
        cases = tests[name]
        lines = [_line(case, cases[case]) for case in sorted(cases, key=_by_number)]
        text += f"\n[{_quoted(module)}.{_key(name)}]\n" + "".join(lines)
    return text


def _by_number(case):
    """Sort 2 before 10."""
    return [(part.isdigit(), int(part) if part.isdigit() else part) for part in re.split(r"(\d+)", case)]


def _line(name, texts):
    values = [_quoted(text) for text in texts]
    match values:
        case []:
            value = "[]"
        case [value]:
            pass
        case _:
            value = "\n".join(["[", *(f"{one}," for one in values), "]"])
    return f"{_key(name)} = {value}\n"


def _key(name):
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else f'"{_escaped(name)}"'


def _quoted(text):
    """Return a string of TOML, with its lines as lines and as few escapes as can be."""
    lines = text.split("\n")
    plain = all(line.isprintable() for line in lines)
    if len(lines) > 1:
        if plain and "'''" not in text and not text.endswith("'"):
            return f"'''\n{text}'''"
        return '"""\n' + "\n".join(map(_escaped, lines)) + '"""'
    if plain and "'" not in text and ('"' in text or "\\" in text):
        return f"'{text}'"
    return f'"{_escaped(text)}"'


def _escaped(line):
    return json.dumps(line, ensure_ascii=False)[1:-1].replace("\x7f", "\\u007f")
