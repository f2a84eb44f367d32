# Python: the first of these that is 3.11 or newer. Override with `make PYTHON=...`.
PYTHON ?= $(shell for p in python3.11 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
ARGS ?=

EXTRAS_train := minatar
EXTRAS_test := minatar,dev
EXTRAS_atari := minatar,dev,atari
EXTRAS_teams := minatar,dev,teams
EXTRAS_bench := minatar,dev,bench

# what gfootball is built with, and needs when it runs
DEBIAN := git cmake build-essential libgl1-mesa-dev libegl1 libegl1-mesa-dev libsdl2-dev libsdl2-image-dev \
	libsdl2-ttf-dev libsdl2-gfx-dev libboost-all-dev libdirectfb-dev libst-dev mesa-utils xvfb x11vnc

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help train test lint format learning gates atari teams football dna bench wheel clean

help: ## print this help
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 12

train: .venv/.installed-train ## train a policy; ARGS="..." goes to `rld2 train`
	@$(BIN)/rld2 train $(ARGS)

test: lint ## every gate: style, types, import order, tests; ARGS=--cov reports coverage, a tenth slower
	$(BIN)/pytest -n 2 --dist loadfile $(ARGS)

lint: .venv/.installed-test ## the static gates only
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

format: .venv/.installed-test ## sort imports, apply safe fixes, format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

learning: .venv/.installed-test ## tests that train until a known return
	$(BIN)/pytest -m learning -n 2 $(ARGS)

gates: .venv/.installed-test ## planted failures: does every gate bite?
	$(BIN)/pytest -m slow -n 2 $(ARGS)

atari: .venv/.installed-atari ## tests that play Atari games
	$(BIN)/pytest -m atari -n 2 $(ARGS)

teams: .venv/.installed-teams ## tests that play games of jumanji and PettingZoo
	$(BIN)/pytest -m teams -n 2 $(ARGS)

dna: .venv/.installed-test ## tests that design sequences; real data where RLD2_DATA names their folder
	$(BIN)/pytest -m dna -n 2 $(ARGS)

football: .venv/.installed-football ## install Google Research Football: Debian packages (as root), then a build, once

bench: .venv/.installed-bench ## measure speed, PyTorch included; ARGS="..." goes to `rld2 bench`
	@$(BIN)/rld2 bench $(ARGS)

wheel: .venv/.installed-test ## build dist/*.whl and test it in an environment of its own
	$(BIN)/python -m build --wheel
	$(BIN)/pytest -m wheel $(ARGS)

clean: ## remove the environment, builds and caches; runs/ stays
	rm -rf .venv build dist .pytest_cache .ruff_cache .import_linter_cache .hypothesis .coverage .coverage.*
	find rld2 tests -name __pycache__ -prune -exec rm -rf {} +

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed: apt install python3.11 python3.11-venv" >&2; exit 1; }
	@$(PYTHON) -m venv .venv || { rm -rf .venv; v=$$($(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
		echo "Python's venv module is missing or incomplete: apt install python$$v-venv" >&2; exit 1; }

# A plain install fails: the build script asks python3 for psutil, which pip's isolated builds and the system's Python
# do not have. pip keeps the wheel.
.venv/.installed-football: constraints.txt | .venv/.installed-test
	@dpkg -s $(DEBIAN) >/dev/null 2>&1 || { \
		test "$$(id -u)" = 0 && root= || root=sudo; \
		test -z "$$root" || command -v sudo >/dev/null || { \
			echo "make football installs Debian packages, which needs root, and there is no sudo: run it as root" >&2; exit 1; }; \
		echo "Installing Debian packages for gfootball, which needs root."; \
		$$root apt-get update -qq && \
		$$root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(DEBIAN); }
	@echo "Installing gfootball into .venv; the first time it is built, which takes some ten minutes."
	@$(BIN)/pip install -qq --disable-pip-version-check wheel setuptools -c constraints.txt
	@PATH="$(CURDIR)/$(BIN):$$PATH" pip install -qq --disable-pip-version-check --no-build-isolation --no-deps gfootball -c constraints.txt
	@$(BIN)/pip install -qq --disable-pip-version-check gym absl-py six opencv-python-headless -c constraints.txt
	@touch $@

.venv/.installed-%: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing rld2[$(EXTRAS_$*)] into .venv; the first time this takes minutes."
	@$(BIN)/pip install -qq --no-compile --disable-pip-version-check -e ".[$(EXTRAS_$*)]" -c constraints.txt
	@touch $@
