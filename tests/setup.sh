#!/usr/bin/env bash
# Installs what building and testing Rowclaim needs. See --help.
#
# Three steps, each a function that first looks whether its work is done already: Debian packages (install_packages),
# a Python environment in target/venv (install_python_tools), and, with --mysql, a small Debian system that holds
# mysqld (build_mysql_chroot). tests/servers.py starts the servers; nothing is started here.
set -euo pipefail

readonly PACKAGES=(
    build-essential libclang-dev debootstrap                                  # bindgen reads php.h through libclang
    php8.2-cli php8.2-dev php8.2-fpm php8.2-mbstring php8.2-mysql php8.2-sqlite3 php8.2-xml php-pear
    libfcgi-bin phpunit php-illuminate-database php-illuminate-queue          # cgi-fcgi asks php-fpm
    curl nginx                                                                # in front of php-fpm, as people have it
    mariadb-server python3-venv
)
readonly NEEDED_COMMANDS=(php php-config phpize mariadbd phpunit)
readonly PYTHON_TOOLS='maturin==1.16.* pytest==9.2.* pytest-xdist==3.* mypy==2.4.* ruff==0.17.* PyMySQL==1.*'

# The newest MySQL of Debian is in sid only, so sid it is; mysqld asks for no more than its own package.
readonly MYSQL_SUITE=sid
readonly MYSQL_MIRROR=${ROWCLAIM_DEBIAN_MIRROR:-http://deb.debian.org/debian}
readonly MYSQL_PACKAGES=mysql-server-core
readonly MYSQL_STAMP=.rowclaim-complete

readonly EXIT_SKIPPED=3

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly ROOT
readonly CACHE=${ROWCLAIM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/rowclaim}

usage() {
    cat <<'USAGE'
usage: tests/setup.sh [--mysql] [--help]

Installs what building and testing Rowclaim needs, on Debian 12 as root: the Debian packages (no service is started)
and the Python tools in target/venv. Elsewhere it says what is missing. Fast when everything is there.

  --mysql   also build a small Debian system with mysqld in the cache folder (root only, about 400 MB)
  --help    this text

environment:
  ROWCLAIM_CACHE            cache folder, otherwise $XDG_CACHE_HOME/rowclaim or ~/.cache/rowclaim
  ROWCLAIM_DEBIAN_MIRROR    mirror the MySQL system is taken from
  PYTHON                    the Python that makes target/venv, otherwise python3

exit status: 0 done, 1 something needed is missing, 2 wrong use, 3 MySQL could not be had ("SKIP mysql: <reason>")
USAGE
}

say() { printf 'setup: %s\n' "$*" >&2; }

# shellcheck source=/dev/null
is_debian_12() { [ "$(. /etc/os-release 2>/dev/null && printf '%s %s' "${ID:-}" "${VERSION_ID:-}")" = 'debian 12' ]; }

missing_packages() {
    local installed package
    installed=" $(dpkg-query -W -f='${db:Status-Status}:${Package} ' "${PACKAGES[@]}" 2>/dev/null || true)"
    for package in "${PACKAGES[@]}"; do
        [[ $installed == *" installed:$package "* ]] || printf '%s\n' "$package"
    done
}

# --- Debian packages ---------------------------------------------------------------------------------------------

readonly START_GUARD=/usr/sbin/policy-rc.d

readonly START_GUARD_TEXT=$'#!/bin/sh\n# made by Rowclaim\'s tests/setup.sh: no service may be started\nexit 101'

write_start_guard() {
    printf '%s\n' "$START_GUARD_TEXT" >"$1"
    chmod 755 "$1"
}

# While the guard stands, maintainer scripts may not start a service. One that was there before comes back; our own,
# left by a run that was killed, does not count as one.
raise_start_guard() {
    if [ -e "$START_GUARD" ] && [ "$(cat "$START_GUARD")" != "$START_GUARD_TEXT" ]; then
        mv "$START_GUARD" "$START_GUARD.before-rowclaim"
    fi
    write_start_guard "$START_GUARD"
    trap lower_start_guard EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
}

lower_start_guard() {
    rm -f "$START_GUARD"
    if [ -e "$START_GUARD.before-rowclaim" ]; then mv "$START_GUARD.before-rowclaim" "$START_GUARD"; fi
    trap - EXIT INT TERM
}

install_packages() {
    local missing
    mapfile -t missing < <(missing_packages)
    if [ "${#missing[@]}" -eq 0 ]; then return; fi
    say "installing ${missing[*]}"
    raise_start_guard
    export DEBIAN_FRONTEND=noninteractive
    apt-get -qq -o DPkg::Lock::Timeout=600 update
    apt-get -qq -y -o DPkg::Lock::Timeout=600 -o Dpkg::Use-Pty=0 install --no-install-recommends "${missing[@]}" >&2
    lower_start_guard
    # The packages enable their services for the next boot; the tests bring their own servers.
    local unit
    for unit in mariadb-server:mariadb nginx:nginx php8.2-fpm:php8.2-fpm; do
        if [[ " ${missing[*]} " == *" ${unit%:*} "* ]] && command -v systemctl >/dev/null; then
            systemctl --quiet disable "${unit#*:}.service" || true
        fi
    done
}

# Elsewhere nothing is installed: say what is wanted, and fail when a needed command is not there.
explain_packages() {
    local command absent=()
    for command in "${NEEDED_COMMANDS[@]}"; do
        PATH=$PATH:/usr/sbin:/usr/local/sbin command -v "$command" >/dev/null || absent+=("$command")
    done
    say "this script installs packages on Debian 12 as root only; what Debian 12 calls the needed packages:"
    say "  ${PACKAGES[*]}"
    if [ "${#absent[@]}" -gt 0 ]; then
        say "missing commands: ${absent[*]}; install them and run this script again"
        return 1
    fi
    say "the needed commands are all there: ${NEEDED_COMMANDS[*]}"
}

# --- Python tools ------------------------------------------------------------------------------------------------

# The stamp holds the list of tools, so that a changed list makes a new environment.
install_python_tools() {
    local venv=$ROOT/target/venv
    if [ -x "$venv/bin/python" ] && [ "$(cat "$venv/.rowclaim-tools" 2>/dev/null)" = "$PYTHON_TOOLS" ]; then return; fi
    say "making target/venv with $PYTHON_TOOLS"
    if ! rm -rf "$venv" 2>/dev/null; then
        say "$venv cannot be replaced: it belongs to $(stat -c %U "$venv")"
        return 1
    fi
    mkdir -p "$ROOT/target"
    "${PYTHON:-python3}" -m venv "$venv"
    # shellcheck disable=SC2086 # a list of requirements
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check $PYTHON_TOOLS
    printf '%s\n' "$PYTHON_TOOLS" >"$venv/.rowclaim-tools"
}

# --- MySQL -------------------------------------------------------------------------------------------------------

skip_mysql() {
    printf 'SKIP mysql: %s\n' "$*" >&2
    exit "$EXIT_SKIPPED"
}

# Removes a half-made system. Whatever is mounted in it goes first: rm must never walk into the host's /dev.
remove_chroot() {
    local system=$1 mounted
    if [ ! -e "$system" ]; then return; fi
    system=$(realpath "$system")
    awk -v inside="$system/" 'index($2, inside) == 1 { print $2 }' /proc/mounts | sort -r |
        while read -r mounted; do umount "$mounted" || umount --lazy "$mounted"; done
    if awk -v inside="$system/" 'index($2, inside) == 1 { found = 1 } END { exit !found }' /proc/mounts; then
        skip_mysql "$system cannot be removed, something is still mounted in it"
    fi
    rm -rf --one-file-system "$system"
}

build_mysql_chroot() {
    local system=$CACHE/mysql log=$CACHE/mysql.log
    if [ -e "$system/$MYSQL_STAMP" ]; then return; fi
    if [ "$(id -u)" -ne 0 ]; then skip_mysql 'debootstrap and chroot need root'; fi
    if ! command -v debootstrap >/dev/null; then skip_mysql 'debootstrap is not installed'; fi
    say "building $system (progress in $log)"
    remove_chroot "$system"
    : >"$log"
    debootstrap --variant=minbase "$MYSQL_SUITE" "$system" "$MYSQL_MIRROR" >>"$log" 2>&1 ||
        skip_mysql "debootstrap $MYSQL_SUITE failed: $(tail -n 1 "$log")"
    write_start_guard "$system$START_GUARD"
    chroot "$system" env DEBIAN_FRONTEND=noninteractive LC_ALL=C apt-get -qq -y install --no-install-recommends \
        $MYSQL_PACKAGES >>"$log" 2>&1 || skip_mysql "installing $MYSQL_PACKAGES failed: $(tail -n 1 "$log")"
    rm -rf "$system"/var/lib/apt/lists/* "$system"/var/cache/apt/*
    chroot "$system" mysqld --version >"$system/$MYSQL_STAMP.part" 2>>"$log" ||
        skip_mysql "mysqld does not run in $system: $(tail -n 1 "$log")"
    mv "$system/$MYSQL_STAMP.part" "$system/$MYSQL_STAMP"
    say "built $(cat "$system/$MYSQL_STAMP")"
}

# ------------------------------------------------------------------------------------------------------------------

main() {
    local with_mysql=false
    while [ $# -gt 0 ]; do
        case $1 in
            --mysql) with_mysql=true ;;
            --help | -h) usage; exit 0 ;;
            *) usage >&2; exit 2 ;;
        esac
        shift
    done
    # Two runs at the same time would spoil each other's work: the second waits, then finds everything done.
    mkdir -p "$CACHE"
    exec 9>"$CACHE/setup.lock"
    flock 9
    if is_debian_12 && [ "$(id -u)" -eq 0 ]; then install_packages; else explain_packages; fi
    install_python_tools
    if $with_mysql; then build_mysql_chroot; fi
}

main "$@"
