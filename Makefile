# Two commands do everything: `make run` and `make test`. Both set up .venv first.
PYTHON ?= python3
BIN := .venv/bin
.DEFAULT_GOAL := help
# Some machines forbid Python to keep what it compiled. Without that each process takes twice as long to start.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help
help: ## show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.venv/bin/uv:
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "lipt needs Python 3.11 or newer: make PYTHON=python3.12 …")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet uv

.venv/run.ok: pyproject.toml constraints.txt .venv/bin/uv
	@echo "installing LiPT and PyTorch into .venv; the first time this takes minutes"
	$(BIN)/uv pip install --quiet --python $(BIN)/python --constraint constraints.txt --editable ".[run]"
	@touch $@

.venv/dev.ok: pyproject.toml constraints.txt .venv/bin/uv
	$(BIN)/uv pip install --quiet --python $(BIN)/python --constraint constraints.txt --editable ".[kubeflow]" --group dev
	@touch $@ .venv/run.ok

.PHONY: setup
setup: .venv/run.ok ## install into .venv

.PHONY: run
run: .venv/run.ok ## the main job: real images in, an HTML report out
	$(BIN)/lipt run examples/01-quickstart.yaml

.PHONY: test
test: .venv/dev.ok ## all tests (PYTEST=options of pytest)
	$(BIN)/python -m pytest $(PYTEST)

LOWEST := build/lowest
LOWEST_TESTS := tests/unit/selection/test_selection_api.py tests/unit/selection/test_selection_files.py tests/unit/training tests/unit/data \
	tests/unit/report tests/unit/test_cli.py tests/unit/test_config.py tests/unit/test_parquet.py tests/contract/test_store_contract.py \
	tests/pipeline/test_run.py tests/unit/cluster
# Its Pillow compresses the digits to other bytes, as the test says.
LOWEST_TESTS += --deselect tests/unit/data/sources/test_sources.py::test_digest_of_the_digits
# kfp needs newer versions of click and urllib3, so it is not there.
LOWEST_TESTS += --ignore-glob 'tests/unit/cluster/test_kubeflow*.py' \
	--deselect tests/unit/cluster/test_credentials.py::test_kubeflow_is_reached_through_the_same_proxy

$(LOWEST)/ok: pyproject.toml .venv/bin/uv
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info[:2] == (3, 11) else "the lowest versions need Python 3.11: make PYTHON=python3.11 …")'
	$(PYTHON) -m venv --clear $(LOWEST)
	$(BIN)/uv pip compile --quiet --python $(LOWEST)/bin/python --no-deps --resolution lowest --extra kubeflow pyproject.toml -o $(LOWEST)/pins.txt
	$(BIN)/uv pip install --quiet --python $(LOWEST)/bin/python --constraint $(LOWEST)/pins.txt --editable ".[run]" --group lowest
	@touch $@

.PHONY: test-lowest
test-lowest: $(LOWEST)/ok ## tests with the lowest versions that pyproject.toml allows (PYTHON=python3.11)
	$(LOWEST)/bin/python -m pytest $(PYTEST) $(LOWEST_TESTS)

.PHONY: e2e
e2e: .venv/dev.ok ## whole runs and faults on a cluster: kind, or the one that LIPT_E2E_CLUSTER drives
	KUBECONFIG="$$($(BIN)/python -m tests.e2e.prepare)" && export KUBECONFIG && $(BIN)/python -m pytest -n 0 -vv --durations=0 tests/e2e

.PHONY: check
check: .venv/dev.ok ## lint, types, import contracts, dependencies, manifests, workflows, documentation
	$(BIN)/ruff check .
	$(BIN)/ruff format --check src tests components pipelines catalogue benchmarks docs
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/deptry src components pipelines
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yaml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/*.yaml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.dependabot .github/dependabot.yml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.citation-file-format CITATION.cff
	$(BIN)/python -m pytest -n 0 tests/manifests
	$(MAKE) --no-print-directory docs

.PHONY: pipelines
pipelines: .venv/dev.ok ## compile the Kubeflow pipelines
	$(BIN)/python -m pipelines

VARIANT ?= cuda
VERSION := $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' src/lipt/version.py)
IMAGE ?= lipt:$(VERSION)
OCI := org.opencontainers.image
CPU_TORCH := https://download.pytorch.org/whl/cpu

.PHONY: image
image: ## build the container image (VARIANT=cuda|cpu, IMAGE=name:tag)
	docker build -f images/lipt/Dockerfile -t $(IMAGE) --label $(OCI).version=$(VERSION) \
		--label $(OCI).revision=$(shell git rev-parse HEAD) $(if $(filter cpu,$(VARIANT)),--build-arg TORCH_INDEX_URL=$(CPU_TORCH)) .

.PHONY: reference
reference: .venv/dev.ok ## write the generated pages and drawings of docs/, and the signatures of `select`
	$(BIN)/python -m docs.generate

.PHONY: figures
figures: reference ## draw the pictures of README and documentation again; needs chromium
	$(BIN)/python -m docs.generate.screenshot

.PHONY: notebook
notebook: .venv/dev.ok ## execute the notebook of examples/ and keep its outputs in it
	$(BIN)/uv pip install --quiet --python $(BIN)/python --constraint constraints.txt --group notebook
	$(BIN)/python -m docs.generate.notebook

.venv/browser.ok: .venv/dev.ok
	$(BIN)/uv pip install --quiet --python $(BIN)/python --constraint constraints.txt --group browser
	@touch $@

.PHONY: axe
axe: .venv/browser.ok ## test that everyone can read the reports, with axe; needs chromium
	$(BIN)/python -m docs.generate.accessibility

.PHONY: docs
docs: .venv/dev.ok ## build the documentation into build/site; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

.PHONY: lock
lock: .venv/bin/uv ## pin the versions that are known to work
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --no-header --no-annotate --no-emit-index-url --no-emit-find-links --extra kubeflow --group dev pyproject.toml -o constraints.txt

.PHONY: clean
clean: ## remove what runs and tests leave
	rm -rf runs .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
