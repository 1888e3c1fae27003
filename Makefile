# Two commands matter: `make demo` and `make test`. Each target makes the virtual environment it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
PYTEST := $(BIN)/python -m pytest

.PHONY: demo test test-all check bench clean
.DELETE_ON_ERROR:

demo: $(STAMP)
	@$(BIN)/holdfast demo

test: check                  ## everything, quickest checks first, under ten minutes
	$(PYTEST) tests/core tests/histories
	$(PYTEST) tests/stores tests/engine -n 2
	$(PYTEST) tests/crash -n 2
	$(PYTEST) tests/faces tests/docs

test-all: check              ## every crash point and the long races too
	HOLDFAST_TEST_ALL=1 $(PYTEST) tests -n 2

check: $(STAMP)              ## format, lint, types, shape
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/pyright
	$(PYTEST) tests/shape

bench: $(STAMP)              ## prints one table of ratios; minutes, not seconds
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): pyproject.toml constraints.txt requirements-dev.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Holdfast needs Python 3.11 or newer: make PYTHON=python3.12 …")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --requirement requirements-dev.txt --editable .
	@touch $(STAMP)
