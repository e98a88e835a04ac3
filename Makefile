# make demo needs the runtime only; everything else needs the tests' and linters' packages, too.
# Both live in one .venv; a stamp says what is installed there.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DATA ?= ../shared/data
PIP := $(BIN)/python -m pip install --quiet --constraint constraints.txt
WANTED := setup.cfg pyproject.toml constraints.txt

.PHONY: venv demo test lint format corpus fuzz kill bench clean

venv: $(VENV)/.dev

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: $(WANTED) | $(BIN)/python
	$(PIP) --editable .
	@touch $@

$(VENV)/.dev: $(WANTED) | $(VENV)/.runtime
	$(PIP) --editable '.[test,lint]'
	@touch $(VENV)/.runtime $@

demo: $(VENV)/.runtime
	@$(BIN)/python notebooks/demo.py demo

test: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 --dist loadfile

lint: $(VENV)/.dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy --strict remap/
	$(BIN)/lint-imports
	$(BIN)/remap rules lint

format: $(VENV)/.dev
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

corpus: $(VENV)/.dev
	$(BIN)/python tests/corpus/keymaps_table.py $(DATA)
	$(BIN)/python -m pytest -n 2 tests/corpus --data $(DATA)

# Damaged files: so many of every kind
fuzz: $(VENV)/.dev
	FUZZ=$(or $(FUZZ),20000) $(BIN)/python -m pytest -n 2 -q tests/trust/test_fuzz.py

# Conversions killed at every write, fsync and rename; prints the table of docs/trust.md
kill: $(VENV)/.dev
	$(BIN)/python tests/trust/killing/kill.py

# Options of benchmarks/run.py, say BENCH="--gb 1 --rounds 1 --only rename"
bench: $(VENV)/.dev
	$(PIP) --editable '.[bench]'
	$(BIN)/python benchmarks/run.py $(BENCH)

clean:
	rm -rf $(VENV) build dist demo *.egg-info benchmarks/out \
		.pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find remap rules tests notebooks benchmarks -name __pycache__ -prune -exec rm -rf {} +
