# Sourced by quickstart.sh and test.sh: how a Python environment with the pinned packages comes about, and how a script says that it cannot go on.

say() { printf '%s\n' "$*"; }

fail() {
    printf '\nStopped: %s\n' "$*" >&2
    exit 1
}

# Prints the first Python between 3.11 and 3.14 that runs and can make environments; PYTHON names another.
find_python() {
    local candidate
    if [ -n "${PYTHON:-}" ]; then set -- "$PYTHON"; else set -- python3 python3.14 python3.13 python3.12 python3.11 python; fi
    for candidate in "$@"; do
        if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' >/dev/null 2>&1; then
            command -v "$candidate"
            return 0
        fi
    done
    return 1
}

# is_this_checkouts ENVIRONMENT ROOT: one in which this checkout, and not another one or none, is installed.
is_this_checkouts() {
    [ "$1" = "$2/.venv" ] || grep -qsF -e "\"file://$2\"" -e "\"file://${2// /%20}\"" "$1"/lib/python3*/site-packages/sentdist-*.dist-info/direct_url.json
}

CPU_TORCH=https://download.pytorch.org/whl/cpu

# may_have_gpu [ROOT]: whether a GPU of NVIDIA's can be computed on here, now or once its driver is installed, or on other hosts with the same
# files: those of Slurm. ROOT: the folder before dev, proc and sys.
may_have_gpu() {
    local found
    for found in nvidia-smi srun; do
        if command -v "$found" >/dev/null 2>&1; then return 0; fi
    done
    for found in "${1:-}"/dev/nvidia* "${1:-}"/dev/nvhost* "${1:-}/dev/dxg" "${1:-}/proc/driver/nvidia"; do # dxg: Windows' GPU in its Linux
        if [ -e "$found" ]; then return 0; fi
    done
    grep -qs 0x10de "${1:-}"/sys/bus/pci/devices/*/vendor
}

# wants_cpu_torch PYTHON [ROOT]: whether its environment is to get torch without CUDA: Linux without a GPU, no torch there yet, and no settings of
# pip's say where packages come from or which. ROOT: as may_have_gpu.
wants_cpu_torch() {
    local settings
    [ "$(uname -s)" = Linux ] || return 1
    if may_have_gpu "${2:-}"; then return 1; fi
    if "$1" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("torch") is None)' >/dev/null 2>&1; then return 1; fi
    settings="$("$1" -m pip config list 2>/dev/null)" || return 1
    if grep -qE '\.(index-url|extra-index-url|no-index|find-links|constraint)=' <<<"$settings"; then return 1; fi
}

# answers PYTHON URL: within five seconds.
answers() {
    timeout 5 "$1" -c 'import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=5)' "$2" >/dev/null 2>&1
}

# add_cpu_torch PYTHON CONSTRAINTS LOG COMPILE (pip's option): torch without CUDA, whose libraries are several GB. Only torch is asked for there, and what it needs comes
# with the rest. Where it cannot be had, the rest brings PyPI's torch.
add_cpu_torch() {
    answers "$1" "$CPU_TORCH/torch/" || return 0
    say "No NVIDIA GPU here: torch without CUDA, from $CPU_TORCH. One with CUDA: remove .venv, and set PIP_INDEX_URL=https://pypi.org/simple before this."
    "$1" -m pip install --disable-pip-version-check --progress-bar off "$4" --no-deps --retries 1 --index-url "$CPU_TORCH" -c "$2" torch >"$3" 2>&1 &
    follow_pip "$!" "$3" || true
}

# enter_venv EXTRAS ("" or "[test]") ROOT: activates SENTDIST_VENV, or the active environment if it is this checkout's, else .venv, and installs
# what the pins ask for, once. Somebody's environment for other work would get our pins, and another checkout's would point here from then on.
enter_venv() {
    local extras="$1" root="$2" python stamp wanted
    if [ -n "${SENTDIST_VENV:-}" ]; then
        [ -x "$SENTDIST_VENV/bin/python" ] || fail "SENTDIST_VENV=$SENTDIST_VENV is no Python environment (it has no bin/python)."
        export VIRTUAL_ENV="$SENTDIST_VENV"
    elif [ -n "${VIRTUAL_ENV:-}" ] && ! is_this_checkouts "$VIRTUAL_ENV" "$root"; then
        say "The active environment, $VIRTUAL_ENV, is not this checkout's: .venv is used. To install into it: SENTDIST_VENV=$VIRTUAL_ENV"
        unset VIRTUAL_ENV
    fi
    if [ -z "${VIRTUAL_ENV:-}" ]; then
        if [ ! -x "$root/.venv/bin/python" ]; then
            python="$(find_python)" || fail "no usable Python was found (tried ${PYTHON:-python3, python3.14 to python3.11, python}; found $(python3 --version 2>&1 | head -1)). Install Python 3.11 to 3.14 with its venv module (Debian: apt-get install python3-venv), or name one: PYTHON=/path/to/python bash $0"
            say "Making .venv with $("$python" --version 2>&1) ..."
            "$python" -m venv "$root/.venv" || fail "$python could not make $root/.venv. Remove that folder, check free space and run this again."
            # The pip that comes with Python 3.11 takes a minute to find out what belongs together, this one less than half. If it cannot be had,
            # the one that is there installs as well, or says what is wrong.
            trap 'exit 130' INT # pip ends as with any error then
            "$root/.venv/bin/python" -m pip install --quiet --disable-pip-version-check --retries 1 -c "$root/infra/constraints.txt" --upgrade pip >/dev/null 2>&1 || true
            trap - INT
        fi
        export VIRTUAL_ENV="$root/.venv"
    fi
    export PATH="$VIRTUAL_ENV/bin:$PATH"
    unset PYTHONHOME
    stamp="$VIRTUAL_ENV/.sentdist-installed$(printf '%s' "$extras" | tr -d '[]')"
    wanted="$root $(cat "$root/pyproject.toml" "$root/infra/constraints.txt" | cksum)"
    if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then
        return 0
    fi
    say "Installing sentdist$extras with the versions of infra/constraints.txt (2 minutes or so the first time) ..."
    # --no-compile: Python compiles a module when it is first imported, and most of these never are. Where it may not keep what it compiled,
    # pip does it now: each process would spend seconds on it otherwise.
    local log="$VIRTUAL_ENV/install.log" compile=--no-compile
    [ -z "${PYTHONDONTWRITEBYTECODE:-}" ] || compile=--compile
    if [ "$VIRTUAL_ENV" = "$root/.venv" ] && wants_cpu_torch "$VIRTUAL_ENV/bin/python"; then # others' environments get what others chose
        add_cpu_torch "$VIRTUAL_ENV/bin/python" "$root/infra/constraints.txt" "$log" "$compile"
    fi
    "$VIRTUAL_ENV/bin/python" -m pip install --disable-pip-version-check --progress-bar off "$compile" -c "$root/infra/constraints.txt" -e "$root$extras" >"$log" 2>&1 &
    if ! follow_pip "$!" "$log"; then
        grep -E '^ *ERROR' "$log" | tail -n 5 >&2 || tail -n 5 "$log" >&2
        fail "pip could not install the packages ($(install_trouble "$log")). The whole log is $log; run this again when that is fixed, what was downloaded is kept."
    fi
    printf '%s' "$wanted" >"$stamp"
}

# follow_pip PID LOG: waits for it with a line every ten seconds, and ends as it does.
follow_pip() {
    local began="$SECONDS" said_at="$SECONDS" num_found doing
    trap 'kill "$1" 2>/dev/null || true; exit 130' INT TERM # or it would go on installing behind a script that is gone
    while kill -0 "$1" 2>/dev/null; do
        sleep 0.2
        [ "$((SECONDS - said_at))" -ge "${INSTALL_SAID_EVERY_S:-10}" ] || continue
        said_at="$SECONDS"
        num_found="$(grep -cE '^(Collecting|Processing) ' "$2" || true)"
        if grep -q '^Installing collected packages' "$2"; then
            doing="unpacking $(grep '^Installing collected packages' "$2" | tail -n 1 | tr , '\n' | wc -l) packages"
        else
            doing="$(grep -E '^ *(Collecting|Processing|Downloading|Using cached|Building|Preparing)' "$2" | tail -n 1 | sed 's|^ *||; s|[^ ]*/||; s| (from .*||' | cut -c1-80 || true)"
            doing="packages found so far: $num_found${doing:+; $doing}"
        fi
        say "  $((SECONDS - began)) s: $doing"
    done
    trap - INT TERM
    wait "$1"
}

# One likely cause, read from pip's log.
install_trouble() {
    if grep -qiE 'NewConnectionError|ConnectTimeout|Temporary failure in name resolution|Max retries|ProxyError|Network is unreachable|Failed to establish' "$1"; then
        printf 'no package index could be reached: check the network, or set PIP_INDEX_URL to a mirror'
    elif grep -qi 'No space left' "$1"; then
        printf 'the disk is full: about 4 GB are needed, with CUDA more (infra/README.md, When it fails)'
    elif grep -qi 'from versions: none' "$1"; then
        printf 'no package index could be reached, or it lacks a package: check the network, or set PIP_INDEX_URL to a mirror'
    elif grep -qiE 'No matching distribution|Could not find a version' "$1"; then
        grep -iE 'No matching distribution|Could not find a version' "$1" | tail -n 1 | cut -c1-200
    else
        printf 'the last lines stand above'
    fi
}
