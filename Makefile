# What people type. `make help` lists it.
#
#   ARGS      words for the command, passed on as they stand:  make train ARGS="trainer=quick seed=3"
#   PIP_ARGS  words for pip, for instance another index for torch (see README.md)
#   PYTHON    the Python that makes .venv (3.11 or 3.12)

SHELL := /bin/bash
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
PIP_ARGS ?=
# Two threads are what the small networks here profit from; with more, the threads wait for each other.
OMP_NUM_THREADS ?= 2
export OMP_NUM_THREADS
export PIP_DISABLE_PIP_VERSION_CHECK ?= 1

LIU2022 := $(sort $(basename $(notdir $(wildcard $(addprefix configs/experiment/liu2022/,table_*.yaml figure_*.yaml)))))

.PHONY: help train demo demo-gpu demo-aws demo-gcp demo-clouds results-liu2022 results-markets results-comparators results-spot results-teylo2021 results-workflows results-fl results-async test test-real test-nightly mutations golden compile compile-multicloud compile-multicluster lint format docs bench clean

help:  ## this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## /\1\t/' | expand -t 18

train: $(VENV)/.core  ## train the multi-cloud policy (sets up .venv if needed); ARGS="trainer=quick"
	$(BIN)/python training/train.py +env=multicloud $(value ARGS)

demo: $(VENV)/.live  ## real Spark and Flower jobs on this machine, interrupted as recorded; needs Java 17
	$(BIN)/spotweave demo $(value ARGS)

demo-gpu: $(VENV)/.live  ## a Flower training and a Spark job on this machine's NVIDIA GPU; needs its driver and Java 17
	$(BIN)/python -m pip install --quiet --no-input $(PIP_ARGS) -e '.[gpu]'
	$(BIN)/spotweave demo --config configs/deploy/demo_gpu.yaml \
		examples/federated_one_gpu.yaml examples/gpu_inference.yaml $(value ARGS)

demo-aws: $(VENV)/.dev  ## the demo through boto3, on an emulated AWS; needs Java 17
	$(BIN)/spotweave demo --config configs/deploy/demo_aws.yaml $(value ARGS)

demo-gcp: $(VENV)/.dev  ## the demo through Google's client, on an emulated Google Cloud; needs Java 17
	$(BIN)/spotweave demo --config configs/deploy/demo_gcp.yaml $(value ARGS)

demo-clouds: $(VENV)/.dev  ## a Spark job and a training in two emulated clouds, one region of which goes dark; needs Java 17
	$(BIN)/spotweave demo --config configs/deploy/demo_clouds.yaml \
		examples/wordcount.yaml examples/federated_clouds.yaml $(value ARGS)

results-liu2022: $(VENV)/.core  ## train what is missing and regenerate every table and figure of Liu 2022; ARGS="workers=4"
	@# A training that fails (1) or an experiment that lacks one (2) leaves the others to be measured; the rest ends it.
	@failed=0; left=; \
	$(BIN)/python training/repeat.py +experiment=liu2022/trainings $(value ARGS) || failed=$$?; \
	[ $$failed -le 1 ] || exit $$failed; \
	for name in $(LIU2022); do \
	    code=0; $(BIN)/python training/compare.py +experiment=liu2022/$$name || code=$$?; \
	    case $$code in 0) ;; 2) left="$$left $$name";; *) exit $$code;; esac; \
	done; \
	$(BIN)/python training/publish.py study=liu2022 || exit $$?; \
	if [ -n "$$left" ]; then echo "not measured:$$left" >&2; exit 1; fi; \
	exit $$failed

results-markets: $(VENV)/.core  ## train what is missing and regenerate the tables of all markets; ARGS="workers=4" for the trainings
	$(BIN)/python training/repeat.py +experiment=markets/trainings $(value ARGS)
	$(BIN)/python training/compare.py +experiment=markets/table_released
	$(BIN)/python training/compare.py +experiment=markets/table_trainings
	$(BIN)/python training/compare.py +experiment=markets/table_markets
	$(BIN)/python training/publish.py study=markets

results-comparators: $(VENV)/.dev  ## tune and train agents of libraries and measure them beside ours: many hours; ARGS="workers=4"
	$(BIN)/python training/tune.py +experiment=comparators/multicluster $(value ARGS)
	$(BIN)/python training/tune.py +experiment=comparators/multicloud $(value ARGS)
	$(BIN)/python training/repeat.py +experiment=comparators/trainings $(value ARGS)
	$(BIN)/python training/compare.py +experiment=comparators/table_chapter5
	$(BIN)/python training/compare.py +experiment=comparators/table_markets
	$(BIN)/python training/publish.py study=comparators

results-spot: $(VENV)/.core  ## play the released policies on the test days of the spot zones, write the leaderboard entries
	$(BIN)/python -m spotweave.training.studies.spot measure $(value ARGS)
	$(BIN)/python -m spotweave.training.studies.spot entries

results-teylo2021: $(VENV)/.core  ## regenerate the tables of Teylo 2021: plans and executions of bags of tasks
	$(BIN)/python -m spotweave.training.studies.bags $(value ARGS)

