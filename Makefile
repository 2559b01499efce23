# What one does in a working tree. `make` lists the targets; none needs more than Python >= 3.11.

VENV ?= .venv
BIN := $(VENV)/bin
PYTHON ?= python3

.DEFAULT_GOAL := help
.PHONY: site help setup format lint type test test-all fidelity bench bench-check ci clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

setup: $(BIN)/dlsched  ## make the virtual environment with everything developers need

$(BIN)/dlsched: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable '.[dev]'
	@touch $@

format: setup  ## format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: setup  ## style, plain words and import floors
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python .ci/plain_words.py
	$(BIN)/lint-imports

type: setup  ## strict types
	$(BIN)/mypy --strict
	$(BIN)/mypy --strict benchmarks

test: setup  ## the tests that every change must pass, about three minutes
	$(BIN)/pytest

test-all: setup  ## these and the long ones, forty minutes
	$(BIN)/pytest -m 'not exhaustive' -n 2

fidelity: setup  ## compare with published outputs (DLSCHED_DATA, else ../shared/data)
	$(BIN)/pytest -m fidelity -n 2

site: setup  ## the docs as a site with search and API reference, in out/site
	$(BIN)/sphinx-build -q -W -b html -c docs/site . out/site

bench: setup  ## measure CPU time and memory
	$(BIN)/python benchmarks/run.py

bench-check: setup  ## measure what has a budget; fails when one is exceeded
	$(BIN)/python benchmarks/run.py start target passed blox --check

ci:  ## what CI runs, in an environment of its own
	bash .ci/run

clean:  ## forget caches and builds
	rm -rf .ruff_cache .mypy_cache .pytest_cache .import_linter_cache .hypothesis build dist
	find . -name __pycache__ -prune -exec rm -rf {} +
