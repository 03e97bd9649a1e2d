#!/usr/bin/env bash
# The checks of the project, as `.ci/run` calls them: format, lint, types, and all tests that need no GPU.
#   bash infra/test.sh                      all checks but the tests marked nightly or journey, in .venv (SENTDIST_VENV names another)
#   bash infra/test.sh --all                those too, and the documentation: hours, and a package index
#   bash infra/test.sh tests/unit -k plan   the same checks, with these arguments for pytest
#   SENTDIST_DATA=DIR bash infra/test.sh    also the tests on the real data sets
# With Chromium and its driver (Debian: apt-get install --no-install-recommends chromium chromium-driver), MLflow's pages are opened too.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cd "$root"
. infra/venv.sh

selected="not nightly and not journey and not gpu"
all=""
if [ "${1:-}" = --all ]; then
    selected="not gpu"
    all=1
    shift
fi

enter_venv "[test]" "$root"
if [ -n "$all" ]; then
    say "documentation"
    bash infra/docs.sh
fi

# One test interprets the GPU kernels by Triton, which lies beside the environment because torch and DeepSpeed behave differently with it.
# Without Triton that test is skipped.
if [ ! -d "$VIRTUAL_ENV/triton" ]; then
    python -m pip install --quiet --disable-pip-version-check --retries 1 --no-deps --no-compile --target "$VIRTUAL_ENV/triton.new" triton==3.7.1 >/dev/null 2>&1 &&
        mv "$VIRTUAL_ENV/triton.new" "$VIRTUAL_ENV/triton" || rm -rf "$VIRTUAL_ENV/triton.new"
fi

# The tests start their own clusters and servers: no address or token of the caller's may leak in.
unset RAY_ADDRESS RAY_API_SERVER_ADDRESS RAY_AUTH_TOKEN RAY_AUTH_TOKEN_PATH SENTDIST_STORE SENTDIST_ENV_OF
unset MLFLOW_TRACKING_URI MLFLOW_TRACKING_USERNAME MLFLOW_TRACKING_PASSWORD SENTDIST_MLFLOW_PASSWORD_FILE
export MLFLOW_DISABLE_TELEMETRY=true DO_NOT_TRACK=1 RAY_USAGE_STATS_ENABLED=0 HF_HUB_OFFLINE="${HF_HUB_OFFLINE:-1}" TOKENIZERS_PARALLELISM=false
export no_proxy="127.0.0.1,localhost,${no_proxy:-${NO_PROXY:-}}" # a proxy does not reach these servers
export NO_PROXY="$no_proxy"
export RAY_AUTH_MODE=disabled # the tests that need tokens set their own
# Ray gives its workers niceness 15; here they are what is tested. It starts a worker a CPU before any is needed, a second each. More threads
# than processors wait for one another.
export RAY_worker_niceness=0 RAY_prestart_worker_first_driver=0 OMP_NUM_THREADS=1

say "ruff format --check"
ruff format --check .
say "ruff check"
ruff check .
if [ "$#" -gt 0 ]; then
    say "mypy"
    mypy
    say "pytest${SENTDIST_DATA:+, with the data of $SENTDIST_DATA}"
    exec python -m pytest -m "$selected" "$@"
fi

log="$(mktemp)"
nice -n 10 mypy >"$log" 2>&1 &
background="$!"
trap 'kill "$background" 2>/dev/null || true; rm -f "$log"' EXIT

# Clusters and servers first, in the order of their names: files with few but long tests would come last otherwise. The others follow in a
# run of their own, since beside them Ray and MLflow did not answer in time on slow processors.
quick=(tests/unit tests/parity tests/laws tests/golden tests/random_recipes)
status=0
say "pytest: clusters, servers and pages${SENTDIST_DATA:+, with the data of $SENTDIST_DATA}; mypy runs meanwhile"
python -m pytest tests "${quick[@]/#/--ignore=}" -m "$selected" -n 2 --dist loadfile --no-loadscope-reorder --durations=15 || status=$?
wait "$background" || status=$?
say "mypy"
cat "$log"
say "pytest: everything else"
processes="$(python -c 'import os; print(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count())')"
python -m pytest "${quick[@]}" -m "$selected" -n "$((processes > 8 ? 8 : processes))" --dist loadfile --durations=15 || status=$?
exit "$status"
