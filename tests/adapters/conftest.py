"""Adapters work in threads and event loops of others. What is imported late is imported here: see tests/conftest.py."""

import importlib
import pkgutil

import holdfast.core

for module in pkgutil.walk_packages(holdfast.core.__path__, "holdfast.core."):
    importlib.import_module(module.name)
