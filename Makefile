# Every target makes .venv when it is missing; nothing else is needed to set up.
PYTHON ?= python3
JOBS ?= 2
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTHON312 ?= python3.12
VENV312 := .venv312
STAMP312 := $(VENV312)/.installed

.DEFAULT_GOAL := help
.PHONY: help venv demo test test-slow test-torch312 minitrain-test check bench

help:
	@echo "make venv       virtual environment in $(VENV), with everything that the other targets need"
	@echo "make demo       the whole job on this project's own recorded history, in a few minutes"
	@echo "make test       check, then tests and doctests: what CI runs"
	@echo "make test-slow  the tests that take minutes"
	@echo "make test-torch312  the recorder under Python 3.12, with torch: a large download, then about an hour"
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

# From 3.12 on functions are seen by another interface of the interpreter: what is promised of evidence, and
# what recording costs, holds for it apart. `sys.monitoring` needs no other interpreter than $(PYTHON312).
test-torch312: $(STAMP312)
	$(VENV312)/bin/python -m pytest -q -p no:cacheprovider tests/evidence tests/execution
	$(VENV312)/bin/python benchmarks/bench_record.py

# A name on PATH may be a shim of pyenv that leads nowhere, so each is tried. PyPI's torch for Linux brings CUDA,
# several GB; PIP_EXTRA_INDEX_URL may name an index with a smaller one.
$(STAMP312): pyproject.toml
	@for python in $(PYTHON312) $${PYENV_ROOT:-$$HOME/.pyenv}/versions/3.12.*/bin/python3.12; do \
	    if "$$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 12))' 2>/dev/null; then \
	        echo "$$python -m venv $(VENV312)" >&2; exec "$$python" -m venv $(VENV312); \
	    fi; \
	done; \
	echo "Python 3.12 was found neither as $(PYTHON312) nor among pyenv's versions: PYTHON312=/path/to/python3.12 names it" >&2; \
	exit 2
	$(VENV312)/bin/python -m pip install --progress-bar off --editable ".[dev]"
	touch $@

# Ranks take the cores, so pytest itself runs in one process.
minitrain-test: $(STAMP)
	cd examples/minitrain && $(abspath $(BIN))/python -m pytest -q

bench: $(STAMP)
	@for bench in benchmarks/bench_*.py; do echo "$$bench" >&2; $(BIN)/python "$$bench" || exit 1; done
