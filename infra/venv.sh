# Sourced by quickstart.sh and test.sh: functions that make a Python environment with the pinned packages and report errors.

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

# is_this_checkouts ENVIRONMENT ROOT: whether this checkout is installed in the environment.
is_this_checkouts() {
    [ "$1" = "$2/.venv" ] || grep -qsF -e "\"file://$2\"" -e "\"file://${2// /%20}\"" "$1"/lib/python3*/site-packages/sentdist-*.dist-info/direct_url.json
}

CPU_TORCH=https://download.pytorch.org/whl/cpu

# may_have_gpu [ROOT]: whether this host has an NVIDIA GPU, with or without its driver, or other hosts with the same files may have one
# (Slurm). ROOT: the folder of dev, proc and sys.
may_have_gpu() {
    local found
    for found in nvidia-smi srun; do
        if command -v "$found" >/dev/null 2>&1; then return 0; fi
    done
    for found in "${1:-}"/dev/nvidia* "${1:-}"/dev/nvhost* "${1:-}/dev/dxg" "${1:-}/proc/driver/nvidia"; do # dxg: GPU in WSL
        if [ -e "$found" ]; then return 0; fi
    done
    grep -qs 0x10de "${1:-}"/sys/bus/pci/devices/*/vendor
}

# wants_cpu_torch PYTHON [ROOT]: whether to install torch without CUDA: Linux without a GPU, no torch installed, and no pip settings for
# package sources or versions. ROOT: as for may_have_gpu.
wants_cpu_torch() {
    local settings
    [ "$(uname -s)" = Linux ] || return 1
    if may_have_gpu "${2:-}"; then return 1; fi
    if "$1" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("torch") is None)' >/dev/null 2>&1; then return 1; fi
    settings="$("$1" -m pip config list 2>/dev/null)" || return 1
    if grep -qE '\.(index-url|extra-index-url|no-index|find-links|constraint)=' <<<"$settings"; then return 1; fi
}

# answers PYTHON URL: whether the URL answers within five seconds.
answers() {
    timeout 5 "$1" -c 'import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=5)' "$2" >/dev/null 2>&1
}

# install PYTHON ROOT EXTRAS: with uv (a third of pip's time), else with pip. uv gets pip's settings for package sources and versions.
install() {
    local python="$1" log="$VIRTUAL_ENV/install.log" pins="$2/infra/constraints.txt" settings
    settings="$("$python" -m pip config list 2>/dev/null || true)"
    local -x UV_DEFAULT_INDEX="${UV_DEFAULT_INDEX:-$(pip_setting index-url)}" UV_INDEX="${UV_INDEX:-$(pip_setting extra-index-url)}"
    local -x UV_FIND_LINKS="${UV_FIND_LINKS:-$(pip_setting find-links | tr ' ' ,)}" UV_CONSTRAINT="${UV_CONSTRAINT:-$(pip_setting constraint)}"
    local -x UV_INDEX_STRATEGY="${UV_INDEX_STRATEGY:-unsafe-best-match}" # the best of all indexes, as pip
    [ -n "${SSL_CERT_FILE:-}" ] || [ -z "$(pip_setting cert)" ] || local -x SSL_CERT_FILE="$(pip_setting cert)"
    # Only in our own .venv. CUDA's libraries are several GB. If torch without CUDA cannot be downloaded, PyPI's torch is installed.
    if [ "$VIRTUAL_ENV" = "$2/.venv" ] && [ -z "${UV_TORCH_BACKEND:-}" ] && wants_cpu_torch "$python" && answers "$python" "$CPU_TORCH/torch/"; then
        say "No NVIDIA GPU here: torch without CUDA, from $CPU_TORCH. One with CUDA: remove .venv, and set PIP_INDEX_URL=https://pypi.org/simple before this."
        local -x UV_TORCH_BACKEND=cpu PIP_EXTRA_INDEX_URL="$CPU_TORCH"
    fi
    if uv --version >/dev/null 2>&1 || follow "$log" "$python" -m pip install --disable-pip-version-check --retries 1 --no-compile -c "$pins" uv; then
        if follow "$log" uv pip install --python "$python" -c "$pins" -e "$2$3"; then return 0; fi
        tail -n 5 "$log"
        say "uv could not install the packages: pip tries."
    else
        say "uv could not be had: pip installs."
    fi
    follow "$log" "$python" -m pip install --disable-pip-version-check --progress-bar off --no-compile -c "$pins" -e "$2$3"
}

# pip_setting NAME: the value in pip's settings (variable `settings`); environment before section before global; lists have spaces or lines.
pip_setting() {
    local section
    for section in :env: install global; do sed -nE "s/^$section\.$1='(.*)'\$/\1/p" <<<"$settings"; done | sed -n '1s/\\n/ /g; 1p'
}

# follow LOG COMMAND...: runs a command, prints a line every ten seconds, and returns its status.
follow() {
    local log="$1" began="$SECONDS" said_at="$SECONDS" doing had pid
    shift
    had="$(num_in_uv_cache)"
    "$@" >"$log" 2>&1 &
    pid="$!"
    trap 'kill "$pid" 2>/dev/null || true; exit 130' INT TERM # otherwise the installation would continue after the script ends
    while kill -0 "$pid" 2>/dev/null; do
        sleep 0.2
        [ "$((SECONDS - said_at))" -ge "${INSTALL_SAID_EVERY_S:-10}" ] || continue
        said_at="$SECONDS"
        doing="$(sed -nE 's/^Resolved ([0-9]+) packages .*/\1 packages fetched/p' "$log")"
        if [ -n "$doing" ]; then doing="$(($(num_in_uv_cache) - had)) of $doing"; else doing="$(tail -n 1 "$log" | cut -c1-80)"; fi
        say "  $((SECONDS - began)) s: ${doing:-choosing versions}"
    done
    trap - INT TERM
    wait "$pid"
}

num_in_uv_cache() { find "$(uv cache dir 2>/dev/null)"/archive-v* -mindepth 1 -maxdepth 1 2>/dev/null | wc -l; }

# enter_venv EXTRAS ("" or "[test]") ROOT: activates SENTDIST_VENV, or the active environment if it is this checkout's, else .venv, and installs
# the pinned packages once. Unless SENTDIST_VENV names it, an environment of other work or of another checkout is not changed.
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
        fi
        export VIRTUAL_ENV="$root/.venv"
    fi
    export PATH="$VIRTUAL_ENV/bin:$PATH"
    unset PYTHONHOME PYTHONDONTWRITEBYTECODE # otherwise each process would compile its libraries again (seconds)
    stamp="$VIRTUAL_ENV/.sentdist-installed$(printf '%s' "$extras" | tr -d '[]')"
    wanted="$root $(cat "$root/pyproject.toml" "$root/infra/constraints.txt" | cksum)"
    if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then
        return 0
    fi
    say "Installing sentdist$extras with the versions of infra/constraints.txt (1 to 2 minutes the first time) ..."
    if ! install "$VIRTUAL_ENV/bin/python" "$root" "$extras"; then
        tail -n 5 "$VIRTUAL_ENV/install.log" >&2
        fail "the packages could not be installed; the lines above end $VIRTUAL_ENV/install.log. If no package index was reached, check the network or set PIP_INDEX_URL to a mirror; 4 GB of disk are needed, with CUDA more. Then run this again: what was downloaded is kept."
    fi
    printf '%s' "$wanted" >"$stamp"
}
