# Needs make and Python >= 3.11 with venv, nothing else. Everything is installed into .venv.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
SHELL := /bin/sh

VENV ?= .venv
PY := $(VENV)/bin/python
DATA ?= sample_data
PYTEST_ARGS ?=
ARGS ?=

.PHONY: help venv demo test test-all test-spark check bench accuracy order planted engines soak clean

help:  ## list the targets
	@echo "make TARGET, where TARGET is one of"
	@sed -n 's/^\([a-z-]*\):.*  *## \(.*\)/    \1\t\2/p' Makefile | expand -t 16

# The python that makes .venv: $PYTHON if given, else the first that runs, is new enough and has venv.
# (Each is tried by running it: a name on the PATH may be a stub.)
$(VENV)/bin/python:
	@for p in $(PYTHON) python3 python3.13 python3.12 python3.11 python3.14 python; do \
	  if $$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
	    echo "using $$p: $$($$p --version)"; \
	    $$p -m venv $(VENV) && exit 0; rm -rf $(VENV); exit 1; \
	  fi; \
	done; \
	echo "no Python >= 3.11 with venv was found (tried: $(PYTHON) python3 python3.11 to 3.14 python)." >&2; \
	echo "hint: install one (Debian: apt-get install python3 python3-venv), or name it: make PYTHON=/path/to/python3 ..." >&2; \
	exit 1

# One stamp per set of dependencies: a second run installs nothing.
$(VENV)/.base: pyproject.toml | $(VENV)/bin/python
	$(PY) -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/bin/python
	$(PY) -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $(VENV)/.base $@

venv: $(VENV)/.dev  ## make .venv with the package, its extras and the developers' tools

# What a person sees: every command is printed as typed, then run.
demo: $(VENV)/.base  ## fit, prune, assign and report on the sample data
	@mkdir -p build/demo
	@set -e; PATH="$(abspath $(VENV))/bin:$$PATH"; \
	run() { printf '\n$$ %s\n' "$$*"; "$$@"; }; \
	run imdh fit sample_data/cities.parquet -c latitude,longitude -o build/demo/cities.npz -f; \
	run imdh report build/demo/cities.npz; \
	run imdh prune build/demo/cities.npz -k 6 -o build/demo/six.npz -f; \
	run imdh assign build/demo/six.npz sample_data/cities.parquet --keep name,continent \
	    -o build/demo/labels.csv -f; \
	run head -n 5 build/demo/labels.csv; \
	run imdh report build/demo/six.npz sample_data/cities.parquet --truth continent; \
	run imdh fit sample_data/digits.csv -x digit -o build/demo/digits.npz -f; \
	run imdh report build/demo/digits.npz sample_data/digits.csv --truth digit

# Files of tests in two processes, each taking the next when it is done; in one if PYTEST_ARGS says no more.
pytest_args = $(or $(PYTEST_ARGS),-n 2 --dist loadfile --max-worker-restart 0)

test: $(VENV)/.dev  ## run the tests (PYTEST_ARGS=... is handed to pytest)
	$(PY) -m pytest -m 'not long' $(pytest_args)

test-all: $(VENV)/.dev  ## the same, with the long ones and ten times the examples
	$(PY) -m pytest --hypothesis-profile long $(pytest_args)

# Classic Spark and Connect, which take Java 17; make test has Sail, which takes none.
test-spark: $(VENV)-spark/.stamp  ## run the tests on Spark: classic, then Connect (needs Java 17)
	IMDH_SPARK=classic $(VENV)-spark/bin/python -m pytest tests/test_spark.py $(PYTEST_ARGS)
	IMDH_SPARK=connect $(VENV)-spark/bin/python -m pytest tests/test_spark.py $(PYTEST_ARGS)

$(VENV)-spark/.stamp: pyproject.toml | $(VENV)/bin/python
	$(PY) -m venv $(VENV)-spark
	$(VENV)-spark/bin/python -m pip install --quiet --disable-pip-version-check -e '.[test-spark]'
	@touch $@

check: $(VENV)/.dev  ## lint and check the types
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy

accuracy: $(VENV)/.dev  ## clusters against known classes: DATA=folder of Parquet files with a column target
	$(PY) -m tests.benchmarks.accuracy $(DATA) $(ARGS)

order: $(VENV)/.dev  ## what sorted files cost: DATA=folder, as for accuracy
	$(PY) -m tests.benchmarks.order $(DATA) $(ARGS)

planted: $(VENV)/.dev  ## the number of clusters found in data where it is known
	$(PY) -m tests.benchmarks.planted $(ARGS)

engines: $(VENV)/.dev $(VENV)-spark/.stamp  ## every row on Spark and in SQL, and what Spark costs: DATA=folder, as for accuracy
	$(PY) -m tests.benchmarks.engines $(DATA) --planted --sql --postgres
	IMDH_SPARK=connect $(VENV)-spark/bin/python -m tests.benchmarks.engines $(DATA) --planted
	IMDH_SPARK=classic $(VENV)-spark/bin/python -m tests.benchmarks.engines $(DATA) --planted --rounds 3 $(ARGS)

bench: $(VENV)/.dev  ## speed and memory against bare reading and scikit-learn
	$(PY) -m tests.benchmarks.speed $(ARGS)

soak: $(VENV)/.dev  ## random kills, full disks, closed pipes: is anything lost? (ARGS='--minutes 5')
	$(PY) -m tests.benchmarks.soak $(ARGS)

clean:  ## remove .venv and everything that was made
	rm -rf $(VENV) $(VENV)-spark build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
