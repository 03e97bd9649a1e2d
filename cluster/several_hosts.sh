#!/usr/bin/env bash
# Several hosts in a private network, without a scheduler: start the head with one_host.sh, then run this on every other host.
#   scp HEAD:~/.sentdist_ray_token ~/                      the same token everywhere
#   HEAD_IP=10.0.0.5 NODE_IP=10.0.0.6 bash cluster/several_hosts.sh
#   TLS=1 HEAD_IP=… NODE_IP=… bash cluster/several_hosts.sh      if the head uses TLS=1; copy its authority first: scp HEAD:.sentdist_tls/ca.* ~/.sentdist_tls/
# On SIGTERM (from systemd, or at shutdown), trainings on this host first write checkpoints; it waits NOTICE_S seconds (20) for them.
# A systemd unit needs User=…, KillMode=mixed (otherwise all processes get the signal at once) and TimeoutStopSec=60 (40 more than NOTICE_S).
# All hosts need the same environment (infra/constraints.txt, or the image of infra/Dockerfile), and a store that all of them reach:
# a shared folder or s3://. If hosts have several networks, set the one for collectives:
#   ray job submit --runtime-env-json '{"env_vars": {"GLOO_SOCKET_IFNAME": "eth1", "NCCL_SOCKET_IFNAME": "eth1"}}' ...
set -euo pipefail
: "${HOME:=$(getent passwd "$(id -u)" | cut -d: -f6)}" # unset in some systemd units
export HOME
. "$(dirname "${BASH_SOURCE[0]}")/security.sh"
: "${HEAD_IP:?Set HEAD_IP to the address of the head.}"
: "${NODE_IP:?Set NODE_IP to the address of this machine in the same network.}"
export RAY_AUTH_MODE=token RAY_USAGE_STATS_ENABLED=0
export RAY_AUTH_TOKEN_PATH="${RAY_AUTH_TOKEN_PATH:-$HOME/.sentdist_ray_token}"
[ -s "$RAY_AUTH_TOKEN_PATH" ] || {
    echo "Stopped: $RAY_AUTH_TOKEN_PATH is missing. Copy it from the head (mode 600)." >&2
    exit 1
}
[ ! -O "$RAY_AUTH_TOKEN_PATH" ] || chmod go= "$RAY_AUTH_TOKEN_PATH" # anyone who reads it can run code as you
unset RAY_ADDRESS # this shell may use another cluster
folder="$(ray_folder cluster)"
close_metrics
use_tls "$NODE_IP" node
leaves_in_time "$HEAD_IP:6379" ray start --block --address "$HEAD_IP:6379" --node-ip-address "$NODE_IP" \
    --temp-dir "$folder" ${CPUS:+--num-cpus "$CPUS"} ${GPUS:+--num-gpus "$GPUS"} ${OBJECT_STORE_BYTES:+--object-store-memory "$OBJECT_STORE_BYTES"}
