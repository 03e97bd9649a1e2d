#!/usr/bin/env bash
# The checks of the project, as `.ci/run` calls them: format, lint, types, import rules and all tests that need no GPU.
#   bash infra/test.sh                      all checks, in .venv (SENTDIST_VENV names another); tests marked nightly run last, while there is
#                                           time, and one third of those marked in_turns each day
#   bash infra/test.sh --all                everything, however long it takes
#   bash infra/test.sh tests/unit -k plan   the same checks, with these arguments for pytest instead of all tests
#   SENTDIST_DATA=DIR bash infra/test.sh    also the tests on the real data sets
# With Chromium and its driver (Debian: apt-get install --no-install-recommends chromium chromium-driver), the tests of MLflow's pages run, too.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cd "$root"
. infra/venv.sh
# Tests marked nightly take long, and faster tests cover most of the same: they start within so many minutes from now,
# or are skipped with a message.
nightly_within_min=20
unset SENTDIST_NIGHTLY_UNTIL SENTDIST_TURN
if [ "${1:-}" = --all ]; then
    shift
elif [ "$#" -eq 0 ]; then
    export SENTDIST_NIGHTLY_UNTIL="$(($(date +%s) + nightly_within_min * 60))" SENTDIST_TURN="$(($(date +%s) / 86400))"
fi

enter_venv "[test]" "$root"

# Triton interprets the GPU kernels in one test. It is installed outside the environment, since torch and DeepSpeed behave differently
# with it. If it cannot be installed, that test is skipped with a message.
if [ ! -d "$VIRTUAL_ENV/triton" ]; then
    python -m pip install --quiet --disable-pip-version-check --retries 1 --no-deps --no-compile --target "$VIRTUAL_ENV/triton.new" triton==3.7.1 >/dev/null 2>&1 &&
        mv "$VIRTUAL_ENV/triton.new" "$VIRTUAL_ENV/triton" || rm -rf "$VIRTUAL_ENV/triton.new"
fi

# The tests start their own clusters and servers: no setting of the caller may affect them.
unset RAY_ADDRESS RAY_API_SERVER_ADDRESS RAY_AUTH_TOKEN RAY_AUTH_TOKEN_PATH SENTDIST_STORE SENTDIST_ENV_OF
unset MLFLOW_TRACKING_URI MLFLOW_TRACKING_USERNAME MLFLOW_TRACKING_PASSWORD SENTDIST_MLFLOW_PASSWORD_FILE
export MLFLOW_DISABLE_TELEMETRY=true DO_NOT_TRACK=1 RAY_USAGE_STATS_ENABLED=0 HF_HUB_OFFLINE="${HF_HUB_OFFLINE:-1}" TOKENIZERS_PARALLELISM=false
export no_proxy="127.0.0.1,localhost,${no_proxy:-${NO_PROXY:-}}" # a proxy of the caller cannot reach these servers
export NO_PROXY="$no_proxy"
export RAY_AUTH_MODE=disabled # the tests that need tokens set their own

say "ruff format --check"
ruff format --check .
say "ruff check"
ruff check .
if [ "$#" -gt 0 ]; then
    say "mypy"
    mypy
    say "pytest${SENTDIST_DATA:+, with the data of $SENTDIST_DATA}"
    exec python -m pytest "$@"
fi

# Two files of cluster and server tests run in parallel, the longest first (see tests/conftest.py); that keeps two processors busy. Tests in one
# process run afterwards, with one thread each: in parallel they delayed Ray and MLflow too much on slow processors. Each additional process
# imports all libraries and collects all tests again (half a minute), so there are no more than processors.
quick=(tests/unit tests/parity tests/laws tests/golden tests/random_recipes)
processes="$(python -c 'import os; print(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count())')"
log="$(mktemp)"
# Ray starts its workers with niceness 15; here they have normal priority. It also starts one worker per CPU in advance,
# a second of CPU time each. More threads than processors wait for one another.
export RAY_worker_niceness=0 RAY_prestart_worker_first_driver=0 OMP_NUM_THREADS=1
nice -n 10 mypy >"$log" 2>&1 &
background="$!"
trap 'kill "$background" 2>/dev/null || true; rm -f "$log"' EXIT

say "pytest of clusters, servers and pages${SENTDIST_DATA:+, with the data of $SENTDIST_DATA}; beside it mypy, shown below"
status=0
python -m pytest tests "${quick[@]/#/--ignore=}" -m "not nightly and not journey and not gpu" -n 2 --dist loadfile --no-loadscope-reorder --durations=25 || status=$?
wait "$background" || status=$?
say "mypy"
cat "$log"
say "pytest of what needs one process"
python -m pytest "${quick[@]}" -m "not nightly and not gpu" -n "$((processes > 8 ? 8 : processes))" --dist loadfile --durations=15 || status=$?
if [ -n "${SENTDIST_NIGHTLY_UNTIL:-}" ] && [ "$(date +%s)" -ge "$SENTDIST_NIGHTLY_UNTIL" ]; then
    say "no time was left for the tests that run each night: bash infra/test.sh --all runs them"
else
    say "pytest of what runs each night"
    python -m pytest tests -m "nightly and not journey and not gpu" -n 2 --dist loadfile --no-loadscope-reorder --durations=25 || status=$?
fi
exit "$status"
