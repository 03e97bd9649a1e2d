#!/usr/bin/env bash
# Installs into .venv, starts Ray and MLflow on loopback (`sentdist up`), submits the demo sweep, prints its table.
#   bash infra/quickstart.sh                                   the demo
#   bash infra/quickstart.sh RECIPE [--set a.b=c] [--data DIR] another recipe on the same servers
#   bash infra/stop.sh                                         stops the servers
# Settings: PYTHON, SENTDIST_RAY_PORT (6379), SENTDIST_DASHBOARD_PORT (8265), SENTDIST_MLFLOW_PORT (5001), SENTDIST_STORE (.sentdist/store), SENTDIST_VENV (.venv).
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cd "$root"
. infra/venv.sh

started_at=$SECONDS
recipe="${1:-rayjobs/recipes/demo.yaml}"
[ "$#" -eq 0 ] || shift
[ -f "$recipe" ] || fail "there is no recipe $recipe. Shipped ones are in rayjobs/recipes."

enter_venv "" "$root"
sentdist up || exit 1
. .sentdist/env
say
sentdist plan "$recipe" "$@" || exit $?
say
sentdist submit "$recipe" "$@" | tee .sentdist/logs/sweep.log || fail "the sweep did not finish. The lines above say where; what was finished is kept, so run this again when that is fixed (sentdist doctor looks at the servers). All logs: $RAY_API_SERVER_ADDRESS"

say
say "Done in $(((SECONDS - started_at) / 60)) min $(((SECONDS - started_at) % 60)) s (run this again: every stage is found in the store)."
say "  artifacts      $SENTDIST_STORE   (sentdist list artifacts)"
say "  MLflow         ${MLFLOW_TRACKING_URI/:\/\//://$MLFLOW_TRACKING_USERNAME:$MLFLOW_TRACKING_PASSWORD@}/login$(grep -o '#/experiments/.*' .sentdist/logs/sweep.log | tail -n 1)"
say "  Ray dashboard  $RAY_API_SERVER_ADDRESS   (token: $RAY_AUTH_TOKEN_PATH)"
say "  use these from your shell:   source .sentdist/env"
say "  stop the servers:            bash infra/stop.sh"
