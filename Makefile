# `make help` lists the targets. Every target sets up what it needs: a .venv in this checkout, once. PIP_ARGS is handed
# to every pip install, PYTHON makes the environment, MPIRUN starts the ranks (a cluster's own, or the wheel's in
# .venv/bin; the flags in MPIRUN_ARGS are Open MPI's).

PYTHON ?= python3
PIP_ARGS ?=
MPIRUN ?= mpirun
MPIRUN_ARGS ?= --oversubscribe --bind-to none
RANKS ?= 2
PYTEST_ARGS ?=
SOAK_ARGS ?=
DEMO_ARGS ?=
TOUR_ARGS ?=
CTR_ARGS ?=
CTR_ROWS ?= 200000
# `make gpu` installs nothing: a Python whose PyTorch sees a GPU, and the names of parts.
GPU_PYTHON ?= python3
GPU_ARGS ?=
# What `make lowest` installs as PyTorch: the lowest version that pyproject.toml admits, or another.
TORCH ?= $(subst >=,==,$(shell grep -oE 'torch>=[0-9.]+' pyproject.toml))

# Three processes run the tests, since some of them wait, and two those with MPI jobs, whose fixtures train and which
# stay with their file. With PYTEST_ARGS one half of the suite may have no tests (exit code 5).
IN_THREE := --numprocesses=3 --dist=worksteal
FILES_IN_TWO := --numprocesses=2 --dist=loadfile
NONE_SELECTED := test $$? -eq 5

VENV := .venv
STAMP := $(VENV)/.installed
LOWEST := build/lowest
PACKAGES := errors prototxt comm engine solvers pytorch tools pycaffe
PYTHON_FILES := mgcaffe $(PACKAGES) tests docs setup.py $(wildcard examples benchmarks)
SPELLED := $(PYTHON_FILES) $(wildcard docs) Makefile README.md CONTRIBUTING.md constraints.txt pyproject.toml
# Without a working Python in the environment its stamp is out of date.
ifeq ($(shell $(VENV)/bin/python -c 'import pip' 2>/dev/null && echo works),)
$(shell rm -f $(STAMP))
endif

export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
# mpirun refuses to start as root (in containers) without these two.
export OMPI_ALLOW_RUN_AS_ROOT := 1
export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM := 1
# Where this is set, as containers have it, each of the hundreds of processes of a test run compiles all modules anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install demo tour ctr test quick lowest soak gpu check format clean

help:  ## lists the targets
	@sed -nE 's/^([a-z]+):.*  ## (.*)/  make \1\t\2/p' Makefile | expand -t 20

install: $(STAMP)  ## the environment, with `engine` and `mpirun` in .venv/bin

