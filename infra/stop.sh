#!/usr/bin/env bash
# Ends the servers that quickstart.sh or laptop.sh started, and nothing else: `sentdist down`, in the environment that started them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[ -s .sentdist/env ] || {
    echo "Nothing was started here."
    exit 0
}
. .sentdist/env
exec sentdist down
