# Every command of the project. `make run` and `make test` do all their own set-up on a fresh
# machine with Rust and Python 3.10 or newer.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
PYTHON ?= python3
VENV := .venv
VENV_COG := .venv-cog
VENV_RUNPOD := .venv-runpod
NODE := tests/replicate/node_modules
NODE_RUNPOD := tests/runpod/node_modules
UI := crates/http/ui
NODE_UI := $(UI)/node_modules
MODEL ?= examples/hello
SEEDS ?= 1 2 3 4
SECONDS ?= 30
APIS ?= 2
DIRECTORS ?= 4
JOBS ?= 10000
PORT ?= 5000
GPU_PYTHON ?= python3
TARGET ?=
# One selection of packages and targets for every build of the tests. Cargo resolves features for the
# selection, so `-p tidegate` would compile tokio and every crate that uses it a second time.
# `--examples` makes cargo include the features of dev-dependencies, as it does for `cargo nextest`.
BUILD := cargo build --locked --workspace --exclude tidegate-floor --lib --bins --examples
# bash has a variable SECONDS of its own, so only one that was given to make counts.
FUZZ_SECONDS := $(if $(filter command line environment,$(origin SECONDS)),$(SECONDS),600)
CLUSTER_SEEDS := $(if $(filter command line environment,$(origin SEEDS)),$(SEEDS),1 2 3 4 5)
CLUSTER_SECONDS := $(if $(filter command line environment,$(origin SECONDS)),$(SECONDS),120)

.DEFAULT_GOAL := help
.PHONY: help run cluster test test-rust test-python test-product check check-ui screenshots fmt fuzz torture torture-cluster simulate bench bench-batching bench-queue bench-cluster bench-scaling bench-runpod bench-router bench-ui bench-gpu wheel snap clean

help: ## List the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: quick ## Set everything up and serve examples/hello (MODEL=… PORT=… for another)
	target/quick/tidegate serve $(MODEL) --port $(PORT) --python $(VENV)/bin/python

cluster: quick ## Start a cluster on this machine: 2 API processes, 2 directors, Redis, PostgreSQL (MODEL=… PORT=…)
	scripts/cluster.sh target/quick/tidegate $(VENV)/bin/python $(MODEL) $(PORT)

# The program and the Python extension in one build with little optimization, so that a fresh checkout
# serves soon. `pip install .` builds them one after the other and downloads its build tools.
quick: $(VENV)/bin/python
	PYO3_PYTHON=$(abspath $(VENV)/bin/python) cargo build --locked --profile quick -p tidegate -p tidegate-python
	cp target/quick/lib_native.so python/tidegate/_native.abi3.so.new
	mv python/tidegate/_native.abi3.so.new python/tidegate/_native.abi3.so
.PHONY: quick

# Package installers mostly wait for the network, so they run while the crates compile.
test: ## Set up what the tests need and run them all
	$(MAKE) --no-print-directory -j 2 test-rust environments
	$(MAKE) --no-print-directory test-python test-product

environments: $(VENV)/tools $(VENV_COG)/tools $(VENV_RUNPOD)/tools $(NODE)/installed $(NODE_RUNPOD)/installed $(NODE_UI)/installed
.PHONY: environments

# Without MAKEFLAGS cargo does not share the job slots of make, which are too few.
test-rust: ## Run the tests of the crates
	scripts/apt.sh postgresql redis-server
	env -u MAKEFLAGS scripts/nextest.sh

test-python: $(VENV)/tools native ## Run the tests of the Python package
	PYTHONPATH=python $(VENV)/bin/python -m pytest python/tests -q -n 2

# Four processes on two cores, because many tests wait for a timeout of the server.
test-product: environments planted-bugs native ## Test the program as users run it, next to the real Cog and Runpod
	scripts/apt.sh libfaketime redis-server chromium-headless-shell
	$(VENV)/bin/python -m pytest tests -q -n 4 --dist worksteal

native: ## Build the program and the Python extension for this checkout
	$(BUILD)
	cp target/debug/lib_native.so python/tidegate/_native.abi3.so.new
	mv python/tidegate/_native.abi3.so.new python/tidegate/_native.abi3.so
.PHONY: native

