#!/usr/bin/env bash
# Ends the servers that quickstart.sh started, by their pid files, and nothing else, within seconds. Artifacts, MLflow's data base and logs stay in
# .sentdist/; Ray's temporary folder goes.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
state="$root/.sentdist"

# is_up NAME: its process lives, and is what the pid file says (pids are used again).
is_up() {
    [ -s "$state/$1.pid" ] && ps -ww -p "$(cat "$state/$1.pid")" -o command= 2>/dev/null | grep -q "$1"
}

up=()
for name in ray mlflow; do
    if is_up "$name"; then
        up+=("$name")
        kill -TERM "$(cat "$state/$name.pid")" 2>/dev/null || true
    else
        echo "$name is not running."
    fi
done
until=$((SECONDS + 5))
for name in ${up[@]+"${up[@]}"}; do
    while [ "$SECONDS" -lt "$until" ] && is_up "$name"; do
        sleep 0.25
    done
    kill -KILL -- "-$(cat "$state/$name.pid")" 2>/dev/null || true # whatever is left of its own session; the next start needs nothing of it
    echo "$name stopped."
done
rm -f "$state/ray.pid" "$state/mlflow.pid"
if [ -s "$state/ray_folder" ]; then
    rm -rf "$(cat "$state/ray_folder")"
    rm -f "$state/ray_folder"
fi
