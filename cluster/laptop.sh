#!/usr/bin/env bash
# One machine, for yourself: installs the environment and runs `sentdist up` (Ray and MLflow on loopback), without a sweep. `bash infra/stop.sh` stops both.
#   bash cluster/laptop.sh && source .sentdist/env && sentdist doctor
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cd "$root"
. infra/venv.sh
enter_venv "" "$root"
sentdist up "$@"
