"""What the tests execute of src/: `make coverage` measures it, and this prints it and asks for reasons.

coverage_reasons.toml says of each module what share of its lines and branches is covered at least, and why not more. It
ends with 1 if a module has less. Modules it does not name go by its default.
"""

import json
import sys
import textwrap
import tomllib
import warnings
from pathlib import Path

from coverage import Coverage
from coverage.exceptions import CoverageWarning

REASONS = Path(__file__).with_name("coverage_reasons.toml")
PACKAGE = "src/holdfast/"


def stated():
    """The floor of each module, and why not more of it is covered."""
    return {name: (one["floor"], one["why"]) for name, one in tomllib.loads(REASONS.read_text("utf-8")).items()}


def measured():
    """Combine what all processes measured, print the table, and give the percentage of each module."""
    found = Coverage()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CoverageWarning)  # a process that was killed may have left half a file
        found.combine()
    found.save()
    found.report(show_missing=True, skip_covered=True)
    place = Path(found.get_option("run:data_file")).with_name("report.json")
    found.json_report(outfile=str(place))
    files = json.loads(place.read_text("utf-8"))["files"]
    return {path.rpartition(PACKAGE)[2]: one["summary"]["percent_covered"] for path, one in files.items()}


def complaints(percents, reasons):
    """What is wrong: a line each."""
    for name, percent in sorted(percents.items()):
        floor, _ = reasons.get(name, reasons["default"])
        if percent < floor:
            yield f"{name}: {percent:.1f} % is covered, and its floor is {floor} %: write a test, or say why not"
    for name in sorted(set(reasons) - {"default", *percents}):
        yield f"{name}: a reason is given, but there is no such module"


def main():
    percents, reasons = measured(), stated()
    print("\nWhy not everything is covered (tests/coverage_reasons.toml)\n")
    for name, (floor, why) in reasons.items():
        said = "every other module" if name == "default" else f"{name}, {percents.get(name, 0):.1f} %"
        print(f"{said}, at least {floor} %")
        print(textwrap.fill(why, 110, initial_indent="    ", subsequent_indent="    "))
    wrong = list(complaints(percents, reasons))
    print("", *wrong, sep="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
