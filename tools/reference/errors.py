"""docs/errors.md and a page for each code, made of the code; how an error comes about is written by hand and kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from holdfast.cli.failures.explanation import explained, known

HOW = "## How it comes about\n"
"""What stands from here on in the page of a code is written by hand; the tests execute it."""

_INTRO = """# Errors

Every error of Holdfast stands in one tree under `holdfast.HoldfastError`. Each has a stable `code`, a `message` with
the values concerned, a `hint` and `details`. The command line prints three lines: what failed, why and what was
written, and one next command (`--debug` adds the traceback):

```text
error[step-changed]: step 'draft#1' was recorded with … and is now called with …
  Nothing was run, and the recorded step is kept. If the agent does not catch this, the task fails.
help: keep the recorded result with @agent(on_change='keep'), or run it again with on_change='rerun'
```

The page of each code has an example that raises it, and what the command line prints; tests execute both. An error
inside an agent fails its task: `app.run` does not raise then, and `done.failure` has the error. `holdfast explain CODE`
explains a code at a terminal. These pages are made from the code: `python -m tools.reference docs`.

| code | when | exit code |
|---|---|---|
"""


def errors_page() -> str:
    """docs/errors.md."""
    every = [explained(code) for code in known()]
    return _INTRO + "".join(f"| [{one.code}](errors/{one.code}.md) | {one.when} | {one.exit} |\n" for one in every)


def write_error_pages(folder: Path) -> None:
    """A page for each code, in a folder of docs; what is written there by hand stays."""
    folder.mkdir(exist_ok=True)
    for code in known():
        page = folder / f"{code}.md"
        before = page.read_text("utf-8") if page.exists() else HOW
        page.write_text("\n".join(_about(code)) + HOW + before.partition(HOW)[2], "utf-8")


def _about(code: str) -> Iterator[str]:
    one = explained(code)
    name = f"`holdfast.{one.name}` · " if one.name else ""
    yield f"# {code}\n"
    yield f"{name}exit code {one.exit} · [all errors](../errors.md)\n"
    on_record = "" if one.written.lower()[:-1] in one.when else f" {one.written}"
    yield f"{one.when} {one.why}{on_record}\n"
    if one.do:
        yield "\n".join(f"- {_as_text(line)}" for line in one.do) + "\n"
    yield ""


def _as_text(line: str) -> str:
    """A remedy: what can be typed in a fixed width, the rest as it is."""
    typed, gap, rest = line.partition("   ")
    return f"`{typed}` {rest}" if gap else f"`{line}`" if line.startswith("holdfast ") else line
