#!/usr/bin/env bash
# The five drills of the console on SQLite, MariaDB and MySQL, with the servers of the environment (see tests/servers.py):
# one line of JSON for each database. `drills.sh PROGRAM [OPTION …]` hands the options to `PROGRAM drill --json`.
set -uo pipefail

program=$1
shift
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failed=0

drill() { # drill NAME DSN [OPTION …]
    local name=$1 dsn=$2
    shift 2
    if [ -n "$dsn" ]; then
        printf -- '--- drills on %s\n' "$name" >&2
        # Not as an argument: others could read the password in the list of processes.
        ROWCLAIM_DSN=$dsn "$program" drill --json "$@" || failed=1
    elif [[ ",${ROWCLAIM_TEST_SKIP:-}," == *",$name,"* ]]; then
        printf 'SKIPPED: no drills on %s, which is not installed\n' "$name" >&2
    else
        printf 'no server for %s: run this by `make drill`\n' "$name" >&2
        failed=1
    fi
}

drill sqlite "sqlite://$folder/drill.db" "$@"
drill mariadb "${ROWCLAIM_TEST_MARIADB:-}" "$@"
drill mysql "${ROWCLAIM_TEST_MYSQL:-}" "$@"
exit $failed
