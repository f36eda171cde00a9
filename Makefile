# This needs only Python 3.11 or newer: no root, no Redis, no Docker. Everything is installed into .venv, with the versions and
# hashes of constraints.txt. uv is used if it is installed, because it is faster; pip does the same.
#
#   make up ARGS="..."            passes options to poolkeeperd (test and unit: to pytest, bench: to the bench)
#   make PYTHON=/path/to/python   builds .venv with this Python

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory
.PHONY: help generated set-up up unit test mutants bench lint lua check lock clean

PYTHON ?=
UV ?= $(shell uv --version >/dev/null 2>&1 && echo uv)
ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Hundreds of processes start during the tests, so compiled files are kept, whatever the environment says.
PYTEST := exec env PYTHONDONTWRITEBYTECODE= $(BIN)/pytest --dist loadfile --no-loadscope-reorder
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

set-up: $(READY) ## install everything into .venv, unless it is up to date

up: $(READY) ## run Poolkeeper
	@exec $(BIN)/poolkeeperd up $(ARGS)

unit: $(READY) ## run the quick tests, which start no process and open no socket
	@$(PYTEST) -n 2 tests/unit $(ARGS)

test: $(READY) ## run all tests on all backends, five at a time, as many of them wait
	@$(PYTEST) -n 5 --backends all $(ARGS)

mutants: $(READY) ## break one rule after the other in a copy, and report the test that fails
	@exec $(BIN)/python -m tests.mutants $(ARGS)

bench: $(READY) ## run the benchmarks
	@exec $(BIN)/python -m bench $(ARGS)

lint: $(READY) ## run ruff, mypy, the import contracts and luacheck
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	@$(MAKE) lua

# The composed scripts are checked, as Redis gets them. In CI a missing luacheck is a failure.
lua: $(READY) ## run luacheck on every composed script
	@command -v luacheck >/dev/null || { \
		echo "luacheck is not installed, so NO LUA WAS CHECKED. Debian, Ubuntu: apt install lua-check" >&2; \
		test -z "$$CI"; exit; }; \
	scripts=$$(mktemp -d) && trap 'rm -rf "$$scripts"' EXIT && \
	$(BIN)/python -m app.store.lua_linker "$$scripts" && luacheck --config .luacheckrc "$$scripts"

check: lint test ## run lint, then test

generated: $(READY) ## write the files that are generated from tables in the code
	@$(BIN)/python -m tests.support.generated_files

lock: ## write constraints.txt anew from pyproject.toml (needs uv)
	uv pip compile --quiet --universal --python-version 3.11 --extra dev --generate-hashes --upgrade \
		--custom-compile-command 'make lock' --output-file constraints.txt pyproject.toml

clean: ## delete .venv and all caches, but not data/
	rm -rf $(VENV) dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The project itself is installed without its dependencies and without build isolation. hatchling is in constraints.txt, too, so
# nothing without a hash there is ever downloaded. If uv fails (an index that only pip knows), pip tries.
INSTALL_ALL := --quiet --require-hashes -r constraints.txt
INSTALL_SELF := --quiet --no-deps --no-build-isolation -e . -e ./client

$(READY): pyproject.toml client/pyproject.toml constraints.txt
	@for each in $(or $(PYTHON),python3 python3.14 python3.13 python3.12 python3.11); do \
		if "$$each" -c '$(NEW_ENOUGH)' >/dev/null 2>&1; then python=$$each; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
		echo "Poolkeeper needs Python 3.11 or newer, $(or $(PYTHON),python3) is: $$($(or $(PYTHON),python3) --version 2>&1 | head -n 1)" >&2; \
		echo "Install a newer Python, or give its path: make PYTHON=/path/to/python3.12" >&2; exit 1; \
	fi; \
	if ! $(BIN)/python -c '$(NEW_ENOUGH)' >/dev/null 2>&1; then \
		rm -rf $(VENV); \
		if [ -n "$(UV)" ]; then \
			$(UV) venv --quiet --python "$$("$$python" -c 'import sys; print(sys.executable)')" $(VENV); \
		elif "$$python" -c 'import ensurepip, venv' 2>/dev/null; then \
			"$$python" -m venv $(VENV); \
		else \
			echo "$$python has no ensurepip, so it cannot make a virtual environment." >&2; \
			echo "Debian, Ubuntu: apt install python3-venv. Or install uv." >&2; exit 1; \
		fi; \
	fi; \
	echo "Setting up $(VENV) with $$($(BIN)/python --version) and $(or $(UV),pip) ..."; \
	if [ -n "$(UV)" ]; then \
		$(UV) pip install --python $(BIN)/python $(INSTALL_ALL) \
		&& $(UV) pip install --python $(BIN)/python $(INSTALL_SELF) && exit; \
		echo "uv failed, so pip tries." >&2; \
	fi; \
	export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_QUIET=1; \
	{ $(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip >/dev/null; } \
	&& $(BIN)/python -m pip install $(INSTALL_ALL) && $(BIN)/python -m pip install $(INSTALL_SELF)
	@touch $@
