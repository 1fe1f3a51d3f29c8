# Every target works on a fresh machine with nothing but Python >= 3.11: it makes .venv first. `make PYTHON=python3.12 test` picks another Python.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
DEMO := .venv/.demo
INSTALL := $(BIN)/python -m pip install --disable-pip-version-check -q -c constraints.txt
export OMP_NUM_THREADS ?= 1

.DEFAULT_GOAL := help
.PHONY: help demo fast test check format speed claims docs site build clean

help:  ## Show this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | awk -F'\t' '{printf "  make %-8s %s\n", $$1, $$2}'

demo: $(DEMO)  ## Run the main job at small scale; prints where the report is
	$(BIN)/python scripts/demo.py TensegrityRoll-v0

test: check  ## Run all checks and all tests
	$(BIN)/python -m pytest -q -n 2 --dist worksteal

fast: check  ## Run all checks and the unit tests: two minutes
	$(BIN)/python -m pytest -q -n 2 --dist worksteal tests/unit

check: $(READY)  ## Style, types and layers; prints size and words of the checkout
	$(BIN)/ruff check && $(BIN)/ruff format --check
	$(BIN)/mypy && $(BIN)/lint-imports --no-logo
	@$(BIN)/python tests/counts.py

format: $(READY)  ## Put the code into its one format
	$(BIN)/ruff check --fix --exit-zero && $(BIN)/ruff format

speed: $(READY)  ## Measure speed, side by side with MuJoCo
	$(BIN)/python benchmarks/tensegrity.py && $(BIN)/python benchmarks/rigid.py
claims: $(READY)  ## Run fast published figures again, and write docs/measured.md
	$(BIN)/python experiments/claims.py --run
docs: $(READY)  ## Write the generated pages of docs/reference
	$(BIN)/python docs/generate.py
site: $(READY)  ## Build the documentation as a site: site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build

build: $(READY)  ## Build the wheel and try it in a fresh environment, away from this folder
	rm -rf build dist && $(BIN)/python -m build && $(PYTHON) -m venv build/fresh
	build/fresh/bin/python -m pip install -q -c constraints.txt dist/*.whl
	cd build && fresh/bin/python -c 'import agents, gymnasium, softgym_envs, sysid; \
	env = gymnasium.make("TensegrityRoll-v0"); env.reset(seed=0); env.step(env.action_space.sample()); print("the wheel works")'

clean:  ## Remove what the other targets made, .venv included
	rm -rf .venv build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache

$(DEMO): EXTRAS := mujoco,control,sysid,report,scripts
$(READY): EXTRAS := all,dev
$(DEMO) $(READY): pyproject.toml setup.py constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	|| { echo "$(PYTHON) is missing or older than 3.11; name another one: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv .venv \
	|| { echo "$(PYTHON) cannot make virtual environments (on Debian: apt install python3-venv)"; exit 1; }
	@echo "Installing $(EXTRAS) into .venv: the first time this takes a minute or more"
	$(if $(findstring all,$(EXTRAS)),$(INSTALL) torch)
	$(INSTALL) -e '.[$(EXTRAS)]'
	@touch $(DEMO) $@
