# The commands a person types. `make book` and `make test` are all that a newcomer needs.
PYTHON ?= python3
PROFILE ?= lab
PAGE ?=
ONLY ?=
CORES ?= 0
BIN = .venv/bin
INSTALLED = .venv/installed

BUILD = $(BIN)/mialib build --profile $(PROFILE) --only "$(ONLY)" --cores $(CORES)

.PHONY: help install plan book page lab slurm test test-slow lint record lock release clean

help:  ## list these commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(INSTALLED): requirements.lock pyproject.toml setup.py audit/pyproject.toml audit/setup.py book/pyproject.toml book/setup.py
	$(PYTHON) -m venv --clear .venv
	$(BIN)/pip install --quiet --requirement requirements.lock
	$(BIN)/pip install --quiet --no-deps --editable . --editable ./audit --editable ./book
	@touch $@

install: $(INSTALLED)  ## the environment alone, with .venv/bin/mialib

plan: $(INSTALLED)  ## how long the book takes here; PROFILE=paper: what it downloads and takes, and what is in its way
	@MIALIB_PROFILE=data/profiles/$(PROFILE).yml $(BIN)/mialib plan $(ONLY)

book: $(INSTALLED) $(if $(filter-out lab,$(PROFILE)),plan)  ## score, run the notebooks, render the book
	@$(BUILD)

page: $(if $(PAGE),$(INSTALLED))  ## PAGE=surp_figure_4: one page alone, with what it needs and nothing else
	@$(if $(PAGE),,echo "Which page? PAGE=surp_figure_4, for example; the names are those of notebooks/." && exit 2;) $(BUILD) --page $(PAGE)

lab: $(INSTALLED)  ## deal out the lab's texts and train its models again: are they those of data/lab?
	@$(BIN)/mialib lab build --cores $(CORES)

slurm: $(INSTALLED) plan  ## the same on a cluster, a job a column; the partition stands in data/slurm/config.yaml
	@PATH="$(CURDIR)/$(BIN):$$PATH" snakemake --config profile=$(PROFILE) only="$(ONLY)" --workflow-profile data/slurm

test: $(INSTALLED)  ## the fast tests
	$(BIN)/python -m pytest -m "not slow" -n auto --dist worksteal

test-slow: $(INSTALLED)  ## the slow tests; those of the pipeline need a finished `make book`
	@test "$$(uname)" != Linux || $(BIN)/python -c "import triton" 2>/dev/null || $(BIN)/pip install --quiet "triton>=3.6" || \
		echo "triton can't be installed here: the tests of its kernel are skipped"
	$(BIN)/python -m pytest -m slow -n auto --dist loadfile

lint: $(INSTALLED)  ## format the code, and check its style, floors and types
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/lint-imports
	$(BIN)/mypy

record: $(INSTALLED)  ## train and score three seeds behind claims and ranking, into data/recorded/
	$(BIN)/mialib record

lock:  ## write requirements.lock again, from the ranges of the three packages
	rm -rf build/lock && $(PYTHON) -m venv build/lock
	build/lock/bin/pip install --quiet $$(grep '^torch==' requirements.lock) && build/lock/bin/pip install --quiet ".[dev]" ./audit ./book
	{ echo "# Exact pins, written by \`make lock\` from the ranges of the three packages."; \
	  build/lock/bin/pip freeze --exclude mialib --exclude mialib-audit --exclude mialib-replication | grep -v ' @ ' | sed 's/+cpu//'; } > requirements.lock

release: lint test book test-slow  ## after all checks: sdists and wheels in build/release, and the tag of pyproject.toml's version
	$(BIN)/pip install --quiet --constraint requirements.lock "setuptools>=77" twine
	$(BIN)/python tools/release.py build/release --tag

clean:  ## remove everything that was computed (the environment stays)
	rm -rf build book/pages .snakemake
