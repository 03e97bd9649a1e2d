#!/usr/bin/env bash
# One server that other hosts reach: Ray's head on the address HEAD_IP, with token authentication. Run it in the environment that has sentdist.
#   HEAD_IP=10.0.0.5 bash cluster/one_host.sh            starts the head; prints the settings for clients
#   GPUS=8 CPUS=64 HEAD_IP=10.0.0.5 bash cluster/one_host.sh
#   TLS=1 HEAD_IP=10.0.0.5 bash cluster/one_host.sh      encrypts traffic between hosts; see infra/docs/security.md
# On SIGTERM (from systemd, or at shutdown), trainings on this host first write checkpoints; it waits NOTICE_S seconds (20) for them.
# A systemd unit needs User=…, KillMode=mixed (otherwise all processes get the signal at once) and TimeoutStopSec=60 (40 more than NOTICE_S).
# Open the dashboard through `ssh -L 8265:127.0.0.1:8265 HOST`.
set -euo pipefail
: "${HOME:=$(getent passwd "$(id -u)" | cut -d: -f6)}" # unset in some systemd units
export HOME
. "$(dirname "${BASH_SOURCE[0]}")/security.sh"
: "${HEAD_IP:?Set HEAD_IP to the address of this machine that others reach, such as 10.0.0.5.}"
export RAY_AUTH_MODE=token RAY_USAGE_STATS_ENABLED=0
export RAY_AUTH_TOKEN_PATH="${RAY_AUTH_TOKEN_PATH:-$HOME/.sentdist_ray_token}"
if [ ! -s "$RAY_AUTH_TOKEN_PATH" ]; then
    (umask 077 && python3 -P -c 'import secrets; print(secrets.token_hex(32), end="")' >"$RAY_AUTH_TOKEN_PATH")
fi
[ ! -O "$RAY_AUTH_TOKEN_PATH" ] || chmod go= "$RAY_AUTH_TOKEN_PATH" # anyone who reads it can run code as you
unset RAY_ADDRESS # this shell may use another cluster
folder="$(ray_folder cluster)"
close_metrics
use_tls "$HEAD_IP" head
echo "Workers and clients need the file $RAY_AUTH_TOKEN_PATH and:"
echo "  export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH=$RAY_AUTH_TOKEN_PATH"
[ -z "${RAY_USE_TLS:-}" ] || echo "  export RAY_USE_TLS=1 RAY_TLS_SERVER_CERT=$RAY_TLS_SERVER_CERT RAY_TLS_SERVER_KEY=$RAY_TLS_SERVER_KEY RAY_TLS_CA_CERT=$RAY_TLS_CA_CERT"
echo "  export RAY_API_SERVER_ADDRESS=http://127.0.0.1:8265   # for \`ray job submit\`, through the tunnel"
# shellcheck disable=SC2016
echo '  export no_proxy="127.0.0.1,localhost,${no_proxy:-${NO_PROXY:-}}"   # else a proxy is asked, and sees the token'
echo "  export RAY_ADDRESS=$HEAD_IP:6379   # for commands on the hosts themselves, such as \`sentdist stop\`"
leaves_in_time "$HEAD_IP:6379" ray start --head --block --node-ip-address "$HEAD_IP" --port 6379 --dashboard-host 127.0.0.1 --dashboard-port 8265 \
    --include-dashboard true \
    --temp-dir "$folder" ${CPUS:+--num-cpus "$CPUS"} ${GPUS:+--num-gpus "$GPUS"} ${OBJECT_STORE_BYTES:+--object-store-memory "$OBJECT_STORE_BYTES"}
