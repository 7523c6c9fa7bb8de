# Each target sets up .venv by itself: a machine with Python 3.11 or newer and make is enough.
PYTHON ?= python3
BIN := .venv/bin
# Packages are installed without compiled modules, so that only those in use are compiled: keep them, or every process compiles all.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: run test fuzz lint bench soak docs docs-numbers clean

run: .venv/installed
	$(BIN)/farflung reproduce $(ARGS)

test: .venv/installed
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal $(ARGS)

fuzz: .venv/installed
	HYPOTHESIS_PROFILE=long $(BIN)/python -m pytest --numprocesses auto tests/fuzzing $(ARGS)

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/installed
	@$(BIN)/python -m benchmarks.speed $(ARGS)
	@$(BIN)/python -m benchmarks.startup
	@$(BIN)/python -m benchmarks.growth
	@$(BIN)/python -m benchmarks.solution
	@$(BIN)/python -m benchmarks.collecting
	@$(BIN)/python -m benchmarks.hosting
	@$(BIN)/python -m benchmarks.actors
	@$(BIN)/python -m benchmarks.nearest
	@$(BIN)/python -m benchmarks.networks
	@$(BIN)/python -m benchmarks.checkpoints
	@$(BIN)/python -m benchmarks.suites

soak: .venv/installed
	KILLS=all $(BIN)/python -m pytest --numprocesses auto tests/test_kills.py tests/scale tests/worlds/hosted/test_actors.py \
		tests/training/test_processes.py
	$(BIN)/python -m benchmarks.soak $(ARGS)

docs: .venv/installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict $(ARGS)
	@echo "open site/index.html"

docs-numbers: .venv/installed
	XLA_FLAGS= UPDATE_DOCS=1 $(BIN)/python -m pytest tests/test_docs.py -k runs_from_top_to_bottom $(ARGS)

.venv/installed: pyproject.toml constraints.txt
	@echo "Setting up .venv: this downloads about 700 MB of packages and takes one to three minutes."
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --no-compile --progress-bar off --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@
	@echo "To use farflung in this shell: source .venv/bin/activate"

clean:
	rm -rf .venv .pytest_cache .ruff_cache .mypy_cache .hypothesis build dist site
