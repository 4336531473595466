# Sourced by the scripts of this folder: makes sure that the system packages are there.
# As root on Debian they are installed; anybody else is told which are missing.

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$top"

say() { printf '\n== %s\n' "$*"; }

# need PROGRAM PACKAGE [PROGRAM PACKAGE ...]
need() {
    local missing=()
    while [ $# -ge 2 ]; do
        command -v "$1" >/dev/null 2>&1 || missing+=("$2")
        shift 2
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        say "installing ${missing[*]}"
        export DEBIAN_FRONTEND=noninteractive
        apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null 2>&1 || {
            apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
        }
    else
        echo "missing packages: ${missing[*]}; install them first, e.g. apt-get install ${missing[*]}" >&2
        exit 1
    fi
}

# need_verbs: headers of the verbs device.
need_verbs() {
    need cmake cmake pkg-config pkg-config
    ls /usr/lib/llvm-*/lib/libclang*.so* >/dev/null 2>&1 || need libclang libclang-dev
    pkg-config --exists libibverbs librdmacm || need libibverbs libibverbs-dev librdmacm librdmacm-dev
}

need_cargo() {
    command -v cargo >/dev/null 2>&1 || {
        [ -x "$HOME/.cargo/bin/cargo" ] && export PATH="$HOME/.cargo/bin:$PATH"
    }
    command -v cargo >/dev/null 2>&1 || { echo "cargo is missing: install Rust 1.88 or later first" >&2; exit 1; }
}
