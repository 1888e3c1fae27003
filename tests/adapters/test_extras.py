"""What needs an extra that is missing, or of a version it does not support, says so and names the extra."""

import subprocess
import sys

import pytest

from holdfast import MissingExtra
from holdfast.adapters.extras import unsupported

ADAPTERS = {
    "claude_agent_sdk": "claude-agent-sdk",
    "google_adk": "google-adk",
    "langchain": "langchain-core",
    "langgraph": "langgraph",
    "openai_agents": "openai-agents",
    "pydantic_ai": "pydantic-ai-slim",
}
"""Each adapter, and the package it is for."""

PROGRAM = """
import importlib.metadata as metadata
real = metadata.version
def version(name):
    if name != {package!r}:
        return real(name)
    if {found!r} is None:
        raise metadata.PackageNotFoundError(name)
    return {found!r}
metadata.version = version
from holdfast import MissingExtra
try:
    import holdfast.adapters.{adapter}
except MissingExtra as missing:
    print(missing)
"""


@pytest.mark.parametrize("adapter", ADAPTERS)
@pytest.mark.parametrize("found", [None, "0.0.9", "99.0"])
def test_importing_an_adapter_names_what_is_missing(adapter, found, texts):
    program = PROGRAM.format(adapter=adapter, package=ADAPTERS[adapter], found=found)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    texts.check(done.stdout.strip())


WITHOUT = """
import importlib.util as util
real = util.find_spec
util.find_spec = lambda name, package=None: None if name == {package!r} else real(name, package)
from holdfast import MissingExtra
try:
    import holdfast.on_{package}
except MissingExtra as missing:
    print(missing)
"""


@pytest.mark.parametrize("package", ["celery", "ray", "temporalio"])
def test_importing_a_place_to_run_names_what_is_missing(package, texts):
    program = WITHOUT.format(package=package).replace("holdfast.on_temporalio", "holdfast.on_temporal")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    texts.check(done.stdout.strip())


@pytest.mark.parametrize("found", ["1.2", "1.2.0", "1.2.22", "1.10.1", "1.99.0rc1"])
def test_versions_in_the_range_are_taken(found, monkeypatch):
    monkeypatch.setattr("holdfast.adapters.extras.version", lambda package: found)
    assert unsupported("langgraph", "langgraph", at_least="1.2", below="2") is None


@pytest.mark.parametrize("found", ["1.1.9", "2", "2.0.0", "0.99"])
def test_versions_outside_the_range_are_not(found, monkeypatch):
    monkeypatch.setattr("holdfast.adapters.extras.version", lambda package: found)
    assert isinstance(unsupported("langgraph", "langgraph", at_least="1.2", below="2"), MissingExtra)
