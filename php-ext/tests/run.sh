#!/usr/bin/env bash
# Builds the extension and runs its tests. Arguments go to phpunit.
#
# SQLite always; MariaDB and MySQL when ROWCLAIM_TEST_MARIADB and ROWCLAIM_TEST_MYSQL hold a DSN, for instance
#   python3 tests/servers.py run --db mariadb -- php-ext/tests/run.sh
# Environment: ROWCLAIM_PROFILE (default fast), PHP, PHPUNIT, ROWCLAIM_EXTENSION (a built library: nothing is built then).
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
profile=${ROWCLAIM_PROFILE:-fast}
php=${PHP:-php}
if [ -z "${ROWCLAIM_EXTENSION:-}" ]; then
    (cd "$root" && cargo build --quiet --profile "$profile" -p rowclaim-php)
    ROWCLAIM_EXTENSION=${CARGO_TARGET_DIR:-$root/target}/$profile/librowclaim_php.so
fi
export ROWCLAIM_EXTENSION
exec "$php" -d zend.assertions=1 -d error_reporting=-1 -d display_errors=1 -d "extension=$ROWCLAIM_EXTENSION" \
    "${PHPUNIT:-$(command -v phpunit)}" -c "$root/php-ext/phpunit.xml" "$@"
