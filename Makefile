PYTHON ?= python3
VENV ?= .venv
CONSTRAINTS ?= constraints.txt
BIN = $(VENV)/bin

.PHONY: test test-oldest lint demo bench clean
.DEFAULT_GOAL := test

$(VENV)/.installed: pyproject.toml $(CONSTRAINTS)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint $(CONSTRAINTS) --editable . --group test
	touch $@

$(VENV)/.linters: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint $(CONSTRAINTS) --group lint
	touch $@

test: $(VENV)/.installed  ## set up and run the tests
	$(BIN)/python -m pytest -n 2

test-oldest:  ## the tests on the oldest versions that pyproject.toml admits
	$(MAKE) test VENV=.venv-oldest CONSTRAINTS=constraints-oldest.txt

lint: $(VENV)/.linters  ## ruff, mypy strict, import contracts
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

demo: $(VENV)/.installed  ## record a golden of a reference, run a port with a bug, show the report
	$(BIN)/python utils/demo.py

.venv-bench/.installed: pyproject.toml constraints.txt
	test -x .venv-bench/bin/python || $(PYTHON) -m venv .venv-bench
	.venv-bench/bin/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	.venv-bench/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable . --group bench
	touch $@

bench: .venv-bench/.installed  ## every claim about speed beside the peers; fails if a budget is exceeded
	.venv-bench/bin/python utils/bench.py --check

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
