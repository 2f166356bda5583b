# Two commands do everything on a fresh machine (Python 3.11 or 3.12, Java 17): `make demo` and `make test`.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin

.PHONY: setup demo test fast lint bench mutants clean help

help:
	@sed -n 's/^## //p' $(MAKEFILE_LIST)

## make setup    build the environment in .venv, once
setup: $(VENV)/.done

$(VENV)/.done: requirements.lock requirements-dev.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps \
		-r requirements.lock -r requirements-dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	$(BIN)/python -m infra.java
	$(BIN)/python -m infra.fetch
	$(BIN)/python -m lacuna.kernels
	touch $@

## make demo     everything on this machine: a real Kafka, the job, a workload, a checked report
demo: setup
	$(BIN)/lacuna demo

## make test     everything that must hold: style, types, import directions, all tests
test: lint fast
	$(BIN)/python -m pytest --durations=12 --durations-min=10 tests/spark tests/system

## make fast     the tests without a JVM, on all cores
fast: setup
	$(BIN)/python -m pytest -n auto --dist worksteal

## make lint     style, types, import directions
lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

## make bench    the figures of the core, kept in bench/results
bench: setup
	$(BIN)/lacuna bench --keep

## make mutants  plant faults one by one in a copy, and say which the fast tests catch; hours
mutants: setup
	$(BIN)/python -m tests.mutants --keep

## make clean    remove the environment and caches
clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
