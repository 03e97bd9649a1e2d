#!/usr/bin/env bash
# Builds the documentation in infra/docs into build/docs/index.html.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cd "$root"
. infra/venv.sh

enter_venv "[docs]" "$root"
python -m sphinx --fail-on-warning --keep-going --quiet --fresh-env --write-all -d build/doctrees infra/docs build/docs
say "Built: build/docs/index.html"
