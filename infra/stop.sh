#!/usr/bin/env bash
# Stops only the servers that quickstart.sh or laptop.sh started: `sentdist down`, in the environment that started them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[ -s .sentdist/env ] || {
    echo "Nothing was started here."
    exit 0
}
. .sentdist/env
exec sentdist down
