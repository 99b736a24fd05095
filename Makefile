# The two commands of the README, and what they are made of. Each sets up all it needs; run again, it is quick.
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV ?= .venv
PY := $(VENV)/bin/python
READY := $(VENV)/.ready
ONCE ?=

.PHONY: help demo test check base e2e services clean

help:
	@echo "make demo         start Unsqueeze with a live demonstration (ONCE=1: unattended, prints a table)"
	@echo "make test         checks and the default test suite (CPU, SQLite, no other service)"
	@echo "make check        linters, types, layering, migrations; no tests"
	@echo "make e2e          browser tests in Chromium"
	@echo "make services     the suites that need PostgreSQL and Redis"
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

test: check
	$(PY) -m pytest -n 2

e2e: $(READY)
	$(PY) -m pytest -m e2e

services: $(READY)
	UNSQUEEZE_DATABASE_URL=$${TEST_DATABASE_URL:-postgres://postgres@127.0.0.1:5432/postgres} \
		$(PY) -m pytest -m "postgres or redis"

base: $(READY)
	rm -rf build/base
	$(PY) -m trainer run trainer/assets/base.json --out build/base
	cp -r build/base/attempts/1/checkpoints/it-00001500/policies/policy build/countdown4-base
	@echo "made build/countdown4-base; its weights hash should be:"
	@grep -h weights_hash trainer/assets/countdown4-base/base.json
	@grep -h weights_hash build/base/attempts/1/checkpoints/it-00001500/manifest.json

clean:
	rm -rf $(VENV) build staticfiles .pytest_cache .mypy_cache .ruff_cache .hypothesis
