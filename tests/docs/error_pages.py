"""Raises the error of each page in docs/errors, and tells it as the command line does.

`python -m tests.docs.error_pages` puts what is told now into the pages; the diff shows whether that was meant.
"""

import os
import re
import sys
import tempfile
from pathlib import Path

from holdfast.cli.failures.refusal import Refused, lines, lost_task
from holdfast.cli.show.style import bare
from holdfast.core.errors import HoldfastError, LeaseLost
from holdfast.core.errors.commands import in_commands
from tests.docs.typist import same

PAGES = Path(__file__).parents[2] / "docs" / "errors"
_EXAMPLE = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.S | re.M)


def example(page):
    """What raises the error of a page, and how the page tells it; None where that is typed at a terminal."""
    found = _EXAMPLE.search(page.read_text("utf-8"))
    return found and (found[1], found[2] or "")


def raised(text, folder):
    """Execute an example in a folder; gives the error's code and the lines it is told with."""
    here, modules, names = os.getcwd(), dict(sys.modules), {}
    os.chdir(folder)
    try:
        exec(compile(text, "example", "exec"), names)
    except HoldfastError as error:
        refused = Refused(error.code, in_commands(error.message), hint=error.hint, details=error.details)
        return error.code, _plain(lines(refused), folder)
    except LeaseLost as lost:
        return "lease-lost", _plain(lines(lost_task(lost)), folder)
    finally:
        os.chdir(here)
        for name in [name for name, module in sys.modules.items() if module is None]:  # not installed, it said
            del sys.modules[name]
        sys.modules.update(modules)
        if "disk" in names:
            names["disk"].room = None
        if "app" in names:
            names["app"].close()
    failure = names["done"].failure  # of a task, or of a step: the agent did not catch it, and the program goes on
    return failure.code, _plain([f"{failure.type}: {failure.message}"], folder)


def _plain(told, folder):
    return [
        re.sub(r"\b(memory-|held by '\d+-)[0-9a-f]+", r"\1…", bare(line).replace(f"{folder}/", "")) for line in told
    ]


def tells(page_says, told):
    """Whether a page tells an error as it is told now, but for times, and how tokens are counted."""

    def plain(line):
        return re.sub(r"\d+ (tokens|more)", r"N \1", same(line))

    return [plain(line) for line in page_says.splitlines()] == [plain(line) for line in told]


def main():
    for page in sorted(PAGES.glob("*.md")):
        found = example(page)
        if found and page.stem != "holdfast":
            with tempfile.TemporaryDirectory() as folder:
                code, told = raised(found[0], os.path.realpath(folder))
            assert code == page.stem, (page.stem, code, told)
            block = "```python\n{}```\n\n```text\n{}```\n".format(found[0], "".join(f"{line}\n" for line in told))
            page.write_text(_EXAMPLE.sub(lambda _, block=block: block, page.read_text("utf-8"), count=1), "utf-8")


if __name__ == "__main__":
    from holdfast.store.sqlite import file

    file.BUSY_SECONDS = 0.2
    main()
