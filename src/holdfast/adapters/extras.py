"""What an adapter needs installed: the framework, in a version that it was tested with."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version

from holdfast.core.errors import MissingExtra


def unsupported(extra: str, package: str, *, at_least: str, below: str) -> MissingExtra | None:
    """Return what to raise if `package` is not installed, or in a version that the adapter does not support."""
    hint = f"from a checkout: pip install 'path/to/holdfast[{extra}]'"
    try:
        found = version(package)
    except PackageNotFoundError:
        return MissingExtra(f"{package} is not installed", hint=hint)
    if _numbers(at_least) <= _numbers(found) < _numbers(below):
        return None
    wanted = f"{package}>={at_least},<{below}"
    return MissingExtra(f"{package} {found} is installed; the extra {extra!r} needs {wanted}", hint=hint)


def _numbers(version: str) -> tuple[int, ...]:
    """The release of a version, without what comes after its numbers."""
    release = re.match(r"[0-9.]*", version)
    return tuple(int(part) for part in (release[0] if release else "").split(".") if part)
