# The two commands of the README, and what they are made of. Each sets up all it needs; run again, it is quick.
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV ?= .venv
PY := $(VENV)/bin/python
READY := $(VENV)/.ready
ONCE ?=

VLLM := .venv-vllm
TRL := .venv-trl

.PHONY: help demo test check openapi base e2e services vllm bench-trainer storm clean

help:
	@echo "make demo         start Unsqueeze with a live demonstration (ONCE=1: unattended, prints a table)"
	@echo "make test         checks and the default test suite (CPU, SQLite, no other service)"
	@echo "make check        linters, types, layering, migrations, the API's description; no tests"
	@echo "make openapi      write docs/openapi.yaml again, after a change of the API"
	@echo "make e2e          browser tests in Chromium"
	@echo "make services     the suites that need PostgreSQL and Redis"
	@echo "make vllm         vLLM for a CPU in an environment of its own, and the tests that need it"
	@echo "make bench-trainer  our trainer beside TRL's: tokens per CPU second, memory (ROUNDS=; bench/README.md)"
	@echo "make storm        100 random failures of everything, runs compared with undisturbed ones (ROUNDS= SEED= SERVICES=postgres FILES=bucket)"
	@echo "make base         train the demo's base checkpoint again (about 10 minutes on one core)"

$(READY): requirements.txt
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; install it or set PYTHON=…"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --upgrade pip
	$(PY) -m pip install --quiet -r requirements.txt
	@touch $(READY)

demo: $(READY)
	@exec $(PY) manage.py demo $(if $(ONCE),--once)

check: $(READY)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	$(VENV)/bin/djlint --lint --quiet templates
	$(PY) manage.py check
	$(PY) manage.py makemigrations --check --dry-run
	$(PY) manage.py spectacular --validate --fail-on-warn --file $(VENV)/openapi.yaml
	@diff -u docs/openapi.yaml $(VENV)/openapi.yaml || { \
		echo "The API's description is not what the code says. If the change is meant: make openapi"; exit 1; }

test: check
	$(PY) -m pytest -n 2

openapi: $(READY)
	$(PY) manage.py spectacular --validate --fail-on-warn --file docs/openapi.yaml

e2e: $(READY)
	$(PY) -m pytest -m e2e

services: $(READY)
	UNSQUEEZE_DATABASE_URL=$${TEST_DATABASE_URL:-postgres://postgres@127.0.0.1:5432/postgres} \
		$(PY) -m pytest -n 2 -m "postgres or redis"

# pip's bytecode of 8,000 files would cost more than the few that are imported.
$(VLLM)/.ready: requirements-vllm.txt
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; install it or set PYTHON=…"; exit 1; }
	$(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/python -m pip install --quiet --no-deps --no-compile -r requirements-vllm.txt
	@touch $(VLLM)/.ready

# The web application is not in this environment, nor what its tests are set up with.
vllm: $(VLLM)/.ready
	$(VLLM)/bin/python -m pytest -q -m vllm -o addopts=--import-mode=importlib -W ignore::pytest.PytestConfigWarning \
		tests/trainer/rollout/test_engines.py tests/trainer/rollout/test_vllm.py

# TRL over our own environment, so that both sides run on one torch and one transformers.
$(TRL)/.ready: tests/anchor/requirements.txt $(READY)
	$(PY) -m venv $(TRL)
	$(PY) -c 'import site; print(site.getsitepackages()[0])' > $$(echo $(TRL)/lib/python*/site-packages)/base.pth
	$(TRL)/bin/python -m pip install --quiet --no-deps $$(grep -E '^(trl|accelerate)==' tests/anchor/requirements.txt)
	@touch $(TRL)/.ready

bench-trainer: $(TRL)/.ready
	$(PY) bench/grpo.py --peer $(TRL)/bin/python --rounds $(or $(ROUNDS),3)

storm: $(READY)
	$(PY) -m tests.storm --rounds $(or $(ROUNDS),100) --services $(or $(SERVICES),sqlite) \
		$(if $(FILES),--files $(FILES)) $(if $(SEED),--seed $(SEED))

base: $(READY)
	rm -rf build/base
	$(PY) -m trainer run trainer/assets/base.json --out build/base
	cp -r build/base/attempts/1/checkpoints/it-00001500/policies/policy build/countdown4-base
	@echo "made build/countdown4-base; its weights hash should be:"
	@grep -h weights_hash trainer/assets/countdown4-base/base.json
	@grep -h weights_hash build/base/attempts/1/checkpoints/it-00001500/manifest.json

clean:
	rm -rf $(VENV) $(VLLM) $(TRL) build staticfiles .pytest_cache .mypy_cache .ruff_cache .hypothesis