$(STAMP): pyproject.toml setup.py constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
	  || { echo "mgcaffe needs Python 3.10 or newer; give one as make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(VENV)/bin/python -c 'import pip' 2>/dev/null || $(PYTHON) -m venv --clear $(VENV) \
	  || { echo "$(PYTHON) -m venv failed (on Debian and Ubuntu: apt install python3-venv)" >&2; exit 1; }
	$(VENV)/bin/python -m pip install --quiet $(PIP_ARGS) -c constraints.txt torch
	$(VENV)/bin/python -m pip install --quiet $(PIP_ARGS) -c constraints.txt -e '.[dev]'
	@touch $@

DEMO := examples/digits/snapshots/demo
demo: $(STAMP)  ## trains the digits example on two MPI ranks, and writes a report page of it
	@rm -f $(DEMO).json $(DEMO).timeline.json
	$(MPIRUN) -n $(RANKS) $(MPIRUN_ARGS) engine train examples/digits/solver.prototxt \
	  --json_log=$(DEMO).json --timeline=$(DEMO).timeline.json $(DEMO_ARGS)
	@engine report $(DEMO).json --output=$(DEMO).html

tour: $(STAMP)  ## trains the digits net under four schedules on an emulated 10 GbE link, and compares them
	$(VENV)/bin/python examples/tour/tour.py --ranks $(RANKS) $(TOUR_ARGS)

CTR := build/ctr
ctr: $(STAMP)  ## trains a click-through-rate net by ShadowSync on generated data, and prints its scores
	@$(VENV)/bin/python examples/ctr/generate.py $(CTR) --rows $(CTR_ROWS)
	@rm -f $(CTR)/run.json
	$(MPIRUN) -n $$(($(RANKS) + 1)) $(MPIRUN_ARGS) engine train examples/ctr/solver.prototxt --sync=shadow_ma \
	  --sync_interval_ms=20 --embedding_servers=1 --json_log=$(CTR)/run.json $(CTR_ARGS)
	@$(VENV)/bin/python examples/ctr/scores.py $(CTR)/run.json

test: $(STAMP)  ## the whole test suite: what starts no MPI jobs, then what does
	$(VENV)/bin/python -m pytest -m "not mpi" $(IN_THREE) $(PYTEST_ARGS) || $(NONE_SELECTED)
	$(VENV)/bin/python -m pytest -m mpi $(FILES_IN_TWO) $(PYTEST_ARGS) || $(NONE_SELECTED)

quick: $(STAMP)  ## the part of the test suite that takes under a minute: no MPI jobs, nothing slow
	$(VENV)/bin/python -m pytest -m "not mpi and not slow" $(IN_THREE) $(PYTEST_ARGS)

lowest:  ## the test suite with the lowest versions that pyproject.toml admits; TORCH=torch==X.Y.Z for another PyTorch
	@test -x $(LOWEST)/bin/python || $(PYTHON) -m venv $(LOWEST)
	@grep -oE '"[A-Za-z0-9-]+>=[0-9.]+' pyproject.toml | tr -d '"' | sed 's/>=/==/' | grep -v '^torch==' \
	  > $(LOWEST)/constraints.txt
	PIP_CONSTRAINT=$(LOWEST)/constraints.txt $(LOWEST)/bin/python -m pip install --quiet $(PIP_ARGS) $(TORCH) -e '.[test]'
	PATH="$(CURDIR)/$(LOWEST)/bin:$$PATH" $(LOWEST)/bin/python -m pytest -m "not mpi" $(IN_THREE) $(PYTEST_ARGS)
	PATH="$(CURDIR)/$(LOWEST)/bin:$$PATH" $(LOWEST)/bin/python -m pytest -m mpi $(FILES_IN_TWO) $(PYTEST_ARGS)

soak: $(STAMP)  ## the long checks of tests/soak in full, as a table
	$(VENV)/bin/python -m tests.soak $(SOAK_ARGS)

gpu:  ## every check that needs a CUDA GPU, and the times of training steps on it, within nine minutes; installs nothing
	$(GPU_PYTHON) tests/gpu $(GPU_ARGS)

check: $(STAMP)  ## style, types, spelling, and the directions in which packages may import
	$(VENV)/bin/ruff check $(PYTHON_FILES)
	$(VENV)/bin/ruff format --check $(PYTHON_FILES)
	@mkdir -p .typing/mgcaffe
	@for folder in $(PACKAGES); do ln -sfn ../../$$folder .typing/mgcaffe/$$folder; done
	@ln -sfn ../../mgcaffe/__init__.py .typing/mgcaffe/__init__.py
	MYPYPATH=.typing $(VENV)/bin/mypy -m mgcaffe $(PACKAGES:%=-p mgcaffe.%)
	$(VENV)/bin/codespell $(SPELLED)
	$(VENV)/bin/python -m pytest tests/test_architecture.py

format: $(STAMP)  ## puts the code into the form that `make check` asks for
	$(VENV)/bin/ruff check --fix $(PYTHON_FILES)
	$(VENV)/bin/ruff format $(PYTHON_FILES)

clean:  ## removes the environment and every cache
	rm -rf $(VENV) .typing .mypy_cache .ruff_cache .pytest_cache .hypothesis build *.egg-info