# The program with the planted bugs that the torture program must find. `native` then restores the
# ordinary program in target/debug; its crates are compiled already.
planted-bugs: native
	$(BUILD) --features tidegate/planted-bugs
	mkdir -p target/planted-bugs
	cp target/debug/tidegate target/planted-bugs/tidegate
	$(BUILD)
.PHONY: planted-bugs

check: $(VENV)/tools native check-ui ## Formatting, lints, licences, types, names, language
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	PYTHONPATH=python $(VENV)/bin/python -m mypy.stubtest tidegate._native
	$(VENV)/bin/python scripts/check_docs.py --sources
	$(VENV)/bin/python scripts/check_names.py
	scripts/deny.sh

# Types and unit tests of the web UI's modules. The server embeds the modules as they are, so nothing here builds them.
check-ui: $(NODE_UI)/installed ## Types and unit tests of the web UI
	cd $(UI)/vendor && sha256sum --check --quiet CHECKSUMS
	cd $(UI) && node_modules/.bin/tsc -p . && node --test tests/*.test.js

screenshots: $(VENV)/tools native $(NODE_UI)/installed ## Make the screenshots of the web UI, in docs/images
	scripts/apt.sh chromium-headless-shell fonts-dejavu-core pngquant
	$(VENV)/bin/python scripts/screenshots.py

fmt: $(VENV)/tools ## Format everything
	cargo fmt --all
	$(VENV)/bin/ruff format .

fuzz: ## Fuzz every target for SECONDS=600, or only TARGET=name; see docs/fuzzing.md
	scripts/fuzz.sh $(FUZZ_SECONDS) $(TARGET)

torture: $(VENV)/tools native ## Random clients and faults for six minutes (SEEDS="…" SECONDS=…); see docs/torture.md
	$(VENV)/bin/python -m torture --seed $(SEEDS) --seconds $(SECONDS)
	$(VENV)/bin/python -m torture --profile killed --seed $(SEEDS) --seconds $(SECONDS)
	$(VENV)/bin/python -m torture --profile killed-replicate --seed $(SEEDS) --seconds $(SECONDS)

torture-cluster: $(VENV)/tools native ## Random clients and faults against a cluster for twelve minutes (SEEDS="…" SECONDS=…)
	scripts/apt.sh redis-server postgresql
	$(VENV)/bin/python -m torture --profile cluster --seed $(CLUSTER_SEEDS) --seconds $(CLUSTER_SECONDS)

simulate: ## Simulate a cluster with faults (SEEDS="…" APIS=… DIRECTORS=… JOBS=…); see docs/simulation.md
	cargo build --locked --release -p tidegate-simulation
	target/release/tidegate-simulation $(SEEDS) --apis $(APIS) --directors $(DIRECTORS) --jobs $(JOBS)

bench: $(VENV)/installed ## Compare with Cog, mosec, LitServe, FastAPI and the floor in one run
	bench/setup.sh
	.venv-bench/bin/python bench/run.py

bench-batching: $(VENV)/installed ## Compare dynamic batching and 1 MiB payloads with mosec, LitServe, Cog and FastAPI in one run
	bench/setup.sh
	.venv-bench/bin/python bench/run.py --only batch,big

bench-queue: $(VENV)/installed ## Compare the durable queue with Celery and Redis in one run
	scripts/apt.sh redis-server
	bench/setup.sh
	.venv-bench/bin/python bench/queue/run.py --tidegate-bin $(VENV)/bin/tidegate --python $(VENV)/bin/python

bench-cluster: $(VENV)/installed ## Compare a cluster with Celery and bare Redis Streams in one run
	scripts/apt.sh redis-server postgresql
	bench/setup.sh
	.venv-bench/bin/python bench/cluster/run.py --tidegate-bin $(VENV)/bin/tidegate --python $(VENV)/bin/python --waiting 1000 1000000 --memory-jobs 200000

bench-scaling: $(VENV)/installed ## Measure how the cost grows with values, waiting jobs and restarts
	$(VENV)/bin/python bench/scaling/run.py --tidegate-bin $(VENV)/bin/tidegate --python $(VENV)/bin/python

bench-runpod: $(VENV)/installed $(VENV_RUNPOD)/tools ## Compare the worker with Runpod's own in one run
	$(VENV)/bin/python bench/runpod/run.py --tidegate-bin $(VENV)/bin/tidegate --python $(VENV)/bin/python --runpod-python $(VENV_RUNPOD)/bin/python

bench-router: $(VENV)/installed ## Compare the router with nginx, HAProxy, Envoy and other LLM routers in one run
	scripts/apt.sh wrk nginx-light haproxy
	bench/router/setup.sh
	.venv-bench-router/bin/python bench/router/run.py --tidegate-bin $(VENV)/bin/tidegate

bench-ui: $(VENV)/installed $(NODE_UI)/installed ## Measure what an open dashboard costs the server
	scripts/apt.sh wrk chromium valgrind
	$(VENV)/bin/python bench/ui/instructions.py --tidegate-bin $(VENV)/bin/tidegate
	$(VENV)/bin/python bench/ui/run.py --tidegate-bin $(VENV)/bin/tidegate

bench-gpu: $(VENV)/installed ## On a machine with an NVIDIA GPU: verify and measure (GPU_PYTHON=… one with torch, transformers, CuPy, JAX)
	$(VENV)/bin/python bench/gpu/run.py --tidegate-bin $(VENV)/bin/tidegate --python $(GPU_PYTHON)

wheel: $(VENV)/tools ## The wheel, in dist/
	$(VENV)/bin/pip wheel --no-deps -w dist .

snap: ## Review changed snapshots
	cargo insta review

clean: ## Remove what was built
	cargo clean
	rm -rf $(VENV) $(VENV_COG) $(VENV_RUNPOD) $(NODE) $(NODE_RUNPOD) $(NODE_UI) .venv-bench .venv-bench-router dist

# The virtual environments. Each has a marker that is older than what it was made from.
$(VENV)/bin/python:
	@echo "making a virtual environment in $(VENV)"
	scripts/venv.sh $(PYTHON) $(VENV)

$(VENV)/tools: $(VENV)/bin/python tests/requirements.txt
	$(VENV)/bin/pip install --quiet --disable-pip-version-check -r tests/requirements.txt
	@touch $@

$(VENV_COG)/tools: tests/requirements-cog.txt
	scripts/venv.sh $(PYTHON) $(VENV_COG)
	$(VENV_COG)/bin/pip install --quiet --disable-pip-version-check -r tests/requirements-cog.txt
	@touch $@

$(VENV_RUNPOD)/tools: tests/requirements-runpod.txt
	scripts/venv.sh $(PYTHON) $(VENV_RUNPOD)
	$(VENV_RUNPOD)/bin/pip install --quiet --disable-pip-version-check -r tests/requirements-runpod.txt
	@touch $@

# The checks of the web UI: TypeScript, playwright-core and axe-core. They need node 20 or newer; Debian 12 has 18.
$(NODE_UI)/installed: $(UI)/package-lock.json
	@command -v npm >/dev/null || scripts/apt.sh nodejs npm
	@node -e 'if (parseInt(process.versions.node) < 20) { console.error(`the checks of the web UI need Node 20 or newer; $${process.execPath} is $${process.version}. Install another one, for example with: npm install --global n && n 22`); process.exit(1); }'
	npm ci --prefix $(UI) --no-audit --no-fund --silent
	@touch $@

# Replicate's and Runpod's npm clients, which the tests call the server with. They need node 18 or newer.
$(NODE)/installed $(NODE_RUNPOD)/installed: tests/%/node_modules/installed: tests/%/package-lock.json
	@command -v npm >/dev/null || scripts/apt.sh nodejs npm
	npm ci --prefix tests/$* --no-audit --no-fund --silent
	@touch $@

SOURCES := $(shell find crates python -type f \( -name '*.rs' -o -name '*.toml' -o -name '*.py' -o -name '*.html' -o -name '*.js' -o -name '*.css' -o -name '*.svg' -o -name '*.yaml' \) -not -path '*/tests/*' -not -path '*/node_modules/*' 2>/dev/null)

$(VENV)/installed: $(VENV)/bin/python Cargo.lock pyproject.toml $(SOURCES)
	scripts/install.sh $(VENV)
	@touch $@
