#!/usr/bin/env bash
# From a bare machine to a result: installs into .venv, starts Ray and MLflow on loopback, submits the demo sweep, prints its table.
#   bash infra/quickstart.sh                                   the demo
#   bash infra/quickstart.sh RECIPE [--set a.b=c] [--data DIR] another recipe on the same servers
#   bash infra/stop.sh                                         ends the servers
# Settings: PYTHON, SENTDIST_RAY_PORT (6379), SENTDIST_DASHBOARD_PORT (8265), SENTDIST_MLFLOW_PORT (5001), SENTDIST_STORE (.sentdist/store), SENTDIST_VENV (.venv).
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cd "$root"
. infra/venv.sh
. infra/servers.sh

started_at=$SECONDS
recipe="${1:-rayjobs/recipes/demo.yaml}"
[ "$#" -eq 0 ] || shift
[ -f "$recipe" ] || fail "there is no recipe $recipe. Shipped ones stand in rayjobs/recipes."

enter_venv "" "$root"
need_compiler
prepare_state
start_mlflow
start_ray
write_env

sentdist plan "$recipe" "$@" || exit $?
say
say "Submitting $recipe. Stopping this script (Ctrl-C) does not stop the sweep."
submit_sweep "$recipe" "$@" || fail "the sweep did not finish. The lines above say where; what was finished is kept, so run this again when that is fixed. All logs: $dashboard"

minutes=$(((SECONDS - started_at) / 60)) seconds=$(((SECONDS - started_at) % 60))
say
say "Done in $minutes min $seconds s (run this again: every stage is found in the store)."
say "  artifacts      $SENTDIST_STORE   (sentdist store list)"
say "  MLflow         $(mlflow_link "$(grep -o '#/experiments/.*' "$state/logs/sweep.log" | tail -n 1)")"
say "  Ray dashboard  $dashboard   (token: $RAY_AUTH_TOKEN_PATH)"
say "  use these from your shell:   source .sentdist/env"
say "  stop the servers:            bash infra/stop.sh"
