#!/usr/bin/env bash
# The checks of the project, as `.ci/run` calls them: format, lint, types, import rules and all tests that need no GPU.
#   bash infra/test.sh                      everything, in .venv (SENTDIST_VENV names another)
#   bash infra/test.sh tests/unit -k plan   the same checks, with these arguments for pytest instead of all tests
#   SENTDIST_DATA=DIR bash infra/test.sh    also the tests on the real data sets
# Where Chromium and its driver are found (Debian: apt-get install --no-install-recommends chromium chromium-driver), the MLflow pages are opened too.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cd "$root"
. infra/venv.sh

enter_venv "[test]" "$root"

# The tests start their own clusters and servers, each with its own addresses: nothing of the caller's may leak in.
unset RAY_ADDRESS RAY_API_SERVER_ADDRESS RAY_AUTH_TOKEN RAY_AUTH_TOKEN_PATH SENTDIST_STORE SENTDIST_ENV_OF
unset MLFLOW_TRACKING_URI MLFLOW_TRACKING_USERNAME MLFLOW_TRACKING_PASSWORD SENTDIST_MLFLOW_PASSWORD_FILE
export MLFLOW_DISABLE_TELEMETRY=true DO_NOT_TRACK=1 RAY_USAGE_STATS_ENABLED=0 HF_HUB_OFFLINE="${HF_HUB_OFFLINE:-1}" TOKENIZERS_PARALLELISM=false
export RAY_AUTH_MODE=disabled # the tests that need tokens set their own

say "ruff format --check"
ruff format --check .
say "ruff check"
ruff check .
say "mypy"
mypy
say "pytest${SENTDIST_DATA:+, with the data of $SENTDIST_DATA}"
if [ "$#" -gt 0 ]; then
    exec python -m pytest "$@"
fi
# What needs one process runs on all cores, a thread each; what starts clusters and servers has the machine to itself.
quick=(tests/unit tests/parity tests/laws tests/golden)
processes="$(nproc)"
status=0
OMP_NUM_THREADS=1 python -m pytest "${quick[@]}" -m "not gpu" -n "$((processes > 8 ? 8 : processes))" --dist loadfile --durations=15 || status=$?
python -m pytest tests "${quick[@]/#/--ignore=}" -m "not journey and not gpu" --durations=15 || status=$?
exit "$status"
