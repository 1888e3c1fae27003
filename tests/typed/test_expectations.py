"""What users' type checkers find out about typed code: pyright and mypy, both strict."""

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
EXPECTED = HERE / "expectations.py"
ROOT = HERE.parent.parent

CHECKERS = {
    "pyright": ["pyright", "--project", str(HERE / "pyrightconfig.json")],
    "mypy": ["mypy", "--strict", "--follow-imports=silent", "--no-incremental", "--cache-dir=/dev/null"],
}


def told(checker, path):
    name, *options = CHECKERS[checker]
    target = [] if checker == "pyright" and path == EXPECTED else [str(path)]
    done = subprocess.run(
        [Path(sys.executable).with_name(name), *options, *target], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("checker", CHECKERS)
def test_types_are_known_to(checker):
    code, text = told(checker, EXPECTED)
    assert code == 0, text
