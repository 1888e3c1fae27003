"""What the package holds and loads: no inline script or style, no HTML of data, nothing without the extra."""

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.web import page

STATIC = Path(page.__file__).parent / "static"
MODULES = sorted(STATIC.glob("*.js"))


def test_importing_holdfast_loads_nothing_of_the_page():
    code = (
        "import sys, holdfast; holdfast.open\n"
        "print([one for one in sys.modules if one.startswith(('starlette', 'uvicorn', 'holdfast.web'))])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def loaded(*names):
    """Files that these modules load before they run, themselves included."""
    found, left = set(), [*names]
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += re.findall(r'^import .* from "\./([^"]+)"', (STATIC / name).read_text("utf-8"), re.M)
    return found


def test_the_front_end_weighs_little():
    """What the list needs, and with it any other screen: a screen's modules are loaded when it is first shown."""
    import gzip

    def weight(*names):
        files = {*loaded(*names), "holdfast.css", "icon.svg"}
        return sum(len(gzip.compress((STATIC / name).read_bytes())) for name in files)

    assert weight("main.js", "tasks.js") <= 44 * 1024
    for screen in ("task.js", "inbox.js", "workers.js", "audit.js", "compare.js", "people.js"):
        assert weight("main.js", screen) <= 66 * 1024, screen
    files = [path for path in STATIC.iterdir() if path.suffix != ".woff2"]
    assert sum(len(gzip.compress(path.read_bytes())) for path in files) <= 80 * 1024, "see decision 0096"


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
    assert "url(" not in css and "@import" not in css
    shell = page.shell("/x", "link", "1").decode()
    assert "style=" not in shell and not re.search(r"<script(?![^>]*src=)", shell)


def test_what_others_wrote_is_listed_with_its_version_licence_and_hash():
    """Files that are not ours stand in vendor.json. So does every font: none of them is ours."""
    vendor = STATIC / "vendor.json"
    listed = json.loads(vendor.read_text("utf-8")) if vendor.exists() else []
    for one in listed:
        assert {"name", "version", "licence", "sha256"} <= set(one), one
        assert hashlib.sha256((STATIC / one["name"]).read_bytes()).hexdigest() == one["sha256"], one["name"]
    others = {path.name for path in STATIC.iterdir() if path.suffix not in (".js", ".css", ".svg", ".json")}
    others |= {path.name for path in MODULES if re.search(r"sourceMappingURL|@license|\(c\) ", path.read_text("utf-8"))}
    assert others <= {one["name"] for one in listed}
