"""The shell of the page and its files. One page for every screen: what it shows is in its address."""

from __future__ import annotations

import gzip
import hashlib
from functools import cache
from html import escape
from importlib.resources import files

from msgspec import Struct

KINDS = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
}

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)

HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
"""What every answer carries."""

FOR_EVER = "public, max-age=31536000, immutable"

_SHELL = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Holdfast</title>
<link rel="icon" href="{files}/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="{files}/holdfast.css">
<script type="module" src="{files}/main.js"></script>
</head>
<body data-base="{base}" data-login="{login}" data-version="{version}">
<div id="page"><p class="plain">Loading the page …</p></div>
<noscript><p class="plain">This page needs JavaScript. The command line shows the same: holdfast list</p></noscript>
</body>
</html>
"""


class Asset(Struct, frozen=True):
    """A file of the front end."""

    body: bytes
    kind: str
    packed: bytes | None = None
    """The body for those who take gzip; None of what is compressed already."""


def _asset(name: str, body: bytes) -> Asset:
    kind = KINDS[_suffix(name)]
    return Asset(body, kind, None if kind.startswith("font/") else gzip.compress(body, 9, mtime=0))


def _suffix(name: str) -> str:
    return name[name.rfind(".") :]


@cache
def assets() -> dict[str, Asset]:
    """Return every file of the front end by its name. What the package does not hold can't be asked for."""
    return {
        one.name: _asset(one.name, one.read_bytes())
        for one in files("holdfast.web").joinpath("static").iterdir()
        if _suffix(one.name) in KINDS
    }


@cache
def version_of_files() -> str:
    """Return what the files are called: a hash of all of them, so that they can be kept for ever."""
    whole = hashlib.sha256()
    for name, one in sorted(assets().items()):
        whole.update(name.encode() + b"\0" + one.body)
    return whole.hexdigest()[:16]


def shell(base: str, login: str, version: str) -> bytes:
    """Return the page. It holds nothing of the store: anyone may read it."""
    at = escape(base, quote=True)
    return _SHELL.format(
        files=f"{at}/static/{version_of_files()}", base=at, login=escape(login, quote=True), version=escape(version)
    ).encode()
