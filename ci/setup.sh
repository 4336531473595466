# Sourced by the scripts of this folder: makes sure that the system packages are there.
# As root on Debian they are installed; for any other user the missing ones are named.

head=$(awk 'NR > 1 { if (!/^#/) exit; sub(/^# ?/, ""); print }' "$0")
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$top"

say() { printf '\n== %s\n' "$*"; }
die() {
    echo "ci/${0##*/}: $*" >&2
    exit 1
}

# help_if OPTION: if it asks for help, or is no option of the script, prints the head of the script, and ends
help_if() {
    case ${1:-} in
        -h | --help) echo "$head" && exit 0 ;;
        -*) echo "$head" >&2 && exit 2 ;;
    esac
}

# need CHECK PACKAGE [CHECK PACKAGE ...]; a check is a program that must be there, or a function that must succeed
need() {
    local missing
    missing=$(missing_of "$@")
    [ -n "$missing" ] || return 0
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        say "installing $missing"
        # shellcheck disable=SC2086 # a list
        apt_install $missing 2>/dev/null || { apt-get update -qq && apt_install $missing; } ||
            die "cannot install $missing (see above)"
        missing=$(missing_of "$@")
        [ -z "$missing" ] || die "installed, and still not usable: $missing"
    else
        die "missing packages: $missing; install them first, e.g. apt-get install $missing"
    fi
}

missing_of() {
    local missing=()
    while [ $# -ge 2 ]; do
        if [ "$(type -t "$1")" = function ]; then
            "$1" || missing+=("$2")
        else
            command -v "$1" >/dev/null 2>&1 || missing+=("$2")
        fi
        shift 2
    done
    echo "${missing[*]}"
}

apt_install() {
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

# The C library's start files and headers, without which the compiler links nothing.
links() {
    local program status
    program=$(mktemp)
    echo 'int main(void) { return 0; }' | cc -x c -o "$program" - >/dev/null 2>&1
    status=$?
    rm -f "$program"
    return $status
}

need_linker() { need cc gcc links libc6-dev; }

# The C interface of clang, not libclang-cpp, which comes with other packages.
has_libclang() { ls /usr/lib/llvm-*/lib/libclang* 2>/dev/null | grep -v libclang-cpp | grep -q '\.so'; }
has_libibverbs() { pkg-config --exists libibverbs 2>/dev/null; }
has_librdmacm() { pkg-config --exists librdmacm 2>/dev/null; }

# need_verbs: what the verbs device is built with.
need_verbs() {
    need cmake cmake make make c++ g++ python3 python3 pkg-config pkg-config has_libclang libclang-dev
    need has_libibverbs libibverbs-dev has_librdmacm librdmacm-dev
}

# What depends on gfortran is left out without it; as root it is installed if it can be.
want_fortran() { [ "$(id -u)" != 0 ] || [ -n "${FARSIDE_FC:-}" ] || (need gfortran gfortran) || true; }

# What runs over libfabric is left out without it; as root it is installed if it can be.
has_libfabric() { ldconfig -p | grep -q 'libfabric\.so\.1'; }
want_libfabric() { [ "$(id -u)" != 0 ] || (need has_libfabric libfabric1) || true; }

need_cargo() {
    command -v cargo >/dev/null 2>&1 || {
        [ -x "$HOME/.cargo/bin/cargo" ] && export PATH="$HOME/.cargo/bin:$PATH"
    }
    command -v cargo >/dev/null 2>&1 || die "cargo is missing: install Rust 1.89 or later first"
}

# need_component SUBCOMMAND COMPONENT [SUBCOMMAND COMPONENT ...]: parts of Rust that its minimal installation leaves out
need_component() {
    while [ $# -ge 2 ]; do
        if ! cargo "$1" --version >/dev/null 2>&1; then
            say "adding $2 to Rust"
            { command -v rustup >/dev/null 2>&1 && rustup component add "$2"; } ||
                die "cargo $1 is missing: add Rust's $2 first, e.g. rustup component add $2"
        fi
        shift 2
    done
}
