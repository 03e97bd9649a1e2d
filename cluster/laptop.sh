#!/usr/bin/env bash
# One machine, for yourself: Ray and MLflow on loopback, without running anything. `bash infra/stop.sh` ends them.
#   bash cluster/laptop.sh && source .sentdist/env && sentdist doctor
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cd "$root"
. infra/venv.sh
. infra/servers.sh
enter_venv "" "$root"
need_compiler
prepare_state
start_mlflow
start_ray
write_env
say "Ray at $dashboard, MLflow at $(mlflow_link). In your shell: source .sentdist/env"