results-workflows: $(VENV)/.core  ## regenerate the tables of Liu 2022, chapter 3: workflows over several clusters
	$(BIN)/python -m spotweave.training.studies.workflows $(value ARGS)

results-fl: $(VENV)/.core  ## regenerate every table and picture of federated work; ARGS="checkpoint=NAME"
	$(BIN)/python training/results_fl.py $(value ARGS)

results-async: $(VENV)/.core  ## regenerate the tables of asynchronous learning; ARGS="--data FOLDER" with MNIST
	$(BIN)/python -m spotweave.training.studies.asynchronous $(value ARGS)

# Three tiers, told apart by markers: CONTRIBUTING.md says which finds what.
PYTEST = OMP_NUM_THREADS=1 $(BIN)/python -m pytest --dist worksteal

test: $(VENV)/.dev  ## lint, types, unit and contract tests: no Java, no browser, no training
	@# The worlds are compiled at their first use, by each worker at the same time: better once, beside the type check.
	@$(MAKE) --jobs=3 --output-sync=target lint compile
	$(PYTEST) -n 2 -m "not real and not nightly" $(value ARGS)

test-real: $(VENV)/.dev  ## every real thing once: Spark, Flower, PostgreSQL, browser, clouds, documented commands
	@# Its tests wait for other processes: three workers keep two cores busy.
	$(PYTEST) -n 3 -m "real and not nightly" $(value ARGS)

test-nightly: $(VENV)/.dev  ## what takes minutes or hours: faults by the thousand, learning curves, mutations
	$(PYTEST) -n 2 -m nightly $(value ARGS)
	$(MAKE) mutations

mutations: $(VENV)/.dev  ## mutmut on billing, intents and guards: does a test find each fault?
	$(BIN)/python -m mutmut run $(value ARGS)
	$(BIN)/python -m mutmut results

golden: $(VENV)/.dev  ## write tests/golden again after an intended change of behaviour; say why in the commit
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.golden $(value ARGS)

compile: compile-multicloud compile-multicluster  ## compile the worlds, which their first use does otherwise

compile-multicloud: $(VENV)/.core
	OMP_NUM_THREADS=1 $(BIN)/python training/compare.py +env=multicloud checkpoint=multicloud policies=[expected_cost,mtdqn] \
		episodes=2 env.workload.jobs=20 >/dev/null

compile-multicluster: $(VENV)/.core
	OMP_NUM_THREADS=1 $(BIN)/python training/evaluate.py +env=multicluster checkpoint=liu2022/spotweave episodes=2 >/dev/null

lint: $(VENV)/.dev  ## ruff and mypy, as CI runs them
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.dev  ## mend what ruff can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.docs  ## build the documentation site into site/; ARGS="--quiet"
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict $(value ARGS)

bench: $(VENV)/.core  ## measure speed and memory against their bars; writes benchmarks/latest.json
	$(BIN)/python -m benchmarks $(value ARGS)

clean:  ## remove .venv and caches; keeps runs/ and results/
	rm -rf $(VENV) build dist site *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .benchmarks
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The environment is made once; the install stamps are renewed only when pyproject.toml changes.
# A candidate must really run: a version manager's shim may exist for a Python that is not chosen.
SUITABLE := import sys, venv; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 13))

$(VENV)/.made:
	@if $(BIN)/python -c '$(SUITABLE)' >/dev/null 2>&1 && $(BIN)/python -m pip --version >/dev/null 2>&1; then \
	    touch $@; exit 0; \
	fi; \
	for candidate in $(PYTHON) python3.11 python3.12 python3 python; do \
	    if "$$candidate" -c '$(SUITABLE)' >/dev/null 2>&1; then \
	        echo "making $(VENV) with $$("$$candidate" --version)"; \
	        rm -rf $(VENV) && "$$candidate" -m venv $(VENV) && touch $@; \
	        exit $$?; \
	    fi; \
	done; \
	echo "no Python 3.11 or 3.12 found: install one, or name it: make $(MAKECMDGOALS) PYTHON=/path/to/python3.11" >&2; \
	exit 2

$(VENV)/.core: pyproject.toml | $(VENV)/.made
	$(BIN)/python -m pip install --no-input $(PIP_ARGS) -e .
	@touch $@

$(VENV)/.live: pyproject.toml | $(VENV)/.made
	$(BIN)/python -m pip install --no-input $(PIP_ARGS) -e '.[deploy,flower,spark]'
	@touch $(VENV)/.core $@

$(VENV)/.docs: pyproject.toml | $(VENV)/.made
	$(BIN)/python -m pip install --no-input $(PIP_ARGS) -e '.[docs]'
	@touch $(VENV)/.core $@

$(VENV)/.dev: pyproject.toml | $(VENV)/.made
	$(BIN)/python -m pip install --no-input $(PIP_ARGS) -e '.[dev]'
	@touch $(VENV)/.core $(VENV)/.docs $(VENV)/.live $@
