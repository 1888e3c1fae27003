"""Pages of the docs that are made of the code: `python -m tools.reference docs` writes them anew."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from holdfast.cli.main import SECTIONS, cli
from holdfast.cli.show.help_page import HelpContext
from tools.reference.api import api_page
from tools.reference.contents import write_contents
from tools.reference.errors import errors_page, write_error_pages
from tools.reference.llms import llms_page

_INTRO = """# The command line

`holdfast` works on one store: `--store URL`, or `HOLDFAST_URL`, or `holdfast.db` in this folder. A command that only
reads creates no store. A task is named by its id, or `@last` for the newest one without a parent.

Agents come from the file you name, `agents.py` or `agents.py:travel`, or from pyproject.toml; never from a name found
in a store:

```toml
[tool.holdfast]
agents = ["agents.py"]
```

**Output.** stdout carries data only; progress, hints and errors go to stderr. On a terminal there are colours and
tables that fit it; elsewhere plain lines that are never cut. `--json` gives the same facts as one document, `--jsonl`
a line each; times are ISO 8601 in UTC. `NO_COLOR`, `FORCE_COLOR`, `TERM=dumb` and `COLUMNS` are honoured.

**Errors** have three lines: what failed, why and what was written, and one next command. With `--json` an error is
`{"error": {"code", "message", "hint", "details"}}` on stderr. Every code is explained in [errors.md](errors.md) and by
`holdfast explain CODE`. A word in capitals in a hint, such as `FILE`, stands for your own value; typed as it is, it is
refused.

**Exit codes.** 0 ok · 1 the work failed, or a check found something · 2 the command was not understood · 3 not found ·
4 another writer was first, or the task does not allow it · 5 the store · 6 the task waits · 130 Ctrl-C · 141 the reader
of the output has gone.

**Completion.** `eval "$(holdfast completion bash)"` in ~/.bashrc lets the shell complete commands, options, files, ids
and what a task waits for; zsh and fish likewise.

**Values** follow one rule in every command (`run -p`, `answer`, `signal`, `settle --result`, `fork --set`): a value is
JSON if it is JSON, else text. So `days=3` is a number and `city=oslo` is text. Text that looks like JSON is quoted,
`code='"007"'`; a parameter that the agent declares as `str` needs no quotes. `name:=value` insists on JSON. Where one
value stands alone, `-` reads it from stdin.

**Ctrl-C** once stops a task after the current step and prints how to resume it; twice stops it at once. The task can be
resumed after both.

**Tenants.** `--namespace NAME`, or `HOLDFAST_NAMESPACE`, limits a command to one tenant. `--store` and `--namespace`
may also stand before the command: `holdfast --store holdfast.db list`.

**People.** What you do is recorded with your name: `--by`, or `HOLDFAST_BY`, or your login name.

This page is made from the code: `python -m tools.reference docs`.
"""


def commands_page() -> str:
    """docs/cli.md."""
    parts = [_INTRO]
    top = click.Context(cli, info_name="holdfast", **cli.context_settings)
    for section, names in SECTIONS.items():
        parts.append(f"## {section}\n")
        for name in names:
            found = cli.get_command(top, name)
            assert found is not None
            parts += _of_command(name, found, top)
    return "\n".join(parts)


def _of_command(name: str, found: click.Command, top: click.Context) -> Iterator[str]:
    yield f"### {name}\n"
    ctx = HelpContext(found, info_name=name, parent=top, max_content_width=100, terminal_width=100)
    yield f"```text\n{found.get_help(ctx)}\n```\n"


PAGES = {"api.md": api_page, "cli.md": commands_page, "errors.md": errors_page}


def write(folder: str) -> None:
    """Write every page anew."""
    for name, page in PAGES.items():
        (Path(folder) / name).write_text(page(), "utf-8")
    write_error_pages(Path(folder) / "errors")
    (Path(folder) / "llms.txt").write_text(llms_page(Path(folder)), "utf-8")
    write_contents(Path(folder))


if __name__ == "__main__":
    write(sys.argv[1])
