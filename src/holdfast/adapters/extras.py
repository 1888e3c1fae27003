"""What an adapter needs installed: the framework, in a version that it was tested with."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version

from holdfast.core.errors import MissingExtra


def need(extra: str, package: str, *, at_least: str, below: str) -> None:
    """Refuse to go on unless `package` is installed in a version that the adapter supports."""
    hint = f"from a checkout: pip install 'path/to/holdfast[{extra}]'"
    try:
        found = version(package)
    except PackageNotFoundError:
        raise MissingExtra(f"{package} is not installed", hint=hint) from None
    if not _numbers(at_least) <= _numbers(found) < _numbers(below):
        raise MissingExtra(
            f"{package} {found} is installed, and holdfast.adapters.{extra} supports {package}>={at_least},<{below}",
            hint=hint,
        )


def _numbers(version: str) -> tuple[int, ...]:
    """The release of a version, without what comes after its numbers."""
    release = re.match(r"[0-9.]*", version)
    return tuple(int(part) for part in (release[0] if release else "").split(".") if part)
