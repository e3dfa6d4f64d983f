# Each target does its own set-up in .venv, on a fresh machine with Python 3.11 or newer.
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
# Tests are handed out one by one, in the order of the files: see CONTRIBUTING.md, "Which tier answers which change".
WORKERS ?= 4
BEDS ?= 3
# Python keeps what it has compiled, also where the environment says otherwise: each worker and each program needs it.
unexport PYTHONDONTWRITEBYTECODE
PYTEST := $(BIN)/python -m pytest -p no:randomly
PARALLEL := --dist load --maxschedchunk 1

.PHONY: help catalogue campaign demo quick unit test check bed stories shuffle fmt bench shots fuzz soak soak-bed clean

help:
	@echo "make demo     set up, then the dashboard on an embedded SIMULATED host"
	@echo "make quick    under a minute: decisions, cases, folds; no test starts a program"
	@echo "make unit     under three minutes: the tests that need neither root nor the test bed"
	@echo "make test     under 20 minutes: set up, then everything CI runs, on the test bed too"
	@echo "make check    ruff, mypy --strict, import-linter"
	@echo "make stories  the long form of the stories on the test bed (an hour or so)"
	@echo "make campaign random faults on the test bed until N=150 of them have acted (SEED=1 HOST=ct200), judged from outside"
	@echo "make engines  real vLLM and SGLang for a CPU, into the bed's cache (5.5 GB, about four minutes)"
	@echo "make stories-engines  the stories of those two, as processes and as units on the bed (two hours on two cores)"
	@echo "make shuffle  make unit in random order (SEED=n: that order again)"
	@echo "make bench    benchmarks of the load generator against a server with exact truth"
	@echo "make catalogue  which messages of the engines' start-up code have an entry (PACKAGES=\"vllm=FOLDER sglang=FOLDER\" LIST=100)"
	@echo "make fuzz     10 minutes of spoilt inputs through every parser (not part of CI)"
	@echo "make soak     10 minutes under load: memory and CPU of runner and dashboard (not part of CI)"
	@echo "make soak-bed an hour on the test bed at ten times the usual rate of events: does anything grow? (not part of CI)"
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

quick: $(VENV)/.installed-dev
	$(PYTEST) -q -n 3 --dist worksteal -m "not process and not bed and not stories"

unit: $(VENV)/.installed-dev
	$(PYTEST) -q -n $(WORKERS) $(PARALLEL) -m "not bed and not stories"

test: $(VENV)/.installed-dev
	bash .ci/packages
	$(MAKE) --no-print-directory check
	$(PYTEST) -n $(BEDS) $(PARALLEL) -m "not stories"

bed: $(VENV)/.installed-dev
	bash .ci/packages
	$(PYTEST) -n $(BEDS) $(PARALLEL) -m "bed and not stories"

shuffle: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -q $(if $(SEED),--randomly-seed=$(SEED)) -n $(WORKERS) $(PARALLEL) -m "not bed and not stories"

stories: $(VENV)/.installed-dev
	bash .ci/packages
	$(PYTEST) -m stories -s

campaign: $(VENV)/.installed-dev
	bash .ci/packages
	$(BIN)/python -m tests.campaign $(or $(N),150) --seed $(or $(SEED),1) --host $(or $(HOST),ct200)

engines: $(VENV)/.installed-dev
	$(BIN)/python -m tests.bed.engines

stories-engines: engines
	$(PYTEST) -m stories -s tests/stories/test_engines.py tests/stories/test_engines_systemd.py

fmt: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.installed-dev
	$(BIN)/python -m benchmarks

catalogue: $(VENV)/.installed-dev
	$(BIN)/python -m tests.sources.coverage $(PACKAGES) --list $(or $(LIST),0)

fuzz: $(VENV)/.installed-dev
	nice $(BIN)/python -m tests.fuzz

soak: $(VENV)/.installed-dev
	$(BIN)/python -m tests.soak

soak-bed: $(VENV)/.installed-dev
	nice $(BIN)/python -m tests.soak_bed

shots: $(VENV)/.installed-dev
	$(BIN)/python -m tests.dashboard.shots

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache dist
