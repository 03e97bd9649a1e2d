#!/usr/bin/env bash
# One machine, for yourself: the environment and `sentdist up` (Ray and MLflow on loopback), without running anything. `bash infra/stop.sh` ends them.
#   bash cluster/laptop.sh && source .sentdist/env && sentdist doctor
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cd "$root"
. infra/venv.sh
enter_venv "" "$root"
sentdist up "$@"
