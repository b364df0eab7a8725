# `make demo` and `make test` do everything; both install and start what they need (see tests/setup.sh).

PROFILE  ?= fast
TARGET   := $(CURDIR)/target
BIN      := $(TARGET)/$(PROFILE)
VENV     := $(TARGET)/venv
SERVERS  := python3 tests/servers.py run
CARGO    := cargo
# The databases of `make test`, `make race` and `make drill`. MySQL is installed into a folder of its own where that is possible.
ALLOW    ?= --allow-missing mysql
# Where the demo runs: a DSN, or DB=mariadb or DB=mysql for a private server; SQLite when neither is given.
DSN      ?=
DB       ?=
export ROWCLAIM_PHP_EXTENSION := $(BIN)/librowclaim_php.so
export ROWCLAIM_PYTHON := $(VENV)/bin/python

.PHONY: help setup mysql build demo test race drill doctor-check schemas bench lint clean

help: ## what can be done
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: ## install what building and testing needs (Debian 12, root)
	@tests/setup.sh

mysql: setup
	@tests/setup.sh --mysql || [ $$? -eq 3 ]

build: setup ## console, PHP extension and Python module
	$(CARGO) build --profile $(PROFILE) -p rowclaim-console -p rowclaim-php
	cd py-ext && VIRTUAL_ENV=$(VENV) $(VENV)/bin/maturin develop --quiet --profile $(PROFILE)

demo: build ## a bulk send with four workers, one killed and one stopped: DSN=mysql://… or DB=mariadb for a server
ifneq ($(DSN),)
	$(BIN)/rowclaim --dsn '$(DSN)' demo
else ifneq ($(DB),)
	@if [ "$(DB)" = mysql ]; then tests/setup.sh --mysql; fi
	$(SERVERS) --db $(DB) -- sh -c '$(BIN)/rowclaim --dsn "$$ROWCLAIM_TEST_$(shell echo $(DB) | tr a-z A-Z)" demo'
else
	$(BIN)/rowclaim demo
endif

test: build mysql ## every test on every database
	$(SERVERS) $(ALLOW) -- tests/all.sh

race: mysql ## 16 processes on one queue, then 200 kills, on every database
	$(CARGO) build --profile $(PROFILE) -p conformance --bins
	$(SERVERS) $(ALLOW) -- $(BIN)/race

drill: mysql ## holders killed, silent and stopped, slots and reruns in 16 processes, on every database
	$(CARGO) build --profile $(PROFILE) -p rowclaim-console
	$(SERVERS) $(ALLOW) -- tests/drills.sh $(BIN)/rowclaim

schemas: build ## four batch jobs of the field, written by hand and then on Rowclaim, with accidents
	$(SERVERS) --db mariadb -- $(VENV)/bin/python tests/schemas/run.py

doctor-check: setup ## ten planted faults, each of which `rowclaim doctor` must name, and a healthy set-up without an alarm
	$(CARGO) build --profile $(PROFILE) -p rowclaim-console -p conformance --bins
	$(SERVERS) --db mariadb -- $(BIN)/doctor_check

bench: setup ## figures beside their floor, on a private MariaDB
	$(CARGO) build --release -p bench -p rowclaim-php
	cd py-ext && VIRTUAL_ENV=$(VENV) $(VENV)/bin/maturin develop --quiet --release
	ROWCLAIM_PHP_EXTENSION=$(TARGET)/release/librowclaim_php.so \
		$(SERVERS) --db mariadb --prewrite-redo -- $(TARGET)/release/bench $(BENCH)

lint: setup ## formatting and warnings as errors
	$(CARGO) fmt --all --check
	$(CARGO) clippy --profile $(PROFILE) --workspace --all-targets -- -D warnings
	$(VENV)/bin/ruff check .
	@find php-ext console bench tests -name '*.php' -not -path '*/dist/*' -print0 | xargs -0 -n1 php -l > /dev/null

clean: ## remove what was built
	$(CARGO) clean
