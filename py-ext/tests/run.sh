#!/usr/bin/env bash
# Builds the Python module quickly into target/venv, then checks it: ruff, stubs, types, pytest. See --help.
#
# SQLite always; MariaDB and MySQL when ROWCLAIM_TEST_MARIADB and ROWCLAIM_TEST_MYSQL are set, as tests/servers.py does:
#   python3 tests/servers.py run --db mariadb -- py-ext/tests/run.sh
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
readonly ROOT VENV=$ROOT/target/venv

if [ "${1:-}" = --help ]; then
    echo 'usage: py-ext/tests/run.sh [--no-build] [pytest arguments]'
    exit 0
fi

"$ROOT/tests/setup.sh"

cd "$ROOT/py-ext"
export VIRTUAL_ENV=$VENV PATH=$VENV/bin:$PATH PYTHONDONTWRITEBYTECODE=1
if [ "${1:-}" = --no-build ]; then shift; else maturin develop --quiet --profile fast; fi

ruff check --quiet .
ruff format --quiet --check .
cd tests # stubtest and mypy must find the installed package, not the source folder
python -m mypy.stubtest rowclaim --mypy-config-file mypy.ini \
    --allowlist stubtest_allowlist.txt --ignore-unused-allowlist
python -m mypy --config-file mypy.ini ../python/rowclaim typing_example.py
# Four at a time: most tests wait for a clock or a server. `-n 0` runs them one after the other.
exec python -m pytest -c "$ROOT/py-ext/pyproject.toml" --rootdir "$ROOT/py-ext" -n 4 "$@"
