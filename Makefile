# Every target makes .venv when it is missing; nothing else is needed to set up.
PYTHON ?= python3
JOBS ?= 2
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help venv demo test test-slow minitrain-test check bench

help:
	@echo "make venv       virtual environment in $(VENV), with everything that the other targets need"
	@echo "make demo       the whole job on this project's own recorded history, in a few minutes"
	@echo "make test       check, then tests and doctests: what CI runs"
	@echo "make test-slow  the tests that take minutes"
	@echo "make minitrain-test  the tests of examples/minitrain, a small trainer of language models: about ten minutes"
	@echo "make check      ruff, mypy, import contracts"
	@echo "make bench      benchmarks: JSON lines, the last of each a summary"
	@echo "PYTHON=python3.12 chooses the interpreter of a new environment, JOBS=$(JOBS) the test processes"

venv: $(STAMP)

# Anew when the dependencies may have changed. A half-made environment has no stamp, and is completed.
$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --progress-bar off --editable ".[dev]"
	touch $@

demo: $(STAMP)
	$(BIN)/fastci-ml demo

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# pytest comes last, so that its closing line is the last one.
test: check
	$(BIN)/python -m pytest -n $(JOBS) -m "not slow and not gpu" -q

test-slow: $(STAMP)
	$(BIN)/python -m pytest -m slow -q

# Ranks take the cores, so pytest itself runs in one process.
minitrain-test: $(STAMP)
	cd examples/minitrain && $(abspath $(BIN))/python -m pytest -q

bench: $(STAMP)
	@for bench in benchmarks/bench_*.py; do echo "$$bench" >&2; $(BIN)/python "$$bench" || exit 1; done
