"""Pages of the docs that are made of the code: `python -m tools.reference docs` writes them anew."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from holdfast.cli.main import SECTIONS, cli
from tools.reference.api import api_page
from tools.reference.contents import write_contents
from tools.reference.errors import errors_page, write_error_pages
from tools.reference.llms import llms_page

_INTRO = """# The command line

`holdfast` works on one store: `--store URL`, else `HOLDFAST_URL`, else `holdfast.db` here. A command that only looks
makes no store. A task is named by its id, or `@last` for the newest one that is nobody's child.

Agents come from the file you name, `agents.py` or `agents.py:travel`, or from pyproject.toml; never from a name found
in a store:

```toml
[tool.holdfast]
agents = ["agents.py"]
```

**Output.** stdout carries data only; progress, hints and errors go to stderr. On a terminal there are colours and
tables that fit it; elsewhere plain lines that are never cut. `--json` gives the same facts as one document, `--jsonl`
a line each; times are ISO 8601 in UTC. `NO_COLOR`, `FORCE_COLOR`, `TERM=dumb` and `COLUMNS` are honoured.

**Exit codes.** 0 ok · 1 the work failed, or something was found · 2 the command was not understood · 3 not found · 4
somebody else was first, or the task is past that · 5 the store · 6 the task waits · 130 Ctrl-C · 141 nobody reads
what it prints any more. With `--json` an error is `{"error": {"code", "message", "hint", "details"}}` on stderr. Every
code is explained in [errors.md](errors.md) and by `holdfast explain CODE`.

**Completion.** `eval "$(holdfast completion bash)"` in ~/.bashrc lets the shell complete commands, options, files, ids
and what a task waits for; zsh and fish likewise.

**Values.** `-p name=text` and `-p name:=JSON` give an agent its input. Where one value stands alone, `:=` before it
makes it JSON and `-` reads stdin.

**Ctrl-C** once stops a task after the step under way and says how to resume it; twice stops at once. Both can be
resumed.

**Tenants.** `--namespace NAME`, else `HOLDFAST_NAMESPACE`: only that tenant's tasks are seen.

**People.** What somebody does is kept with a name: `--by`, else `HOLDFAST_BY`, else the login name.

This page is made of the code: `python -m tools.reference docs`.
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
    ctx = click.Context(found, info_name=name, parent=top, max_content_width=100, terminal_width=100)
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
