"""CONTRIBUTING.md speaks of what there is: the paths and targets that it names exist."""

import re

from tests.shape.test_shape import SOURCE

ROOT = SOURCE.parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text("utf-8")


def test_the_paths_it_names_exist():
    quoted = re.findall(r"`([a-z_./]+/[a-z_./]*)`", TEXT)
    assert quoted
    for path in set(quoted) - {"site/"}:
        assert (ROOT / path).exists() or (SOURCE / path).exists(), path


def test_the_targets_it_names_are_in_the_makefile():
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for target in re.findall(r"`make ([a-z-]+)`", TEXT):
        assert re.search(rf"^{target}:", makefile, re.M), target
