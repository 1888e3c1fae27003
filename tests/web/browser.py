"""A real Chromium for tests of the page, and what every one of them also asserts.

Chromium is Debian's (`chromium`), or one that Playwright has downloaded, or what HOLDFAST_TEST_CHROMIUM names. As root
it is installed by `make test-page`. Where there is none, these tests are skipped, loudly.
"""

import contextlib
import os
import shutil
import warnings
from urllib.parse import urlsplit

import pytest

FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
]
NONE = "no Chromium is here: the page was not tested in a browser. As root: make test-page installs Debian's"
REPORTS = """addEventListener("securitypolicyviolation", report =>
  console.error(`policy: ${report.violatedDirective} ${report.blockedURI} ${report.sample}`))"""
SIZES = {"wide": {"width": 1280, "height": 860}, "phone": {"width": 390, "height": 844}}


def chromium():
    """The path of a Chromium, None if there is none."""
    return os.environ.get("HOLDFAST_TEST_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")


@contextlib.contextmanager
def started():
    """A browser, for all tests of a module."""
    sync_api = pytest.importorskip("playwright.sync_api", reason=NONE)
    path = chromium()
    with sync_api.sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        except sync_api.Error as error:
            warnings.warn(pytest.PytestWarning(NONE), stacklevel=1)
            pytest.skip(f"{NONE} ({str(error).splitlines()[0]})")
        try:
            yield browser
        finally:
            browser.close()


@contextlib.contextmanager
def tab(browser, page, path="/", *, size="wide", theme="light", **options):
    """A tab that is logged in. At its end: no error in the console, no policy report, no request to elsewhere."""
    context = browser.new_context(viewport=SIZES[size], color_scheme=theme, **options)
    context.set_default_timeout(40_000)
    context.add_init_script(REPORTS)
    opened = context.new_page()
    seen = Seen(page.url)
    opened.on("console", seen.console)
    opened.on("pageerror", lambda error: seen.errors.append(str(error)))
    opened.on("request", seen.request)
    opened.on("dialog", lambda dialog: (seen.errors.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    try:
        fresh = page.ask("POST", "/api/v1/link", {"code": page.key})[1]["code"]
        opened.goto(f"{page.url}{path}#code={fresh}")
        opened.seen = seen
        yield opened
        assert not seen.errors, seen.errors
        assert not seen.elsewhere, seen.elsewhere
    finally:
        context.close()


class Seen:
    """What went wrong in a tab."""

    def __init__(self, url):
        self.errors, self.elsewhere = [], []
        self.expected = ()
        self._own = urlsplit(url).netloc

    def console(self, message):
        told = f"{message.type}: {message.text}"
        if message.type in ("error", "warning") and not any(one in told for one in self.expected):
            self.errors.append(told)

    def request(self, request):
        at = urlsplit(request.url)
        if at.scheme not in ("blob", "data") and at.netloc != self._own:
            self.elsewhere.append(request.url)
