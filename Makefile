# Each target does its own set-up in .venv, on a fresh machine with Python 3.11 or newer.
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest

.PHONY: help demo test check unit bed stories fmt bench shots fuzz soak clean

help:
	@echo "make demo     set up, then the dashboard on an embedded SIMULATED host"
	@echo "make test     set up, then everything CI runs: check, unit tests, tests on the test bed"
	@echo "make check    ruff, mypy --strict, import-linter"
	@echo "make unit     the tests that need neither root nor the test bed"
	@echo "make stories  the long form of the stories on the test bed (an hour or so)"
	@echo "make bench    benchmarks of the load generator against a server with exact truth"
	@echo "make fuzz     10 minutes of spoilt inputs through every parser (not part of CI)"
	@echo "make soak     10 minutes under load: memory and CPU of runner and dashboard (not part of CI)"
	@echo "make shots    screenshots in assets/, made anew"

# Installing the program alone (demo) takes seconds; the tools of the tests come on top of it.
$(VENV)/.installed: pyproject.toml
	@test -n "$(PYTHON)" || { echo "ddtop needs Python 3.11 or newer; none was found on PATH" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) 2>/dev/null || bash .ci/python-venv $(PYTHON) $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

demo: $(VENV)/.installed
	@$(BIN)/ddtop demo

check: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: $(VENV)/.installed-dev
	bash .ci/packages
	$(MAKE) check
	$(PYTEST) -m "not stories"

unit: $(VENV)/.installed-dev
	$(PYTEST) -m "not bed and not stories"

bed: $(VENV)/.installed-dev
	bash .ci/packages
	$(PYTEST) -m "bed and not stories"

stories: $(VENV)/.installed-dev
	bash .ci/packages
	$(PYTEST) -m stories -s

fmt: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.installed-dev
	$(BIN)/python -m benchmarks

fuzz: $(VENV)/.installed-dev
	nice $(BIN)/python -m tests.fuzz

soak: $(VENV)/.installed-dev
	$(BIN)/python -m tests.soak

shots: $(VENV)/.installed-dev
	$(BIN)/python -m tests.dashboard.shots

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache dist
