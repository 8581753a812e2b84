# make demo · make test · make check · make bench — each creates .venv if needed; requires only python3 and make.
PYTHON ?= python3
BIN := .venv/bin
BOUNDED ?= tests/sim/engine tests/switch tests/homomorphic tests/test_kernels.py
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet install --constraint constraints.txt

# Kept even where the environment says otherwise: tests start a hundred processes, which import netfold.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo tour test check generated bounds nightly mutants changed-mutants docs site bench clean

demo: .venv/installed
	$(BIN)/netfold demo

# What netfold can do, by its own scenarios: takes some minutes and 3 GB of memory.
tour: .venv/installed
	$(BIN)/netfold run scenarios/01-quickstart.yaml
	$(BIN)/netfold codecs study packed lossless lossless:setting=published --elements 1e6 --density 0.5%,2%
	$(BIN)/netfold switch fit switchml --profile tofino1 --workers 8
	$(BIN)/netfold run scenarios/06-two-racks.yaml
	$(BIN)/python -c "import netfold; run = netfold.load('runs/latest'); print(run.variants.select('name', 'verdict', 'aggregation_time_us'))"
	$(BIN)/netfold run scenarios/08-five-systems.yaml --set workload.steps=40
	$(BIN)/netfold topology measure fat_tree --set k=8 --bytes 100MB
	$(BIN)/netfold run scenarios/11-compare-topologies.yaml
	$(BIN)/netfold run scenarios/17-bring-your-own-model.yaml
	$(BIN)/netfold run scenarios/18-jobs-that-come-and-go.yaml
	$(BIN)/netfold sweep scenarios/13-how-many-workers.yaml --set 'sweep.workers=[4, 16, 64]'
	@echo "The last one stalls on purpose, and reports the cause:"
	-$(BIN)/netfold run scenarios/04-switch-reboot.yaml

test: .venv/installed-test
	$(BIN)/python -m pytest -n 2 --dist worksteal

check: .venv/installed-check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

# What is written from the sources: reference, commands, API, schema, table of models. With MATRIX=yes docs/matrix.md too,
# for after a change to what codecs and collectives send; with RATES=yes the trials that tune the comparison of codecs. Both
# take minutes.
generated: .venv/installed-test
	$(BIN)/python -m tests.generated $(if $(MATRIX),--matrix) $(if $(RATES),--rates)

# Compiled code stays inside its tables (except words at an address, whose length only the engine's interface knows).
bounds: .venv/installed-test
	NUMBA_BOUNDSCHECK=1 HYPOTHESIS_PROFILE=bounds $(BIN)/python -m pytest -n 2 $(BOUNDED)

# The whole suite with 20 times as many examples, all of them new; takes some hours.
nightly: .venv/installed-test bounds
	HYPOTHESIS_PROFILE=nightly $(BIN)/python -m pytest -n 2 --dist worksteal

# 500 deliberate faults drawn by the commit, and those by hand: the tests next to the code must notice 85 % and 97 %
# of them. Takes long.
mutants: .venv/installed-test
	$(BIN)/python -m tests.mutants --jobs 2

# Faults in the lines that the last commit changed, as many as fit into half a minute.
changed-mutants: .venv/installed-test
	$(BIN)/python -m tests.mutants --changed --limit 30

# Checks that every command in a document prints the output shown there; takes minutes and 6 GB of memory.
docs: .venv/installed-test
	$(BIN)/python -m tests.docs

# All documents as a site, in build/site; links, anchors and pictures that lead nowhere are errors.
site: .venv/installed-test
	$(BIN)/python -m sphinx -q -n -W --keep-going -c docs/site . build/site
	@echo "build/site/index.html"

bench: .venv/installed-test
	$(BIN)/python -m tests.bench

clean:
	rm -rf .venv runs

.venv/python:
	$(PYTHON) -m venv .venv
	touch $@

.venv/installed: .venv/python pyproject.toml constraints.txt
	@echo "installing into .venv: about 1.5 GB, a minute or two; on Linux, pypi.org's torch adds gigabytes of CUDA. To avoid"
	@echo "them: $(BIN)/pip install torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu, then make again"
	@$(PIP) --editable .
	$(BIN)/netfold schema > scenarios/schema.json
	touch $@

.venv/installed-test: .venv/installed
	$(PIP) --editable '.[test]'
	touch $@

.venv/installed-check: .venv/installed-test
	$(PIP) --editable '.[test,check]'
	touch $@
