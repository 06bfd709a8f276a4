# Each target works from a fresh clone with Python 3.11 or newer and make alone: it makes .venv itself.
.DEFAULT_GOAL := help
.PHONY: help chat serve test unit_tests integration_tests soak lint format type docs bench quality wheel_check clean

PYTHON ?= python3
ifeq ($(OS),Windows_NT)
BIN := .venv/Scripts
else
BIN := .venv/bin
endif
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
ARGS ?=
SOAK ?=
TESTS ?= tests/integration_tests
WORKERS := --numprocesses auto --maxprocesses 4

help: ## Show this list
	@$(PYTHON) -c "import re; [print(f'{m[1]:<20}{m[2]}') for m in (re.match(r'([a-z_]+):.*## (.*)', line) for line in open('Makefile')) if m]"

.venv/pip.stamp:
	@$(PYTHON) -c "import sys; sys.exit(0 if sys.version_info >= (3, 11) else 'Python 3.11 or newer is needed; name one with PYTHON=...')"
	@$(PYTHON) -m venv .venv
	@$(PIP) install --upgrade "pip>=25.1"
	@$(BIN)/python -c "open('$@', 'w').close()"

.venv/chat.stamp: .venv/pip.stamp pyproject.toml
	@echo "Installing langchain-hindsight and an embedded Hindsight into .venv (a few minutes, once) ..."
	@$(PIP) install --editable ".[agents,embedded]"
	@$(BIN)/python -c "open('$@', 'w').close()"

.venv/dev.stamp: .venv/pip.stamp pyproject.toml
	@echo "Installing langchain-hindsight with all that its tests need into .venv (a few minutes, once) ..."
	@$(PIP) install --editable ".[all]" --group dev
	@$(BIN)/python -c "open('$@', 'w').close()"

.venv/server.stamp: .venv/dev.stamp tests/server_environment.py
	@echo "Installing LangGraph's development server beside it (half a minute, once) ..."
	@$(BIN)/python tests/server_environment.py .venv/server
	@$(BIN)/python -c "open('$@', 'w').close()"

.venv/docs.stamp: .venv/pip.stamp pyproject.toml
	@echo "Installing langchain-hindsight with what its documentation needs into .venv (a minute, once) ..."
	@$(PIP) install --editable . --group docs
	@$(BIN)/python -c "open('$@', 'w').close()"

chat: .venv/chat.stamp ## Chat with an agent that remembers (ARGS="--help" for more)
	@$(BIN)/python examples/chatbot.py $(ARGS)

serve: .venv/chat.stamp ## Run an embedded Hindsight until Ctrl-C
	@$(BIN)/langchain-hindsight serve $(ARGS)

test: lint type unit_tests integration_tests wheel_check ## Everything that CI runs

unit_tests: .venv/dev.stamp ## Tests without a network, in seconds
	$(BIN)/python -m pytest tests/unit_tests --disable-socket --allow-unix-socket $(WORKERS) $(ARGS)

integration_tests: .venv/server.stamp ## Tests against a real Hindsight server, started and stopped here
	$(BIN)/python -m pytest $(TESTS) $(WORKERS) $(ARGS)

soak: export TENANT_CALLS = 20000
soak: .venv/dev.stamp ## The long runs: many tenants at once, and processes killed 800 times (an hour)
	$(BIN)/python -m pytest tests/integration_tests/test_tenants.py $(ARGS)
	$(BIN)/python tests/integration_tests/soak.py $(SOAK)

bench: .venv/dev.stamp ## Speed beside the client's own calls (ARGS="--quick" for less)
	$(BIN)/python tests/benchmarks/bench.py $(ARGS)

quality: .venv/dev.stamp ## What recall finds for its tokens, beside others on the same server
	$(BIN)/python tests/quality/quality.py $(ARGS)

lint: .venv/dev.stamp ## Style, without changing anything
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: .venv/dev.stamp ## Put the style right
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

type: .venv/dev.stamp ## Types
	$(BIN)/mypy

docs: export NO_MKDOCS_2_WARNING = 1
docs: .venv/docs.stamp ## The documentation, into build/docs
	$(BIN)/mkdocs build --quiet

wheel_check: .venv/dev.stamp ## The built wheel imports, and the tests left the tree clean
	$(BIN)/python tests/wheel_check.py

clean: ## Remove .venv and caches
	@$(PYTHON) -c "import shutil; [shutil.rmtree(p, True) for p in ('.venv', 'build', 'dist', '.mypy_cache', '.ruff_cache', '.pytest_cache', '.hypothesis')]"
