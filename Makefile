# setup-fast, test-fast: without torch, JAX and root, in less than a minute on two free cores; enough for rules, signatures, texts and reports
# setup:         everything into .venv      demo: two nodes on this machine, healthy and with faults
# test:          all tests that CI runs; of a few that fail, whether they fail alone as well
# test-slow, test-gpu: the rest
# setup-newest:  the newest release of torch into .venv-newest (4 GB); test-newest: the tests that CI runs with it too
# check-style:   linters, types             docs: pages and tables made from the code (docs/codes is not committed)
# release-check: what a release needs besides      wheels: what is uploaded, in dist/
#
# PYTHON=python3.12 make setup                       another interpreter (3.11 or newer)
# TORCH="torch==2.13.0" make setup                   another build of torch; any pip arguments
# NEWEST_TORCH="torch==2.15.0" make test-newest      another build of it; any pip arguments
PYTHON ?= python3
TORCH ?= torch==2.13.0
BIN := .venv/bin

.PHONY: wheels setup-fast setup demo setup-newest test-fast test test-newest test-slow test-gpu check-style release-check docs clean

setup-fast: .venv/.fast

.venv/.fast: pyproject.toml Makefile tools/build_native.py $(wildcard src/allready/*/*/*.c)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "allready needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[test,style]'
	@# the signature tables once more as JSON, which loads faster; a stale copy is never used
	$(BIN)/python -m allready.signatures
	@# as pip does for a package that is not editable: where PYTHONDONTWRITEBYTECODE is set, every start would compile
	$(BIN)/python -m compileall -q src
	touch $@

setup: .venv/.ready

.venv/.ready: .venv/.fast
	@# torch first and by its own line: an installed build must never be replaced by a dependency's wish
	@$(BIN)/python -c 'import torch' 2>/dev/null || echo "installing $(TORCH) into .venv (up to several GB; TORCH=... chooses)"
	$(BIN)/python -c 'import torch' 2>/dev/null || $(BIN)/python -m pip install --quiet $(TORCH) numpy
	$(BIN)/python -m pip install --quiet --editable '.[lab,jax,test,style]'
	@# the fault laboratory's packet filters; only where we may install them
	@if [ "$$(id -u)" = 0 ] && ! command -v nft >/dev/null && command -v apt-get >/dev/null; then \
		{ apt-get update -qq && apt-get install -y -qq nftables; } >/dev/null 2>&1 || \
		echo "nftables could not be installed: some lab faults will be skipped"; fi
	@# real launchers for their tests (12 MB); in containers only, where no installed daemon is started
	@if [ "$$(id -u)" = 0 ] && [ ! -d /run/systemd/system ] && command -v apt-get >/dev/null && \
		! { command -v mpirun && PATH=$$PATH:/usr/sbin command -v sshd && PATH=$$PATH:/usr/sbin command -v slurmd; } >/dev/null; then \
		{ apt-get update -qq && RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
			--no-install-recommends openssh-server openmpi-bin slurm-wlm; } >/dev/null 2>&1 || \
		echo "openssh-server, openmpi-bin, slurm-wlm could not be installed: tests with real launchers are skipped"; fi
	touch $@

demo: setup
	$(BIN)/python examples/demo.py

test-fast: setup-fast
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --fast

test: setup
	PYTHONDONTWRITEBYTECODE= $(BIN)/python tools/again.py

setup-newest:
	$(PYTHON) tools/newest.py setup

test-newest: setup-newest
	$(PYTHON) tools/newest.py beside true

test-slow: setup
	$(BIN)/python -m pytest -m slow

test-gpu: setup
	$(BIN)/python -m pytest -m gpu tests/gpu

check-style: setup-fast
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python docs/schedulers_pages.py --check

# What a release needs besides: every text in Chinese (until then English is shown in its place)
release-check: check-style test
	$(BIN)/python tools/dev.py untranslated
	ALLREADY_RELEASE=1 $(BIN)/python -m pytest -q tests/text tests/test_wheel.py

# dist/: the source, a wheel for every platform, and one with the compiled scanner for this one
WHEEL_PLATFORM ?= manylinux_2_17_$(shell uname -m)
wheels: setup-fast
	$(BIN)/python -m hatchling build --target sdist --clean
	ALLREADY_NO_NATIVE=1 $(BIN)/python -m hatchling build --target wheel
	ALLREADY_WHEEL_PLATFORM=$(WHEEL_PLATFORM) $(BIN)/python -m hatchling build --target wheel

docs: setup-fast
	$(BIN)/python -m allready.docs docs/codes
	$(BIN)/python docs/schedulers_pages.py
	$(BIN)/python docs/verdict_order_tables.py

clean:
	rm -rf .venv .venv-newest demo-report
