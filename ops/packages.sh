# Debian packages for the scripts beside this file, where they may be installed at all.
#
# Sourced, never run. NO_INSTALL=1 forbids installing even where it would be possible.
# shellcheck shell=bash

say() { printf '%s: %s\n' "$SCRIPT" "$*" >&2; }

die() {
    say "$*"
    exit 1
}

# True where packages may be installed: root on Debian, and nobody said no.
may_install() {
    [ "${NO_INSTALL:-0}" = 0 ] && [ "$(id -u)" = 0 ] && [ -e /etc/debian_version ] &&
        command -v apt-get >/dev/null
}

# apt_install PACKAGE...: installs them, or says which command would.
apt_install() {
    may_install || {
        say "missing, and not mine to install here: $*"
        say "run: sudo apt-get install --no-install-recommends $*"
        return 1
    }
    say "installing $*"
    local -a quiet=(-qq -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3)
    # The package lists may be absent or old; once a run is enough.
    if [ -z "${PACKAGE_LISTS_FRESH:-}" ]; then
        apt-get "${quiet[@]}" update </dev/null >&2 || say "the package lists could not be refreshed"
        export PACKAGE_LISTS_FRESH=1
    fi
    DEBIAN_FRONTEND=noninteractive apt-get "${quiet[@]}" install -y --no-install-recommends \
        "$@" </dev/null >/dev/null
    hash -r
}

# apt_unpack PACKAGE...: puts their files below .cache/debian. A service of theirs is not started.
apt_unpack() {
    local package folder=$PWD/.cache/debian
    may_install || {
        say "missing, and not mine to install here: $*"
        return 1
    }
    say "unpacking $*"
    [ -n "${PACKAGE_LISTS_FRESH:-}" ] || apt-get -qq update </dev/null >&2 || say "the package lists could not be refreshed"
    mkdir -p "$folder"
    for package in "$@"; do
        (cd "$folder" && apt-get -qq -o APT::Sandbox::User=root download "$package" &&
            dpkg -x "$package"_*.deb . && rm "$package"_*.deb) || return
    done
}
