#!/usr/bin/env bash
# Ends the servers that quickstart.sh started, by their pid files, and nothing else. Artifacts, MLflow's data base and logs stay in .sentdist/.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
state="$root/.sentdist"

for name in ray mlflow; do
    file="$state/$name.pid"
    if [ ! -s "$file" ] || ! ps -p "$(cat "$file")" -o command= 2>/dev/null | grep -q "$name"; then
        echo "$name is not running."
        rm -f "$file"
        continue
    fi
    pid="$(cat "$file")"
    kill -TERM "$pid" 2>/dev/null || true
    for _ in $(seq 30); do
        ps -p "$pid" >/dev/null 2>&1 || break
        sleep 0.5
    done
    kill -KILL -- "-$pid" 2>/dev/null || true # whatever is left of its own session
    rm -f "$file"
    echo "$name stopped."
done
