"""What the package holds and loads: no inline script or style, no HTML of data, nothing without the extra."""

import hashlib
import json
import re
import subprocess
import sys

import pytest

from holdfast.web import page
from tests.web.loads import STATIC, first_loads

MODULES = sorted(STATIC.glob("*.js"))


def test_importing_holdfast_loads_nothing_of_the_page():
    code = (
        "import sys, holdfast; holdfast.open\n"
        "print([one for one in sys.modules if one.startswith(('starlette', 'uvicorn', 'holdfast.web'))])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_the_front_end_weighs_little():
    """What a browser loads for any first screen; fonts once more. See decision 0096 for the sum of all files."""

    for screen, names in first_loads().items():
        assert sum(len(page.assets()[name].packed) for name in names) <= 60 * 1024, screen
    files = [one for one in page.assets().values() if one.packed is not None]
    assert sum(len(one.packed) for one in files) <= 96 * 1024, "see decision 0096"
    fonts = [one for one in page.assets().values() if one.packed is None]
    assert len(fonts) == 2 and sum(len(one.body) for one in fonts) <= 70 * 1024


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_nothing_of_the_front_end_makes_html_or_code_of_data(path):
    text = path.read_text("utf-8")
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "srcdoc"):
        assert word not in text, word
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text), "it asks no other server"
    for name in re.findall(r'from "([^"]+)"', text):
        assert name.startswith("./") and (STATIC / name[2:]).exists(), name


def test_every_icon_and_stylesheet_is_the_page_s_own():
    css = (STATIC / "holdfast.css").read_text("utf-8")
    assert "@import" not in css
    for name in re.findall(r"url\(([^)]*)\)", css):
        assert re.fullmatch(r'"[a-z-]+\.woff2"', name) and (STATIC / name.strip('"')).exists(), name
    shell = page.shell("/x", "link", "1").decode()
    assert "style=" not in shell and not re.search(r"<script(?![^>]*src=)", shell)


def test_what_others_wrote_is_listed_with_its_version_licence_and_hash():
    """Files that are not ours stand in vendor.json. So does every font: none of them is ours."""
    vendor = STATIC / "vendor.json"
    listed = json.loads(vendor.read_text("utf-8")) if vendor.exists() else []
    for one in listed:
        assert {"name", "version", "licence", "sha256"} <= set(one), one
        assert hashlib.sha256((STATIC / one["name"]).read_bytes()).hexdigest() == one["sha256"], one["name"]
        assert "OPEN FONT LICENSE" in (STATIC / one["licence_text"]).read_text("utf-8").upper(), one
    others = {path.name for path in STATIC.iterdir() if path.suffix not in (".js", ".css", ".svg", ".json", ".txt")}
    others |= {path.name for path in MODULES if re.search(r"sourceMappingURL|@license|\(c\) ", path.read_text("utf-8"))}
    assert others <= {one["name"] for one in listed}
