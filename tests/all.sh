#!/usr/bin/env bash
# Every suite, one after the other, with the servers of the environment (see tests/servers.py and the Makefile).
# A suite that fails does not keep the others from running; the last line says how many did.
set -uo pipefail
cd "$(dirname "$0")/.."

profile=${PROFILE:-fast}
venv=target/venv/bin
passed=0
failed=()
begun=$SECONDS

suite() { # suite NAME COMMAND …
    local name=$1 since=$SECONDS
    shift
    printf '\n=== %s\n' "$name"
    if "$@"; then
        passed=$((passed + 1))
        printf '=== %s: passed in %d s\n' "$name" $((SECONDS - since))
    else
        failed+=("$name")
        printf '=== %s: FAILED (%d s)\n' "$name" $((SECONDS - since))
    fi
}

export RUST_BACKTRACE=0
# With the console's faults: its second program, for the drills, is then built here, from the core that these suites use anyway.
suite 'Rust: conformance on every database, console, units' \
    cargo test --quiet --profile "$profile" -p rowclaim -p rowclaim-migrations -p rowclaim-console -p conformance \
    --features rowclaim-console/faults -- --test-threads 12
suite 'races and crashes' "target/$profile/race"
# With faults in two statements of a hundred.
suite 'drills' env RUST_LOG=error tests/drills.sh "target/$profile/rowclaim-faults" --faults
suite 'PHP' php-ext/tests/run.sh
suite 'Python' py-ext/tests/run.sh
suite 'README' "$venv/python" tests/readme.py
suite 'schemas of the field: the audit' "$venv/python" -m pytest -q tests/schemas
[ -z "${ROWCLAIM_TEST_MARIADB:-}" ] ||
    suite 'schemas of the field' "$venv/python" tests/schemas/run.py
[ -z "${ROWCLAIM_TEST_MARIADB:-}" ] ||
    suite 'ten planted faults' "target/$profile/doctor_check"
suite 'demo on SQLite' "target/$profile/rowclaim" demo --recipients 4000
[ -z "${ROWCLAIM_TEST_MARIADB:-}" ] ||
    suite 'demo on MariaDB' "target/$profile/rowclaim" --dsn "$ROWCLAIM_TEST_MARIADB" demo --recipients 4000

printf '\n%d s; databases skipped: %s\n' $((SECONDS - begun)) "${ROWCLAIM_TEST_SKIP:-none}"
[ ${#failed[@]} -eq 0 ] || printf 'failed: %s\n' "${failed[@]}"
printf 'suites: %d passed, %d failed\n' "$passed" ${#failed[@]}
[ ${#failed[@]} -eq 0 ]
