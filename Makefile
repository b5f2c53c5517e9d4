# Every target does its own set-up: a virtual environment in .venv with the versions of constraints.txt.
PYTHON ?= python3
BIN := .venv/bin
JOBS ?= 2

.PHONY: demo test test-fast lint format clean
.DEFAULT_GOAL := help

help:
	@echo "make demo       train DeepCPP on CartPole-v1, evaluate it and draw a picture"
	@echo "make test       lint, types and the whole test suite"
	@echo "make test-fast  the quick tests only (under two minutes)"
	@echo "make format     format the code"
	@echo "make clean      remove .venv and caches (never runs/)"

# Runtime dependencies only; the stamp is renewed when the requirements change.
.venv/runtime: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -c constraints.txt -e .
	touch $@

.venv/dev: .venv/runtime
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

demo: .venv/runtime
	$(BIN)/python scripts/demo.py

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy sb3_cpp

test: lint
	$(BIN)/python -m pytest -n $(JOBS)

test-fast: .venv/dev
	$(BIN)/python -m pytest -n $(JOBS) -m "not slow"

format: .venv/dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis build *.egg-info
