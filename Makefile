# GPU Bloom: `make run` and `make test` do everything on a fresh machine.
# Needed: Python 3.11 or newer, Node.js 20 or newer, make.

PYTHON ?= python3
BIN := .venv/bin
NPM := npm --prefix ui --silent run

.DEFAULT_GOAL := help
# What pytest makes of a test file, and any compiled source, is kept for the next process, whatever the shell says.
export PYTHONDONTWRITEBYTECODE :=
.PHONY: help run test test-long steady bench setup ui check check-python check-ui check-api format api lock vulnerabilities wheel clean

help: ## Show this help
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: ## Set up what is missing and serve the app at 127.0.0.1:PORT (8000)
	@$(PYTHON) tools/prepare.py run
	@exec $(BIN)/bloom up $(if $(PORT),--port $(PORT))

test: setup check ## Set up what is missing and run every check and test (about 11 minutes on two quiet cores)
	@# Tests start hundreds of processes; none of them should have to compile the sources, whatever the shell says.
	@$(BIN)/python -m compileall -q src tests
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m "not long" --durations 10

test-long: setup ## Run the tests that take more than two seconds each
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m long --timeout 1800

steady: setup ## Run the tests three times in random order, once beside busy processes (SEED=n, PASSES="quiet busy")
	@$(BIN)/python -m compileall -q src
	$(BIN)/python tools/steady.py $(if $(SEED),--seed $(SEED)) $(if $(PASSES),--passes "$(PASSES)")

bench: setup ## Measure the engine's parts and compare with the last run recorded here
	$(BIN)/python bench/suite.py

setup: ## Prepare this checkout for tests: packages, browser, PostgreSQL
	@$(PYTHON) tools/prepare.py test

ui: ## Build the web app
	@$(PYTHON) tools/prepare.py run

check: ## Format, lint, types, import floors; Python and web app
	@# Two at a time: most of them use one core.
	@$(MAKE) --no-print-directory --jobs 2 check-python check-api check-ui

check-python:
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

check-api:
	@$(BIN)/bloom server openapi | diff -q - ui/openapi.json > /dev/null \
	  || { echo "ui/openapi.json is not what the server offers. Run: make api"; exit 1; }
	@$(NPM) types -- --check > /dev/null \
	  || { echo "ui/src/api/schema.d.ts is not made from ui/openapi.json. Run: make api"; exit 1; }
	@$(NPM) fields -- --check

check-ui:
	$(NPM) lint
	$(NPM) check
	$(NPM) test

api: ## Write the API's description and the web app's types and form fields anew
	$(BIN)/bloom server openapi > ui/openapi.json.new && mv ui/openapi.json.new ui/openapi.json
	$(NPM) types
	$(NPM) fields

format: ## Format the Python sources
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock: setup ## Write requirements.lock anew: the versions and hashes of what the server needs
	$(BIN)/python tools/lock.py

vulnerabilities: setup ## Compare the versions in use with a file of known vulnerabilities (FILE=osv.zip)
	$(BIN)/python tools/vulnerabilities.py $(FILE)

wheel: setup ## Build the wheel, with the web app in it, and its bill of materials into dist/
	$(BIN)/python -m build --wheel
	$(BIN)/python tools/bill_of_materials.py dist

clean: ## Remove everything that set-up and builds made (not your data)
	rm -rf .venv ui/node_modules src/gpubloom/server/web/static src/gpubloom/traincard/card/static dist .mypy_cache .ruff_cache
