"""What `make dist` builds can be installed by people who have neither the checkout nor its environment, and used."""

import os
import subprocess
import sys
import tarfile
import tomllib
import urllib.request
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PLAIN = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "PYTHON"))}
WANTED = os.environ.get("HOLDFAST_TEST_DIST") == "1"
built = pytest.mark.skipif(not WANTED, reason="it installs into a fresh environment: make test-dist")


def test_the_extra_all_has_every_extra():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    (named,) = extras.pop("all")
    assert named == f"holdfast[{','.join(sorted(extras))}]"


def run(*words, cwd, **environment):
    given = {"capture_output": True, "text": True, "timeout": 280, "env": PLAIN | environment}
    done = subprocess.run([str(word) for word in words], cwd=cwd, **given)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "--directory", folder, cwd=ROOT)
    return folder


@pytest.fixture(scope="module")
def installed(dist, tmp_path_factory):
    """The folder of programs of a fresh environment that has the wheel and what it needs, and nothing else."""
    place = tmp_path_factory.mktemp("fresh")
    run(sys.executable, "-m", "venv", place / "venv", cwd=place)
    pip = [
        place / "venv" / "bin" / "python",
        "-m",
        "pip",
        "install",
        "--quiet",
        "--constraint",
        ROOT / "constraints.txt",
    ]
    run(*pip, next(dist.glob("*.whl")), cwd=place)
    return place / "venv" / "bin"


@built
def test_wheel_and_sdist_hold_the_package_and_nothing_of_the_workshop(dist, tmp_path):
    (wheel,), (sdist,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    tracked = run("git", "ls-files", "src/holdfast", cwd=ROOT).split()
    assert names == {name.removeprefix("src/") for name in tracked}, "also migrations, and the mark of typed packages"
    with tarfile.open(sdist) as packed:
        folders = {name.split("/")[1] for name in packed.getnames() if name.count("/") >= 1}
        packed.extractall(tmp_path, filter="data")
    wanted = {"src", "README.md", "CHANGELOG.md", "SECURITY.md", "LICENSE", "pyproject.toml", "PKG-INFO"}
    assert folders - {".gitignore"} == wanted
    run(sys.executable, "-m", "hatchling", "build", "--target", "wheel", cwd=next(tmp_path.iterdir()))
    again = next(tmp_path.glob("*/dist/*.whl"))
    assert {one for one in zipfile.ZipFile(again).namelist() if ".dist-info/" not in one} == names


@built
def test_the_installed_wheel_runs_the_demo_the_commands_and_an_agent(installed, tmp_path):
    holdfast = installed / "holdfast"
    assert run(holdfast, "--version", cwd=tmp_path).startswith("holdfast ")
    assert "charged once" in run(holdfast, "demo", cwd=tmp_path)
    (tmp_path / "invoice.py").write_text((ROOT / "examples" / "invoice.py").read_text("utf-8"))
    told = run(installed / "python", "invoice.py", cwd=tmp_path)
    assert "approval requested: pay(number=A-7" in told
    words = ["approve", "invoice-A-7", "pay", "invoice.py", "--resume", "--by", "ana", "--store", "invoice.db"]
    assert run(holdfast, *words, cwd=tmp_path) == "archived invoice A-7: transfer of 12400 to Acme-001\n"
    assert run(holdfast, "ls", "-q", "--store", "invoice.db", cwd=tmp_path) == "invoice-A-7\n"
    assert "intact" in run(holdfast, "verify", "--store", "invoice.db", cwd=tmp_path)


@built
def test_what_needs_an_extra_names_it(installed, tmp_path):
    given = {"cwd": tmp_path, "capture_output": True, "text": True, "timeout": 60, "env": PLAIN}
    done = subprocess.run([installed / "holdfast", "list", "--store", "postgresql://nobody@127.0.0.1:1/x"], **given)
    assert done.returncode != 0 and "Traceback" not in done.stderr and "holdfast[postgres]" in done.stderr


@built
def test_the_page_of_the_wheel_is_whole_and_works_with_the_lowest_versions_of_its_extra(installed, tmp_path):
    """Another environment that has starlette and uvicorn as old as pyproject.toml allows; every file is served."""
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]["ui"]
    lowest = [one.partition(",")[0].replace(">=", "==") for one in extra]
    run(installed / "python", "-m", "pip", "install", "--quiet", *lowest, cwd=tmp_path)
    told = run(installed / "python", "-m", "pip", "list", cwd=tmp_path).lower().split()
    assert [f"{name}=={told[told.index(name) + 1]}" for name in ("starlette", "uvicorn")] == [
        one if one.count(".") == 2 else f"{one}.0" for one in lowest
    ]
    run(installed / "python", "-c", "import holdfast; holdfast.open('holdfast.db').close()", cwd=tmp_path)
    command = [installed / "holdfast", "ui", "--port", "0", "--no-open", "--for", "60s"]
    page = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True, env=PLAIN)
    try:
        url = page.stdout.readline().strip().partition("/#code=")[0]
        with urllib.request.urlopen(f"{url}/") as answer:
            shell = answer.read().decode()
        folder = shell.partition('src="')[2].partition("/main.js")[0]
        own = sorted((ROOT / "src" / "holdfast" / "web" / "static").iterdir())
        assert len(own) > 10
        for path in own:
            if path.suffix not in (".json", ".txt"):  # what was vendored, and licences: in the wheel, not served
                with urllib.request.urlopen(f"{url}{folder}/{path.name}") as answer:
                    assert answer.read() == path.read_bytes(), path.name
    finally:
        page.terminate()
        page.wait(20)
        page.stdout.close()
